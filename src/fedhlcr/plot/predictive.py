"""Posterior predictive checks: would the model make a table like the observed one?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT, EVENT, noun, printable
from fedhlcr.analysis.links import Link, link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.data.ids import read_ids
from fedhlcr.data.inputs import log_exposure
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import label_of_target
from fedhlcr.plot.canvas import axes_or_new, evenly, legend
from fedhlcr.plot.palette import BLUE, GREY
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.predictive import interval_ends
from fedhlcr.posterior.replicates import replicate

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
FIGURE_SIZE = (3.5, 2.9)


class Check(NamedTuple):
    """One statistic of a table: its value, its values in the replicates, and where the first lies among the second.

    Attributes
    ----------
    name : of the statistic
    observed : its value
    replicated : (replicates,) its values
    p : share of the replicates with a larger value; those with the same count half
    """

    name: str
    observed: float
    replicated: FloatArray
    p: float


class Replicated(NamedTuple):
    """Observed targets (events,), replicated ones (replicates, events), and the position of each event's agent."""

    observed: FloatArray
    targets: FloatArray
    agent: IndexArray


def posterior_predictive(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
    *,
    n_replicates: int = 100,
    target: str | None = None,
    exposure: Any = None,
) -> Axes:
    """Posterior predictive check: observed targets against targets that the model draws for the same events.

    A replicate is a whole table from one kept draw: every entity draws its cluster and its own coefficients, every
    event its noise. Real targets are shown as histograms, counts as bars on a square root axis with the 90 % interval
    of the replicates, and classes as the share of the second class among the events of each agent, with 90 % intervals.
    The line above has a number between 0 and 1 for each statistic: the share of replicates in which it is larger than
    observed. Near 0 or 1, the model does not reproduce it.

    Of more than 10,000 events a sample of 10,000 is used. The random numbers depend on the seed of the fit only.

    Parameters
    ----------
    model : a fitted estimator of any sort
    X, y, agent, entity : events, as in `score`; fitted ones check the fit, others the predictions
    ax : Axes to draw on; None makes a new figure
    n_replicates : tables to draw, at least 20
    target : name of y in labels, best with its unit
    exposure : as in `score`, for counts

    Returns
    -------
    ax : Axes
    """
    check_model(model)
    if not isinstance(n_replicates, int | np.integer) or n_replicates < 20:
        raise ArgumentError(f"`n_replicates` must be a whole number of at least 20, but is {n_replicates!r}.")
    found = _replicates(model, X, y, agent, entity, exposure, int(n_replicates))
    link = link_of(model)
    ax = axes_or_new(ax, FIGURE_SIZE)
    if link is None:
        _draw_densities(ax, found, label_of_target(model, target))
    elif link.family.has_classes:
        _draw_shares(ax, found, model, link, target)
    else:
        _draw_counts(ax, found, "count" if target is None else target)
    lines = [f"{EVENT.count(len(found.observed))}; share of {n_replicates} replicates with a larger …", ""]
    lines[1] = ", ".join(f"{check.name}: {check.p:.2f}" for check in checks_of(found, link))
    ax.set_title("\n".join(lines), fontsize=0.9 * float(ax.xaxis.label.get_fontsize()))
    return ax


def checks_of(found: Replicated, link: Link | None) -> list[Check]:
    """The statistics that are checked: of real targets, of classes, or of counts."""
    real: dict[str, Callable[[FloatArray], FloatArray]] = {
        "mean": lambda t: t.mean(axis=-1),
        "SD": lambda t: t.std(axis=-1),
        "min.": lambda t: t.min(axis=-1),
        "max.": lambda t: t.max(axis=-1),
    }
    if link is not None and link.family.has_classes:
        real = {"share": real["mean"], "SD between agents": lambda t: _agent_spread(t, found.agent)}
    elif link is not None:
        real = {
            "mean": real["mean"],
            "SD": real["SD"],
            "zeros": lambda t: (t == 0.0).mean(axis=-1),
            "max.": real["max."],
        }
    checks = []
    for name, statistic in real.items():
        observed = float(statistic(found.observed))
        replicated = np.asarray(statistic(found.targets))
        # rounding errors of sums are no difference
        same = np.isclose(replicated, observed, rtol=1e-12, atol=0.0)
        p = float(((replicated > observed) & ~same).mean() + 0.5 * same.mean())
        checks.append(Check(name, observed, replicated, p))
    return checks


@single_threaded_blas
def _replicates(
    model: HierarchicalPredictor, X: Any, y: Any, agent: Any, entity: Any, exposure: Any, n: int
) -> Replicated:
    X, y, agent, entity, _, exposure = model.events_of(X, y, agent, entity, exposure=exposure)
    events = model.read_events(X, agent, entity)
    observed = model.numeric_target(y, len(events.matrix))
    rows = evenly(len(observed), MAX_EVENTS)
    of_row = events.profiles.of_row[rows]
    profiles = Profiles.of(events.profiles.agents[of_row], events.profiles.entities[of_row])
    offset = log_exposure(exposure, len(observed))
    newcomer = _newcomers(events.agent, events.entity, len(observed))[rows]
    posterior = model.posterior_
    seed = model.seed_
    targets = replicate(
        posterior,
        events.matrix[rows],
        profiles,
        n,
        seed,
        newcomer=newcomer,
        offset=offset if offset is None else offset[rows],
    )
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


def _draw_densities(ax: Axes, found: Replicated, target: str) -> None:
    """Histograms of the observed targets and of some replicates, as steps."""
    ends = np.quantile(np.concatenate([found.observed, found.targets[:MAX_LINES].ravel()]), (TAIL, 1.0 - TAIL))
    edges = np.linspace(ends[0], ends[1], N_CELLS + 1) if ends[1] > ends[0] else ends[0] + np.linspace(-0.5, 0.5, 11)
    middle = 0.5 * (edges[1:] + edges[:-1])
    width = edges[1] - edges[0]

    def density(of: FloatArray) -> NDArray[Any]:
        return np.histogram(of, edges)[0] / (len(of) * width)

    for number_, own in enumerate(found.targets[:: -(-len(found.targets) // MAX_LINES)]):
        label = "replicated" if number_ == 0 else "_replicated"
        ax.plot(middle, density(own), color=BLUE, linewidth=0.6, alpha=0.45, label=label, zorder=2)
    ax.plot(middle, density(found.observed), color="black", linewidth=1.5, label="observed", zorder=3)
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel(target)
    ax.set_ylabel("density")
    legend(ax, loc="best")


def _draw_shares(ax: Axes, found: Replicated, model: HierarchicalPredictor, link: Link, target: str | None) -> None:
    """The share of the second class among the events of each agent, sorted."""
    agents, place = np.unique(found.agent, return_inverse=True)
    observed = _shares(found.observed[None], place)[0]
    replicated = _shares(found.targets, place)
    lower, upper = np.quantile(replicated, interval_ends(LEVEL), axis=0)
    shown = evenly(len(agents), MAX_AGENTS)
    order = shown[np.argsort(replicated.mean(axis=0)[shown], kind="stable")]
    height = np.arange(len(order))
    ax.hlines(height, lower[order], upper[order], color=BLUE, linewidth=3.0, alpha=0.4, label="replicated, 90 %")
    ax.plot(observed[order], height, "o", color="black", markersize=3.0, label="observed", zorder=3)
    word = noun(model.agent_column_, AGENT)
    if len(order) <= MAX_NAMED:
        names = ["new" if agents[a] == UNKNOWN else shorten(printable(model.agent_ids_[agents[a]])) for a in order]
        ax.set_yticks(height, names)
        ax.set_ylabel(word.one)
    else:
        ax.set_yticks([])
        of = f"{len(order)} of {word.count(len(agents))}" if len(order) < len(agents) else word.count(len(agents))
        ax.set_ylabel(f"{of}, by replicated share")
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(lambda value, _: f"{100.0 * value:.6g} %")
    ax.set_xlabel(link.observed if target is None else target)
    legend(ax, loc="best")


def _draw_counts(ax: Axes, found: Replicated, target: str) -> None:
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
    ax.bar(middle, observed, width=0.8 * width, color=GREY, alpha=0.45, linewidth=0, label="observed", zorder=2)
    ax.vlines(middle, lower, upper, color=BLUE, linewidth=1.6, label="replicated, 90 %", zorder=3)
    ax.plot(middle, replicated.mean(axis=0), "o", color=BLUE, markersize=2.4, label="_mean", zorder=4)
    ax.set_yscale("function", functions=(lambda t: np.sqrt(np.maximum(t, 0.0)), np.square))
    ax.set_ylim(0.0, 1.1 * float(max(observed.max(), upper.max())))
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.grid(visible=False, axis="x")
    ax.set_xlabel(f"{target} (last bar: {starts[-1]:,.0f} or more)")
    ax.set_ylabel("events (square root axis)")
    legend(ax, loc="best")
