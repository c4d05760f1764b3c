"""What fits on a page: it has at most 3 MB, whatever the names of agents and entities are.

First the explorer's lines and events get less room, then the table of entities has fewer rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedhlcr._support.arrays import FloatArray
from fedhlcr.report.packing import SMALLEST_SHARE, size_of_names

# Characters for the tables of agents and entities, with cluster probabilities, and for the explorer's details. The
# words, pictures and map of a page take up to 650,000.
ROOM = 2_300_000
# Least and most characters for lines, events and neighbours of single entities.
LEAST_DETAILS = 150_000
MOST_DETAILS = 400_000
# Characters of a row and of each cluster probability in it, besides its names.
AGENT_ROW = 24.0
AGENT_SHARE = 7.0
ENTITY_ROW = 7.0
ENTITY_SHARE = 5.0
# Of more entities than this, the page keeps fewer digits and details.
MANY_ENTITIES = 20_000
# Clusters named for each agent and entity; fewer if there are very many entities.
MAX_SHARES = 12
FEW_SHARES = 4


def most_shares(n_entities: int) -> int:
    """How many clusters are named for each entity."""
    return FEW_SHARES if n_entities > MANY_ENTITIES else MAX_SHARES


def size_of_agents(names: Sequence[str], weights: FloatArray) -> float:
    """About how many characters agents take, with shares (agents, clusters) of their entities."""
    return size_of_names(names) + len(names) * AGENT_ROW + AGENT_SHARE * _n_shares(weights, MAX_SHARES)


def size_of_entities(names: Sequence[str], probability: FloatArray, n_all: int) -> float:
    """About how many characters entities take: distinct names and probabilities (rows, clusters), of `n_all` in all."""
    return (
        size_of_names(names) + len(probability) * ENTITY_ROW + ENTITY_SHARE * _n_shares(probability, most_shares(n_all))
    )


def rows_that_fit(n_rows: int, agents: float, entities: float) -> int:
    """How many of so many rows of entities fit, from the sizes of agents and of all these rows."""
    room = ROOM - LEAST_DETAILS - agents
    return n_rows if entities <= room else max(1, int(n_rows * room / entities))


def room_for_details(agents: float, entities: float) -> float:
    """How many characters are left for lines, events and neighbours, from the sizes of agents and entities."""
    return min(MOST_DETAILS, max(LEAST_DETAILS, ROOM - agents - entities))


def _n_shares(shares: FloatArray, most: int) -> float:
    """How many shares are kept of all rows."""
    return float((shares >= SMALLEST_SHARE).sum(axis=1).clip(min=1, max=most).sum())
