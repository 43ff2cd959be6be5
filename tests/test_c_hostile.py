"""The C client before a daemon that lies: it ends lines and connections, never itself."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from c_helpers import BINDING, NATIVE, CGame, compile_c
from client_helpers import FakeDaemon, fake_daemon, ramp, until
from gleeman.records import End, Event, EventType
from gleeman.shm import layout
from gleeman.shm.mapping import u32_at, u64_at
from gleeman.wire import messages as m

DONE, CANCELLED, EXPIRED, FAILED, REFUSED, LOST = range(1, 7)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("c") / "game"
    return compile_c(output, "checked", NATIVE / "c_client.c", BINDING / "gleeman.c")


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    with fake_daemon() as fake:
        yield fake


@pytest.fixture
def game(program: Path, daemon: FakeDaemon, tmp_path: Path) -> Iterator[CGame]:
    started = CGame(program, tmp_path)
    try:
        assert started.connect().status == "ok"
        yield started
    finally:
        started.quit()


def begin(game: CGame, daemon: FakeDaemon, samples: int = 1000, *, end: End | None = None) -> int:
    """A line with a lane whose samples have all been read."""
    line = game.speak("Well met.")
    game.until(lambda: len(daemon.speaks()) == line)
    daemon.give(line, ramp(samples), end=end)
    game.ask(f"play {line}")
    if end is None:
        game.until(lambda: game.state(line)[1] == samples)
    return line


def poke(daemon: FakeDaemon, offset: int, value: int) -> None:
    daemon.mapping.u64[u64_at(0, offset)] = value


def poke_end(daemon: FakeDaemon) -> None:
    daemon.mapping.u32[u32_at(0, layout.L_END_CODE)] = 77
    poke(daemon, layout.L_END_POS, 1000)


def poke_event(daemon: FakeDaemon, weight: float, begin: int, end: int) -> None:
    daemon.add(ramp(0), events=[Event(5, EventType.WORD, 0, weight, begin, end)])


LIES: dict[str, Callable[[FakeDaemon], None]] = {
    "a write position too far on": lambda d: poke(d, layout.L_WRITE_POS, 1000 + layout.CAPACITY + 1),
    "a write position that goes back": lambda d: poke(d, layout.L_WRITE_POS, 999),
    "a write position of 2^64 - 1": lambda d: poke(d, layout.L_WRITE_POS, (1 << 64) - 1),
    "an end before what was written": lambda d: poke(d, layout.L_END_POS, 10),
    "an end code that is none": poke_end,
    "more events than the ring holds": lambda d: poke(d, layout.L_EVENT_WRITE, layout.EVENTS + 1),
    "a weight that is no number": lambda d: poke_event(d, float("nan"), 0, 1),
    "a text span upside down": lambda d: poke_event(d, 0.0, 2, 1),
    "an end that is not where the samples end": lambda d: poke(d, layout.L_END_POS, 1001),
    "a lane given away under a live line": lambda d: poke(d, layout.L_GENERATION, 900),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_impossible_numbers_end_the_session(
    lie: Callable[[FakeDaemon], None], game: CGame, daemon: FakeDaemon
) -> None:
    line = begin(game, daemon)
    lie(daemon)
    end = game.end_of(line)
    assert (end.end, end.code, end.sample) == (LOST, "bad-daemon", 1000)
    game.until(lambda: any(e.code == "bad-daemon" for e in game.events if e.type == "connection"))
    assert np.array_equal(game.samples(line), ramp(1000))


def test_odd_but_possible_lanes_are_lived_with(game: CGame, daemon: FakeDaemon) -> None:
    """Events of unknown types and far away, mouth shapes that are none, a vast preroll, unknown lines."""
    daemon.give(12345, ramp(10), lane=5, end=End.DONE)  # nobody's
    game.until(lambda: daemon.freed(5))
    line = game.speak("Well met.")
    game.until(lambda: daemon.speaks())
    events = [
        Event(0, 99, 7),
        Event(1, EventType.VISEME, 65535, 0.5),
        Event(2, EventType.WORD, 0, 0.0, 3, 50, 4_000_000_000),
        Event((1 << 64) - 1, EventType.WORD),
    ]
    daemon.give(line, ramp(500), events=events, preroll=(1 << 64) - 1, end=End.DONE)
    game.ask(f"play {line}")
    end = game.end_of(line)
    assert (end.end, end.sample) == (DONE, 500)
    assert [(e.type, e.value, e.number) for e in game.of(line, "viseme", "word")] == [
        ("viseme", 0, 0.5),
        ("word", 0, 0.0),
        ("word", 0, 0.0),
    ]
    game.until(lambda: daemon.freed(0))


def test_a_failed_line_tells_the_code_of_its_message(game: CGame, daemon: FakeDaemon) -> None:
    line = begin(game, daemon, 300, end=End.FAILED)
    daemon.send(m.Ended(line=line, end="failed", code="model-failed", message="it broke", in_lane=True))
    end = game.end_of(line)
    assert (end.end, end.code, end.text, end.sample) == (FAILED, "model-failed", "it broke", 300)


def test_samples_wait_for_the_preroll_and_an_underrun_stops_the_clock(
    game: CGame, daemon: FakeDaemon
) -> None:
    line = game.speak("Well met.")
    game.until(lambda: daemon.speaks())
    daemon.give(line, ramp(400), preroll=600)
    game.ask(f"play {line}")
    game.until(lambda: game.state(line)[2] == 400)
    assert game.state(line) == (3, 0, 400, 0)
    daemon.add(ramp(300, 400))
    game.until(lambda: game.state(line)[1] == 700 and game.state(line)[3] > 0)
    daemon.add(ramp(layout.CAPACITY, 700))  # exactly full, around the ring's end
    daemon.add(ramp(0), end=End.DONE)
    assert game.end_of(line).sample == 700 + layout.CAPACITY
    assert np.array_equal(game.samples(line), ramp(700 + layout.CAPACITY))


def test_too_many_lines_are_busy(game: CGame, daemon: FakeDaemon) -> None:
    daemon.accepts = False
    answers = [game.ask("speak - - 1 0 Well met.") for _ in range(513)]
    assert [answer.status for answer in answers] == ["ok"] * 512 + ["busy"]
    daemon.send(m.Ended(line=7, end="expired", code="expired", message="too late"))
    assert game.end_of(7).end == EXPIRED
    again = game.ask("speak - - 1 0 Well met.")
    assert (again.status, again.value) == ("ok", 519)  # numbers whose slot is taken are passed over


def test_much_text_is_busy(game: CGame, daemon: FakeDaemon) -> None:
    text = "x" * 16_000
    statuses = [game.ask(f"speak - - 1 0 {text}").status for _ in range(70)]
    kept = statuses.index("busy")
    assert 60 <= kept < 70
    game.until(lambda: len(daemon.speaks()) == kept)
    assert all(speak.text == text for speak in daemon.speaks())
    daemon.send(m.Ended(line=1, end="refused", code="busy", message="later"))
    assert game.end_of(1).end == REFUSED
    assert game.ask(f"speak - - 1 0 {text}").status == "ok"


def test_an_error_about_a_speak_refuses_the_line(game: CGame, daemon: FakeDaemon) -> None:
    daemon.accepts = False
    line = game.speak("Well met.")
    daemon.send(m.Error(re=line, code="bad-message", message="what?"))
    end = game.end_of(line)
    assert (end.end, end.code, end.text, end.status) == (REFUSED, "bad-message", "what?", -22)


def test_gone_is_lost_and_a_silent_daemon_stalls(game: CGame, daemon: FakeDaemon) -> None:
    daemon.beats = False
    game.until(lambda: [e.value for e in game.of(0, "connection")][-1:] == [2])
    daemon.beats = True
    game.until(lambda: [e.value for e in game.of(0, "connection")][-1:] == [1])
    line = begin(game, daemon)
    daemon.send(m.Gone(code="shutting-down", message="good night"))
    end = game.end_of(line)
    assert (end.end, end.sample) == (LOST, 1000)
    assert any(e.code == "shutting-down" for e in game.events if e.type == "connection")


def test_a_daemon_of_another_protocol_is_named(program: Path, home: Path, tmp_path: Path) -> None:
    with fake_daemon(protocol=2):
        game = CGame(program, tmp_path)
        answer = game.connect(wait_ms=5000)
        game.quit()
    assert answer.status == "bad-protocol"
    assert "protocol 2" in answer.why


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"", b"\xff" + bytes(8) + b"\x7f\x03\x00NULL"]
)
def test_what_is_no_daemon_at_all_is_left(
    greeting: bytes, program: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    import msgspec

    with socket.create_server(("127.0.0.1", 0)) as server:
        fields = msgspec.to_builtins(daemon.discovery)
        fields["endpoints"] = [f"tcp://127.0.0.1:{server.getsockname()[1]}"]
        file = tmp_path / "d.json"
        file.touch(mode=0o600)
        file.write_bytes(msgspec.json.encode(fields))
        server.settimeout(10)
        game = CGame(program, tmp_path)
        asked = game._process.stdin
        assert asked is not None
        asked.write(f"connect {file} 24000 300 1000\n")
        asked.flush()
        peer, _ = server.accept()
        peer.sendall(greeting)
        until(lambda: game._answers)
        peer.close()
        assert game._answers[0].status in ("timeout", "no-daemon", "bad-daemon")
        game.quit()


def test_the_example_says_a_line_and_writes_a_wav(
    home: Path, tmp_path: Path, start_daemon: Callable[..., object]
) -> None:
    import soundfile

    say = compile_c(tmp_path / "say", "plain", BINDING / "examples" / "say.c", BINDING / "gleeman.c")
    file = tmp_path / "out.wav"

    def run() -> subprocess.CompletedProcess[str]:
        command = [str(say), "Well met, traveller.", str(file), "bm_george"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    refused = run()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "gleeman serve" in refused.stderr
    start_daemon()
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    samples, rate = soundfile.read(file, dtype="float32")
    assert rate == 24_000
    assert samples.size > 20_000
    assert 0.05 < np.abs(samples).max() <= 1.0


def test_a_daemon_that_has_forgotten_us_is_greeted_again(game: CGame, daemon: FakeDaemon) -> None:
    """A session that ended unheard once left its client stalled for ever."""
    line = game.speak("One.")
    game.ask("frame")
    game.until(lambda: len(daemon.speaks()) == 1)
    daemon.beats, daemon.forgets = False, True
    game.until(lambda: len(daemon.speaks()) == 2)
    assert daemon.speaks()[1].text == "One."
    daemon.beats = True
    daemon.send(m.Ended(line=line, end="refused", code="busy", message="later"))
    assert game.end_of(line).end == REFUSED
