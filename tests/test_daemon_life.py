"""A real daemon on babble: how it comes, how it goes, and what it leaves (nothing)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from gleeman import host, paths
from gleeman.wire import messages as m
from gleeman.wire.discovery import Discovery, read_discovery
from wire_helpers import Peer, wait_until

UP_S = 30.0


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None:
    """Every test here has a home of its own."""


@pytest.fixture
def connect() -> Iterator[Callable[..., tuple[Peer, m.Welcome]]]:
    context: zmq.Context[Any] = zmq.Context()
    peers: list[Peer] = []

    def connect(discovery: Discovery, **fields: Any) -> tuple[Peer, m.Welcome]:
        peers.append(Peer(context, discovery.endpoints[0]))
        return peers[-1], peers[-1].hello(token=discovery.token, **fields)

    yield connect
    for peer in peers:
        peer.socket.close()
    context.term()


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "gleeman", "serve", "--model", "babble", *flags]


def mappings_of(pid: int) -> list[Path]:
    folders = host.mapping_folders(paths.runtime_dir())
    return [file for folder in folders for file in folder.glob(f"gleeman-*-{pid}-*.lanes")]


def leftovers() -> list[str]:
    """Everything in the runtime folder."""
    return sorted(file.name for file in paths.runtime_dir().iterdir())


def test_it_answers_hello_and_speaks_a_line(start_daemon: Any, connect: Any) -> None:
    daemon = start_daemon()
    peer, welcome = connect(daemon.discovery, pid=os.getpid())
    assert (welcome.model, welcome.lanes, welcome.mapping_bytes) == ("babble", 32, 17_059_840)
    assert Path(welcome.mapping) in mappings_of(daemon.pid)
    peer.send(m.Speak(id=2, line=1, text="Well met, traveller. Sit down."))
    peer.send(m.Frame())
    assert peer.read(m.Accepted).voice == "af_heart"
    clauses = peer.read(m.Clauses).clauses
    assert [(clause.begin, clause.end) for clause in clauses] == [(0, 20), (21, 30)]
    assert all(clause.ms > 100 for clause in clauses)
    wait_until(lambda: report(peer).first_audio_ms_p50 is not None, "the line's samples are in its lane")
    assert report(peer).live_lines == 1


def test_a_line_too_long_for_its_lane_is_cancelled_in_its_lane(start_daemon: Any, connect: Any) -> None:
    peer, _ = connect(start_daemon().discovery)
    peer.send(m.Speak(id=2, line=1, text="Well met, traveller. Sit down. " * 40))
    peer.read(m.Accepted)
    peer.read(m.Clauses)
    wait_until(lambda: report(peer).first_audio_ms_p50 is not None, "the line's samples are in its lane")
    peer.send(m.Cancel(id=3, line=1))
    assert peer.read(m.Ok).re == 3
    ended = peer.read(m.Ended)
    assert (ended.line, ended.end, ended.in_lane) == (1, "cancelled", True)
    assert report(peer).live_lines == 0


def report(peer: Peer) -> m.StatusReport:
    peer.send(m.Status(id=9))
    return peer.read(m.StatusReport)  # type: ignore[no-any-return]


def test_a_cancelled_line_that_is_still_being_read_ends_once(start_daemon: Any, connect: Any) -> None:
    daemon = start_daemon()
    peer, _ = connect(daemon.discovery)
    for line in range(1, 21):
        peer.send(m.Speak(id=line, line=line, text="One two three four five."))
        peer.send(m.Cancel(id=100 + line, line=line))
    ends: dict[int, int] = {}
    while len(ends) < 20:
        answer = peer.read()
        if isinstance(answer, m.Ended):
            assert answer.end == "cancelled"
            ends[answer.line] = ends.get(answer.line, 0) + 1
    peer.send(m.Bye(id=999))
    while not (isinstance(answer := peer.read(), m.Ok) and answer.re == 999):
        assert not isinstance(answer, m.Ended)
    assert set(ends.values()) == {1}


def test_the_end_of_a_session_removes_its_mapping(start_daemon: Any, connect: Any) -> None:
    daemon = start_daemon()
    peer, _ = connect(daemon.discovery)
    other, _ = connect(daemon.discovery)
    assert len(mappings_of(daemon.pid)) == 2
    peer.send(m.Bye(id=1))
    peer.read(m.Ok)
    wait_until(lambda: len(mappings_of(daemon.pid)) == 1, "the mapping of the session that said bye is gone")
    other.socket.close()
    wait_until(lambda: not mappings_of(daemon.pid), "the mapping of the closed connection is gone")


def test_a_second_daemon_says_so_and_leaves(start_daemon: Any) -> None:
    daemon = start_daemon()
    second = subprocess.run(command(), capture_output=True, timeout=UP_S)
    assert second.returncode == 1
    assert second.stderr.decode().startswith(f"gleeman: already-running: a daemon (pid {daemon.pid}")
    assert second.stderr.count(b"\n") == 1
    assert read_discovery() == daemon.discovery


def test_another_instance_runs_beside_it(start_daemon: Any, connect: Any) -> None:
    first, second = start_daemon(), start_daemon(instance="two")
    assert first.discovery.token != second.discovery.token
    for daemon in (first, second):
        assert connect(daemon.discovery)[1].model == "babble"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_no_file(start_daemon: Any, connect: Any, number: int) -> None:
    daemon = start_daemon()
    peer, _ = connect(daemon.discovery)
    assert mappings_of(daemon.pid)
    daemon.process.send_signal(number)
    assert peer.read(m.Gone).code == "shutting-down"
    assert daemon.process.wait(UP_S) == 0
    assert mappings_of(daemon.pid) == []
    assert leftovers() == []
    assert read_discovery() is None


def test_after_kill_9_the_next_start_sweeps(start_daemon: Any, connect: Any) -> None:
    daemon = start_daemon()
    connect(daemon.discovery)
    daemon.kill()
    assert mappings_of(daemon.pid)
    assert read_discovery() is None
    following = start_daemon()
    assert mappings_of(daemon.pid) == []
    assert connect(following.discovery)[1].model == "babble"
    assert following.terminate() == 0
    assert leftovers() == []


def test_what_a_killed_daemon_of_another_name_left_is_swept(start_daemon: Any) -> None:
    start_daemon(instance="other").kill()
    left = {path.suffix for path in paths.runtime_dir().glob("gleeman-1-other.*")}
    assert {".json", ".lock"} <= left
    start_daemon()
    wait_until(lambda: not list(paths.runtime_dir().glob("gleeman-1-other.*")), "swept")


def test_an_ended_daemon_leaves_an_empty_runtime_folder(start_daemon: Any) -> None:
    assert start_daemon().terminate() == 0
    assert list(paths.runtime_dir().iterdir()) == []


def test_idle_exit_counts_only_time_without_a_session(start_daemon: Any, connect: Any) -> None:
    daemon = start_daemon("--idle-exit", "0.6")
    peer, _ = connect(daemon.discovery)
    time.sleep(1.0)
    peer.ping()
    peer.send(m.Bye(id=1))
    peer.read(m.Ok)
    assert daemon.process.wait(UP_S) == 0
    assert leftovers() == []


def test_it_leaves_when_its_parent_is_gone(start_daemon: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as game:
        daemon = start_daemon("--parent-pid", str(game.pid))
        assert daemon.process.poll() is None
        game.kill()
    assert daemon.process.wait(UP_S) == 0
    assert leftovers() == []


def test_a_parent_that_does_not_run_is_refused() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait(UP_S)
    done = subprocess.run(command("--parent-pid", str(gone.pid)), capture_output=True, timeout=UP_S)
    assert done.returncode == 2
    assert b"gleeman: bad-config: parent-pid" in done.stderr


def test_the_log_names_the_effective_configuration_once(start_daemon: Any) -> None:
    daemon = start_daemon("--tick-hz", "30")
    assert daemon.terminate() == 0
    log = daemon.log.read_text()
    assert log.count("effective configuration") == 1
    assert "'tick-hz': 30.0" in log
    assert "listening on ipc://" in log


def test_babble_needs_no_torch(start_daemon: Any) -> None:
    daemon = start_daemon()
    maps = Path(f"/proc/{daemon.pid}/maps")
    if not maps.exists():
        pytest.skip("only Linux shows what a process has loaded")
    assert "libtorch" not in maps.read_text()


def test_without_weights_it_says_so_and_a_stand_in_speaks(
    start_daemon: Any, connect: Any, home: Path
) -> None:
    (home / "models").unlink(missing_ok=True)
    daemon = start_daemon("--device", "cpu", model="kokoro")
    waiting, _ = connect(daemon.discovery)
    babbling, welcome = connect(daemon.discovery, while_loading="babble")
    assert welcome.state in ("loading", "warming", "failed")
    for peer in (waiting, babbling):
        peer.send(m.Speak(id=1, line=1, text="Well met."))
        peer.send(m.Frame())
        peer.read(m.Accepted)
    first = waiting.read()
    ended = waiting.read() if isinstance(first, m.Clauses) else first
    assert (ended.line, ended.end, ended.code) == (1, "failed", "model-missing")
    assert isinstance(babbling.read(), m.Clauses)
    wait_until(lambda: report(babbling).first_audio_ms_p50 is not None, "the stand-in spoke")
    assert report(babbling).state == "failed"


def test_a_line_with_nothing_to_say_fails_with_its_code(start_daemon: Any, connect: Any) -> None:
    peer, _ = connect(start_daemon().discovery)
    peer.send(m.Speak(id=1, line=1, text="… !"))
    peer.read(m.Accepted)
    ended = peer.read()
    assert isinstance(ended, m.Ended), ended
    assert (ended.end, ended.code, ended.in_lane) == ("failed", "nothing-to-say", False)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--vram-mb", "900"), "vram-mb caps a GPU's memory, and model babble uses none"),
        (("--vram-mb", "900", "--model", "kokoro", "--device", "cpu"), "and device cpu uses none"),
    ],
)
def test_a_cap_on_gpu_memory_where_none_is_used_is_refused(flags: tuple[str, ...], told: str) -> None:
    result = subprocess.run(command(*flags), capture_output=True, text=True, timeout=UP_S, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("gleeman: unsupported: ")
    assert told in result.stderr


def test_a_daemon_whose_cap_is_below_the_minimum_leaves_and_names_it(tmp_path: Path) -> None:
    """The loader finds it out, after the doors are open."""
    program = tmp_path / "capped.py"
    program.write_text(
        "import gleeman.daemon as d\n"
        "from gleeman.config import Config\n"
        "from gleeman.errors import Failure\n"
        "from gleeman.__main__ import run\n"
        "def load(self, report):\n"
        "    raise Failure('vram-mb is 300; the least is 791', 'vram-too-small')\n"
        "make = d.make_pipeline\n"
        "def capped(*a, **k):\n"
        "    made = make('babble')\n"
        "    made.load = load.__get__(made)\n"
        "    return made\n"
        "d.make_pipeline = capped\n"
        "run()\n"
    )
    result = subprocess.run(
        [sys.executable, str(program), "serve", "--model", "babble"],
        capture_output=True,
        text=True,
        timeout=UP_S,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert result.stderr.splitlines()[-1] == "gleeman: vram-too-small: vram-mb is 300; the least is 791"
    assert "Traceback" not in result.stderr
    assert not list(paths.runtime_dir().glob("gleeman-*.json"))
