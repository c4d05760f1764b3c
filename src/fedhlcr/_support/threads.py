"""Blocks of work on plain threads: the kernels release the GIL.

How work is cut into blocks depends on the data alone, never on the number of threads, and results
are put together in the order of the blocks: so a thread more or less changes no digit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, wraps
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

MAX_BLOCKS = 16
# Items below which a block is not worth a thread's wake-up.
MIN_ITEMS = 512


@dataclass(frozen=True)
class Blocks:
    """Consecutive ranges of rows, each with about as many items."""

    bounds: tuple[int, ...]

    @classmethod
    def balanced(cls, start: NDArray[np.int64]) -> Blocks:
        """Cut rows, of which row r holds items [start[r], start[r + 1]), into blocks of like size."""
        n_rows, n_items = len(start) - 1, int(start[-1])
        n_blocks = max(1, min(MAX_BLOCKS, n_rows, n_items // MIN_ITEMS))
        cuts = np.searchsorted(start, np.linspace(0, n_items, n_blocks + 1)[1:-1])
        return cls(tuple(np.unique([0, *cuts.tolist(), n_rows]).tolist()))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def range(self, block: int) -> tuple[int, int]:
        return self.bounds[block], self.bounds[block + 1]


def available_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def single_threaded_blas(function: Function) -> Function:
    """Decorator: linear algebra inside runs on one thread.

    The matrices are small, and on several threads BLAS adds in another order: other digits.
    """

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        with _blas().limit(limits=1):
            return function(*args, **kwargs)

    return cast("Function", limited)


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"fedhlcr-{process}")


def run_blocks(task: Callable[[int], Result], n_blocks: int, n_threads: int) -> list[Result]:
    """task(0), …, task(n_blocks − 1), on at most n_threads threads; results in the order of the blocks.

    The calling thread works too, and whoever is free takes the next block: no hand-over per block.
    """
    n_threads = min(n_threads, n_blocks)
    if n_threads == 1:
        return [task(block) for block in range(n_blocks)]
    results: dict[int, Result] = {}
    next_block = count().__next__

    def work() -> None:
        while (block := next_block()) < n_blocks:
            results[block] = task(block)

    # a pool does not survive a fork: the child makes its own
    helpers = [_pool(n_threads - 1, os.getpid()).submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        # never leave a thread behind that still writes into the caller's arrays
        wait(helpers)
    for helper in helpers:
        helper.result()
    return [results[block] for block in range(n_blocks)]


def stream_results(task: Callable[[int], Result], n_tasks: int, n_threads: int) -> Iterator[Result]:
    """task(0), task(1), … in order, each handed over as it is done; only a few are ahead of the one that takes them.

    The calling thread works too, when what it wants next is not there yet.
    """
    if n_threads == 1 or n_tasks < 2:
        yield from map(task, range(n_tasks))
        return
    pool = _pool(n_threads - 1, os.getpid())
    ahead: dict[int, Future[Result]] = {}
    own: dict[int, Result] = {}
    try:
        for number in range(n_tasks):
            for later in range(number, min(number + 2 * n_threads, n_tasks)):
                if later not in ahead and later not in own:
                    ahead[later] = pool.submit(task, later)
            while number not in own and not ahead[number].done():
                # the first that no thread has begun; if there is none, wait
                free = next((later for later, future in ahead.items() if future.cancel()), None)
                if free is None:
                    break
                del ahead[free]
                own[free] = task(free)
            yield own.pop(number) if number in own else ahead.pop(number).result()
    finally:
        for future in ahead.values():
            future.cancel()
        # never leave a thread behind that still writes into the caller's arrays
        wait(ahead.values())
