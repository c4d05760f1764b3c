"""Audit a table: run a federation of its agents, and attack what the server sees in plain and in secure mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr.data.hierarchy import Hierarchy, build_hierarchy
from fedhlcr.datasets import load_flights, make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.audit.playing import HALF_UNIT, play_secure
from fedhlcr.privacy.audit.reconstruction import reconstruct
from fedhlcr.privacy.audit.recording import record_run
from fedhlcr.privacy.audit.scoring import Exposure, Score, Truth, exposure, score, weighted_alone
from fedhlcr.privacy.audit.view import ServerView, total_view
from fedhlcr.privacy.audit.wire import attack_wire, known_numbers

# Called with what is being done, once for every step of unknown length.
Tell = Callable[[str], Any]


def _say_nothing(what: str) -> None:
    del what


@dataclass(frozen=True)
class TableAudit:
    """What the server of a federation of one table can find out.

    Attributes
    ----------
    n_agents, n_entities, n_events : of the table
    n_rounds, n_exact : rounds of the run, and those in which sums were not weighted
    plain : found in the sums of single agents, in plain mode
    messages : found in the messages of single agents, in secure mode
    n_secure : rounds of secure mode whose messages were attacked
    leaked : numbers of agents that occur in a message of secure mode
    total : found in the exact total of all agents, which both modes show
    exposure : how often that total shows an entity that moves alone
    weighted : entities whose features are shown by rounds with weighted sums, in plain mode
    """

    n_agents: int
    n_entities: int
    n_events: int
    n_rounds: int
    n_exact: int
    plain: Score
    messages: Score
    n_secure: int
    leaked: int
    total: Score
    exposure: Exposure
    weighted: int

    @property
    def holds(self) -> bool:
        """Whether secure mode keeps its promise: nothing follows from the messages of single agents."""
        return self.messages.n_claims == 0 and self.leaked == 0


def audit_table(
    hierarchy: Hierarchy, *, secure_rounds: int = 5, tell: Tell = _say_nothing, **settings: Any
) -> TableAudit:
    """Audit a table; `settings` are those of `FederationSettings`."""
    tell("running the federation")
    run = FederationSettings(GramLayout(hierarchy.X.shape[1]), **settings)
    engine = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.0, seed=run.seed, n_threads=1)
    _, recording = record_run(run, engine)
    view = recording.view()
    truth = Truth.of(hierarchy, view.layout, view.units)
    tell("attacking the sums of single agents")
    plain = score(reconstruct(view), truth, view.layout)
    tell("attacking the total of all agents")
    total = total_view(view)
    from_total = score(reconstruct(total), truth, view.layout)
    tell("running secure aggregation and attacking its messages")
    rounds, secrets = play_secure(view, secure_rounds)
    messages = attack_wire(rounds, ServerView(view.layout, view.units, {}, HALF_UNIT))
    statements = next(iter(total.statements.values()))
    return TableAudit(
        hierarchy.index.n_agents,
        hierarchy.n_entities,
        hierarchy.n_events,
        len(statements),
        sum(own.is_exact for own in statements),
        plain,
        score(messages, truth, view.layout),
        len(rounds),
        known_numbers(rounds, secrets),
        from_total,
        exposure(total, truth),
        weighted_alone(view, truth),
    )


def as_hierarchy(table: HierarchicalData) -> Hierarchy:
    return build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)


def example_tables() -> dict[str, HierarchicalData]:
    """Three tables to audit: one with few events per entity, one with clusters that overlap, and the flights."""
    few, _ = make_hlcr(30, 10, 3, 5, 6, 1.0, random_state=1)
    overlapping, _ = make_hlcr(30, 10, 8, 5, 6, 2.0, balanced=True, random_state=2)
    return {
        "few events (made up)": few,
        "overlapping clusters (made up)": overlapping,
        "flights (bundled)": load_flights(),
    }
