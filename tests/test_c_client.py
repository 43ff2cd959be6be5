"""The C client, in a process of its own under the sanitizers, against the real daemon on `babble`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c_helpers import BINDING, NATIVE, CGame, compile_c
from gleeman import paths
from gleeman.client import Client

Daemons = Callable[..., Any]
TALE = (
    "Once upon a time there was an old king who lived in a castle by the sea, and he had three daughters. "
    * 3
).strip()
SHORT = "Who goes there?"
DONE, CANCELLED, EXPIRED, FAILED, REFUSED, LOST = range(1, 7)
BEGUN_STATE = 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The game in miniature, built once a kind."""
    folder = tmp_path_factory.mktemp("c")

    def built(kind: str) -> Path:
        path = folder / kind
        if not path.exists():
            compile_c(path, kind, NATIVE / "c_client.c", BINDING / "gleeman.c")
        return path

    return built


@pytest.fixture
def start_game(
    program: Callable[[str], Path], home: Path, tmp_path: Path
) -> Iterator[Callable[[str], CGame]]:
    games: list[CGame] = []

    def start(kind: str = "checked") -> CGame:
        games.append(CGame(program(kind), tmp_path))
        return games[-1]

    yield start
    for game in games:
        game.quit()


@pytest.fixture
def game(start_game: Callable[[str], CGame], start_daemon: Daemons) -> CGame:
    """Under the address and undefined-behaviour sanitizers, connected to a daemon."""
    start_daemon()
    started = start_game("checked")
    assert started.connect().status == "ok"
    return started


def say(game: CGame, text: str, *, play: bool = True, **how: Any) -> int:
    line = game.speak(text, **how)
    assert game.ask("frame").status == "ok"
    if play:
        assert game.ask(f"play {line}").status == "ok"
    return line


@pytest.mark.parametrize("kind", ["plain", "checked", "threads"])
def test_c_and_python_hear_the_same_samples(
    kind: str, start_game: Callable[[str], CGame], start_daemon: Daemons
) -> None:
    start_daemon()
    game = start_game(kind)
    assert game.connect().status == "ok"
    text = "Grüß dich, traveller! Sit down by the fire; 外面很冷。"
    with Client.connect() as client:
        heard = client.speak(text, seed=7, voice="bm_george")
        client.frame()
        expected = heard.audio(30)
    line = say(game, text, seed=7, voice="bm_george")
    end = game.end_of(line)
    assert (end.end, end.code, end.sample) == (DONE, "", expected.size)
    assert np.array_equal(game.samples(line), expected)


def test_a_line_tells_what_happens_in_order_and_closes_the_mouth(game: CGame) -> None:
    text = "Grüß dich! The inn is full tonight, so sit by the fire."
    line = say(game, text, seed=3)
    end = game.end_of(line)
    types = [event.type for event in game.of(line)]
    assert types[0] == "accepted"
    assert types.count("begun") == types.count("ended") == 1
    assert (game.of(line, "accepted")[0].text, game.of(line, "accepted")[0].seed) == ("af_heart", 3)
    heard = game.of(line, "word", "viseme", "clause")
    assert [event.sample for event in heard] == sorted(event.sample for event in heard)
    assert heard[-1].sample <= end.sample
    words = [text.encode()[e.begin : e.text_end].decode() for e in game.of(line, "word")]
    assert words == text.replace("!", "").replace(",", "").replace(".", "").split()
    assert game.of(line, "viseme")[-1].value == 0
    subtitles = game.of(line, "subtitle")
    assert "".join(s.text for s in subtitles).replace(" ", "") == text.replace(" ", "")
    assert len(subtitles) == len(game.of(line, "clause"))


def test_cancel_fades_and_ends_once(game: CGame) -> None:
    whole = say(game, TALE, seed=1)
    game.end_of(whole)
    expected = game.samples(whole)
    game.ask("pace 24")
    line = say(game, TALE, seed=1)
    game.until(lambda: game.state(line)[1] > 6000)
    assert game.ask(f"cancel {line} 50").status == "ok"
    end = game.end_of(line)
    assert (end.end, end.code, end.status) == (CANCELLED, "cancelled", -18)
    got = game.samples(line)
    assert end.sample == got.size > 6000
    fade = 1200
    before = got.size - fade
    assert np.array_equal(got[:before], expected[:before])
    gain = 1 - np.arange(1, fade + 1) / fade
    np.testing.assert_allclose(got[before:], expected[before : got.size] * gain, atol=1e-6)
    assert game.of(line, "viseme")[-1].value == 0
    assert game.ask(f"cancel {line} 50").status == "unknown-line"


def test_cancelled_lines_end_without_a_reader_and_without_a_lane(game: CGame) -> None:
    unread = say(game, TALE, play=False)
    game.until(lambda: game.of(unread, "begun"))
    lines = [game.speak(TALE) for _ in range(40)]
    game.ask("frame")
    for line in [unread, *lines]:
        assert game.ask(f"cancel {line} 20").status == "ok"
    for line in [unread, *lines]:
        end = game.end_of(line)
        assert (end.end, end.sample) == (CANCELLED, 0)
    assert game.end_of(say(game, SHORT)).end == DONE


def test_more_lines_than_lanes_all_play(game: CGame) -> None:
    lines = [game.speak(f"Guest number {n} would like to order.", seed=n) for n in range(40)]
    game.ask("frame")
    game.until(lambda: sum(bool(game.of(line, "begun")) for line in lines) == 32)
    for line in lines:
        game.ask(f"play {line}")
    assert [game.end_of(line).end for line in lines] == [DONE] * 40
    for line in lines:
        assert game.samples(line).size == game.end_of(line).sample > 20_000


def test_a_paused_line_waits_and_the_others_play_on(game: CGame) -> None:
    game.ask("pace 24")
    line = say(game, TALE, seed=1)
    game.until(lambda: game.state(line)[1] > 3000)
    assert game.ask(f"pause {line} 1").status == "ok"
    game.ask("pace 480")
    other = say(game, TALE, seed=1)
    assert game.end_of(other).end == DONE
    expected = game.samples(other)
    state, heard, buffered, underrun = game.state(line)
    assert state == BEGUN_STATE
    assert heard < 30_000
    assert buffered > 100_000
    assert underrun == 0
    assert game.ask(f"pause {line} 0").status == "ok"
    assert game.end_of(line).sample == expected.size
    got = game.samples(line)
    different = np.flatnonzero(got != expected)
    assert different.size <= 2 * 120  # it faded out and in again, 5 ms each
    assert np.all((different >= heard - 120) & (different < heard + 120))


@pytest.mark.parametrize("kind", ["checked", "threads"])
def test_a_dead_daemon_is_played_out_and_replaced(
    kind: str, start_game: Callable[[str], CGame], start_daemon: Daemons
) -> None:
    first = start_daemon()
    game = start_game(kind)
    assert game.connect().status == "ok"
    whole = say(game, TALE * 2, seed=1)
    game.end_of(whole)
    expected = game.samples(whole)
    game.ask("pace 24")
    speaking = say(game, TALE * 2, seed=1)
    game.until(lambda: game.state(speaking)[1] > 3000 and game.state(speaking)[2] > 100_000)
    held = [game.speak(TALE) for _ in range(31)]  # these take the other lanes, and nobody reads them
    game.ask("frame")
    game.until(lambda: all(game.of(line, "begun") for line in held))
    waiting = [game.speak(SHORT, seed=9) for _ in range(3)]
    game.ask("frame")
    first.kill()
    game.ask("pace 480")
    end = game.end_of(speaking)
    assert (end.end, end.code) == (LOST, "lost")
    got = game.samples(speaking)
    assert end.sample == got.size > 100_000
    assert np.array_equal(got, expected[: got.size])
    assert game.of(speaking, "viseme")[-1].value == 0
    assert not any(game.of(line, "ended") for line in waiting)
    for line in held:
        game.ask(f"cancel {line} 0")
    start_daemon()
    for line in waiting:
        game.ask(f"play {line}")
    assert [game.end_of(line).end for line in waiting] == [DONE] * 3
    assert [len(game.of(line, "accepted")) for line in waiting] == [1] * 3
    assert {game.end_of(line).end for line in held} == {CANCELLED}
    connection = [event.value for event in game.events if event.type == "connection"]
    assert connection == [1, 0, 1]
    assert game.end_of(say(game, SHORT)).end == DONE


def test_five_kills_in_a_row(start_game: Callable[[str], CGame], start_daemon: Daemons) -> None:
    """Each time the line ends lost, the next daemon is found, and no mapping stays open."""
    game = start_game("checked")
    daemon = start_daemon()
    assert game.connect().status == "ok"
    for _ in range(5):
        line = say(game, TALE * 2)
        game.until(lambda line=line: game.of(line, "begun"))
        daemon.kill()
        assert game.end_of(line).end == LOST
        daemon = start_daemon()
        assert game.end_of(say(game, SHORT)).end == DONE
    maps = Path(f"/proc/{game.pid}/maps")
    if maps.exists():
        game.until(lambda: maps.read_text().count(".lanes") == 1)


def test_waiting_lines_end_when_no_daemon_comes(
    start_game: Callable[[str], CGame], start_daemon: Daemons
) -> None:
    daemon = start_daemon()
    game = start_game("checked")
    assert game.connect(reconnect_ms=300).status == "ok"
    daemon.kill()
    game.until(lambda: [e for e in game.events if e.type == "connection" and e.value == 0])
    line = game.speak(SHORT)
    end = game.end_of(line)
    assert (end.end, end.code, end.sample) == (LOST, "no-daemon", 0)
    assert game.ask("speak - - 1 0 Hello?").status == "no-daemon"
    start_daemon()
    game.until(lambda: game.events[-1].type == "state")
    assert game.end_of(say(game, SHORT)).end == DONE


def test_without_waiting_the_connection_comes_as_an_event(
    start_game: Callable[[str], CGame], start_daemon: Daemons
) -> None:
    game = start_game("checked")
    assert game.connect(wait_ms=0).status == "ok"
    assert game.ask("voices").status == "no-daemon"
    line = say(game, SHORT)
    start_daemon()
    assert game.end_of(line).end == DONE
    assert game.ask("voices").status == "ok"
    game.until(lambda: [e for e in game.events if e.type == "voice"])
    count = next(e.sample for e in game.events if e.type == "voice")
    game.until(lambda: sum(e.type == "voice" for e in game.events) == count)
    voices = {e.text: e.code for e in game.events if e.type == "voice"}
    assert voices["bm_george"] == "en-gb"
    assert [e.text for e in game.events if e.type == "voice" and e.number == 1.0] == ["af_heart"]


def test_refused_lines_say_why(game: CGame) -> None:
    refused = {
        game.speak(SHORT, voice="nobody"): "unknown-voice",
        game.speak("\u3000"): "empty-text",
        game.speak("Hel\x07lo"): "bad-text",
        game.speak("long " * 1000): "text-too-long",
    }
    for line, code in refused.items():
        end = game.end_of(line)
        assert (end.end, end.code, end.sample) == (REFUSED, code, 0)
        assert end.text
    assert game.ask("speak - - 1 0 ").status == "empty-text"
    assert game.ask("speak - - 1 0 " + "x" * 16_001).status == "text-too-long"
    assert game.ask("speak - - 9 0 Hello").status == "bad-value"
    assert game.ask(f"speak {1 << 63} - 1 0 Hello").status == "bad-value"
    assert game.ask("cancel 999 0").status == "unknown-line"
    assert game.end_of(say(game, SHORT)).end == DONE


@pytest.mark.parametrize("rate", [44_100, 48_000])
def test_other_rates(rate: int, start_game: Callable[[str], CGame], start_daemon: Daemons) -> None:
    start_daemon()
    game = start_game("checked")
    assert game.connect(rate=rate).status == "ok"
    with Client.connect(rate_hz=rate) as client:
        heard = client.speak(SHORT, seed=7)
        client.frame()
        expected = heard.audio(30)
    line = say(game, SHORT, seed=7)
    assert game.end_of(line).end == DONE
    assert np.array_equal(game.samples(line), expected)


def test_a_wrong_discovery_file_is_named(
    start_game: Callable[[str], CGame], start_daemon: Daemons, tmp_path: Path
) -> None:
    game = start_game("checked")
    answer = game.connect(wait_ms=1000)
    assert answer.status == "no-daemon"
    assert "gleeman serve" in answer.why
    start_daemon()
    good = json.loads(paths.discovery_path().read_text())

    def connect_with(mode: int = 0o600, **changes: Any) -> str:
        other = tmp_path / "other.json"
        other.touch(mode=0o600)
        other.write_text(json.dumps(good | changes))
        other.chmod(mode)
        return game.connect(other, wait_ms=200).status

    assert connect_with(token="0" * 64) == "bad-token"
    assert connect_with(protocol=2) == "bad-protocol"
    assert connect_with(token="short") == "bad-file"
    assert connect_with(mode=0o644) == "bad-file"
    assert connect_with(start_ns=good["start_ns"] + 1) == "no-daemon"
    assert connect_with(endpoints=["tcp://127.0.0.1:1"]) == "no-daemon"
    assert connect_with(endpoints=["tcp://192.0.2.1:80"]) == "no-daemon"
    assert game.connect(rate=8000).status == "bad-value"
    for endpoint in good["endpoints"]:  # each way alone
        other = start_game("checked")
        file = tmp_path / "one.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(good | {"endpoints": [endpoint]}))
        assert other.connect(file).status == "ok"
        assert other.end_of(say(other, SHORT)).end == DONE
