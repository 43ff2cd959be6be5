"""The client against the real daemon on `babble` and `silent`."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from client_helpers import WAIT_S, until
from gleeman.client import Client, Line
from gleeman.records import End, Samples, Viseme

LONG_S = 60.0
BLOCK = 480


@pytest.fixture
def client(start_daemon: Callable[..., object]) -> Iterator[Client]:
    start_daemon("--log-level", "warning")
    with Client.connect() as connected:
        yield connected


def play(line: Line, timeout_s: float = LONG_S) -> Samples:
    """Read in blocks as a sound card does, only faster; what was heard, without the zeros between."""
    heard: list[Samples] = []
    deadline = time.monotonic() + timeout_s
    while line.end is None:
        assert time.monotonic() < deadline, f"{line} does not end"
        before = line.heard
        block = line.read(BLOCK)
        if line.heard == before:
            time.sleep(0.005)
        heard.append(block[: line.heard - before])
    return np.concatenate(heard) if heard else np.zeros(0, np.float32)


def test_reading_in_blocks_and_iterating_give_the_same_samples(client: Client) -> None:
    whole = client.speak("Well met, traveller. Sit down by the fire, it is cold outside.", seed=5)
    client.frame()
    samples = whole.audio(WAIT_S)
    assert (whole.end, whole.code) == (End.DONE, "")
    assert whole.heard == samples.size > 24_000
    again = client.speak("Well met, traveller. Sit down by the fire, it is cold outside.", seed=5)
    client.frame()
    assert np.array_equal(play(again), samples)
    assert again.end is End.DONE


def test_words_and_visemes_come_in_order_on_the_sample_clock(client: Client) -> None:
    text = "Grüß dich! The inn is full tonight, so sit by the fire."
    line = client.speak(text)
    client.frame()
    while line.end is None:
        line.read(BLOCK)
        heard, told = line.heard, line.events
        assert all(event.sample < heard or line.end is not None for event in told)
        time.sleep(0.001)
    words = [text.encode()[word.text_begin : word.text_end].decode() for word in line.words]
    assert [word.strip(".,!") for word in words] == [word.strip(".,!") for word in text.split()]
    samples = [event.sample for event in line.events]
    assert samples == sorted(samples)
    assert samples[-1] <= line.heard
    assert len(line.visemes) > len(words)
    assert line.visemes[-1].code == Viseme.SIL
    assert "".join(clause.spoken for clause in line.clauses)


def test_a_silent_model_gives_subtitles_and_time_without_sound(start_daemon: Callable[..., object]) -> None:
    start_daemon("--log-level", "warning", model="silent")
    with Client.connect() as client:
        line = client.speak("Well met, traveller. The inn is full.")
        client.frame()
        samples = line.audio(WAIT_S)
        assert line.end is End.DONE
        assert not samples.any()
        assert samples.size > 24_000
        assert [clause.spoken for clause in line.clauses] == ["Well met, traveller.", "The inn is full."]
        assert len(line.words) == 7


def test_a_paused_line_holds_only_its_lane_and_the_33rd_waits_for_one(client: Client) -> None:
    text = "It was a dark night and the wind went round the house, and nobody slept at all."
    lines = [client.speak(f"{text} Number {number}.") for number in range(32)]
    client.frame()
    until(lambda: all(line.first_audio_ms is not None for line in lines), LONG_S)
    last = client.speak("And I am the last one.")
    client.frame()
    until(lambda: last.clauses)
    held, others = lines[0], lines[1:]
    held.read(BLOCK)
    held.pause()
    at = held.heard
    time.sleep(0.1)
    assert last.first_audio_ms is None  # 32 lanes are taken
    players = [threading.Thread(target=play, args=(line,)) for line in others]
    for player in players:
        player.start()
    assert last.audio(LONG_S).size > 12_000
    for player in players:
        player.join(LONG_S)
    assert [line.end for line in others] == [End.DONE] * 31
    assert last.end is End.DONE
    assert not held.read(BLOCK).any()
    assert (held.end, held.heard) == (None, at)
    held.resume()
    play(held)
    assert held.end is End.DONE


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"text": ""}, "empty-text"),
        ({"text": " \n "}, "empty-text"),
        ({"text": "x" * 100_000}, "text-too-long"),
        ({"text": "bell \x07"}, "bad-text"),
        ({"text": "Hello.", "voice": "nobody_at_all"}, "unknown-voice"),
        ({"text": "Hello.", "speed": 9}, "bad-value"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_code(
    client: Client, asked: dict[str, object], code: str
) -> None:
    line = client.speak(**asked)  # type: ignore[arg-type]
    client.frame()
    assert line.wait(WAIT_S) is End.REFUSED
    assert line.code == code
    assert len(line.message) > 10
    assert client.speak("Still here.").audio(WAIT_S).size


def test_every_line_of_a_random_mix_ends_exactly_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: Counter[int] = Counter()

    def counted(line: Line, name: str, value: object) -> None:
        if name == "end" and value is not None:
            ends[line.id] += 1
        object.__setattr__(line, name, value)

    monkeypatch.setattr(Line, "__setattr__", counted)
    chance = random.Random(1)
    texts = ["", "Yes.", "Who goes there, at this hour?", "A long tale. " * 8, "x" * 5_000]
    lines: list[Line] = []
    readers: list[threading.Thread] = []
    for _ in range(60):
        line = client.speak(
            chance.choice(texts),
            priority=chance.choice(["immediate", "dialogue", "bark", "background"]),
            deadline_ms=chance.choice([0, 0, 0, 1, 2_000]),
            voice=chance.choice(["", "", "no_such_voice"]),
        )
        lines.append(line)
        what = chance.choice(["play", "play", "play", "iterate", "cancel", "cancel-later", "pause"])
        if what == "cancel":
            line.cancel()
        elif what == "iterate":
            readers.append(threading.Thread(target=line.audio, args=(LONG_S,)))
        else:
            readers.append(threading.Thread(target=play, args=(line,)))
        if what == "cancel-later":
            readers.append(
                threading.Timer(chance.uniform(0, 0.5), line.cancel, [chance.choice([0, 20, 100])])
            )
        if what == "pause":
            line.pause()
            readers.append(threading.Timer(chance.uniform(0, 0.5), line.resume))
        if chance.random() < 0.3:
            client.frame()
    client.frame()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(LONG_S)
        assert not reader.is_alive()
    assert all(line.end is not None for line in lines)
    assert all((line.code == "") == (line.end is End.DONE) for line in lines)
    assert all(line.visemes[-1].code == Viseme.SIL for line in lines)
    assert len({line.end for line in lines}) >= 3
    # The daemon's later words on them change nothing.
    told = [(line.end, line.code, line.heard) for line in lines]
    client.ping()
    time.sleep(0.1)
    assert [(line.end, line.code, line.heard) for line in lines] == told
    assert ends == Counter({line.id: 1 for line in lines})
    assert client.status().live_lines == 0
