"""What the real tables say: two tables of R², a picture, and the findings in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.figures import BLUE, GREY, ORANGE, PAGE_WIDTH, legend_below, picture, standard_error
from experiments.methods import DEFAULT, FEDERATED_DEFAULT, LEVELS, METHODS, MOST_EVENT_CLASSES, Method
from experiments.real.scores import Events, Scores, leaders
from experiments.real.tables import ALL, FEW, TABLES
from experiments.study import Record, Report

if TYPE_CHECKING:
    from fedhlcr.baselines.federated import FederatedRival

STYLES: dict[Events, dict[str, Any]] = {
    ALL: {"color": BLUE, "marker": "o", "markersize": 3.2, "label": "all training events"},
    FEW: {"color": ORANGE, "marker": "D", "markersize": 2.8, "label": f"at most {FEW} training events per entity"},
}
RIVALS = tuple(method for method in METHODS if "hlcr" not in method)
# what shares regressions among classes or clusters, as HLCR does, or does without by a regression for each entity
CLASSES_OR_ENTITIES = ("lcr-event", "ifca-agent", "fedem", "ridge-entity", "ifca-entity", "lcr-entity")
FAR_BEHIND = 0.02
FEDERATED_RIVALS = tuple(method for method in RIVALS if METHODS[method].federated)


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:
    scores = Scores.of(records, "r2")
    draw(scores, gallery)
    caption = (
        "Held-out R² by method and table, mean ± standard error over splits; methods are grouped by what a prediction "
        "depends on beside x; an arrow stands for a value beyond the edge"
    )
    parts = [tell_settings(scores), tell_same(scores)]
    for events in scores.runs:
        parts += [f"### With {STYLES[events]['label']}", score_table(scores, events), tell_findings(scores, events)]
    parts += ["### By table", gallery.show("real", caption), tell_limits(scores)]
    return Report("\n\n".join(part for part in parts if part))


def tell_settings(scores: Scores) -> str:
    from fedhlcr.baselines import FedAvgNetworkRegressor, FedAvgRegressor, FedEMRegressor, IFCARegressor

    tables = "; ".join(f"*{TABLES[name].title}*: {TABLES[name].about}" for name in scores.tables)
    return (
        f"{tables}. A fifth of each entity's events is held out, in {scores.n_splits} random splits (their seeds, 0 to "
        f"{scores.n_splits - 1}, are the methods' too); the test events are the same whether a method trains with all "
        f"others or with at most {FEW} of each entity. All methods see standardised x and y. They choose their "
        "settings without the test events.\n\n"
        "- By five-fold cross-validation: the penalty of ridge, of 22 from 0.001 to 10,000, one for all groups.\n"
        "- By restricted likelihood: the mixed model, with random intercept and slopes per entity.\n"
        "- By BIC: the classes of latent class regression (LCR), 1, 2, 3, 4, 6, 8, … up to 64 per entity and "
        f"{MOST_EVENT_CLASSES} per event, from ten short runs each.\n"
        "- On a fifth of every agent's training events: the clusters of IFCA "
        f"({tried(IFCARegressor, 'n_clusters')}; ten starts) and their penalty "
        f"({tried(IFCARegressor, 'penalty')}), the classes of soft federated EM "
        f"({tried(FedEMRegressor, 'n_classes')}; five starts), the local steps of FedAvg and FedProx "
        f"({tried(FedAvgRegressor, 'local_steps')}) and FedProx's weight ({tried(FedAvgRegressor, 'proximal')}); for "
        "the network of two hidden layers of 32 units, the learning rate "
        f"({tried(FedAvgNetworkRegressor, 'learning_rate')}) and FedProx's weight "
        f"({tried(FedAvgNetworkRegressor, 'proximal')}). Averaging takes 100 rounds with all agents.\n"
        "- By LightGBM's defaults: boosted trees, with agent and entity as categories.\n"
        "- HLCR and FedHLCR are at their defaults, or differ from these in what their names say. *The paper's model* "
        'is `effects="none", noise="common"`. Findings are about the defaults.\n\n'
        "When we set the baselines' grids and numbers of starts we had seen the test R² of some of these splits. "
        "Effects, noise of entities and the comparison of one cluster with several were developed later, with these "
        "tables and those of the league in view, so the figures of the default may be slightly optimistic."
    )


def tell_same(scores: Scores) -> str:
    """Tables where a smaller number of training events changes nothing."""
    same = [TABLES[name].title for name, counted in zip(scores.tables, scores.counted(FEW), strict=True) if not counted]
    if not same:
        return ""
    return (
        f"No entity of {' and '.join(same)} has more than {FEW} training events, so both settings are the same data "
        f"there. Mean ranks and findings with at most {FEW} use the other tables."
    )


def tried(rival: type[FederatedRival], parameter: str) -> str:
    return ", ".join(f"{value:g}" for value in rival._grid[parameter])


def score_table(scores: Scores, events: Events) -> str:
    runs, ranks = scores.runs[events], scores.mean_ranks(events)
    best = [leaders(of_table) for of_table in runs]
    rows = []
    for m, method in enumerate(METHODS[name] for name in scores.methods):
        cells = [markdown.mean_and_error(of_table[m]) for of_table in runs]
        marked = (f"**{cell}**" if leads[m] else cell for cell, leads in zip(cells, best, strict=True))
        rows.append((method.title, "yes" if method.federated else "", *marked, f"{ranks[m]:.1f}"))
    header = ("R²", "events stay with agents", *(TABLES[name].title for name in scores.tables), "mean rank")
    return markdown.table(header, rows) + (
        "\n\nBold: the difference to the best, split by split, is within one standard error. Below, *level* means the "
        "same."
    )


def tell_findings(scores: Scores, events: Events) -> str:
    ranks = dict(zip(scores.methods, scores.mean_ranks(events), strict=True))
    rivals = [method for method in RIVALS if method in scores.methods]
    first = sorted(scores.methods, key=ranks.__getitem__)[:5]
    listed = "; ".join(f"{METHODS[method].title} {ranks[method]:.1f}" for method in first)
    sentences = [
        f"The five best by mean rank over the tables: {listed}.",
        tell_lead(scores, events, DEFAULT, ("mixed",), "HLCR against the mixed model"),
        tell_lead(scores, events, DEFAULT, rivals, "HLCR against the best rival on each table"),
        tell_lead(scores, events, DEFAULT, ("ridge-entity",), "HLCR against a ridge per entity"),
        tell_lead(scores, events, DEFAULT, ("hlcr",), "HLCR against the paper's model"),
        tell_lead(
            scores,
            events,
            FEDERATED_DEFAULT,
            FEDERATED_RIVALS,
            "FedHLCR against the best that leaves events with agents",
        ),
        tell_lead(scores, events, FEDERATED_DEFAULT, (DEFAULT,), "FedHLCR against HLCR"),
        tell_weak_spots(scores, events),
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences)


def tell_lead(scores: Scores, events: Events, method: str, others: Sequence[str], words: str) -> str:
    """Differences by table; with the name of the other where there are several."""
    leads = scores.lead(events, method, others)
    gaps = []
    for table, lead in leads.items():
        name = f" ({METHODS[lead.other].title})" if len(others) > 1 else ""
        gaps.append(f"{TABLES[table].title} {lead.mean:+.3f}{name}".replace("-", "−"))
    ahead, level, behind = (sum(lead.side == side for lead in leads.values()) for side in (1, 0, -1))
    return f"{words}: ahead on {ahead} of {len(leads)} tables, level on {level}, behind on {behind}; {', '.join(gaps)}."


def tell_weak_spots(scores: Scores, events: Events) -> str:
    """Tables where HLCR is far behind what it should beat, with how much both vary by split."""
    spots = []
    for table, lead in scores.lead(events, DEFAULT, CLASSES_OR_ENTITIES).items():
        if lead.mean < -FAR_BEHIND:
            own, other = (scores.by_split(events, table, method) for method in (DEFAULT, lead.other))
            spots.append(
                f"HLCR is {-lead.mean:.3f} behind on {TABLES[table].title} ({METHODS[lead.other].title}): its R² is "
                f"{own.min():.3f} to {own.max():.3f} by split, the rival's {other.min():.3f} to {other.max():.3f}"
            )
    of_whom = "the best of the rivals with classes or clusters and a ridge per entity"
    if not spots:
        return f"Weak spots: none; HLCR is nowhere more than {FAR_BEHIND} behind {of_whom}."
    return f"Weak spots, more than {FAR_BEHIND} behind {of_whom}: {'; '.join(spots)}."


def tell_limits(scores: Scores) -> str:
    """What a table may do to a class per event, if it did it here."""
    behind = {
        table
        for events in scores.runs
        for table, lead in scores.lead(events, "lcr-event", ("ridge",)).items()
        if lead.mean < -0.1
    }
    if not behind:
        return ""
    names = " and ".join(TABLES[table].title for table in scores.tables if table in behind)
    return (
        f"A class per event falls far behind one ridge on {names}. If the target takes few distinct values, the "
        "likeliest classes are these values, whatever x is. Also, the class of a new event is unknown, so it is "
        "predicted by the mean of all classes; a class per entity avoids this."
    )


def draw(scores: Scores, gallery: markdown.Gallery) -> None:
    methods = [METHODS[name] for name in scores.methods]
    place = np.arange(len(methods))
    size = (PAGE_WIDTH, 4.6)
    with picture(gallery.path("real"), 1, len(scores.tables), figsize=size, sharey=True) as (figure, axes):
        for t, (name, panel) in enumerate(zip(scores.tables, axes[0], strict=True)):
            edge = left_edge(np.concatenate([runs[t].mean(axis=1) for runs in scores.runs.values()]))
            for events, shift in zip(scores.runs, (-0.16, 0.16), strict=True):
                runs = scores.runs[events][t]
                means, errors = runs.mean(axis=1), standard_error(runs.T)
                inside = means >= edge
                panel.errorbar(
                    means[inside], (place + shift)[inside], xerr=errors[inside], linestyle="none", **STYLES[events]
                )
                outside = (place + shift)[~inside]
                panel.plot(np.full(len(outside), edge), outside, "<", color=STYLES[events]["color"], markersize=3.5)
            panel.set(title=TABLES[name].title, xlabel="R²")
            panel.tick_params(axis="y", length=0)
        axes[0, 0].set_yticks(place, [method.title for method in methods])
        axes[0, 0].set_ylim(len(methods) - 0.5, -0.5)
        mark_levels(axes[0], methods)
        legend_below(figure, axes[0, 0], len(scores.runs))


def left_edge(values: NDArray[np.float64]) -> float:
    """Where a panel begins: values farther below all others than these are apart would squeeze them."""
    ascending = np.sort(values)
    gaps = np.diff(ascending)
    apart = ascending[-1] - ascending[1:]
    outliers = np.flatnonzero(gaps[: len(gaps) // 4] > apart[: len(gaps) // 4])
    if not len(outliers):
        return float(ascending[0])
    first = ascending[outliers[-1] + 1]
    return float(first - 0.1 * (ascending[-1] - first))


def mark_levels(panels: NDArray[np.object_], methods: Sequence[Method]) -> None:
    """Lines between methods of different levels, whose names stand at the right."""
    levels = [method.level for method in methods]
    for level in LEVELS:
        last = len(levels) - levels[::-1].index(level)
        for panel in panels if last < len(levels) else ():
            panel.axhline(last - 0.5, color=GREY, linewidth=0.7)
        middle = (levels.index(level) + last - 1) / 2
        words = "x alone" if level == "all" else f"x and {level}"
        right = panels[-1].get_yaxis_transform()
        panels[-1].text(1.06, middle, words, transform=right, rotation=270, va="center", fontsize=6, color=GREY)
