"""Audit a table: run a federation of its agents, and attack what the server sees in plain and in secure mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhlcr.data.hierarchy import Hierarchy, build_hierarchy
from fedhlcr.datasets import load_flights, make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.audit.attack_score import AttackScore, Exposure, Truth, exposure, score, weighted_alone
from fedhlcr.privacy.audit.reconstruction import reconstruct
from fedhlcr.privacy.audit.recording_engine import KnownAgents, record_run
from fedhlcr.privacy.audit.view import EVERYONE
from fedhlcr.privacy.audit.wire import attack_wire, known_numbers, read_surveys
from fedhlcr.settings import FEWEST_IN_COHORT

# Called with what is being done, once for every step of unknown length.
Tell = Callable[[str], Any]


def _say_nothing(what: str) -> None:
    del what


@dataclass(frozen=True)
class WireAudit:
    """What was found in the messages of secure aggregation.

    Attributes
    ----------
    n_rounds : rounds whose messages were attacked; 0 if there are too few agents for a secure sum
    messages : found in what single agents sent
    surveyed : agents whose part of the survey could be read
    leaked : numbers of single agents that occur in a message
    """

    n_rounds: int
    messages: AttackScore
    surveyed: int
    leaked: int

    @property
    def holds(self) -> bool:
        """Whether secure mode keeps its promise: nothing follows from the messages of single agents."""
        return self.messages.n_claims == self.surveyed == self.leaked == 0


@dataclass(frozen=True)
class TableAudit:
    """What the server of a federation of one table can find out.

    Attributes
    ----------
    n_agents, n_entities, n_events : of the table
    n_rounds, n_exact : rounds of the run, and those in which sums were not weighted
    plain : found in the sums of single agents, in plain mode
    weighted : entities whose features are shown by rounds with weighted sums, in plain mode
    total : found in the exact total of all agents, which is what the server has in secure mode
    exposure : how often that total shows an entity that moves alone
    wire : found in the messages of secure mode
    """

    n_agents: int
    n_entities: int
    n_events: int
    n_rounds: int
    n_exact: int
    plain: AttackScore
    weighted: int
    total: AttackScore
    exposure: Exposure
    wire: WireAudit

    @property
    def holds(self) -> bool:
        return self.wire.holds


def audit_table(
    hierarchy: Hierarchy, *, secure_rounds: int = 5, tell: Tell = _say_nothing, **settings: Any
) -> TableAudit:
    """Audit a table; `settings` are those of `FederationSettings`.

    The totals of secure mode come from a run in fixed point without masks, because these are the same to the last bit
    and take a fraction of the time; the messages come from the first rounds of a run with masks.
    """
    run = FederationSettings(GramLayout(hierarchy.X.shape[1]), **settings)
    tell("running the federation and attacking the sums of single agents")
    view = record_run(run, _agents(hierarchy, run))[1].view()
    truth = Truth.of(hierarchy, view.layout, view.units)
    plain = score(reconstruct(view), truth, view.layout)
    weighted = weighted_alone(view, truth)
    tell("running it in fixed point and attacking the total of all agents")
    run = replace(run, fixed_point=True)
    total = record_run(run, _agents(hierarchy, run))[1].total_view()
    truth = Truth.of(hierarchy, total.layout, total.units)
    statements = total.statements[EVERYONE]
    tell("running secure aggregation and attacking its messages")
    return TableAudit(
        hierarchy.index.n_agents,
        hierarchy.n_entities,
        hierarchy.n_events,
        len(statements),
        sum(own.is_exact for own in statements),
        plain,
        weighted,
        score(reconstruct(total), truth, total.layout),
        exposure(total, truth),
        audit_wire(hierarchy, run, secure_rounds),
    )


def audit_wire(hierarchy: Hierarchy, settings: FederationSettings, n_rounds: int) -> WireAudit:
    """Run the first rounds under secure aggregation, and attack all messages, those of the survey included."""
    if hierarchy.index.n_agents < FEWEST_IN_COHORT:
        return WireAudit(0, AttackScore(hierarchy.n_entities, 0, 0, 0, 0, 0, {}), 0, 0)
    run = replace(settings, aggregation="secure", min_cohort=FEWEST_IN_COHORT)
    agents = _agents(hierarchy, run)
    recording = record_run(run, agents, n_rounds)[1]
    view = recording.total_view()
    claims = attack_wire(recording.wire, replace(view, statements={}))
    return WireAudit(
        sum(not own.is_survey and own.total is not None for own in recording.wire),
        score(claims, Truth.of(hierarchy, view.layout, view.units), view.layout),
        len(read_surveys(recording.wire)),
        known_numbers(recording.wire, agents.secrets()),
    )


def _agents(hierarchy: Hierarchy, settings: FederationSettings) -> KnownAgents:
    return KnownAgents.from_hierarchy(hierarchy, failure_rate=0.0, seed=settings.seed, n_threads=1)


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
