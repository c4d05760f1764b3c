"""`python -m benchmarks.poison`: what a hostile agent costs the honest ones. The figures of docs/explanation/poison.md.

A federation runs with and without the hostile agents. The figure is the R² of the honest agents' held-out events, each
predicted by its own agent from the public model.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhlcr import hold_out_events
from fedhlcr._support.arrays import FloatArray
from fedhlcr.datasets import load_flights, make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.federation import Agent, FederationSettings, GramLayout, Server
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast, Contribution
from fedhlcr.federation.open_round import Invitation
from fedhlcr.federation.run import run_round
from fedhlcr.model.schema import GRAMS, LABEL_SCALARS, Known

# (contribution, the broadcast that it answers) → what is sent
Lie = Callable[[Contribution, Broadcast], Contribution]
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"effects": "none", "noise": "common"},
    "default": {},
    "common noise": {"noise": "common"},
    "student": {"noise": "student"},
}


@dataclass(frozen=True)
class Attack:
    """What a hostile agent does.

    Attributes
    ----------
    target : by what it multiplies its target before the run
    shuffles : whether it assigns its targets to events at random
    claimed : number of events that it claims, or None: all of its events count several times
    lie : what it makes of its contributions, or None
    begins : the first round in which it uses `lie`; 0 is the survey
    """

    target: float = 1.0
    shuffles: bool = False
    claimed: float | None = None
    lie: Lie | None = None
    begins: int = SURVEY_ROUND

    def agent_of(self, name: str, own: HierarchicalData) -> Agent:
        y = np.random.default_rng(0).permutation(own.y) if self.shuffles else own.y
        weight = None if self.claimed is None else np.full(len(y), self.claimed / len(y))
        return Agent(name, own.X, self.target * y, own.entity, weight, disclosure=None)


def scaled_target(factor: float) -> Lie:
    """The contribution as if the target were larger."""

    def lie(contribution: Contribution, broadcast: Broadcast) -> Contribution:  # noqa: ARG001
        columns, shift = np.ones(_width(contribution)), contribution.shift.copy()
        columns[-1] = factor
        shift[-1:] *= factor
        return replace(_scaled(contribution, columns), shift=shift)

    return lie


def scaled_feature(factor: float) -> Lie:
    """The contribution as if the first feature were larger."""

    def lie(contribution: Contribution, broadcast: Broadcast) -> Contribution:  # noqa: ARG001
        columns, shift = np.ones(_width(contribution)), contribution.shift.copy()
        columns[1] = factor
        shift[:1] *= factor
        return replace(_scaled(contribution, columns), shift=shift)

    return lie


def repeated(n_events: float, sign: float = -1.0) -> Lie:
    """The contribution as if its events had occurred many times; by default with the target's sign changed."""

    def lie(contribution: Contribution, broadcast: Broadcast) -> Contribution:
        changed = scaled_target(sign)(contribution, broadcast)
        grams = changed.blocks[GRAMS]
        factor = n_events / max(grams[:, 0].sum(), 1e-300)
        return replace(changed, blocks={**changed.blocks, GRAMS: factor * grams})

    return lie


def everywhere(contribution: Contribution, broadcast: Broadcast) -> Contribution:
    """The opposite of what it should say, in all clusters alike."""
    if len(contribution.shift):
        return contribution
    n_clusters = len(contribution.entity_counts)
    changed = scaled_target(-1.0)(contribution, broadcast)
    each = max(int(contribution.entity_counts.sum()) // n_clusters, 1)
    counts = np.full(n_clusters, each, dtype=np.int32)
    counts[0] += max(int(contribution.entity_counts.sum()) - each * n_clusters, 0)
    blocks = {name: np.tile(block.mean(axis=0), (n_clusters, 1)) for name, block in changed.blocks.items()}
    return replace(changed, blocks=blocks, entity_counts=counts, table_counts=np.ones(n_clusters, dtype=np.int32))


def forged(name: str, value: float | None = None) -> Lie:
    """The contribution with another value of a scalar of the labels' prior; None is the least that is possible."""
    number = [scalar.name for scalar in LABEL_SCALARS].index(name)

    def lie(contribution: Contribution, broadcast: Broadcast) -> Contribution:
        counts = np.array([contribution.entity_counts.sum()], dtype=np.float64)
        known = Known(counts, contribution.blocks[GRAMS][:, :1].sum(axis=0), broadcast.law)
        scalars = contribution.scalars.copy()
        scalars[number] = np.ravel(LABEL_SCALARS[number].range(known)[0])[0] if value is None else value
        return replace(contribution, scalars=scalars)

    return lie


def _scaled(contribution: Contribution, columns: FloatArray) -> Contribution:
    rows, others = np.tril_indices(len(columns))
    grams = contribution.blocks[GRAMS] * columns[rows] * columns[others]
    return replace(contribution, blocks={**contribution.blocks, GRAMS: grams})


def _width(contribution: Contribution) -> int:
    return int(np.sqrt(2 * contribution.blocks[GRAMS].shape[1]))


# A round in which effects may have been switched on.
LATE = 15
ATTACKS = {
    "target × 50": Attack(target=50.0),
    "target × 1000": Attack(target=1000.0),
    "20,000 events": Attack(target=-1.0, claimed=2e4),
    "10⁷ events": Attack(target=-1.0, claimed=1e7),
    "20,000 true events": Attack(claimed=2e4),
    "target × 5": Attack(target=5.0),
    "target × 20": Attack(target=20.0),
    "target × 0.001, 10⁶ events": Attack(target=1e-3, claimed=1e6),
    "target × −1": Attack(target=-1.0),
    "target shuffled": Attack(shuffles=True),
    "sums, target × 50": Attack(lie=scaled_target(50.0)),
    "sums, feature × 50": Attack(lie=scaled_feature(50.0)),
    "later, target × 50": Attack(lie=scaled_target(50.0), begins=1),
    "later, target × 1000": Attack(lie=scaled_target(1000.0), begins=1),
    "later, 20,000 events": Attack(lie=repeated(2e4), begins=1),
    "later, 10⁷ events": Attack(lie=repeated(1e7), begins=1),
    "late, target × 50": Attack(lie=scaled_target(50.0), begins=LATE),
    "late, target × 1000": Attack(lie=scaled_target(1000.0), begins=LATE),
    "late, 20,000 events": Attack(lie=repeated(2e4), begins=LATE),
    "sums, target × 4": Attack(lie=scaled_target(4.0)),
    "all clusters, target × −4": Attack(target=-4.0, lie=everywhere, begins=1),
    "all clusters, target × −1": Attack(lie=everywhere, begins=1),
    "least log β draws": Attack(lie=forged("log_beta_draws"), begins=1),
    "impossible log β draws": Attack(lie=forged("log_beta_draws", -1e300), begins=1),
}
DESIGNED = ("target × 50", "target × 1000", "20,000 events", "10⁷ events")


class HostileEngine:
    """Delivers messages as bytes; hostile agents change theirs."""

    def __init__(self, agents: dict[str, Agent], hostile: Sequence[str], attack: Attack | None) -> None:
        self._agents, self._hostile, self._attack = agents, set(hostile), attack

    def agents(self) -> list[str]:
        return list(self._agents)

    def n_copies(self, call: Invitation) -> int:
        return len(call.agents)

    def deliver(self, call: Invitation) -> Iterator[Contribution]:
        attack = self._attack
        for name, acknowledged in zip(call.agents, call.acknowledged, strict=True):
            letter: Broadcast = call.broadcast.acknowledging(int(acknowledged))
            reply = self._agents[name].round(letter)
            if attack is not None and attack.lie and name in self._hostile and letter.round >= attack.begins:
                reply = attack.lie(reply, letter)
            yield reply


def honest_r2(
    table: HierarchicalData, hostile: Sequence[str], attack: Attack | None, *, seed: int = 0, **settings: Any
) -> float:
    """R² of the honest agents' held-out events after a run in which hostile agents attack; None leaves them out."""
    fitted, held_out = hold_out_events(table.agent, table.entity, random_state=seed)
    train, test = table[fitted], table[held_out]
    agents: dict[str, Agent] = {}
    for agent in np.unique(table.agent):
        own = train[train.agent == agent]
        if str(agent) not in hostile:
            agents[str(agent)] = Agent(str(agent), own.X, own.y, own.entity, disclosure=None)
        elif attack is not None:
            agents[str(agent)] = attack.agent_of(str(agent), own)
    server = Server(FederationSettings(GramLayout(table.X.shape[1]), seed=seed, **settings))
    engine = HostileEngine(agents, hostile, attack)
    while not server.finished:
        run_round(server, engine)  # type: ignore[arg-type]
    model, errors, targets = server.model(), [], []
    for name, agent in agents.items():
        rows = (test.agent.astype(str) == name) & (name not in hostile)
        if rows.any():
            errors.append(agent.predict(model, test.X[rows], test.entity[rows]).mean - test.y[rows])
            targets.append(test.y[rows])
    y = np.concatenate(targets)
    return 1.0 - float((np.concatenate(errors) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def tables(seed: int) -> dict[str, HierarchicalData]:
    """Thirty agents each: alike, and airlines of very different sizes."""
    synthetic, _ = make_hlcr(30, 10, 8, 5, 4, 1.1, random_state=seed)
    flights = load_flights()
    return {"synthetic": synthetic, "flights": flights}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.poison", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), help="all by default")
    parser.add_argument("--models", nargs="*", default=["plain", "default"], choices=list(MODELS))
    parser.add_argument("--tables", nargs="*", default=["synthetic", "flights"])
    parser.add_argument("--hostile", type=int, default=1, help="number of hostile agents (default: %(default)s)")
    parser.add_argument("--participation", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for table_name in options.tables:
        table = tables(options.seed)[table_name]
        names = np.unique(table.agent).astype(str)
        hostile = np.random.default_rng(options.seed).permutation(names)[: options.hostile].tolist()
        for model_name in options.models:
            settings = {**MODELS[model_name], "participation": options.participation, "rounds": options.rounds}
            without = honest_r2(table, hostile, None, seed=options.seed, **settings)
            print(f"\n{table_name}, {model_name}: R² of the honest agents without the others {without:.3f}", flush=True)
            for name in options.attacks:
                fall = without - honest_r2(table, hostile, ATTACKS[name], seed=options.seed, **settings)
                print(f"  {name:30s} falls by {fall:6.3f}", flush=True)


if __name__ == "__main__":
    main()
