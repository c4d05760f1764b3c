"""The answer of `score`: a number that says what it is."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from fedhlcr._support.wording import EVENT


class Counts(NamedTuple):
    """How many events were scored: of known entities, of new entities of known agents, and of new agents."""

    known: int
    new_entities: int
    new_agents: int


class Score(float):
    """A score. It is a float, and is shown with what was scored.

    Attributes
    ----------
    metric : "R²", "accuracy" or "D²"
    n_events : events that were scored
    n_known : those of entities that the model knows
    n_new_entities, n_new_agents : those of new entities of known agents, and of new agents
    """

    metric: str
    n_events: int
    n_known: int
    n_new_entities: int
    n_new_agents: int

    def __new__(cls, value: float, metric: str, counts: Counts) -> Self:
        score = super().__new__(cls, value)
        score.metric = metric
        score.n_events = sum(counts)
        score.n_known, score.n_new_entities, score.n_new_agents = counts
        return score

    def __repr__(self) -> str:
        return (
            f"{float(self):.3f} ({self.metric} of {EVENT.count(self.n_events)}; {self.n_known:,} of known entities, "
            f"{self.n_new_entities:,} of new entities, {self.n_new_agents:,} of new agents)"
        )

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        counts = Counts(self.n_known, self.n_new_entities, self.n_new_agents)
        return type(self), (float(self), self.metric, counts)
