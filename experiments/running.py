"""Running the cells of a study that are not measured yet, several at once, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from tqdm.auto import tqdm

from experiments.records import RecordFile
from experiments.study import Figures, Record, Settings, Study

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
    # cells share the cores, so none may spread over all of them
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    # forked processes would inherit locks of numba's and torch's threads
    pool = ProcessPoolExecutor(n_jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        cells: dict[Future[Figures], Settings] = {pool.submit(study.measure, **cell): cell for cell in missing}
        for done in as_completed(cells):
            records.add(cells[done], done.result())
            bar.update()
    finally:
        pool.shutdown(cancel_futures=True)
