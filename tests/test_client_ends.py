"""How lines end, against a daemon that does what the test says."""

from __future__ import annotations

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


def test_a_cut_line_closes_the_mouth_where_it_was_cut(client: Client, daemon: FakeDaemon) -> None:
    events = [viseme(10, Viseme.AA), viseme(3_000, Viseme.PP)]
    line = begun(client, daemon, 4_000, events=events)
    line.read(100)
    line.cancel(fade_ms=0)
    assert line.visemes == [events[0], viseme(100, Viseme.SIL)]


def test_a_faded_line_tells_no_events_that_it_did_not_reach(client: Client, daemon: FakeDaemon) -> None:
    events = [viseme(10, Viseme.AA), word(110, 3), word(3_000, 6), viseme(3_000, Viseme.PP)]
    line = begun(client, daemon, 4_000, events=events, end=End.DONE)
    line.read(100)
    line.cancel(fade_ms=10)
    line.read(1_000)
    assert line.end is End.CANCELLED
    assert line.events == [*events[:2], viseme(340, Viseme.SIL)]


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


def test_a_lane_that_tells_a_failure_first_waits_for_the_daemons_word(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleeman.client.life.WORD_GRACE_NS", int(WAIT_S * 1e9))
    line = begun(client, daemon, 500, end=End.FAILED)
    assert np.array_equal(line.read(500), ramp(500))
    assert line.end is None
    daemon.send(m.Ended(line=line.id, end="failed", code="text-failed", message="why", in_lane=True))
    assert line.wait(WAIT_S) is End.FAILED
    assert (line.code, line.heard) == ("text-failed", 500)


def test_a_failure_in_the_lane_ends_the_line_though_no_word_comes(client: Client, daemon: FakeDaemon) -> None:
    line = begun(client, daemon, 500, end=End.FAILED)
    line.audio(WAIT_S)
    assert (line.end, line.code) == (End.FAILED, "internal")


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
