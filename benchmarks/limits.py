"""What the machine can do at best: multiply, copy, read Parquet and write a file. Other rows are read beside these."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks.blocked import threads_each
from benchmarks.report import Findings, Limit, Options, say
from benchmarks.timing import Side, samples, seconds_of
from fedhlcr._support.threads import run_blocks

N_ENTITIES, N_PACKED, N_CLUSTERS = 160_000, 171, 16  # the product of a sweep over L
COLUMNS = 11  # of the Parquet file: two ids, the target, eight features
BATCH_SECONDS = 0.5
STREAMED_EVENTS, DISK_READ = "the same, of events with two ids and eight features", "read of a file from disk"


def run(options: Options) -> Findings:
    rng = np.random.default_rng(options.seed)
    n_entities = N_ENTITIES // 8 if options.quick else N_ENTITIES
    rounds = 3 if options.quick else 7
    limits = [*_product(rng, n_entities, options.threads, rounds), *_copy(n_entities, options.threads, rounds)]
    limits += _files(rng, 500_000 if options.quick else 5_000_000, rounds)
    for limit in limits:
        say("limits", f"{limit.what}: {limit.value:.4g} {limit.unit}")
    return Findings(limits=limits)


def _product(rng: np.random.Generator, n_entities: int, n_threads: int, rounds: int) -> list[Limit]:
    """Speed of the matrix product that a sweep cannot do without."""
    left, right = rng.standard_normal((n_entities, N_PACKED)), rng.standard_normal((N_PACKED, N_CLUSTERS))
    out = np.empty((n_entities, N_CLUSTERS))
    counts = sorted({1, n_threads})
    sides = [
        Side(lambda: np.matmul(left, right, out=out), partial(threadpool_limits, n, user_api="blas")) for n in counts
    ]
    seconds = map(median, samples(*sides, rounds=rounds, batch_seconds=BATCH_SECONDS))
    operations = 2 * n_entities * N_PACKED * N_CLUSTERS
    shape = f"({n_entities:,} × {N_PACKED}) · ({N_PACKED} × {N_CLUSTERS})"
    return [
        Limit(f"matrix product {shape}, {threads_each(n)}", operations / own / 1e9, "GFLOP/s")
        for n, own in zip(counts, seconds, strict=True)
    ]


def _copy(n_entities: int, n_threads: int, rounds: int) -> list[Limit]:
    """Speed of a copy in memory; the bytes read and those written both count."""
    source = np.ones(n_entities * N_PACKED)
    target = np.empty_like(source)
    pieces = list(zip(np.array_split(target, 16), np.array_split(source, 16), strict=True))

    def copy(n: int) -> None:
        run_blocks(lambda piece: np.copyto(*pieces[piece]), len(pieces), n)

    counts = sorted({1, n_threads})
    sides = [Side(partial(copy, n)) for n in counts]
    seconds = map(median, samples(*sides, rounds=rounds, batch_seconds=BATCH_SECONDS))
    return [
        Limit(
            f"copy of {source.nbytes / 1e6:,.0f} MB in memory, {threads_each(n)}", 2 * source.nbytes / own / 1e9, "GB/s"
        )
        for n, own in zip(counts, seconds, strict=True)
    ]


def _files(rng: np.random.Generator, n_rows: int, rounds: int) -> list[Limit]:
    """Reading a Parquet file in batches, as streaming fits do, and writing a file and waiting for the disk."""
    columns = {f"c{number}": rng.standard_normal(n_rows) for number in range(COLUMNS)}
    block = np.ones(2**24)
    with tempfile.TemporaryDirectory() as directory:
        path, plain = Path(directory, "rows.parquet"), Path(directory, "plain")
        pq.write_table(pa.table(columns), path)
        reads = [seconds_of(partial(_stream, path)) for _ in range(rounds)]
        writes = [seconds_of(partial(_write, plain, block)) for _ in range(rounds)]
        rereads = []
        for _ in range(rounds):
            _forget(plain)
            rereads.append(seconds_of(partial(_read, plain)))
    size = n_rows * COLUMNS * 8
    return [
        Limit("streaming read of Parquet, in batches", size / median(reads) / 1e6, "MB/s"),
        Limit(STREAMED_EVENTS, n_rows / median(reads) / 1e6, "million events/s"),
        Limit(DISK_READ, block.nbytes / median(rereads) / 1e6, "MB/s"),
        Limit("write of a file, until it is on disk", block.nbytes / median(writes) / 1e6, "MB/s"),
    ]


def _stream(path: Path) -> int:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return sum(batch.num_rows for batch in file.iter_batches(batch_size=65_536))


def _write(path: Path, block: np.ndarray) -> None:
    with path.open("wb") as file:
        file.write(block.data)
        file.flush()
        os.fsync(file.fileno())


def _forget(path: Path) -> None:
    """Let the system drop the file from its cache, where it can."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> int:
    with path.open("rb") as file:
        buffer = bytearray(2**22)
        return sum(iter(lambda: file.readinto(buffer), 0))
