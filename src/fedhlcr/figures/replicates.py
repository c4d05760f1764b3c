"""Posterior predictive checks: would the model make a table like the observed one?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT, EVENT, noun, printable
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.data.families import FamilyName
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.data.ids import read_ids
from fedhlcr.data.inputs import log_exposure
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.choices import label_of_target
from fedhlcr.figures.figure import Mark, Panel, Scale, evenly, level_scale
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.replicates import replicate
from fedhlcr.posterior.responses import interval_ends

# Most events to use; of more, a random sample is taken.
MAX_EVENTS = 10_000
# Cells of the histogram of real targets, and the share of the targets left out at either end.
N_CELLS = 40
TAIL = 0.002
# Replicates drawn as lines of their own.
MAX_LINES = 30
# Agents that are named, and agents that are drawn.
MAX_NAMED = 12
MAX_AGENTS = 60
# Bars of counts; the last one stands for all counts beyond this quantile.
MAX_BARS = 25
LAST_BAR = 0.995
LEVEL = 0.9
# Of targets (…, events) and the agents of the events.
Statistic = Callable[[FloatArray, IndexArray], FloatArray]


class Replicated(NamedTuple):
    """Observed targets (events,), replicated ones (replicates, events), and the position of each event's agent."""

    observed: FloatArray
    targets: FloatArray
    agent: IndexArray


def replicate_panel(
    model: HierarchicalPredictor,
    given: tuple[Any, Any, Any, Any, Any],
    n_replicates: int,
    target: str | None,
) -> Panel:
    """Observed targets against replicated ones; `given` are X, y, agent, entity and exposure."""
    found = _replicates(model, *given, n_replicates)
    first = f"{EVENT.count(len(found.observed))}; share of {n_replicates} replicates with a larger …"
    shares = larger_shares(found, STATISTICS[model.family.name])
    title = f"{first}\n{', '.join(f'{name}: {share:.2f}' for name, share in shares.items())}"
    return PICTURES[model.family.name](found, model, target, title)


def larger_shares(found: Replicated, statistics: dict[str, Statistic]) -> dict[str, float]:
    """For each statistic that is checked, the share of replicates with a larger one; those with the same count half."""
    shares = {}
    for name, statistic in statistics.items():
        observed = float(statistic(found.observed, found.agent))
        replicated = np.asarray(statistic(found.targets, found.agent))
        # rounding errors of sums are no difference
        same = np.isclose(replicated, observed, rtol=1e-12, atol=0.0)
        shares[name] = float(((replicated > observed) & ~same).mean() + 0.5 * same.mean())
    return shares


def _over_events(of: Callable[..., Any]) -> Statistic:
    return lambda targets, _: np.asarray(of(targets, axis=-1))


def _share_of_zeros(targets: FloatArray, axis: int) -> FloatArray:
    return np.asarray((targets == 0.0).mean(axis=axis))


@single_threaded_blas
def _replicates(
    model: HierarchicalPredictor, X: Any, y: Any, agent: Any, entity: Any, exposure: Any, n: int
) -> Replicated:
    model = check_model(model)
    X, y, agent, entity, _, exposure = model.events_of(X, y, agent, entity, exposure=exposure)
    events = model.read_events(X, agent, entity)
    observed = model.numeric_target(y, len(events.matrix))
    rows = evenly(len(observed), MAX_EVENTS)
    of_row = events.profiles.of_row[rows]
    profiles = Profiles.of(events.profiles.agents[of_row], events.profiles.entities[of_row])
    offset = log_exposure(exposure, len(observed))
    newcomer = _newcomers(events.agent, events.entity, len(observed))[rows]
    offset = offset if offset is None else offset[rows]
    X = events.matrix[rows]
    targets = replicate(model.posterior_, X, profiles, n, model.seed_, newcomer=newcomer, offset=offset)
    return Replicated(observed[rows], targets, profiles.agents[profiles.of_row])


def _newcomers(agent: Any, entity: Any, n_rows: int) -> IndexArray:
    """(rows,) a number for each pair of ids; without ids of entities, every row is of another one."""
    if entity is None:
        return np.arange(n_rows)
    agents = np.zeros(n_rows, dtype=np.int64) if agent is None else read_ids(agent, "agent", n_rows).codes
    entities = read_ids(entity, "entity", n_rows).codes
    return np.asarray(entities * (int(agents.max(initial=0)) + 1) + agents)


def _agent_spread(targets: FloatArray, agent: IndexArray) -> FloatArray:
    """Standard deviation of the shares of the agents."""
    _, place = np.unique(agent, return_inverse=True)
    return np.asarray(_shares(np.atleast_2d(targets), place).std(axis=1)).reshape(targets.shape[:-1])


def _shares(targets: FloatArray, place: IndexArray) -> FloatArray:
    """(tables, agents) mean of the targets of each agent."""
    n = np.bincount(place)
    return np.stack([np.bincount(place, weights=own, minlength=len(n)) / n for own in targets])


def _densities(found: Replicated, model: HierarchicalPredictor, target: str | None, title: str) -> Panel:
    """Histograms of the observed targets and of some replicates, as lines."""
    ends = np.quantile(np.concatenate([found.observed, found.targets[:MAX_LINES].ravel()]), (TAIL, 1.0 - TAIL))
    edges = np.linspace(ends[0], ends[1], N_CELLS + 1) if ends[1] > ends[0] else ends[0] + np.linspace(-0.5, 0.5, 11)
    middle = 0.5 * (edges[1:] + edges[:-1])
    width = edges[1] - edges[0]

    def density(of: FloatArray) -> NDArray[Any]:
        return np.histogram(of, edges)[0] / (len(of) * width)

    shown = found.targets[:: -(-len(found.targets) // MAX_LINES)]
    marks = [
        Mark("line", "replicated", middle, density(own), name="" if n else "replicated") for n, own in enumerate(shown)
    ]
    marks.append(Mark("line", "observed", middle, density(found.observed), name="observed"))
    return Panel(
        Scale(label=label_of_target(model, target)), Scale(0.0, None, "density"), tuple(marks), title, legend=""
    )


def _agent_shares(found: Replicated, model: HierarchicalPredictor, target: str | None, title: str) -> Panel:
    """The share of the second class among the events of each agent, sorted."""
    agents, place = np.unique(found.agent, return_inverse=True)
    observed = _shares(found.observed[None], place)[0]
    replicated = _shares(found.targets, place)
    lower, upper = np.quantile(replicated, interval_ends(LEVEL), axis=0)
    shown = evenly(len(agents), MAX_AGENTS)
    order = shown[np.argsort(replicated.mean(axis=0)[shown], kind="stable")]
    height = np.arange(len(order), dtype=np.float64)
    marks = (
        Mark(
            "levels",
            "replicated",
            y=height,
            low=lower[order],
            high=upper[order],
            name="replicated, 90 %",
            is_across=True,
        ),
        Mark("dots", "observed", observed[order], height, name="observed"),
    )
    word = noun(model.agent_column_, AGENT)
    if len(order) <= MAX_NAMED:
        names = ["new" if agents[a] == UNKNOWN else shorten(printable(model.agent_ids_[agents[a]])) for a in order]
        y = level_scale(names, word.one)
    else:
        of = f"{len(order)} of {word.count(len(agents))}" if len(order) < len(agents) else word.count(len(agents))
        y = Scale(-0.5, len(order) - 0.5, f"{of}, by replicated share", (), "levels")
    label = link_of(model).observed if target is None else target
    return Panel(Scale(label=label, kind="share"), y, marks, title, legend="")


def _counts(found: Replicated, model: HierarchicalPredictor, target: str | None, title: str) -> Panel:
    """Bars of how often each count was observed, and intervals of how often it is replicated."""
    largest = int(max(np.quantile(found.observed, LAST_BAR), np.quantile(found.targets, LAST_BAR))) + 1
    width = -(-(largest + 1) // MAX_BARS)
    starts = np.arange(0, largest + 1, width, dtype=np.float64)
    edges = np.append(starts, np.inf)

    def events(of: FloatArray) -> NDArray[Any]:
        return np.bincount(np.searchsorted(edges, of, side="right") - 1, minlength=len(edges) - 1)

    observed = events(found.observed)
    replicated = np.stack([events(own) for own in found.targets])
    middle = starts + 0.5 * (width - 1)
    lower, upper = np.quantile(replicated, interval_ends(LEVEL), axis=0)
    marks = (
        Mark("bars", "observed", middle, observed, name="observed"),
        Mark("levels", "replicated", middle, replicated.mean(axis=0), lower, upper, name="replicated, 90 %"),
    )
    label = model.family.name if target is None else target
    x = Scale(label=f"{label} (last bar: {starts[-1]:,.0f} or more)", kind="whole")
    y = Scale(0.0, 1.1 * float(max(observed.max(), upper.max())), "events (square root axis)", kind="root")
    return Panel(x, y, marks, title, legend="")


# What is checked of each family, and the picture of it.
MEAN = _over_events(np.mean)
SPREAD = _over_events(np.std)
LARGEST = _over_events(np.max)
STATISTICS: dict[FamilyName, dict[str, Statistic]] = {
    "real": {"mean": MEAN, "SD": SPREAD, "min.": _over_events(np.min), "max.": LARGEST},
    "binary": {"share": MEAN, "SD between agents": _agent_spread},
    "count": {"mean": MEAN, "SD": SPREAD, "zeros": _over_events(_share_of_zeros), "max.": LARGEST},
}
PICTURES: dict[FamilyName, Callable[[Replicated, HierarchicalPredictor, str | None, str], Panel]] = {
    "real": _densities,
    "binary": _agent_shares,
    "count": _counts,
}
