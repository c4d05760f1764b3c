"""Choose the number of clusters: compare numbers by held-out log density and, for the paper's model, by evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.comparison import AUTO, Comparison, CountResult
from fedhlcr.analysis.evidence import partition_evidence
from fedhlcr.analysis.scores import scores_of
from fedhlcr.analysis.verdict import grouped_standard_error
from fedhlcr.data import inputs
from fedhlcr.data.families import REAL
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import index_pairs, row_agents, row_entities
from fedhlcr.data.hold_out import hold_out_events
from fedhlcr.data.ids import Ids
from fedhlcr.estimators.central import model_spec
from fedhlcr.estimators.hlcr import HLCRRegressor
from fedhlcr.estimators.parameters import curve_columns, make_curves
from fedhlcr.estimators.tables import learn_table
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError, FitInterruptedWarning, SimplerModelWarning
from fedhlcr.model.curves import column_quantiles

Progress = Callable[[int, int, str], None]

# The largest is the number that `n_clusters="auto"` starts with.
DEFAULT_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def compare_cluster_counts(
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    *,
    counts: Iterable[int] | None = None,
    n_splits: int = 3,
    fraction: float = 0.2,
    estimator: HLCRRegressor | None = None,
    random_state: Any = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare numbers of clusters by held-out log density and, for the paper's model, by evidence.

    Each number, and "auto", is fitted to the same splits. Each split holds out a share of every entity's events. "auto"
    takes part like any number: it may be the best, and it may be suggested.

    *Held-out log density* is the mean of `HLCRRegressor.log_density` over the held-out events. Differences from the
    best are taken event by event, so that common variation cancels. Standard errors are clustered by entity over
    all splits. They do not include the randomness of a single sampler run; use an estimator with several chains to
    average over it.

    *Evidence* is log p(y, partition | K) of the fitted events, mean over the splits. It is computed for plain clusters
    only, as in the paper: pass an estimator with `effects="none", noise="common"`. Otherwise it is NaN, since the
    effects and the noise of single entities cannot be integrated out in the same way. It is the joint density of the
    targets, in units of y, and of the partition of the entities into clusters. Coefficients, weights and learned
    hyperparameters are integrated out under their priors, constants are kept, and the K!/(K − K₊)! ways to number the
    K₊ occupied clusters are summed. So numbers of clusters are comparable: with more clusters the targets become more
    probable and the partition less. The partition is the better of two: `labels_`, and the labels of the most probable
    draw. The evidence is known as the exact integrated classification likelihood. It is a lower bound of log p(y | K),
    lower by −log p(partition | y, K), so it prefers fewer clusters where clusters overlap. Empty clusters hardly change
    it. For "auto", K is the number found. The estimate is good to about one nat if the clusters differ clearly.

    Parameters
    ----------
    X, y, agent, entity : as in `HLCRRegressor.fit`; without `entity`, a share of each agent's events is held out and
        predicted as new entities. The estimator's `categories`, `missing` and `formula` say how X is read; levels and
        medians are those of all rows
    counts : numbers of clusters; None is 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, up to the number of entities
    n_splits : number of splits
    fraction : share of each entity's events to hold out
    estimator : HLCRRegressor whose settings to use, except `n_clusters`; None is one with default settings
    random_state : seed of the splits; the estimator has its own
    progress : called after each fit with (fits done, total number of fits, a line about the fit)

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from fedhlcr import compare_cluster_counts
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, random_state=1)
    >>> found = compare_cluster_counts(
    ...     table.X, table.y, agent=table.agent, entity=table.entity, counts=[1, 2, 3, 4], n_splits=1
    ... )
    >>> found.suggested
    3
    """
    prototype = clone(_prototype(estimator))
    if not isinstance(n_splits, Integral) or n_splits < 1:
        raise ArgumentError(f"`n_splits` must be a whole number of at least 1, but is {n_splits!r}.")
    events = _EventsToSelect.read(prototype, X, y, agent, entity)
    prototype = _with_curve_positions(_for_matrices(prototype, events), events)
    candidates: list[int | str] = [*_checked_counts(counts, events.n_entities), AUTO]
    rng = check_random_state(random_state)
    groups: list[NDArray[np.int64]] = []
    trials: dict[int | str, list[_Trial]] = {candidate: [] for candidate in candidates}
    for split in range(n_splits):
        train, test = events.hold_out(fraction, rng)
        groups.append(events.pair[test])
        for done, candidate in enumerate(candidates, start=split * len(candidates) + 1):
            trial = _try(clone(prototype).set_params(n_clusters=candidate), events.take(train), events.take(test))
            trials[candidate].append(trial)
            if progress is not None:
                line = (
                    f"split {split + 1} of {n_splits}, {candidate} clusters: log density {trial.log_density.mean():.4f}"
                )
                progress(done, n_splits * len(candidates), line)
    return _compared(trials, np.concatenate(groups))


class _EventsToSelect(NamedTuple):
    """A user's table in numbers and ids; `pair` numbers the agent–entity pairs, `names` are those of the features."""

    X: FloatArray
    y: FloatArray
    agent: Ids | None
    entity: Ids | None
    pair: NDArray[np.int64]
    names: list[str] | None
    fits_intercept: bool

    @classmethod
    def read(cls, estimator: HLCRRegressor, X: Any, y: Any, agent: Any, entity: Any) -> _EventsToSelect:
        learned = learn_table(estimator, Given(X, y, agent, entity))
        given = learned.table.events.given
        matrix = inputs.feature_matrix(given.X)
        names = inputs.feature_names(given.X)
        n_rows = len(matrix)
        target = inputs.target_vector(given.y, n_rows)
        agents = row_agents(given.agent, n_rows)
        own_agent = None if given.agent is None else agents
        if given.entity is None:
            return cls(matrix, target, own_agent, None, np.arange(n_rows), names, learned.fits_intercept)
        entities = row_entities(given.entity, n_rows)
        _, pair = index_pairs(agents, entities, agents.codes, entities.codes)
        return cls(matrix, target, own_agent, entities, pair, names, learned.fits_intercept)

    @property
    def n_entities(self) -> int:
        return int(self.pair.max()) + 1

    def take(self, rows: NDArray[np.intp]) -> _EventsToSelect:
        agent, entity = (None if ids is None else ids.take(rows) for ids in (self.agent, self.entity))
        return _EventsToSelect(
            self.X[rows], self.y[rows], agent, entity, self.pair[rows], self.names, self.fits_intercept
        )

    def hold_out(self, fraction: float, rng: np.random.RandomState) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        if self.entity is None:
            everyone = np.zeros(len(self.y), dtype=np.int64)
            train, test = hold_out_events(
                None, everyone if self.agent is None else self.agent, fraction=fraction, random_state=rng
            )
        else:
            train, test = hold_out_events(self.agent, self.entity, fraction=fraction, random_state=rng)
        if not len(test):
            raise ArgumentError(
                "no events could be held out: one event of each entity stays, and no entity has enough others; pass "
                "entities with several events, a larger `fraction`, or leave out `entity` to hold out whole entities."
            )
        return train, test


class _Trial(NamedTuple):
    """Scores of one fit."""

    log_density: FloatArray
    evidence: float
    r2: float
    mse: float
    occupied: int


def _prototype(estimator: Any) -> HLCRRegressor:
    if estimator is None:
        return HLCRRegressor()
    if not isinstance(estimator, HLCRRegressor):
        raise ArgumentTypeError(
            f"`estimator` must be an HLCRRegressor, but is of type {type(estimator).__name__}; for a pipeline pass its "
            "last step, and `X` as the earlier steps transform it."
        )
    return estimator


def _for_matrices(estimator: HLCRRegressor, events: _EventsToSelect) -> HLCRRegressor:
    """The estimator for tables that were read before, as matrices without names and gaps."""
    settings = {"categories": "auto", "missing": "refuse", "formula": None, "fit_intercept": events.fits_intercept}
    return clone(estimator).set_params(**settings)


def _with_curve_positions(estimator: HLCRRegressor, events: _EventsToSelect) -> HLCRRegressor:
    """The estimator with the columns of `curves` as positions: the fits get a matrix, which has no names."""
    if isinstance(estimator.curves, str):
        return estimator
    columns = curve_columns(estimator.curves, events.X.shape[1], events.names)
    # refuse columns that cannot have a curve here, where they still have names
    make_curves(estimator.curves, columns, column_quantiles(events.X, np.ones(len(events.y))), events.names)
    return clone(estimator).set_params(curves=columns)


def _checked_counts(counts: Iterable[int] | None, n_entities: int) -> list[int]:
    if counts is None:
        return [count for count in DEFAULT_COUNTS if count <= n_entities]
    given = list(counts)
    if not given or any(isinstance(count, bool) or not isinstance(count, Integral) or count < 1 for count in given):
        raise ArgumentError(
            f"`counts` must be a list of one or more whole numbers of at least 1, but is {given!r}; "
            "'auto' is always compared as well."
        )
    return sorted({int(count) for count in given})


def _try(model: HLCRRegressor, train: _EventsToSelect, test: _EventsToSelect) -> _Trial:
    with warnings.catch_warnings():
        # a user who interrupts one fit wants to end the whole comparison
        warnings.simplefilter("error", FitInterruptedWarning)
        # numbers of clusters that fit badly are part of the comparison
        warnings.simplefilter("ignore", SimplerModelWarning)
        try:
            model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        except FitInterruptedWarning:
            raise KeyboardInterrupt from None
    ids: dict[str, Any] = {"agent": test.agent, "entity": test.entity}
    log_density = model.log_density(test.X, test.y, **ids)
    scores = scores_of(REAL, test.y, model.predict(test.X, **ids))
    draws = model.posterior_.draws
    occupied = int((draws.entity_counts[np.argmax(draws.log_joint)] > 0).sum())
    return _Trial(log_density, _evidence(model), scores["r2"], scores["mse"], occupied)


@single_threaded_blas
def _evidence(model: HLCRRegressor) -> float:
    """log p(y, partition | K) of the fitted events in the user's units, for the better of two partitions.

    NaN for a model with effects or noise of entities.
    """
    posterior = model.posterior_
    if posterior.likelihood.has_state:
        return float("nan")
    draws = posterior.draws
    entities = posterior.memory.entities
    scale = float(posterior.standardization.scale[-1])
    spec = model_spec(model, entities, scale)
    stream = Stream(model.seed_, ReservedChain.EVIDENCE)
    partitions = (model.labels_, posterior.memory.labels[np.argmax(draws.log_joint)])
    evidence = max(partition_evidence(entities, spec, labels, draws.n_clusters, stream) for labels in partitions)
    return evidence - float(posterior.layout.n_events(entities.grams).sum()) * np.log(scale)


def _compared(trials: dict[int | str, list[_Trial]], groups: NDArray[np.int64]) -> Comparison:
    densities = {
        candidate: np.concatenate([trial.log_density for trial in tried]) for candidate, tried in trials.items()
    }
    best = max(trials, key=lambda candidate: densities[candidate].mean())

    def result(candidate: int | str) -> CountResult:
        own = densities[candidate]
        tried = trials[candidate]
        difference = own - densities[best]
        return CountResult(
            n_clusters=candidate,
            log_density=float(own.mean()),
            log_density_se=grouped_standard_error(own, groups),
            difference=float(difference.mean()),
            difference_se=grouped_standard_error(difference, groups),
            evidence=float(np.mean([trial.evidence for trial in tried])),
            r2=float(np.mean([trial.r2 for trial in tried])),
            mse=float(np.mean([trial.mse for trial in tried])),
            occupied=tuple(trial.occupied for trial in tried),
        )

    *rows, auto = (result(candidate) for candidate in trials)
    return Comparison(tuple(rows), auto, len(trials[AUTO]), len(groups))
