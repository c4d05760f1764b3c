"""A fitted model for ArviZ: its draws, and the log likelihood of each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.version import __version__
from fedhlcr._support.wording import EVENT as EVENTS
from fedhlcr.analysis.inference import (
    EVENT,
    FEATURE,
    Group,
    Variable,
    chosen,
    event_groups,
    kept_draws,
    posterior_group,
    stats_group,
    to_arviz,
)
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, numbered, numbered_rows, row_agents, row_entities
from fedhlcr.estimators.reading import LEFT_OUT, TableReader
from fedhlcr.exceptions import ArgumentError, DataWarning, warn_user
from fedhlcr.posterior.pointwise import KnownEvents, draw_events

if TYPE_CHECKING:
    from fedhlcr.posterior import Posterior

# Sums of the features and targets of an entity that differ by more than this share are those of other events.
SAME = 1e-6


class InferenceExport(TableReader):
    """What every fitted model can give to ArviZ."""

    posterior_: Posterior
    seed_: int

    @single_threaded_blas
    def to_inference_data(
        self, X: Any = None, y: Any = None, agent: Any = None, entity: Any = None, exposure: Any = None
    ) -> Any:
        """The draws as ArviZ's `InferenceData`, for `az.summary`, `az.loo` and plots. Needs the extra `arviz`.

        Parameters
        ----------
        X, y, agent, entity, exposure : as in `fit`, optional
            The events of the fit, or all events of some of its entities. Only with events there is a log likelihood.
            The model finds the columns that `fit` used by their names, and treats gaps as `fit` did.
            Models of classes and counts, and those with `noise="student"`, keep their events and need none.

        Returns
        -------
        InferenceData, or DataTree with ArviZ 1
            posterior : `coef` (cluster, feature) and `intercept` (cluster) in the user's units, clusters numbered as in
            `coef_`; `cluster_weights`; `cluster_sizes`, the number of entities in each draw; noise, concentrations and
            scales of effects, as the attributes of these names.
            sample_stats : `lp`, the log joint, and `n_clusters`, the number of clusters with entities.
            log_likelihood : `y` (event), log p(y | draw) with the label, the effects and the noise that the event's
            entity has in the draw.
            posterior_predictive : `y` (event), new targets from the same laws.
            observed_data, constant_data : the targets, and features, ids and exposures.

        Notes
        -----
        Chains of different lengths are cut to the last draws of each. Where a cluster is empty in a draw, its
        coefficients are NaN; then `az.summary(…, skipna=True)` gives means, and no R-hat. `coef_` weights draws by the
        size of the cluster, ArviZ does not. Events that the model keeps are sorted by agent and entity. Effects of
        entities are drawn from their law given all else, with random numbers that depend on `seed_` only.
        """
        check_is_fitted(self)
        given = Given(X, y, agent, entity, exposure=exposure)
        if X is None and any(column is not None for column in given):
            raise ArgumentError("`X` is missing; pass all columns of the events, or none.")
        model: Any = self
        kept = kept_draws(self.posterior_.draws).ravel()
        groups = {
            "posterior": chosen(posterior_group(model), kept),
            "sample_stats": chosen(stats_group(model), kept),
        }
        events = KnownEvents.kept(self.posterior_) if X is None else self._fitted_events(given)
        if events is not None:
            drawn = draw_events(self.posterior_, events, kept, Stream(self.seed_, ReservedChain.POINTWISE))
            observed = self.posterior_.standardization.restore_target(events.target)
            groups |= event_groups(drawn, observed, self._constants(events))
        facts = {"inference_library": "fedhlcr", "inference_library_version": __version__, "model": type(self).__name__}
        return to_arviz(model, groups, facts)

    def _fitted_events(self, given: Given) -> KnownEvents:
        """Read events, find their entities, and warn if they are not those of the fit."""
        read = self._events(given, LEFT_OUT, target=True, needs_ids=True)
        self._require_rows(read)
        given = read.read.given
        n_rows = len(read)
        index = self.posterior_.memory.entities.index
        if given.y is None:
            raise ArgumentError("`y` is missing; pass the targets of the events, or no events.")
        agents = row_agents(self._agents_or_sole(read.agent, n_rows), n_rows)
        if read.entity is None and _has_numbered_entities(index):
            ids = numbered_rows(agents.codes)
        elif read.entity is None:
            raise ArgumentError("`entity` is missing; pass one entity id per event row, so that events find theirs.")
        else:
            ids = row_entities(read.entity, n_rows)
        places = index.find_entities(index.find_agents(agents), ids)
        if n_unknown := int((places == UNKNOWN).sum()):
            raise ArgumentError(
                f"the model does not know the entities of {EVENTS.count(n_unknown)} of {n_rows:,}; pass events of the "
                "fit, or `adapt` the model to these events first."
            )
        events = KnownEvents.read(
            self.posterior_, read.matrix, self._target(given.y, n_rows), self._offset(given.exposure, n_rows), places
        )
        if not _are_fitted(self.posterior_, events):
            warn_user(
                "These are not all events that their entities were fitted to, or others. The log likelihood is that of "
                "the events given; az.loo and az.waic need the events of the fit.",
                DataWarning,
            )
        return events

    def _constants(self, events: KnownEvents) -> Group:
        posterior = self.posterior_
        index = posterior.memory.entities.index
        units = posterior.standardization
        first = 1 - posterior.layout.first_regressor
        # a constant feature has an infinite scale
        scale = np.where(np.isfinite(units.scale), units.scale, 0.0)[: self.n_features_in_]
        X = events.design[:, first : first + self.n_features_in_] * scale + units.shift[: self.n_features_in_]
        texts = (_texts(index.agents, index.agent_of), _texts(index.entities, index.entity_of))
        group = {
            "X": Variable((EVENT, FEATURE), X),
            "agent": Variable((EVENT,), texts[0][events.entities]),
            "entity": Variable((EVENT,), texts[1][events.entities]),
        }
        if events.offset.any():
            group["exposure"] = Variable((EVENT,), np.exp(events.offset))
        return group


def _texts(ids: Any, codes: NDArray[np.int64]) -> NDArray[Any]:
    return np.array([str(value) for value in ids.values])[codes]


def _has_numbered_entities(index: EntityIndex) -> bool:
    """Whether `fit` had no entity ids, so that each row is an entity of its own."""
    return bool(index.n_entities) and next(iter(index.entities.texts)) == numbered(0)


def _are_fitted(posterior: Posterior, events: KnownEvents) -> bool:
    """Whether entities have as many events as in the fit, with the same sums of features and targets."""
    own, of_event = np.unique(events.entities, return_inverse=True)
    features = events.design[:, 1 - posterior.layout.first_regressor :]
    columns = np.column_stack([np.ones(len(features)), features, events.target])
    sums = np.zeros((len(own), columns.shape[1]))
    np.add.at(sums, of_event, columns)
    fitted = posterior.layout.unpack(np.asarray(posterior.memory.entities.grams[own]))[:, 0]
    return bool((np.abs(sums - fitted) <= SAME * (fitted[:, :1] + np.abs(fitted))).all())
