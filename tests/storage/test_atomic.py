"""Files are written completely or not at all, and a killed process leaves nothing for ever."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from fedhlcr.storage import atomic

KILLED = """
import os, signal, sys, time
from fedhlcr.storage import atomic

def hang(descriptor):
    print("writing", flush=True)
    time.sleep(600)

os.fsync = hang
atomic.replace_file(sys.argv[1], b"new")
"""


@pytest.fixture
def writer(tmp_path):
    """A process that has written a draft of `file` and hangs before it renames it."""
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "file")], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        yield process
        process.kill()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_next_write_removes_the_draft_of_a_killed_process(writer, tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert len(names(tmp_path)) == 2
    assert (tmp_path / "file").read_bytes() == b"old"
    atomic.replace_file(tmp_path / "other", b"other")
    assert names(tmp_path) == ["file", "other"]


def test_drafts_of_running_processes_are_kept(writer, tmp_path):
    atomic.replace_file(tmp_path / "other", b"other")
    assert len(names(tmp_path)) == 2
    assert writer.poll() is None


def test_files_of_others_are_kept(tmp_path):
    for name in (".draft", ".0123456789abcdef.draft", "fedhlcr-0.draft", ".fedhlcr-0"):
        (tmp_path / name).write_text("not ours")
    before = names(tmp_path)
    atomic.replace_file(tmp_path / "file", b"new")
    assert names(tmp_path) == sorted([*before, "file"])


def test_draft_that_is_removed_before_it_is_locked_is_written_again(tmp_path, monkeypatch):
    """Another process may take a draft for a stale one in the moment between its creation and its lock."""
    lock, removed = atomic.fcntl.flock, []

    def remove_first(descriptor, operation):
        if not removed:
            removed.extend(tmp_path.glob(".fedhlcr-*"))
            removed[0].unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(atomic.fcntl, "flock", remove_first)
    atomic.replace_file(tmp_path / "file", b"new")
    assert removed
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_writing_works_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "fcntl", None)
    atomic.replace_files({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)] == [b"1", b"2"]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_only_private_files_are_for_their_owner_alone(private, mode, tmp_path):
    before = os.umask(0o022)
    try:
        atomic.write_atomically(tmp_path / "state", b"data", private=private)
        atomic.replace_file(tmp_path / "file", b"data", private=private)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {mode}
