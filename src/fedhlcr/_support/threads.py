"""Run blocks of work on plain threads, which works because the kernels release the GIL.

How work is cut into blocks depends on the data only, and results are combined in the order of the blocks. So the number
of threads changes no digit of a result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
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
# Fewest items in a block: below that, waking a thread costs more than it saves.
MIN_ITEMS = 512


@dataclass(frozen=True)
class Blocks:
    """Consecutive ranges of rows with about equally many items."""

    bounds: tuple[int, ...]

    @classmethod
    def balanced(cls, start: NDArray[np.int64]) -> Blocks:
        """Cut rows into blocks with about equally many items; row r holds items [start[r], start[r + 1])."""
        return cls._equal(start, max(1, min(MAX_BLOCKS, int(start[-1]) // MIN_ITEMS)))

    @classmethod
    def of_size(cls, start: NDArray[np.int64], most_items: int) -> Blocks:
        """Cut rows into blocks of about equally many items, and not many more than `most_items`."""
        return cls._equal(start, max(1, -(-int(start[-1]) // most_items)))

    @classmethod
    def even(cls, n_items: int) -> Blocks:
        """Cut items into blocks of about the same size."""
        n_blocks = max(1, min(MAX_BLOCKS, n_items // MIN_ITEMS))
        return cls(tuple(n_items * block // n_blocks for block in range(n_blocks + 1)))

    @classmethod
    def _equal(cls, start: NDArray[np.int64], n_blocks: int) -> Blocks:
        n_rows = len(start) - 1
        n_items = int(start[-1])
        n_blocks = max(1, min(n_blocks, n_rows))
        cuts = np.searchsorted(start, np.linspace(0, n_items, n_blocks + 1)[1:-1])
        return cls(tuple(np.unique([0, *cuts.tolist(), n_rows]).tolist()))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def range(self, block: int) -> tuple[int, int]:
        return self.bounds[block], self.bounds[block + 1]


def available_threads() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


# Whether a function further up has limited BLAS already, which takes longer than a small function.
_has_one_thread: ContextVar[bool] = ContextVar("has_one_thread", default=False)


def single_threaded_blas(function: Function) -> Function:
    """Decorator: run BLAS on one thread inside the function.

    The matrices are small, and with several threads BLAS sums in another order, which changes the last digits.
    """

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        if _has_one_thread.get():
            return function(*args, **kwargs)
        token = _has_one_thread.set(True)
        try:
            with _blas().limit(limits=1):
                return function(*args, **kwargs)
        finally:
            _has_one_thread.reset(token)

    return cast("Function", limited)


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"fedhlcr-{process}")


def run_blocks(task: Callable[[int], Result], n_blocks: int, n_threads: int) -> list[Result]:
    """Run task(0), …, task(n_blocks − 1) on at most n_threads threads; return the results in this order.

    The calling thread works too. Each thread takes the next block when it is free.
    """
    n_threads = min(n_threads, n_blocks)
    if n_threads == 1:
        return [task(block) for block in range(n_blocks)]
    results: dict[int, Result] = {}
    next_block = count().__next__

    def work() -> None:
        while (block := next_block()) < n_blocks:
            results[block] = task(block)

    # pools are kept per process, because the threads of a pool do not survive a fork
    helpers = [_pool(n_threads - 1, os.getpid()).submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        # even after an error, wait: a thread may still write into the caller's arrays
        wait(helpers)
    for helper in helpers:
        helper.result()
    return [results[block] for block in range(n_blocks)]


def stream_results(task: Callable[[int], Result], n_tasks: int, n_threads: int) -> Iterator[Result]:
    """Yield task(0), task(1), … in order; only a few tasks run ahead of the consumer, so memory stays bounded.

    The calling thread works too while the next result is not ready.
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
                # take the first task that no thread has started; if there is none, wait
                free = next((later for later, future in ahead.items() if future.cancel()), None)
                if free is None:
                    break
                del ahead[free]
                own[free] = task(free)
            yield own.pop(number) if number in own else ahead.pop(number).result()
    finally:
        for future in ahead.values():
            future.cancel()
        # even after an error, wait: a thread may still write into the caller's arrays
        wait(ahead.values())
