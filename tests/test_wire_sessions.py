"""What the server knows of sessions and lines, without a socket."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleeman.errors import InputError
from gleeman.records import End, LineEnded, LineKey, ModelState
from gleeman.stats import FirstAudio, padding_ratio, percentile
from gleeman.wire import messages as m
from gleeman.wire.conversation import Conversation
from gleeman.wire.outbox import Outbox
from gleeman.wire.sessions import Sessions, admit, check_order, make_seed
from wire_helpers import TOKEN, FakeHouse, FakeVoices


def hello(**fields: Any) -> m.Hello:
    return m.Hello(**{"id": 1, "protocol": 1, "token": TOKEN, **fields})


def calm(name: str) -> tuple[str, str]:
    return name, ""


def test_session_ids_are_random_and_not_zero() -> None:
    sessions = Sessions()
    numbers = [sessions.open(bytes([n]), hello()).id for n in range(60)]
    assert len(set(numbers)) == 60
    assert 0 not in numbers
    assert max(numbers) > 1 << 56


def test_a_closed_sessions_lines_count_once_as_what_became_of_them() -> None:
    """A client that says bye right after it heard a line's end must not turn that into a cancelled line."""
    sessions = Sessions()
    session = sessions.open(b"a", hello())
    for line in (1, 2):
        admit(session, m.Speak(id=1, line=line, text="Hi."), FakeVoices(), calm, "main", 5)
    assert sessions.live_lines() == 2
    sessions.close(session)
    for _ in range(2):
        assert sessions.line_over(LineKey(session.id, 1), End.DONE) is None
    assert sessions.live_lines() == 1
    for _ in range(2):
        sessions.closed(session.id)
    assert sessions.line_over(LineKey(session.id, 2), End.DONE) is None
    assert sessions.live_lines() == 0
    assert sessions.ended == {"done": 1, "cancelled": 1, "expired": 0, "failed": 0, "refused": 0, "lost": 0}


def test_a_refused_line_is_not_live_but_its_number_is_used_up() -> None:
    session = Sessions().open(b"a", hello())
    with pytest.raises(InputError):
        admit(session, m.Speak(id=1, line=3, text=""), FakeVoices(), calm, "main", 5)
    assert session.lines == {}
    with pytest.raises(InputError) as caught:
        check_order(session, 3)
    assert caught.value.code == "bad-value"


@given(st.text(max_size=200), st.sampled_from(FakeVoices.known))
def test_seeds_are_u63_and_made_of_voice_and_text(text: str, voice: str) -> None:
    assert 0 <= make_seed(voice, text) < 1 << 63
    assert make_seed(voice, text) == make_seed(voice, text)


def test_the_seed_of_a_known_line_never_changes() -> None:
    assert make_seed("af_heart", "Well met.") == 3_127_343_889_614_861_074


@given(st.text(min_size=1, max_size=300))
def test_any_text_is_admitted_or_refused_with_a_code(text: str) -> None:
    session = Sessions().open(b"a", hello())
    controls = [c for c in text if (ord(c) < 32 and c not in "\n\t\r") or 127 <= ord(c) < 160]
    speak = m.Speak(id=1, line=1, text=text)
    if text.strip() and not controls:
        assert admit(session, speak, FakeVoices(), calm, "main", 5)[0].text == text
        return
    with pytest.raises(InputError) as caught:
        admit(session, speak, FakeVoices(), calm, "main", 5)
    assert caught.value.code == ("bad-text" if text.strip() else "empty-text")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_line_ends_at_most_once_whatever_comes_in_which_order(seed: int) -> None:
    """Speaks, cancels, ends, freed lanes, byes and lost sessions in random order; several ends a line."""
    dice = random.Random(seed)
    house = FakeHouse()
    house.opens = False
    sent: list[tuple[bytes, m.Message]] = []
    talk = Conversation(house, TOKEN, "babble", lambda route, message: sent.append((route, message)) or "")
    talk.new_state(ModelState("ready", 1.0))
    live: list[LineKey] = []
    for route in (b"a", b"b"):
        talk.take(route, m.encode(hello()), 1)
        session = house.asked[-1][1]
        talk.opened(session, "/m", 1)
    for line in range(1, 40):
        route = dice.choice((b"a", b"b"))
        match dice.randrange(6):
            case 0 | 1 | 2:
                before = len(house.lines)
                talk.take(route, m.encode(m.Speak(id=line, line=line, text=dice.choice(("Hi.", "")))), 1)
                live += [request.key for request in house.lines[before:]]
            case 3 if live:
                end = dice.choice((End.CANCELLED, End.EXPIRED, End.FAILED, End.DONE))
                talk.ended(LineEnded(dice.choice(live), end, "", "", dice.random() < 0.5))
            case 4 if live:
                talk.freed(dice.choice(live), dice.choice((End.DONE, End.CANCELLED)))
            case 5 if live and dice.random() < 0.2:
                talk.gone(dice.choice(live).session, "bad-client", "nonsense")
    ends = [(route, message.line) for route, message in sent if isinstance(message, m.Ended)]
    assert len(ends) == len(set(ends))
    accepted = sum(isinstance(message, m.Accepted) for _, message in sent)
    refused = sum(isinstance(message, m.Ended) and message.end == "refused" for _, message in sent)
    sessions = talk._sessions
    assert accepted == len(house.lines)
    assert sum(sessions.ended.values()) + sessions.live_lines() == accepted + refused
    assert sessions.ended["refused"] == refused


def test_a_call_posted_before_and_after_closing() -> None:
    outbox = Outbox()
    calls: list[int] = []
    for number in range(5000):  # more than a pipe would hold if each rang
        outbox.post(lambda number=number: calls.append(number))
    for call in outbox.take():
        call()
    assert calls == list(range(5000))
    assert outbox.take() == []
    outbox.close()
    outbox.post(lambda: calls.append(-1))
    assert calls[-1] == 4999


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7.0], 50, 7.0),
        ([7.0], 95, 7.0),
        ([4, 1, 3, 2], 50, 2),
        (list(range(1, 101)), 95, 95),
    ],
)
def test_percentiles_are_of_the_nearest_rank(
    values: list[float], percent: float, expected: float | None
) -> None:
    assert percentile(values, percent) == expected


def test_first_audio_remembers_only_the_latest() -> None:
    times = FirstAudio()
    for number in range(3000):
        times.add(number * 1_000_000)
    assert times.percentile(1) == pytest.approx(3000 - 1024 + 10, abs=1)


def test_without_frames_there_is_no_padding() -> None:
    assert padding_ratio(0, 0) == 1
    assert padding_ratio(80, 20) == 1.25
