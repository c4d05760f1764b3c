"""Running the cells of a study that are not measured yet, several at once, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from experiments.records import RecordFile
from experiments.study import Figures, Record, Settings, Study


def run_study(study: Study, settings: Sequence[Settings], records: RecordFile) -> list[Record]:
    """Measure what is missing; whatever ends the run, what was measured stays on disk."""
    missing = [cell for cell in settings if records.find(cell) is None]
    if not missing:
        return records.tidy(settings)
    n_jobs = min(study.n_jobs or os.cpu_count() or 1, len(missing))
    with tqdm(total=len(settings), initial=len(settings) - len(missing), desc=study.name, unit="cell") as bar:
        if n_jobs == 1:
            for cell in missing:
                records.add(cell, study.measure(**cell))
                bar.update()
        else:
            _in_processes(study, missing, n_jobs, records, bar)
    return records.tidy(settings)


def _in_processes(study: Study, missing: Sequence[Settings], n_jobs: int, records: RecordFile, bar: tqdm) -> None:
    # forked processes would inherit locks of numba's and torch's threads
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_jobs, mp_context=context, initializer=_settle_in)
    try:
        cells: dict[Future[Figures], Settings] = {pool.submit(study.measure, **cell): cell for cell in missing}
        for done in as_completed(cells):
            records.add(cells[done], done.result())
            bar.update()
    finally:
        pool.shutdown(cancel_futures=True)


def _settle_in() -> None:
    """Prepare a worker process: use one thread, and end when the parent process ends."""
    # for libraries that are loaded already, and for those loaded later
    threadpool_limits(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the parent process was killed; a worker would otherwise wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
