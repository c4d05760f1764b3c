"""Kernels compiled ahead of their first call, on several cores, with a line that shows how far it is.

Each group is compiled as a whole, when a command asks for it (`prepare`) or when one of its kernels is first called.
Worker processes fill the cache from which this process then loads. The types of arguments are in `signatures.json`,
which `python -m tests.kernels.walk` writes from what fits and predictions call kernels with.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.core import config

from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import Noun, listed
from fedhlcr.kernels.compiling import STAMP, first_call, waiting
from fedhlcr.kernels.uniforms import keyed_uniforms

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

KERNEL = Noun("kernel", "kernels")
# The kernels that are called from outside of this package, by what they are for.
GROUPS = {
    "tables": "sorting.find_pairs sorting.pairs_ascend sorting.sort_rows sorting.take_rows texts.enter_texts "
    "texts.find_texts grams.accumulate_grams",
    "fits": "labels.relabel_agents effective.effective_grams effective.move_targets evidence.write_figures "
    "evidence.add_evidence evidence.add_log_densities grams.add_rows grams.sum_rows grams.move_grams "
    "exact_sums.add_events exact_sums.add_totals",
    "fits of real targets": "mixed_sweep.sweep_agents profiles.own_left_out_rows",
    "fits with Student-t noise": "weights.draw_weights effects.draw_effects weights.weighted_grams grams.add_chosen",
    "fits of classes and counts": "effects.draw_effects weights.weighted_grams weights.weighted_sums grams.add_chosen "
    "logits.draw_weights logits.move_targets logits.write_log_likelihoods evidence.add_scale_scores "
    "logits.integrated_densities",
    "fits of counts": "keyed.keyed_steps logits.event_log_likelihoods",
    "federations": "effects.draw_effects grams.add_chosen grams.change_units grams.check_grams grams.group_means "
    "grams.sum_by_cluster",
    "predictions": "label_weights.count_agent label_weights.count_profiles labels.responsibilities "
    "profiles.coef_moments profiles.gather_draws profiles.sort_rows effective.effective_grams effective.move_targets",
    "predictions of real targets": "label_weights.label_weights profiles.own_log_density_rows profiles.own_mean_rows "
    "profiles.own_mixture_rows mixtures.log_density_rows mixtures.mean_rows mixtures.mixture_rows",
    "predictions with weights of events": "weights.weighted_grams weights.weighted_grams_by_draw",
    "predictions of classes": "responses.probability_rows logits.write_log_likelihoods",
    "predictions of counts": "count_laws.count_intervals count_laws.count_log_densities count_laws.count_quantiles "
    "count_laws.write_laws responses.count_rows responses.point_rows logits.write_log_likelihoods",
    "tables in files": "order_statistics.collect_keys order_statistics.count_digits sorting.count_events "
    "sorting.place_events texts.add_numbers texts.add_texts texts.enter_numbers",
    "the paper's samplers": "labels.blend_agents labels.collapsed_sweep labels.count_agents",
}
# What the likelihoods need besides; others need what those of real targets do.
OWN_FITS = {
    "mixed, student noise": ("fits with Student-t noise",),
    "logistic": ("fits of classes and counts",),
    "negative binomial": ("fits of classes and counts", "fits of counts"),
}
OWN_PREDICTIONS = {
    "mixed, student noise": ("predictions of real targets", "predictions with weights of events"),
    "logistic": ("predictions with weights of events", "predictions of classes"),
    "negative binomial": ("predictions with weights of events", "predictions of counts"),
}
SIGNATURES = Path(__file__).with_name("signatures.json")
# More processes than this hardly save time, because one kernel takes a fifth of it.
MOST_WORKERS = 6
# Marks the processes that compile.
WORKER = "FEDHLCR_COMPILES"
# Held by the process that compiles, in the folder of compiled kernels.
LOCK = "ahead.lock"

_prepared: set[str] = set()
_lock = threading.RLock()


class CompilationBar(Bar):
    """A bar that knows how long each kernel takes to compile, relative to the others."""

    def __init__(self, seconds: Sequence[float], what: str, enabled: bool) -> None:
        super().__init__(len(seconds), what, KERNEL, enabled)
        self._left = sum(seconds)
        self._all = sum(seconds)
        # the first kernel takes seconds, and nobody should wait in silence
        self._last_line = -math.inf
        self.advance({}, 0)

    def finish(self, seconds: float) -> None:
        """Count a kernel that is expected to take so many seconds."""
        self._left -= seconds
        self.advance({})

    @property
    def seconds_left(self) -> float | None:
        done = self._all - self._left
        return None if done <= 0.0 or self._done == self.total else self.seconds_elapsed * self._left / done


def prepare(groups: Iterable[str] = GROUPS) -> int:
    """Compile the kernels of groups that are not kept from an earlier time; return their number.

    Returns at once if they are. Where compiled kernels cannot be kept, each is compiled when it is called.
    """
    with _lock, waiting.counted():
        wanted = [group for group in groups if group not in _prepared]
        _prepared.update(wanted)
        if _is_switched_off() or WORKER in os.environ or (folder := _folder()) is None:
            return 0
        markers = {group: folder / f"ahead-{_fingerprint(group)}.nbx" for group in wanted}
        if all(marker.exists() for marker in markers.values()):
            return 0
        with _alone(folder):
            # another process may have kept some meanwhile
            missing = [group for group in wanted if not markers[group].exists()]
            names = list(dict.fromkeys(name for group in missing for name in GROUPS[group].split()))
            if not names or not _compile_all(names, missing, enabled=logger.isEnabledFor(logging.WARNING)):
                return 0
            for group in missing:
                markers[group].touch()
            return len(names)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time compile into a folder, so that the others need only load what it has kept."""
    with (folder / LOCK).open("a") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.warning("another process is compiling kernels; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                # some network file systems have no locks: then each process compiles for itself
                logger.debug("no locks in the folder of compiled kernels")
        yield


def load(groups: Iterable[str]) -> None:
    """Compile and load the kernels of groups, so that what is measured afterwards does neither."""
    groups = list(groups)
    prepare(groups)
    if not _is_switched_off():
        known = _signatures()
        for name in dict.fromkeys(name for group in groups for name in GROUPS[group].split()):
            _compile(name, known)


def for_predictions(likelihood: str) -> list[str]:
    """The groups that predictions of a likelihood need, given its name."""
    return ["tables", "predictions", *OWN_PREDICTIONS.get(likelihood, ("predictions of real targets",))]


def for_fits(likelihood: str, *, federated: bool = False) -> list[str]:
    """The groups that fits of a likelihood need, and predictions: whoever fits a model predicts with it."""
    own = OWN_FITS.get(likelihood, ("fits of real targets",))
    return ["fits", *own, *(["federations"] if federated else []), *for_predictions(likelihood)]


def prepare_for(function: Callable[..., Any]) -> None:
    """Compile the group of a kernel that is called for the first time."""
    package, _, module = function.__module__.rpartition(".")
    if package == __package__:
        name = f"{module}.{function.__qualname__}"
        groups = [group for group, names in GROUPS.items() if name in names.split()]
        if not _prepared.intersection(groups):
            prepare(groups[:1])


first_call.prepare = prepare_for


def _is_switched_off() -> bool:
    """Whether NUMBA_DISABLE_JIT has kernels run as plain Python."""
    return bool(config.DISABLE_JIT)  # type: ignore[attr-defined]


def _folder() -> Path | None:
    """Where compiled kernels are kept; None if they cannot be."""
    path = keyed_uniforms.stats.cache_path
    return None if path is None else Path(path)


def _fingerprint(group: str) -> str:
    """Changes with whatever makes numba compile again: sources, versions, processor."""
    machine = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    made_of = group, GROUPS[group], STAMP, numba.__version__, llvmlite.__version__, sys.version, machine
    return hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]


def _in_words(groups: list[str]) -> str:
    """tables, fits and predictions of real targets"""
    own = [group for group in groups if not any(other.startswith(f"{group} ") for other in groups)]
    return listed([group.removesuffix(" of real targets") for group in own[:-1]] + own[-1:])


def _compile_all(names: list[str], groups: list[str], *, enabled: bool) -> bool:
    """Compile kernels in worker processes, the longest first; return whether all are done."""
    known = _signatures()
    queue = sorted(names, key=lambda name: -known[name]["seconds"])
    what = "compiling" if len(groups) == len(GROUPS) else f"compiling for {_in_words(groups)}"
    with CompilationBar([known[name]["seconds"] for name in names], what, enabled) as bar:
        n_workers = min(MOST_WORKERS, len(names), os.cpu_count() or 1)
        done: list[str] = []
        counting = threading.Lock()

        def run() -> None:
            with _Worker() as worker:
                while queue:
                    name = queue.pop(0)
                    if not worker.compiles(name):
                        return
                    with counting:
                        done.append(name)
                        bar.finish(known[name]["seconds"])

        threads = [threading.Thread(target=run, daemon=True) for _ in range(n_workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return len(done) == len(names)


class _Worker:
    """A process that compiles kernels, one after the other."""

    def __enter__(self) -> _Worker:
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path, WORKER: "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def compiles(self, name: str) -> bool:
        """Compile a kernel and keep it; False if the process has ended before it was done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
        except OSError:
            return False
        return self._process.stdout.readline().strip() == name


def work() -> None:
    """Compile each kernel whose name arrives, and answer with its name."""
    known = _signatures()
    # the compiler makes millions of small objects, and the process is short
    gc.disable()
    for line in sys.stdin:
        _compile(line.strip(), known)
        print(line.strip(), flush=True)


def _compile(name: str, known: dict[str, dict[str, Any]]) -> None:
    module, _, function = name.partition(".")
    kernel = getattr(import_module(f"{__package__}.{module}"), function)
    kernel.compile(tuple(numba_type(of) for of in known[name]["types"]))


def _signatures() -> dict[str, dict[str, Any]]:
    return json.loads(SIGNATURES.read_text())


def numba_type(of: str | list[Any]) -> Any:
    """The type that `signatures.json` describes.

    "f8" is a number, "f8:2" an array with two axes, a list a tuple, whose first item is the named tuple's module and
    name, or nothing.
    """
    if isinstance(of, list):
        name, *parts = of
        module, _, class_name = name.partition(".")
        named = getattr(import_module(f"{__package__}.{module}"), class_name) if name else None
        return types.BaseTuple.from_types([numba_type(part) for part in parts], named)
    dtype, _, n_axes = of.partition(":")
    number = numba.from_dtype(np.dtype(dtype))
    return types.Array(number, int(n_axes), "C") if n_axes else number
