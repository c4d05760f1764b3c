"""Hold out some events of each entity, to evaluate a model on entities it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import ranges
from fedhlcr.data.hierarchy import index_pairs, row_agents, row_entities
from fedhlcr.data.ids import Ids
from fedhlcr.exceptions import ArgumentError, DataError


def hold_out_events(
    agent: Any, entity: Any, *, fraction: float = 0.2, random_state: Any = 0
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Hold out about `fraction` of each entity's events, but never all of them.

    Parameters
    ----------
    agent : array (n_events,) of ids; None if all rows belong to one agent
    entity : array (n_events,) of ids; two agents may use the same
    fraction : float, default=0.2
        Share to hold out, above 0 and below 1. It holds on average if an entity's events cannot be split exactly.
    random_state : int, RandomState instance or None, default=0
        Seed of the choice. None gives another choice each time.

    Returns
    -------
    train, test : row numbers, ascending

    Examples
    --------
    >>> from fedhlcr import hold_out_events
    >>> train, test = hold_out_events(["a"] * 10, [1] * 5 + [2] * 5)
    >>> len(train), len(test)
    (8, 2)
    """
    if not 0 < fraction < 1:
        raise ArgumentError(f"`fraction` must lie between 0 and 1, but is {fraction}.")
    if entity is None:
        raise ArgumentError(
            "`entity` is missing; pass one entity id per event row, and `agent=None` if there is one agent."
        )
    n_rows = _n_rows(entity)
    if agent is not None and (n_agents := _n_rows(agent)) != n_rows:
        raise ArgumentError(
            f"`agent` has {n_agents} rows but `entity` has {n_rows}; pass one id of each per event row."
        )
    agents = row_agents(agent, n_rows)
    entities = row_entities(entity, n_rows)
    index, pair = index_pairs(agents, entities, agents.codes, entities.codes)
    is_test = held_out(pair, index.n_entities, fraction, random_state)
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def held_out(pair: NDArray[np.integer], n_pairs: int, fraction: float, random_state: Any) -> NDArray[np.bool_]:
    """Return which rows to hold out, given the position of each row's agent–entity pair in natural order.

    It takes about 25 bytes of memory for each row if positions have 4 bytes.
    """
    rng = _generator(random_state)
    n_rows = len(pair)
    # the smallest type that holds row numbers, because there may be many
    shuffled = rng.permutation(n_rows).astype(np.int32 if n_rows < 2**31 else np.int64)
    shuffled = shuffled[np.argsort(pair[shuffled], kind="stable")]
    size = np.bincount(pair, minlength=n_pairs)
    # counts are rounded up or down at random, so that the share is right on average
    n_test = np.minimum(np.floor(fraction * size + rng.uniform(size=len(size))), size - 1).astype(np.int64)
    # the first rows of each pair, in shuffled order
    is_test = np.zeros(n_rows, dtype=bool)
    is_test[shuffled[ranges(np.cumsum(size) - size, n_test)]] = True
    return is_test


def _generator(random_state: Any) -> np.random.RandomState:
    """The generator that scikit-learn makes of a seed, without importing it for a plain number."""
    if isinstance(random_state, int):
        return np.random.RandomState(random_state)
    from sklearn.utils import check_random_state

    return check_random_state(random_state)


def _n_rows(ids: Any) -> int:
    return len(ids.codes if isinstance(ids, Ids) else ids)


def nothing_held_out() -> DataError:
    return DataError("no entity has enough events to hold some out; hold out a larger share, or add events.")
