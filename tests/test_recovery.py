"""Kills: of the daemon in the middle of a line, and of a client; nothing is lost but what must be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_helpers import until
from gleeman import host, paths
from gleeman.client import Client, Line
from gleeman.records import End, Samples, Viseme

KILLS = pytest.mark.parametrize(
    ("model", "kills"), [("babble", 20), pytest.param("kokoro", 3, marks=pytest.mark.weights)]
)
BLOCK = 480
WAIT_S = 90.0
"""The real model loads within."""
TALE = (
    "Once upon a time there was an old king who lived in a castle by the sea, and he had three daughters. "
    * 2
)
"""Longer than a lane, so that a dead daemon leaves it unfinished."""
SHORT = "Who goes there?"
CLIENT = """
import sys, time
from gleeman.client import Client
with Client.connect() as client:
    line = client.speak(sys.argv[1])
    client.frame()
    while not line.heard:
        line.read(480)
        time.sleep(0.005)
    print(line.heard, flush=True)
    while True:
        line.read(480)
        time.sleep(0.02)
"""


def mappings() -> list[Path]:
    """All mappings of this user's daemons, wherever they may lie."""
    folders = host.mapping_folders(paths.runtime_dir())
    return [path for folder in folders for path in folder.glob(f"gleeman-{host.user_tag()}-*.lanes")]


def of_daemon(pid: int) -> list[Path]:
    return [path for path in mappings() if path.name.split("-")[2] == str(pid)]


def read_blocks(line: Line, blocks: int | None = None) -> Samples:
    """`blocks` blocks of what is heard, or all until the end."""
    heard: list[Samples] = []
    deadline = time.monotonic() + WAIT_S
    while line.end is None and (blocks is None or len(heard) < blocks):
        assert time.monotonic() < deadline, f"{line} does not end"
        before = line.heard
        block = line.read(BLOCK)
        if line.heard == before:
            time.sleep(0.002)
        else:
            heard.append(block[: line.heard - before])
    return np.concatenate(heard)


def alone(client: Client, text: str, seed: int) -> Samples:
    """A line that shares its batch with none: neighbours change the last bits of the real model's samples."""
    line = client.speak(text, seed=seed)
    client.frame()
    samples = line.audio(WAIT_S)
    assert line.end is End.DONE, (line.end, line.code, line.message)
    return samples


@KILLS
def test_a_daemon_killed_in_the_middle_of_a_line_is_replaced(
    model: str, kills: int, start_daemon: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    daemon = start_daemon("--log-level", "warning", model=model)
    recovery_s: list[float] = []
    with Client.connect() as client:
        whole_samples, short_samples = alone(client, TALE, 1), alone(client, SHORT, 2)
        for _ in range(kills):
            tale = client.speak(TALE, seed=1)
            client.frame()
            heard = read_blocks(tale, 4)
            waiting = client.speak(SHORT, seed=2)  # nobody hears it yet
            killed = daemon.pid
            daemon.kill()
            daemon = start_daemon("--log-level", "warning", model=model)
            began = time.monotonic()
            assert of_daemon(killed) == []
            heard = np.concatenate([heard, read_blocks(tale)])
            assert (tale.end, tale.code) == (End.LOST, "lost")
            assert 4 * BLOCK <= heard.size < whole_samples.size
            assert np.array_equal(heard, whole_samples[: heard.size])
            assert tale.visemes[-1].code == Viseme.SIL
            assert np.array_equal(waiting.audio(WAIT_S), short_samples)
            assert waiting.end is End.DONE
            assert client.daemon_pid == daemon.pid
            recovery_s.append(time.monotonic() - began)
    until(lambda: of_daemon(daemon.pid) == [])
    record_property("daemon_up_to_line_spoken_s_max", round(max(recovery_s), 3))
    print(f"a new daemon's start to the waiting line spoken, max of {kills}: {max(recovery_s):.3f} s")


@KILLS
def test_a_killed_clients_mapping_goes(
    model: str, kills: int, start_daemon: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    daemon = start_daemon("--log-level", "warning", model=model)
    gone_s: list[float] = []
    command = [sys.executable, "-c", CLIENT, TALE]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) for _ in range(2)]
    try:
        for _ in range(kills):
            child = children.pop(0)
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ))
            assert child.stdout is not None
            with child.stdout:
                assert int(child.stdout.readline()) > 0
                before = of_daemon(daemon.pid)
                assert before
                child.kill()
                killed = time.monotonic()
                child.wait(WAIT_S)
            until(lambda before=before: set(before) - set(of_daemon(daemon.pid)), 10)
            gone_s.append(time.monotonic() - killed)
    finally:
        for child in children:
            child.kill()
            child.wait(WAIT_S)
            if child.stdout is not None:
                child.stdout.close()
    until(lambda: of_daemon(daemon.pid) == [], 10)
    assert daemon.process.poll() is None
    with Client.connect() as client:
        assert client.speak(SHORT).audio(WAIT_S).size
    record_property("mapping_gone_s_max", round(max(gone_s), 3))
    print(f"a killed client's mapping is gone after at most {max(gone_s):.3f} s of {kills}")
