"""How many entities are put into wrong clusters, and how many must be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.figures import BLACK, COLUMN_WIDTH, band, legend_below, picture
from experiments.study import FAILS, HOLDS, Figures, Finding, Record, Report, Settings, Study
from experiments.synthetic.data import LAW, Size, pair_of_events, synth_hlcr
from experiments.synthetic.federations import RULE_NAMES, settings_of
from experiments.synthetic.figure_a import LEARNING_RATE, NOISE_SCALES, STYLES
from experiments.synthetic.measuring import select
from fedhlcr.datasets import HierarchicalData, HLCRTruth

SIZES = (Size(4, 5, 16), Size(8, 10, 16))
KNOWING = "knowing"
NAMES = {KNOWING: "knows all but the labels", "published": RULE_NAMES["published"], "delta": RULE_NAMES["delta"]}
# agreement below which labels count as wrong
POOR = 0.8


def settings(full: bool) -> list[Settings]:
    scales, n_rounds = (NOISE_SCALES, 100) if full else ((0.1, 2.0), 40)
    return [
        {**size._asdict(), "noise_scale": scale, "rule": rule, "n_rounds": n_rounds, "seed": seed}
        for size in SIZES
        for scale in scales
        for rule in NAMES
        for seed in range(5 if full else 2)
    ]


def measure(
    *, entities: int, events: int, clusters: int, noise_scale: float, rule: str, n_rounds: int, seed: int
) -> Figures:
    """The adjusted Rand index of the labels found and the true ones: 1 if they agree, 0 by chance."""
    from sklearn.metrics import adjusted_rand_score

    size = Size(entities, events, clusters)
    table, truth = synth_hlcr(size, noise_scale, seed)
    if rule == KNOWING:
        labels = likeliest_labels(table, truth)
    else:
        labels = found_labels(table, rule, size, noise_scale, n_rounds, seed)
    return {"agreement": float(adjusted_rand_score(truth.labels, labels))}


def found_labels(
    table: HierarchicalData, rule: str, size: Size, noise_scale: float, n_rounds: int, seed: int
) -> NDArray[np.integer]:
    from fedhlcr import FedHLCRRegressor

    settings = settings_of(rule, size, noise_scale, LEARNING_RATE)
    model = FedHLCRRegressor(
        **settings, effects="none", noise="common", rounds=n_rounds, patience=None, n_threads=1, random_state=seed
    )
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity).labels_


def likeliest_labels(table: HierarchicalData, truth: HLCRTruth) -> NDArray[np.integer]:
    """Given all regressions, the noise and how common the clusters are with each agent: nobody can do better."""
    pair = pair_of_events(table)
    squares = (table.y[:, None] - truth.intercept - table.X @ truth.coef.T) ** 2
    rss = np.array([np.bincount(pair, weights=column) for column in squares.T]).T
    agent_of = table.agent[np.unique(pair, return_index=True)[1]]
    log_prior = np.log(np.maximum(truth.agent_weights[agent_of], 1e-300))
    return (log_prior - rss / (2.0 * truth.noise_scale**2)).argmax(axis=1)


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:
    scales = sorted({record.settings["noise_scale"] for record in records})
    seeds = sorted({record.settings["seed"] for record in records})
    draw(records, gallery, scales)
    n_rounds = records[0].settings["n_rounds"]
    text = (
        f"{LAW.split(';')[0]}. All events are fitted, with all agents in each of "
        f"{n_rounds} rounds, γ = {LEARNING_RATE}, data and algorithm seeds {seeds[0]}–{seeds[-1]}. Agreement is the "
        "adjusted Rand index of the labels found and the true ones: 1 if they are the same, 0 on average if they are "
        "random. *Knows all but the labels* takes the likeliest label of each entity, given the true regressions, σ "
        "and θ_i: this is the best possible."
    )
    rows = [
        (size, NAMES[rule], *(markdown.mean_and_error(agreement(records, size, rule, scale)) for scale in scales))
        for size in SIZES
        for rule in NAMES
    ]
    table = markdown.table(("size", "agreement", *(f"σ = {scale:g}" for scale in scales)), rows)
    shown = gallery.show("labels", "Agreement of the labels found with the true ones, against the noise")
    return Report("\n\n".join([text, shown, table]), (misclustering(records, scales),))


def agreement(records: Sequence[Record], size: Size, rule: str, scale: float) -> NDArray[np.float64]:
    """(seeds,)"""
    chosen = select(records, **size._asdict(), rule=rule, noise_scale=scale)
    return np.array([record.figures["agreement"] for record in chosen])


def draw(records: Sequence[Record], gallery: markdown.Gallery, scales: Sequence[float]) -> None:
    styles = {KNOWING: {"color": BLACK, "marker": "D"}, **STYLES}
    figsize = (COLUMN_WIDTH, 2.3)
    with picture(gallery.path("labels"), 1, len(SIZES), figsize=figsize, sharey=True) as (figure, axes):
        for size, panel in zip(SIZES, axes[0], strict=True):
            for rule, name in NAMES.items():
                runs = np.array([agreement(records, size, rule, scale) for scale in scales]).T
                band(panel, scales, runs, label=name, **styles[rule])
            panel.set(
                title=f"N* = {size.entities}, N** = {size.events}", xlabel="noise σ", xscale="log", ylim=(0, 1.02)
            )
            panel.set_xticks(scales, [f"{scale:g}" for scale in scales])
            panel.minorticks_off()
        axes[0, 0].set_ylabel("adjusted Rand index")
        legend_below(figure, axes[0, 0], 2)


def misclustering(records: Sequence[Record], scales: Sequence[float]) -> Finding:
    """At the highest noise, with few events per agent."""
    size, scale = SIZES[0], scales[-1]
    found, best, delta = (
        float(agreement(records, size, rule, scale).mean()) for rule in ("published", KNOWING, "delta")
    )
    why = (
        f"at σ = {scale:g} its labels agree to {found:.2f} with the true ones (adjusted Rand index), those of delta "
        f"to {delta:.2f}; even with all regressions known, labels agree only to {best:.2f}"
    )
    claim = f"entities are put into wrong clusters at {size} and high σ"
    return Finding(claim, HOLDS if found < POOR else FAILS, why)


LABELS = Study("labels", "Entities in wrong clusters", settings, measure, report)
