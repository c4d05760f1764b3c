"""Sections of the report page: what the template shows of agents, entities and the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr._support.wording import ROUND, byte_size, number, percent
from fedhlcr.analysis.evaluation import Evaluation
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report import charts, listings, story
from fedhlcr.report.findings import SURE, Entities, Findings
from fedhlcr.report.rounds import Rounds

# Most agents in the matrix, and uncertain entities named.
MATRIX_AGENTS = 60
N_UNCERTAIN = 10


def agent_section(findings: Findings, scores: Evaluation | None) -> dict[str, Any] | None:
    agents = findings.agents
    if agents is None:
        return None
    words = story.agents_in_words(agents, (findings.names.agent, findings.names.entity))
    section: dict[str, Any] = {"words": words, "matrix": None, "picture": None, "listing": None}
    if len(agents) > 1:
        section["listing"] = listings.agent_listing(agents, findings.names, scores)
        if agents.weights.shape[1] > 1:
            if len(agents) <= MATRIX_AGENTS:
                order = np.lexsort((-agents.weights.max(axis=1), agents.main_cluster))
                section["matrix"] = [(agents.ids[i], agents.weights[i].tolist(), int(i)) for i in order]
            else:
                section["picture"] = charts.agent_picture(agents.weights)
    return section


def entity_section(findings: Findings, entities: Entities) -> dict[str, Any]:
    doubtful = np.argsort(entities.certainty, kind="stable")[:N_UNCERTAIN]
    return {
        "all": entities,
        "listing": listings.entity_listing(entities, findings.names, findings.link),
        "doubtful": [row for row in doubtful.tolist() if entities.certainty[row] < SURE],
        "sure": percent(SURE),
    }


def round_section(findings: Findings, rounds: Rounds) -> dict[str, Any]:
    x = np.arange(1.0, len(rounds.asked) + 1.0)
    n = max(len(rounds.asked), 1)
    facts = [
        (ROUND.of(rounds.n_rounds), f"{rounds.n_rounds:,}"),
        (f"{findings.names.agent.many} asked per round, mean", number(rounds.asked.sum() / n)),
        ("of the requests were answered in time", percent(rounds.answered)),
        ("requests were not answered in time", f"{rounds.n_silent:,}"),
        ("answers were refused", f"{rounds.refused.sum():,.0f}"),
        ("sums up", byte_size(rounds.total_up)),
        ("coefficients down", byte_size(rounds.total_down)),
        ("up and down per round", byte_size((rounds.bytes_up.sum() + rounds.bytes_down.sum()) / n)),
    ]
    pictures = []
    if len(x):
        drawn = [
            (
                f"{findings.names.agent.many} that answered",
                [("answered", rounds.accepted), ("asked", rounds.asked)],
                True,
            ),
            ("kB up and down", [("up", rounds.bytes_up / 1e3), ("down", rounds.bytes_down / 1e3)], True),
            ("clusters in use", [("clusters", rounds.n_clusters)], True),
            ("labels changed", [("labels", rounds.labels_changed)], True),
            *((name, [(name, values)], False) for name, values in rounds.scales.items()),
            ("error on the validation set", [("error", rounds.validation)], False),
        ]
        pictures = [
            charts.line_chart(title, x, lines, "round", zero)
            for title, lines, zero in drawn
            if np.isfinite(lines[0][1]).any()
        ]
    return {"facts": facts, "pictures": pictures, "all": rounds, "sent": story.what_is_sent(findings, rounds)}


def traces(model: HierarchicalPredictor) -> list[charts.LineChart]:
    """Charts of a centralised fit, sweep by sweep, with a line for each chain."""
    trace: Any = getattr(model, "trace_", None)
    if trace is None or not len(trace):
        return []
    chains = [trace[trace["chain"] == chain] for chain in np.unique(trace["chain"])]
    shortest = min(len(chain) for chain in chains)
    x = np.arange(1.0, shortest + 1.0)
    # the steep rise in the first sweeps would flatten the rest of the chart
    start = shortest // 10
    kept = np.flatnonzero(chains[0]["kept"][:shortest])
    mark = float(x[kept[0]]) if len(kept) and kept[0] > start else None
    return [
        charts.line_chart(
            title,
            x[start:],
            [
                (f"chain {number_of}", chain[name][start:shortest].astype(float))
                for number_of, chain in enumerate(chains)
            ],
            "sweep",
            zero,
            mark,
        )
        for title, name, zero in (
            ("log joint", "log_joint", False),
            ("clusters in use", "n_clusters", True),
            *((q.heading, q.name, False) for q in model.posterior_.likelihood.globals_type.traced_scales()),
        )
    ]
