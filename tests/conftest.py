"""Fixtures that every room's tests share: a home of its own, tracked daemons, the weights.

Nothing may be left behind: a test whose child process stays, or whose daemon leaves a mapping, fails by name;
unclosed sockets and files are warnings, which are errors here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gleeman import host, paths
from gleeman.wire.discovery import Discovery, read_discovery

MODELS_DIR = paths.models_dir()
"""Where `make weights` put the weights: resolved before any test changes GLEEMAN_HOME."""

UP_TIMEOUT_S = 30.0


class Daemon:
    """A `gleeman serve` that the test started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, discovery: Discovery) -> None:
        self.process, self.log, self.discovery = process, log, discovery

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait until it has gone."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> int:
        """Ask it to leave; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


StartDaemon = Callable[..., Daemon]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GLEEMAN_HOME of this test's own, with the fetched weights linked in where there are any."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    if MODELS_DIR.is_dir():
        (folder / "models").symlink_to(MODELS_DIR)
    monkeypatch.setenv("GLEEMAN_HOME", str(folder))
    return folder


@pytest.fixture
def start_daemon(home: Path, tmp_path: Path) -> Iterator[StartDaemon]:
    """Start daemons in this test's home: `start_daemon("--model", "babble")`. All are ended with the test."""
    started: list[Daemon] = []

    def start(*flags: str, instance: str = "", model: str = "babble") -> Daemon:
        log = tmp_path / f"daemon-{len(started)}.log"
        command = [sys.executable, "-m", "gleeman", "serve", "--model", model, "--instance", instance, *flags]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        deadline = time.monotonic() + UP_TIMEOUT_S
        while (found := read_discovery(instance)) is None or found.pid != process.pid:
            status = process.poll()
            assert status is None, f"the daemon left with {status}:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"the daemon did not come up:\n{log.read_text()}"
            time.sleep(0.005)
        started.append(Daemon(process, log, found))
        return started[-1]

    yield start
    for daemon in started:
        running = daemon.process.poll() is None
        status = daemon.terminate()
        assert not running or status == 0, f"the daemon left with {status}:\n{daemon.log.read_text()}"
        left = [
            path for folder in host.mapping_folders(paths.runtime_dir()) for path in folder.glob("*.lanes")
        ]
        left = [path for path in left if path.name.split("-")[2] == str(daemon.pid)]
        assert not running or not left, f"the daemon left mappings: {left}"
        log = daemon.log.read_text()
        assert "Traceback" not in log, log
        assert "terminate called" not in log, log


@pytest.fixture(autouse=True)
def _no_child_left() -> Iterator[None]:
    """A test that leaves a child process running fails."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    deadline = time.monotonic() + 5.0
    while left := [c for c in psutil.Process().children(recursive=True) if c.pid not in before and alive(c)]:
        if time.monotonic() > deadline:
            names = [" ".join(child.cmdline()) for child in left]
            for child in left:
                child.kill()
            pytest.fail(f"child processes left: {names}")
        time.sleep(0.02)


def alive(process: psutil.Process) -> bool:
    """Running, not merely waiting to be reaped."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def weights() -> Path:
    """The folder with the real weights; without them the test fails and says what fetches them."""
    folder = MODELS_DIR / "kokoro"
    if not any(folder.glob("*.safetensors")):
        pytest.fail(f"no weights in {folder}: run `make weights` (or `gleeman models fetch`)")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The real model last: a quick failure comes quickly."""
    items.sort(key=lambda item: item.get_closest_marker("weights") is not None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """GPU tests say why they do not run."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device on this machine")


os.environ.setdefault("GLEEMAN_TEST_HOOKS", "1")
