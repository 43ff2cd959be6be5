"""The client's lines against a daemon that does what the test says."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from client_helpers import WAIT_S, FakeDaemon, fake_daemon, ramp, until

from gleeman.client import Client, Line
from gleeman.records import End, Event, EventType, Viseme
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


def said(client: Client, daemon: FakeDaemon, text: str = "Well met.") -> Line:
    """A line that the daemon has received."""
    line = client.speak(text)
    until(lambda: any(each.line == line.id for each in daemon.speaks()))
    return line


def begun(client: Client, daemon: FakeDaemon, samples: int, **how: object) -> Line:
    """A line with `samples` in its lane, found by the client."""
    line = said(client, daemon)
    daemon.give(line.id, ramp(samples), **how)  # type: ignore[arg-type]
    until(lambda: line.first_audio_ms is not None or not samples)
    return line


def word(sample: int, begin: int) -> Event:
    return Event(sample, EventType.WORD, 0, 0.0, begin, begin + 2, 100)


def viseme(sample: int, code: Viseme) -> Event:
    return Event(sample, EventType.VISEME, code, 1.0)


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


def test_cancel_fades_exactly_and_then_ends(client: Client, daemon: FakeDaemon) -> None:
    line = begun(client, daemon, 4_000)
    line.read(100)
    line.cancel(fade_ms=10)
    fade = 240
    faded = np.concatenate([line.read(100), line.read(100), line.read(100)])
    expected = ramp(fade, 100) * (1 - np.arange(1, fade + 1, dtype=np.float32) / fade)
    assert faded[:fade] == pytest.approx(expected, abs=1e-6)
    assert faded[fade - 1] == 0
    assert not faded[fade:].any()
    assert (line.end, line.code, line.heard) == (End.CANCELLED, "cancelled", 100 + fade)
    assert daemon.field(layout.L_CANCEL_GENERATION) == daemon.field(layout.L_GENERATION)
    assert daemon.freed()
    until(lambda: m.Cancel(line=line.id) in daemon.received)


def test_cancel_of_an_unheard_line_ends_it_at_once_and_frees_its_lane(
    client: Client, daemon: FakeDaemon
) -> None:
    line = begun(client, daemon, 4_000)
    line.cancel()
    assert line.end is End.CANCELLED
    assert daemon.freed()


def test_cancel_without_a_lane_frees_the_lane_that_comes_too_late(client: Client, daemon: FakeDaemon) -> None:
    line = said(client, daemon)
    other = said(client, daemon)
    line.cancel()
    assert (line.end, line.heard) == (End.CANCELLED, 0)
    daemon.give(line.id, ramp(100))
    until(daemon.freed)
    assert line.audio(WAIT_S).size == 0
    assert other.end is None


def test_a_cancelled_line_that_nobody_reads_on_ends_all_the_same(client: Client, daemon: FakeDaemon) -> None:
    line = begun(client, daemon, 4_000)
    line.read(100)
    line.cancel(fade_ms=100)
    assert line.end is None
    assert line.wait(WAIT_S) is End.CANCELLED
    assert daemon.freed()


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


def test_a_cut_line_closes_the_mouth_where_it_was_cut(client: Client, daemon: FakeDaemon) -> None:
    events = [viseme(10, Viseme.AA), viseme(3_000, Viseme.PP)]
    line = begun(client, daemon, 4_000, events=events)
    line.read(100)
    line.cancel(fade_ms=0)
    assert line.visemes == [events[0], viseme(100, Viseme.SIL)]


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


@pytest.mark.parametrize(
    ("said_end", "code", "end"),
    [
        ("refused", "unknown-voice", End.REFUSED),
        ("expired", "expired", End.EXPIRED),
        ("failed", "model-failed", End.FAILED),
        ("cancelled", "shutting-down", End.CANCELLED),
    ],
)
def test_the_daemons_word_on_a_line_without_a_lane_is_told_at_once(
    client: Client, daemon: FakeDaemon, said_end: str, code: str, end: End
) -> None:
    line = said(client, daemon)
    daemon.send(m.Ended(line=line.id, end=said_end, code=code, message="why"))
    assert line.wait(WAIT_S) is end
    assert (line.code, line.message) == (code, "why")
    assert [event.code for event in line.visemes] == [Viseme.SIL]
    daemon.send(m.Ended(line=line.id, end="failed", code="internal", message="again"))
    client.ping()
    assert (line.end, line.code) == (end, code)


def test_the_daemons_word_waits_in_the_lane_for_its_reader(client: Client, daemon: FakeDaemon) -> None:
    line = begun(client, daemon, 500)
    daemon.send(m.Ended(line=line.id, end="failed", code="model-failed", message="why", in_lane=True))
    client.ping()
    daemon.add(ramp(100, 500), end=End.FAILED)
    line.read(500)
    assert line.end is None
    assert np.array_equal(line.audio(WAIT_S), ramp(100, 500))
    assert (line.end, line.code, line.message) == (End.FAILED, "model-failed", "why")


def test_an_error_for_a_speak_refuses_its_line(client: Client, daemon: FakeDaemon) -> None:
    line = said(client, daemon)
    daemon.send(m.Error(re=line.id, code="bad-value", message="why"))
    assert line.wait(WAIT_S) is End.REFUSED
    assert line.code == "bad-value"


@pytest.mark.parametrize(
    "bad",
    [
        {"text": 5},
        {"text": b"bytes"},
        {"text": "half \ud800"},
        {"text": "x" * (m.MAX_MESSAGE_BYTES + 1)},
        {"voice": 3},
        {"voice": []},
        {"voice": ["a"] * 9},
        {"emotion": None},
        {"speed": 0.0},
        {"speed": float("nan")},
        {"speed": "fast"},
        {"pitch": 99},
        {"energy": object()},
        {"intensity": 2.0},
        {"language": "klingon"},
        {"language": 1},
        {"priority": "now"},
        {"priority": []},
        {"deadline_ms": -1},
        {"deadline_ms": 0.5},
        {"seed": -1},
        {"seed": 1 << 70},
        {"phonemes": 1},
    ],
)
def test_a_bad_value_comes_back_as_a_refused_line(
    client: Client, daemon: FakeDaemon, bad: dict[str, object]
) -> None:
    line = client.speak(**{"text": "Well met.", **bad})  # type: ignore[arg-type]
    assert line.end is End.REFUSED
    assert line.code in ("bad-value", "bad-message", "bad-text", "too-large")
    assert line.message
    client.ping()
    assert daemon.speaks() == []


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


def test_impossible_numbers_fail_the_line_and_the_client_connects_again(
    client: Client, daemon: FakeDaemon
) -> None:
    line = begun(client, daemon, 500)
    line.read(100)
    waits = said(client, daemon)
    daemon.mapping.u64[(layout.LANE_HEADS + layout.L_WRITE_POS) // 8] = 1 << 40
    assert not line.read(5_000).any() or line.end is End.FAILED
    assert line.wait(WAIT_S) is End.FAILED
    assert line.code == "bad-daemon"
    until(lambda: [each.line for each in daemon.speaks()].count(waits.id) == 2)
    assert waits.end is None


def test_close_ends_the_lines_and_frees_the_session(daemon: FakeDaemon) -> None:
    client = Client.connect()
    line = begun(client, daemon, 500)
    reader = threading.Thread(target=line.audio, args=(WAIT_S,))
    reader.start()
    until(lambda: line.heard)
    client.close()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    assert (line.end, line.message) == (End.CANCELLED, "the client was closed")
    assert isinstance(daemon.received[-1], m.Bye)
    assert client.speak("Too late.").end is End.REFUSED
    client.close()
