"""Kernels compiled ahead of their first call, on several cores, with a line that shows how far it is.

Each group is compiled as a whole, when a command asks for it (`prepare`) or when one of its kernels is first called.
Worker processes fill the cache from which this process then loads. The types of arguments are in `signatures.json`,
which `python -m tests.kernels.walk` writes from what fits and predictions call kernels with.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.core import config

from fedhlcr._support.progress import Bar, duration
from fedhlcr._support.threads import available_threads
from fedhlcr._support.wording import Noun
from fedhlcr.kernels.compiling import EVERYTHING, first_call, marker, waiting
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
# Seconds from one line to the next while another process compiles.
BETWEEN_LINES = 30.0
# Lines of a failed compilation that are shown.
MOST_LINES = 3
# What the name of a group says that it is for.
PURPOSE = re.compile(r"(?:\w+ of|fits with) (.*)")

_prepared: set[str] = set()
_lock = threading.RLock()


class Outcome(NamedTuple):
    """How `prepare` ended: a name for programs, a sentence, and the number of kernels that were compiled."""

    name: str
    text: str
    n_compiled: int = 0


KNOWN = Outcome("known", "everything is compiled already")
SWITCHED_OFF = Outcome("switched off", "nothing is compiled: NUMBA_DISABLE_JIT has kernels run as plain Python")
NOWHERE = Outcome(
    "nowhere",
    "compiled kernels cannot be kept, because no folder for them can be written to; name one by NUMBA_CACHE_DIR",
)


class CompilationBar(Bar):
    """A bar that knows how long each kernel takes to compile, relative to the others, and in which order they come."""

    def __init__(self, seconds: Sequence[float], n_workers: int, what: str, enabled: bool) -> None:
        super().__init__(len(seconds), what, KERNEL, enabled)
        self._all = sum(seconds)
        self._left = list(seconds)
        self._n_workers = n_workers
        # by the clock, for all
        self._expected = self._all / n_workers
        # the first kernel takes seconds, and nobody should wait in silence
        self._last_line = -math.inf
        self.advance({}, 0)

    def finish(self, seconds: float) -> None:
        """Count a kernel that takes so many seconds."""
        self._left.remove(seconds)
        # those that are being compiled count half
        done = self._all - sum(self._left) + sum(self._left[: self._n_workers]) / 2
        self._expected = self.seconds_elapsed * self._all / done
        self.advance({})

    @property
    def _filled(self) -> float:
        return (self.total or 0) * (1.0 - sum(self._left) / self._all)

    @property
    def seconds_left(self) -> float | None:
        return max(1.0, self._expected - self.seconds_elapsed) if self._left else None


def prepare(groups: Iterable[str] = GROUPS) -> Outcome:
    """Compile the kernels of groups that are not kept from an earlier time; returns at once if they are.

    Says so if that fails: then this process compiles kernels when it calls them.
    """
    outcome = compile_groups(groups)
    if outcome.name in ("failed", "nowhere"):
        _say_once(f"{outcome.text}. So this process compiles what it needs, one by one")
    return outcome


def compile_groups(groups: Iterable[str]) -> Outcome:
    """Do the same, and leave it to the caller to say what has failed."""
    with waiting.counted(), _lock:
        wanted = [group for group in dict.fromkeys(groups) if group not in _prepared]
        outcome = _prepare(wanted)
        # whoever interrupts it is asked to wait again next time
        _prepared.update(wanted)
        return outcome


def _prepare(groups: list[str]) -> Outcome:
    if _is_switched_off():
        return SWITCHED_OFF
    if not groups or WORKER in os.environ:
        return KNOWN
    if (folder := _folder()) is None:
        return NOWHERE
    if not _missing(groups, folder):
        return KNOWN
    with _alone(folder):
        # another process may have kept some meanwhile
        if not (missing := _missing(groups, folder)):
            return KNOWN
        try:
            outcome = _compile_all(missing)
            if outcome.name == "compiled":
                _mark(missing, folder)
        except OSError as error:
            return Outcome("failed", f"no kernel was compiled: {error}")
        return outcome


def _mark(groups: Iterable[str], folder: Path) -> None:
    """Write down that the kernels of groups are kept."""
    for group in groups:
        (folder / marker(group)).touch()
    if not _missing(GROUPS, folder):
        (folder / marker(EVERYTHING)).touch()


def _missing(groups: Iterable[str], folder: Path) -> list[str]:
    return [group for group in groups if not (folder / marker(group)).exists()]


@cache
def _say_once(text: str) -> None:
    logger.warning(text)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time compile into a folder, so that the others need only load what it has kept."""
    with ExitStack() as stack:
        try:
            _acquire(stack.enter_context((folder / LOCK).open("a")))
        except OSError:
            # another user's lock, or a network file system without locks: then each process compiles for itself
            logger.debug("no lock in the folder of compiled kernels")
        yield


def _acquire(lock: IO[str]) -> None:
    """Wait for a lock, if there are locks, and say now and then that one waits."""
    begun = time.monotonic()
    next_line = 0.0
    while fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            waited = time.monotonic() - begun
            if waited >= next_line:
                so_far = f", {duration(waited)} so far" if next_line else ""
                logger.warning("another process is compiling kernels; waiting for it%s", so_far)
                next_line += BETWEEN_LINES
            time.sleep(0.1)


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


def for_files(likelihood: str, *, federated: bool = False) -> list[str]:
    """The groups that fits to tables in files need, and predictions."""
    return ["tables in files", *for_fits(likelihood, federated=federated)]


def for_adapting(likelihood: str) -> list[str]:
    """The groups that a model needs to take in new events, and for predictions."""
    return ["fits", *OWN_FITS.get(likelihood, ()), *for_predictions(likelihood)]


def for_reports(likelihood: str) -> list[str]:
    """The groups that a report on a model needs: its coefficients are real numbers, whatever the target."""
    return ["predictions of real targets", *for_adapting(likelihood)]


def for_audits(likelihood: str) -> list[str]:
    """The groups that rounds of a federation need, without predictions."""
    return ["federations", "tables", "fits", *OWN_FITS.get(likelihood, ())]


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


def _in_words(groups: Sequence[str]) -> str:
    """What groups are for, in few words: real targets, say; the first group if they are for all targets."""
    return next((found[1] for group in reversed(groups) if (found := PURPOSE.match(group))), groups[0])


def _compile_all(groups: Sequence[str]) -> Outcome:
    """Compile kernels in worker processes, the longest first.

    Each worker takes the next number of a kernel, one byte, from a pipe that all share, and answers by another.
    """
    known = _signatures()
    seconds_of = {name: max(0.1, known[name]["seconds"]) for group in groups for name in GROUPS[group].split()}
    names = sorted(seconds_of, key=lambda name: -seconds_of[name])
    seconds = [seconds_of[name] for name in names]
    what = "compiling" if len(groups) == len(GROUPS) else f"compiling for {_in_words(groups)}"
    n_workers = min(MOST_WORKERS, len(names), available_threads())
    queue, put = os.pipe()
    answers, answer = os.pipe()
    with tempfile.TemporaryFile() as errors, open(answers, "rb", buffering=0) as done:
        with open(put, "wb") as numbers:
            numbers.write(bytes(range(len(names))))
        workers: list[subprocess.Popen[bytes]] = []
        try:
            with open(queue, "rb") as stdin, open(answer, "wb") as stdout:
                streams = {"stdin": stdin, "stdout": stdout, "stderr": errors}
                workers.extend(_start_worker(names, **streams) for _ in range(n_workers))
            with CompilationBar(seconds, n_workers, what, logger.isEnabledFor(logging.WARNING)) as bar:
                for n_done in range(len(names)):
                    if not (number := done.read(1)):
                        codes = {worker.wait() for worker in workers} - {0}
                        return _failure(n_done, len(names), codes, errors)
                    bar.finish(seconds[number[0]])
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    return Outcome("compiled", f"compiled {KERNEL.count(len(names))}", len(names))


def _start_worker(names: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
    # modules are found as they are here
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import work; work()"
    return subprocess.Popen([sys.executable, "-c", code, *names], env={**os.environ, WORKER: "1"}, **streams)


def _failure(n_done: int, n_all: int, codes: Iterable[int], errors: IO[bytes]) -> Outcome:
    """What is known of workers that ended early: their exit codes, and what they said last."""
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip().splitlines()[-MOST_LINES:]
    killed = "a process that compiled was killed, perhaps because memory ran out"
    reasons = [killed] * any(code < 0 for code in codes) + said or ["the processes that compile have ended"]
    return Outcome("failed", f"compiled {n_done} of {KERNEL.count(n_all)} only: {' / '.join(reasons)}", n_done)


def work() -> None:
    """Compile the kernels whose numbers arrive, and answer with the same numbers."""
    known = _signatures()
    # whatever else is printed goes to the errors
    answers = os.dup(1)
    os.dup2(2, 1)
    # the compiler makes millions of small objects, and the process is short
    gc.disable()
    while number := os.read(0, 1):
        _compile(sys.argv[1:][number[0]], known)
        os.write(answers, number)


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
