"""The client's lines against a daemon that does what the test says."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from client_helpers import WAIT_S, FakeDaemon, begun, fake_daemon, ramp, said, until, viseme, word
from gleeman.client import Client
from gleeman.records import End, Viseme
from gleeman.shm import layout
from gleeman.wire import messages as m

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    with fake_daemon() as running:
        yield running


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[Client]:
    with Client.connect() as connected:
        yield connected


def test_importing_the_client_imports_no_torch() -> None:
    code = "import sys, gleeman.client; print(sorted({'torch', 'hibari', 'misaki'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "[]"


def test_all_samples_come_in_order_over_the_rings_end(client: Client, daemon: FakeDaemon) -> None:
    line = begun(client, daemon, layout.CAPACITY)
    first = line.read(50_000)
    daemon.add(ramp(50_000, layout.CAPACITY), end=End.DONE)
    rest = line.audio(WAIT_S)
    assert np.array_equal(np.concatenate([first, rest]), ramp(layout.CAPACITY + 50_000))
    assert (line.end, line.code, line.heard) == (End.DONE, "", layout.CAPACITY + 50_000)
    assert daemon.freed()


def test_iterating_gives_chunks_as_they_come(client: Client, daemon: FakeDaemon) -> None:
    line = begun(client, daemon, 100)
    chunks = iter(line)
    assert next(chunks).size == 100
    daemon.add(ramp(50, 100))
    assert next(chunks).size == 50
    daemon.add(ramp(25, 150), end=End.DONE)
    assert [chunk.size for chunk in chunks] == [25]
    assert line.end is End.DONE


def test_reading_gives_zeros_before_the_preroll_and_in_an_underrun(
    client: Client, daemon: FakeDaemon
) -> None:
    line = begun(client, daemon, 100, preroll=200)
    assert not line.read(64).any()
    assert (line.heard, line.underrun_samples) == (0, 0)
    daemon.add(ramp(100, 100))
    assert np.array_equal(line.read(160), ramp(160))
    late = line.read(64)
    assert np.array_equal(late[:40], ramp(40, 160))
    assert not late[40:].any()
    assert (line.heard, line.underrun_samples) == (200, 24)
    daemon.add(ramp(10, 200), end=End.DONE)
    assert line.read(64)[:10] == pytest.approx(ramp(10, 200))
    assert (line.end, line.heard, line.underrun_samples) == (End.DONE, 210, 24)
    assert not line.read(64).any()


def test_events_come_when_the_read_position_passes_them(client: Client, daemon: FakeDaemon) -> None:
    events = [
        word(0, 0),
        viseme(10, Viseme.AA),
        word(100, 3),
        viseme(150, Viseme.PP),
        viseme(200, Viseme.SIL),
    ]
    line = begun(client, daemon, 200, events=events, end=End.DONE)
    assert line.events == []
    line.read(100)
    assert line.events == events[:2]
    line.read(1)
    assert line.words == [word(0, 0), word(100, 3)]
    line.read(200)
    assert line.events == events
    assert line.visemes[-1].code == Viseme.SIL


def test_pause_holds_the_clock_of_its_own_line_only(client: Client, daemon: FakeDaemon) -> None:
    held, other = said(client, daemon), said(client, daemon)
    daemon.give(held.id, ramp(1_000), lane=0, end=End.DONE)
    daemon.give(other.id, ramp(1_000), lane=1, end=End.DONE)
    until(lambda: held.first_audio_ms is not None and other.first_audio_ms is not None)
    held.read(100)
    held.pause()
    assert not held.read(100).any()
    assert (held.heard, held.underrun_samples) == (100, 0)
    assert np.array_equal(other.audio(WAIT_S), ramp(1_000))
    assert daemon.mapping.u32[(layout.LANE_HEADS + layout.L_PAUSED) // 4] == 1
    held.resume()
    assert np.array_equal(held.audio(WAIT_S), ramp(900, 100))


def test_subtitles_come_without_sound(client: Client, daemon: FakeDaemon) -> None:
    line = said(client, daemon)
    clause = m.ClauseInfo(spoken="Well met.", begin=0, end=9, ms=600.0)
    daemon.send(m.Clauses(line=line.id, clauses=[clause]))
    until(lambda: line.clauses)
    assert line.clauses == [clause]
    assert line.end is None


def test_the_first_sample_is_timed_however_the_line_is_read(client: Client, daemon: FakeDaemon) -> None:
    line = said(client, daemon)
    reader = threading.Thread(target=line.audio, args=(WAIT_S,))
    reader.start()
    daemon.give(line.id, ramp(10), end=End.DONE)
    reader.join(WAIT_S)
    assert line.end is End.DONE
    assert line.first_audio_ms is not None
    assert line.first_audio_ms > 0


def test_what_the_daemon_chose_is_told(client: Client, daemon: FakeDaemon) -> None:
    line = client.speak("Well met.", voice=("bm_george", "af_heart"))
    until(lambda: line.seed is not None)
    assert (line.voice, line.seed) == ("bm_george", 99)


def test_a_frame_is_sent_once_and_after_its_lines(client: Client, daemon: FakeDaemon) -> None:
    client.frame()
    client.speak("One.")
    client.speak("Two.")
    client.frame()
    client.frame()
    client.ping()
    kinds = [type(each) for each in daemon.received]
    assert kinds[:4] == [m.Hello, m.Speak, m.Speak, m.Frame]
    assert kinds.count(m.Frame) == 1
