"""Kernels for sorting events by agent and entity. Stable sorts by counting: no rows are compared with each other."""

from __future__ import annotations

from fedhlcr.kernels.compiling import kernel


@kernel
def count_events(entity, counted, counts):
    """counts[entity[n]] += 1 for every event n that is counted."""
    for n in range(entity.shape[0]):
        if counted[n]:
            counts[entity[n]] += 1


@kernel
def place_events(entity, following, out):
    """out[n] = following[entity[n]], which then grows by 1: events of an entity follow each other."""
    for n in range(entity.shape[0]):
        out[n] = following[entity[n]]
        following[entity[n]] += 1


@kernel
def pairs_ascend(agents, entities):
    """Whether the pairs (agents[n], entities[n]) are in ascending order."""
    for n in range(1, agents.shape[0]):
        if agents[n] < agents[n - 1] or (agents[n] == agents[n - 1] and entities[n] < entities[n - 1]):
            return False
    return True


@kernel
def sort_rows(codes, rows, places, out):
    """Write `rows` into `out` in the order of codes[row]; rows with the same code keep their order.

    `places` (codes + 1,) is overwritten.
    """
    for code in range(places.shape[0]):
        places[code] = 0
    for row in rows:
        places[codes[row] + 1] += 1
    for code in range(1, places.shape[0]):
        places[code] += places[code - 1]
    for row in rows:
        place = places[codes[row]]
        out[place] = row
        places[codes[row]] = place + 1


@kernel
def find_pairs(agents, entities, rows, pair_agents, pair_entities, starts):
    """Find the distinct pairs of sorted rows; return how many there are.

    Pair p is (pair_agents[p], pair_entities[p]), and its rows are rows[starts[p]:starts[p + 1]]. `starts` needs room
    for one number more than there are pairs.
    """
    n_pairs = 0
    for n in range(rows.shape[0]):
        agent = agents[rows[n]]
        entity = entities[rows[n]]
        if n == 0 or agent != pair_agents[n_pairs - 1] or entity != pair_entities[n_pairs - 1]:
            pair_agents[n_pairs] = agent
            pair_entities[n_pairs] = entity
            starts[n_pairs] = n
            n_pairs += 1
    starts[n_pairs] = rows.shape[0]
    return n_pairs


@kernel
def take_rows(table, rows, out):
    """out[n] = table[rows[n]] for a table of two dimensions."""
    for n in range(rows.shape[0]):
        # no row is below 0; a compiler that knows it copies three times as fast
        row = max(rows[n], 0)
        for f in range(table.shape[1]):
            out[n, f] = table[row, f]
