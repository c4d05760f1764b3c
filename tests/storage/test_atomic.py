"""Files are written completely or not at all, and a killed process leaves nothing for ever."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from fedhlcr.exceptions import StorageError
from fedhlcr.storage import atomic, codec

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


def record_of(number: int) -> bytes:
    return codec.encode("thing", 1, {"number": number})


def newest(path):
    return atomic.read_newest(path, "thing", 1)["number"]


def test_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    atomic.replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def full_disk(monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)


def test_the_previous_file_is_kept(path):
    for number in range(3):
        atomic.write_atomically(path, record_of(number))
    assert newest(path) == 2
    assert newest(atomic.previous_of(path)) == 1
    assert names(path.parent) == ["file", "file.previous"]


def test_older_copies_can_be_deleted(path):
    for number in range(3):
        atomic.write_atomically(path, record_of(number))
    atomic.damaged_of(path).write_bytes(b"damaged")
    atomic.write_atomically(path, record_of(3), keep_previous=False)
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("damage", [b"", b"nonsense", record_of(1)[:-1]])
def test_damaged_file_gives_way_to_the_previous_one(path, damage, caplog):
    for number in range(2):
        atomic.write_atomically(path, record_of(number))
    path.write_bytes(damage)
    assert newest(path) == 0
    assert "using the previous file" in caplog.text
    assert atomic.damaged_of(path).read_bytes() == damage
    # the damaged file must not replace the intact one
    atomic.write_atomically(path, record_of(2))
    assert newest(atomic.previous_of(path)) == 0


def test_missing_file_gives_way_to_the_previous_one(path):
    atomic.previous_of(path).write_bytes(record_of(5))
    assert newest(path) == 5


def test_no_intact_file_is_an_error(path):
    path.write_bytes(b"nonsense")
    with pytest.raises(StorageError, match=r"no intact file at .*file\.previous does not exist"):
        newest(path)


def test_draft_of_a_killed_process_is_overwritten(path):
    (path.parent / "file.draft").write_bytes(b"half a fi")
    atomic.write_atomically(path, record_of(1))
    assert names(path.parent) == ["file"]


@pytest.mark.usefixtures("full_disk")
def test_full_disk_leaves_the_old_file_and_no_draft(path):
    path.write_bytes(b"old")
    for write in (atomic.write_atomically, atomic.replace_file):
        with pytest.raises(OSError, match="No space left"):
            write(path, b"new")
        assert path.read_bytes() == b"old"
        assert names(path.parent) == ["file"]


def test_several_files_are_replaced_together_or_not_at_all(path):
    path.write_bytes(b"old")
    missing = path.parent / "missing" / "file"
    with pytest.raises(FileNotFoundError) as error:
        atomic.replace_files({path: b"new", missing: b"new"})
    assert error.value.filename == str(missing)
    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file"]


def test_links_are_followed(path):
    link = path.parent / "link"
    link.symlink_to(path)
    atomic.replace_file(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


def test_devices_are_written_to():
    atomic.replace_file("/dev/null", b"new")
    assert not os.path.isfile("/dev/null")
