"""What `ahead.prepare` says and does if nothing can be compiled, kept or finished."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numba
import pytest

import fedhlcr
from fedhlcr.cli import run
from fedhlcr.estimators.progress import FitClock
from fedhlcr.kernels import ahead
from fedhlcr.kernels.compiling import waiting

compiles = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of compiled kernels, in a process that has compiled nothing and is not quiet."""
    # a command of an earlier test may have been
    logging.getLogger("fedhlcr.kernels").setLevel(logging.NOTSET)
    monkeypatch.setattr(ahead, "_folder", lambda: tmp_path)
    monkeypatch.setattr(ahead, "_prepared", set())
    monkeypatch.setattr(ahead, "_is_switched_off", lambda: False)
    monkeypatch.delenv(ahead.WORKER, raising=False)
    ahead._say_once.cache_clear()
    return tmp_path


def start_workers(monkeypatch, code):
    """Let workers run other code; return those that were started."""
    started = []

    def start(names, **streams):
        process = subprocess.Popen([sys.executable, "-c", code, *names], **streams)
        started.append(process)
        return process

    monkeypatch.setattr(ahead, "_start_worker", start)
    return started


ANSWER = """
import os
while number := os.read(0, 1):
    os.write(1, number)
"""


def test_all_numbers_are_answered_once(folder, monkeypatch):
    started = start_workers(monkeypatch, ANSWER)
    outcome = ahead.prepare()
    assert outcome.name == "compiled"
    assert outcome.n_compiled == len({name for names in ahead.GROUPS.values() for name in names.split()})
    assert ahead.prepare() == ahead.KNOWN
    monkeypatch.setattr(ahead, "_prepared", set())
    assert ahead.prepare() == ahead.KNOWN
    assert all(worker.poll() is not None for worker in started)


def test_failure_says_what_the_worker_said_last(folder, monkeypatch, caplog):
    start_workers(monkeypatch, "raise MemoryError('no room for a kernel')")
    assert ahead.prepare(["fits"]).name == "failed"
    assert "no room for a kernel" in caplog.text
    # once per process is enough
    assert ahead.prepare(["fits"]) == ahead.KNOWN


def test_killed_workers_are_no_success(folder, monkeypatch, capsys):
    start_workers(monkeypatch, "import os, signal; os.read(0, 1); os.kill(os.getpid(), signal.SIGKILL)")
    assert run(["compile", "--json"]) == 1
    shown = capsys.readouterr()
    assert '"outcome": "failed"' in shown.out
    assert "killed" in shown.err
    assert "memory" in shown.err


def test_worker_that_cannot_be_started_is_no_error_of_a_fit(folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(folder / "no-python"))
    assert ahead.prepare(["fits"]).name == "failed"


def test_command_without_a_folder_says_so(folder, monkeypatch, capsys, caplog):
    monkeypatch.setattr(ahead, "_folder", lambda: None)
    assert run(["compile"]) == 5
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
    assert not caplog.records
    monkeypatch.setattr(ahead, "_prepared", set())
    for group in ("fits", "tables"):
        assert ahead.prepare([group]) == ahead.NOWHERE
    assert len(caplog.records) == 1


def test_command_without_compiler_says_so(folder, monkeypatch, capsys):
    monkeypatch.setattr(ahead, "_is_switched_off", lambda: True)
    assert run(["compile"]) == 0
    assert "NUMBA_DISABLE_JIT" in capsys.readouterr().out


def test_interrupted_compilation_ends_and_begins_again(folder, monkeypatch):
    started = start_workers(monkeypatch, ANSWER + "    import time; time.sleep(60)")

    def interrupt(self, seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ahead.CompilationBar, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ahead.prepare(["fits"])
    assert started
    assert all(worker.poll() is not None for worker in started)
    start_workers(monkeypatch, ANSWER)
    assert ahead.prepare(["fits"]).name == "compiled"


def test_lock_of_another_user_is_done_without(folder, monkeypatch):
    start_workers(monkeypatch, ANSWER)
    # cannot be opened for writing, not even by root
    (folder / ahead.LOCK).mkdir()
    assert ahead.prepare(["fits"]).name == "compiled"


@pytest.mark.skipif(ahead.fcntl is None, reason="there are no locks")
def test_whoever_waits_for_another_process_says_so_again(folder, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "BETWEEN_LINES", 0.05)
    start_workers(monkeypatch, ANSWER)
    with (folder / ahead.LOCK).open("a") as lock:
        ahead.fcntl.flock(lock, ahead.fcntl.LOCK_EX)
        thread = threading.Thread(target=ahead.prepare, args=(["fits"],))
        thread.start()
        time.sleep(0.5)
    thread.join()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) > 1
    assert all("another process" in line for line in lines)


def test_waiting_of_another_thread_is_no_time_of_this_fit():
    clock = FitClock()

    def wait():
        with waiting.counted():
            time.sleep(0.2)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert clock.seconds().compiling == 0.0
    assert clock.seconds().computing > 0.1


@pytest.mark.parametrize("options", [["--quiet"], ["--no-progress"]])
def test_silent_commands_do_not_count_kernels(options, folder, monkeypatch, capsys):
    start_workers(monkeypatch, ANSWER)
    try:
        assert run(["compile", *options]) == 0
        assert capsys.readouterr().err == ""
    finally:
        logging.getLogger("fedhlcr.kernels").setLevel(logging.NOTSET)


# Runs in a copy of the package whose folder seems to be read-only: root may write everywhere.
READ_ONLY = """
import os, sys, tempfile
from pathlib import Path
beside = Path(sys.argv[1]) / "fedhlcr" / "kernels" / "__pycache__"
can_access, temporary_file = os.access, tempfile.TemporaryFile
os.access = lambda path, mode: can_access(path, mode) and not (mode & os.W_OK and Path(path) == beside)
def refuse(*args, dir=None, **options):
    if dir is not None and Path(dir) == beside:
        raise PermissionError(13, "read-only")
    return temporary_file(*args, dir=dir, **options)
tempfile.TemporaryFile = refuse
"""
WRITABLE = """
from fedhlcr.kernels import ahead, compiling
# as if all had been compiled
ahead._mark(ahead.GROUPS, compiling.BESIDE)
ahead._compile("exact_sums.add_totals", ahead._signatures())
"""
USE = """
from numba.core import event
from fedhlcr.kernels import ahead
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
assert ahead.prepare() == ahead.KNOWN
files = sorted(os.listdir(beside))
ahead._compile("exact_sums.add_totals", ahead._signatures())
print(compiled)
ahead._compile("grams.move_grams", ahead._signatures())
print("move_grams" in compiled)
assert [name for name in sorted(os.listdir(beside)) if name.endswith(("nbi", "nbc"))] == [
    name for name in files if name.endswith(("nbi", "nbc"))
]
"""


@compiles
@pytest.mark.slow
@pytest.mark.ci
def test_kernels_compiled_ahead_are_read_where_nobody_may_write(tmp_path):
    shutil.copytree(Path(fedhlcr.__file__).parent, tmp_path / "fedhlcr", ignore=shutil.ignore_patterns("__pycache__"))
    # and there is no other folder either
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "HOME": os.devnull}

    def python(code):
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    python(WRITABLE)
    assert python(READ_ONLY + USE).split("\n")[:2] == ["[]", "True"]


@contextmanager
def terminal(width):
    """A terminal; yields what a process writes to, and a function that returns what was shown."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))

    def shown():
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 1 << 16):
                text += part
        except OSError:
            # how a terminal says that nobody writes to it any more
            pass
        return text.decode()

    yield theirs, shown
    os.close(ours)


SHOW = """
import sys, time
from fedhlcr.kernels import ahead
for groups in sys.argv[1:]:
    what = f"compiling for {ahead._in_words(groups.split('|'))}"
    with ahead.CompilationBar([90.0] * 4 + [3.0] * 34, 2, what, True) as bar:
        time.sleep(1.2)
        bar.finish(90.0)
        time.sleep(0.2)
"""
WANTED = {
    "real targets": ahead.for_fits("mixed, entity noise", federated=True),
    "classes": ahead.for_fits("logistic", federated=True),
    "counts": ahead.for_reports("negative binomial"),
    "Student-t noise": ["fits with Student-t noise", "predictions with weights of events"],
    "federations": ahead.for_audits("mixed, entity noise"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("width", [80, 60])
def test_terminal_shows_number_total_and_time_left(width):
    with terminal(width) as (stream, shown):
        command = [sys.executable, "-c", SHOW, *("|".join(groups) for groups in WANTED.values())]
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("COLUMNS", None)
        subprocess.run(command, stderr=stream, check=True, env=environment)
        text = shown()
    for name in WANTED:
        assert f"compiling for {name}"[: width // 4] in text
        if width == 80:
            assert f"compiling for {name}"[:26] in text
    assert text.count("0 of 38 kernels, about 3:51 min left") >= len(WANTED)
    # the clock moves on while no kernel is finished
    assert text.count("0 of 38 kernels, about 3:50 min left") >= len(WANTED)
    assert text.count("1 of 38 kernels, about ") >= len(WANTED)
