"""Processes, locks and mapping files as this system does them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import psutil
import pytest

from gleeman import host
from gleeman.errors import Failure
from shm_helpers import until

WAITS = [sys.executable, "-c", "print('up', flush=True); input()"]


@pytest.fixture
def child():
    made = subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout is not None
    made.stdout.readline()
    yield made
    made.kill()
    made.communicate(timeout=60)


def test_a_process_is_known_by_pid_and_start(child):
    start = host.process_start_ns(child.pid)
    assert start is not None
    assert host.process_start_ns(child.pid) == start
    assert host.pid_alive(child.pid, start)
    assert not host.pid_alive(child.pid, start + 1)
    assert host.own_start_ns() == host.process_start_ns(os.getpid()) <= start


@pytest.mark.parametrize("pid", [0, -1, 4_194_305, 1 << 31])
def test_what_is_no_pid_is_no_process(pid):
    assert host.process_start_ns(pid) is None
    assert not host.pid_alive(pid, 0)


def test_a_zombie_counts_as_gone(child):
    start = host.process_start_ns(child.pid)
    child.kill()
    until(lambda: host.process_start_ns(child.pid) is None, "the child to count as gone")
    assert not host.pid_alive(child.pid, start)


@pytest.mark.skipif(sys.platform != "linux", reason="process names with brackets, as Linux shows them")
def test_a_process_name_with_brackets_is_read_past(tmp_path):
    name = tmp_path / "a) Z 1 (b"
    name.symlink_to("/bin/sleep")
    odd = subprocess.Popen([str(name), "60"])
    try:
        until(lambda: psutil.Process(odd.pid).name().startswith("a)"), "the program to run")
        assert host.process_start_ns(odd.pid) >= host.own_start_ns()
    finally:
        odd.kill()
        odd.wait(60)


def test_a_process_can_be_suspended_and_go_on(child):
    assert host.suspend(child.pid)
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "the child to stop")
    assert host.resume(child.pid)
    until(lambda: psutil.Process(child.pid).status() != psutil.STATUS_STOPPED, "the child to go on")
    child.kill()
    child.wait(60)
    assert not host.suspend(child.pid)
    assert not host.resume(child.pid)


def test_the_priority_can_be_lowered():
    code = "import os; from gleeman import host; {}; print(os.getpriority(os.PRIO_PROCESS, 0))"
    lower, lowest = (
        int(subprocess.run([sys.executable, "-c", code.format(call)], capture_output=True, timeout=60).stdout)
        for call in ("host.lower_priority()", "host.lower_priority(lowest=True)")
    )
    assert os.getpriority(os.PRIO_PROCESS, 0) <= lower
    assert 5 <= lower <= lowest == 19


def test_a_lock_is_held_by_one_and_given_back(tmp_path):
    first = host.lock_file(tmp_path / "lock")
    assert first is not None
    assert host.lock_file(tmp_path / "lock") is None
    first.release()
    first.release()
    second = host.lock_file(tmp_path / "lock")
    assert second is not None
    second.release()


def test_a_lock_falls_with_its_process(tmp_path):
    path = tmp_path / "lock"
    code = f"from gleeman import host; l = host.lock_file(__import__('pathlib').Path({str(path)!r})); "
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.readline()
        assert host.lock_file(path) is None
    finally:
        holder.kill()
        holder.communicate(timeout=60)
    mine = host.lock_file(path)
    assert mine is not None
    mine.release()


def test_a_lock_in_no_folder_is_an_error(tmp_path):
    with pytest.raises(Failure) as caught:
        host.lock_file(tmp_path / "none" / "lock")
    assert caught.value.code == "bad-file"


def test_a_mapping_file_has_its_room_and_is_shared(tmp_path):
    path = tmp_path / "m"
    host.create_mapping_file(path, 1 << 20)
    assert path.stat().st_size == 1 << 20
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_blocks * 512 >= 1 << 20  # not sparse
    with host.map_file(path, 1 << 20) as one, host.map_file(path, 1 << 20) as two:
        assert one[:] == bytes(1 << 20)
        one[77] = 5
        assert two[77] == 5


def test_a_mapping_file_is_never_taken_over(tmp_path):
    path = tmp_path / "m"
    path.write_text("theirs")
    with pytest.raises(Failure) as caught:
        host.create_mapping_file(path, 4096)
    assert caught.value.code == "bad-file"
    assert path.read_text() == "theirs"


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_no_room_leaves_no_file(tmp_path, monkeypatch):
    def full(fd, offset, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(Failure) as caught:
        host.create_mapping_file(tmp_path / "m", 4096)
    assert caught.value.code == "no-space"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_file_system_without_fallocate_gets_written_zeros(tmp_path, monkeypatch):
    def none(fd, offset, length):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", none)
    host.create_mapping_file(tmp_path / "m", (1 << 20) + 5)
    assert (tmp_path / "m").stat().st_size == (1 << 20) + 5
    if sys.platform != "win32":
        assert (tmp_path / "m").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("size", [0, 4095, 4097])
def test_a_file_of_another_size_is_not_mapped(tmp_path, size):
    path = tmp_path / "m"
    path.write_bytes(bytes(size))
    with pytest.raises(Failure) as caught:
        host.map_file(path, 4096)
    assert caught.value.code == "bad-file"


def test_removing_is_true_when_the_file_is_gone(tmp_path):
    path = tmp_path / "m"
    path.write_text("")
    assert host.remove_file(path)
    assert host.remove_file(path)
    assert not host.remove_file(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_cannot_be_looked_at_counts_as_alive(monkeypatch):
    """Out of file descriptors, a daemon once took every client for dead."""
    start = host.own_start_ns()

    def no_more(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", no_more)
    assert host.pid_alive(os.getpid(), start)
