"""Where files lie, by environment, and that runtime folders are ours alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gleeman import host, paths
from gleeman.errors import Failure, InputError
from gleeman.wire import messages

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes and sockets of POSIX")


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No variable of ours set, the user's home in a temporary folder."""
    for name in ("GLEEMAN_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_gleeman_home_moves_everything(bare, monkeypatch):
    monkeypatch.setenv("GLEEMAN_HOME", str(bare / "g"))
    found = [paths.models_dir(), paths.cache_dir(), paths.runtime_path()]
    assert found == [bare / "g" / name for name in ("models", "cache", "run")]
    assert not (bare / "g").exists()


def test_a_relative_home_is_made_absolute(bare, monkeypatch):
    monkeypatch.chdir(bare)
    monkeypatch.setenv("GLEEMAN_HOME", "here")
    assert paths.home() == bare / "here"


def test_without_it_the_systems_places_are_taken(bare, monkeypatch):
    assert bare in paths.models_dir().parents
    assert paths.runtime_path() == paths.home() / "run"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(bare / "xdg"))
    assert paths.runtime_path() == bare / "xdg" / "gleeman"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    assert paths.runtime_path() == paths.home() / "run"


def test_names_carry_the_protocol_major_and_the_instance(bare):
    assert paths.PROTOCOL_MAJOR == messages.PROTOCOL_MAJOR
    assert paths.discovery_path().name == "gleeman-1.json"
    assert paths.discovery_path("test").name == "gleeman-1-test.json"
    assert paths.lock_path("test").name == "gleeman-1-test.lock"


@pytest.mark.parametrize("instance", ["..", "a/b", "a b", "ä", "x" * 33, "\n"])
def test_an_instance_that_is_no_file_name_is_refused(bare, instance):
    with pytest.raises(InputError) as caught:
        paths.discovery_path(instance)
    assert caught.value.code == "bad-value"


def test_the_runtime_folder_is_private(bare):
    assert paths.runtime_dir().stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_read_is_closed(bare):
    folder = bare / "open"
    folder.mkdir()
    folder.chmod(0o755)
    assert host.private_folder(folder).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_refused(bare, mode):
    folder = bare / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Failure) as caught:
        host.private_folder(folder)
    assert caught.value.code == "bad-file"


def test_a_link_and_a_file_are_no_private_folders(bare):
    (bare / "real").mkdir(mode=0o700)
    (bare / "link").symlink_to(bare / "real")
    (bare / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(Failure):
            host.private_folder(bare / name)


def test_another_users_folder_is_refused(bare, monkeypatch):
    (bare / "real").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 987_654)
    with pytest.raises(Failure, match="belongs to"):
        host.private_folder(bare / "real")


def test_a_short_socket_path_lies_in_the_runtime_folder(bare, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("GLEEMAN_HOME", "/tmp")  # only to be short; nothing is made but run, if at all
    monkeypatch.setattr(paths, "runtime_dir", paths.runtime_path)
    assert paths.ipc_path() == Path("/tmp/run/gleeman-1.ipc")


def test_a_long_socket_path_falls_back_to_a_short_private_folder(bare, monkeypatch):
    monkeypatch.setenv("GLEEMAN_HOME", str(bare / ("x" * 100)))
    path = paths.ipc_path()
    try:
        assert len(os.fsencode(path)) <= 107
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.parent != paths.runtime_path()
        paths.sweep_ipc_folders()
        assert path.parent.exists()  # we live
    finally:
        path.parent.rmdir()


def test_socket_folders_of_dead_daemons_are_swept(bare, monkeypatch):
    monkeypatch.setattr(paths.tempfile, "gettempdir", lambda: str(bare))
    dead = bare / f"gleeman-{os.getpid()}-12345-abc_1"
    dead.mkdir()
    (dead / "s").write_text("")
    other = bare / "gleeman-notes"
    other.mkdir()
    assert paths.sweep_ipc_folders() >= 1
    assert not dead.exists()
    assert other.exists()
