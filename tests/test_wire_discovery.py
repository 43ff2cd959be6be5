"""The discovery file is whole, private, and believed only while its process runs."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from gleeman import host, paths
from gleeman.errors import Failure, InputError
from gleeman.wire.discovery import (
    Discovery,
    new_token,
    read_discovery,
    remove_discovery,
    take_lock,
    write_discovery,
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLEEMAN_HOME", str(tmp_path))
    paths.runtime_dir()


def ours(**fields: object) -> Discovery:
    values = {
        "protocol": 1,
        "minor": 0,
        "version": "0.1.0",
        "pid": os.getpid(),
        "start_ns": host.own_start_ns(),
        "endpoints": ["tcp://127.0.0.1:1"],
        "token": new_token(),
        "model": "babble",
    }
    return Discovery(**{**values, **fields})  # type: ignore[arg-type]


def test_a_written_file_is_read_back_and_is_private() -> None:
    discovery = ours()
    path = write_discovery(discovery)
    assert read_discovery() == discovery
    assert path.name == "gleeman-1.json"
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_tokens_are_256_bits_and_new_each_time() -> None:
    tokens = {new_token() for _ in range(10)}
    assert len(tokens) == 10
    assert all(len(token) == 64 and int(token, 16) >= 0 for token in tokens)


def test_instances_do_not_see_each_other() -> None:
    write_discovery(ours(model="a"), "one")
    assert read_discovery() is None
    assert read_discovery("two") is None
    found = read_discovery("one")
    assert found
    assert found.model == "a"
    with pytest.raises(InputError):
        read_discovery("../one")


@pytest.mark.parametrize(
    "fields", [{"pid": 2**22 + 5}, {"start_ns": 12345}, {"protocol": 2}], ids=["pid", "start", "protocol"]
)
def test_a_file_of_a_dead_or_other_process_is_not_believed(fields: dict[str, int]) -> None:
    write_discovery(ours(**fields))
    assert read_discovery() is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"protocol":1}', b"[" * 60_000, b" " * 70_000])
def test_a_damaged_file_is_no_daemon_and_is_replaced(data: bytes) -> None:
    paths.discovery_path().write_bytes(data)
    assert read_discovery() is None
    write_discovery(ours())
    assert read_discovery()


def test_unknown_fields_of_a_later_minor_are_skipped() -> None:
    values = {**msgspec.to_builtins(ours()), "later": [1]}
    paths.discovery_path().write_bytes(msgspec.json.encode(values))
    assert read_discovery()


def test_only_ones_own_file_is_removed() -> None:
    mine, others = ours(), ours()
    write_discovery(others)
    remove_discovery(mine)
    assert read_discovery() == others
    remove_discovery(others)
    assert not paths.discovery_path().exists()
    remove_discovery(others)


def test_the_second_lock_is_refused_with_the_pid_of_the_first() -> None:
    lock = take_lock()
    write_discovery(ours())
    with pytest.raises(Failure) as caught:
        take_lock()
    assert caught.value.code == "already-running"
    assert f"pid {os.getpid()}" in caught.value.message
    take_lock("other").release()
    lock.release()
    take_lock().release()
