"""The text room against real text processes: order, frames, hangs, crashes, and a clean end."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gleeman.errors import GleemanError, InputError
from gleeman.records import Clause, LineKey, LineRequest, Priority
from gleeman.text.child import CRASH_HOOK, HANG_HOOK, HOOKS
from gleeman.text.room import MAX_QUEUED, TextJob, TextRoom

WAIT_S = 60.0
BASE = LineRequest(
    key=LineKey(1, 1),
    text="",
    phonemes="",
    voice="af_heart",
    emotion="neutral",
    intensity=1.0,
    speed=1.0,
    pitch=0.0,
    energy=0.0,
    language="auto",
    priority=Priority.DIALOGUE,
    arrived_ns=0,
    deadline_ns=0,
    seed=0,
    rate_hz=24_000,
    pipeline="main",
)


class Heard:
    """What a room said, in order: ("line", number, clauses), ("fail", number, error), ("frame", session)."""

    def __init__(self, **options: object) -> None:
        self._said: queue.Queue[tuple[object, ...]] = queue.Queue()
        self.room = TextRoom(self._deliver, self._fail, self._frame, **{"warm": False, **options})  # type: ignore[arg-type]

    def _deliver(self, request: LineRequest, clauses: tuple[Clause, ...], warnings: tuple[str, ...]) -> None:
        self._said.put(("line", request.key.line, clauses))

    def _fail(self, request: LineRequest, error: GleemanError) -> None:
        self._said.put(("fail", request.key.line, error))

    def _frame(self, session: int) -> None:
        self._said.put(("frame", session))

    def submit(self, line: int, text: str, *, phonemes: bool = False, **fields: object) -> None:
        request = replace(BASE, key=LineKey(1, line), text=text, **fields)  # type: ignore[arg-type]
        self.room.submit(TextJob(request, phonemes))

    def next(self) -> tuple[object, ...]:
        return self._said.get(timeout=WAIT_S)

    def order(self, count: int) -> list[tuple[object, ...]]:
        return [self.next()[:2] for _ in range(count)]

    def wait_for_child(self) -> int:
        """The text process's pid, once it reads a line."""
        deadline = time.monotonic() + WAIT_S
        while self.room._now is None or self.room.child_pid is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return self.room.child_pid

    def nothing_more(self) -> bool:
        return self._said.empty()


OpenRoom = Callable[..., Heard]


@pytest.fixture
def open_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenRoom]:
    """Opens rooms, and sees to it that none leaves a thread or a process."""
    monkeypatch.setenv("GLEEMAN_HOME", str(tmp_path))
    monkeypatch.setenv(HOOKS, "1")
    opened: list[Heard] = []

    def open_(**options: object) -> Heard:
        heard = Heard(**options)
        opened.append(heard)
        heard.room.start()
        return heard

    yield open_
    for heard in opened:
        heard.room.stop()
        assert heard.room.child_pid is None
    assert [t.name for t in threading.enumerate() if t.name.startswith("text")] == []


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heard]:
    """One room with its languages loaded, for the tests that want phonemes."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GLEEMAN_HOME", str(tmp_path_factory.mktemp("home")))
    heard = Heard(warm=True)
    heard.room.start()
    heard.submit(1, "Hello.", phonemes=True)
    assert heard.next()[:2] == ("line", 1)
    yield heard
    heard.room.stop()
    patch.undo()


def code(said: tuple[object, ...]) -> str:
    assert said[0] == "fail"
    assert isinstance(said[2], GleemanError)
    return said[2].code


def test_lines_and_frames_come_out_in_the_order_they_went_in(open_room: OpenRoom) -> None:
    heard = open_room()
    heard.submit(1, "One.")
    heard.submit(2, "Two.")
    heard.room.frame(7)
    heard.submit(3, "Three.")
    heard.room.frame(8)
    assert heard.order(5) == [("line", 1), ("line", 2), ("frame", 7), ("line", 3), ("frame", 8)]


def test_a_plain_line_has_clauses_and_words_without_phonemes(open_room: OpenRoom) -> None:
    heard = open_room()
    heard.submit(1, "Halt, traveller! 你好。")
    clauses = heard.next()[2]
    assert isinstance(clauses, tuple)
    assert [c.spoken for c in clauses] == ["Halt, traveller!", "你好。"]
    assert [c.phonemes for c in clauses] == ["", ""]
    assert (clauses[1].words[0].begin, clauses[1].words[1].end) == (17, 23)


def test_a_line_with_nothing_to_say_fails_alone(open_room: OpenRoom) -> None:
    heard = open_room()
    heard.submit(1, "…")
    heard.submit(2, "Two.")
    said = heard.next()
    assert code(said) == "nothing-to-say"
    assert isinstance(said[2], InputError)
    assert heard.order(1) == [("line", 2)]
    assert heard.room.restarts == 0


def test_an_immediate_line_overtakes_what_has_not_been_read(open_room: OpenRoom) -> None:
    heard = open_room()
    heard.submit(1, HANG_HOOK)
    child = heard.wait_for_child()
    heard.submit(2, "Two.")
    heard.room.frame(1)
    heard.submit(3, "Three.", priority=Priority.IMMEDIATE)
    os.kill(child, signal.SIGKILL)
    assert [heard.next()[:2] for _ in range(4)] == [("fail", 1), ("line", 3), ("line", 2), ("frame", 1)]


def test_a_deadline_passes_while_another_line_hangs(open_room: OpenRoom) -> None:
    heard = open_room(hang_s=30.0)
    heard.submit(1, HANG_HOOK)
    heard.submit(2, "Two.", deadline_ns=time.monotonic_ns() + 50_000_000)
    heard.submit(3, "Three.")
    said = heard.next()
    assert (said[:2], code(said)) == (("fail", 2), "expired")
    os.kill(heard.wait_for_child(), signal.SIGKILL)
    assert [heard.next()[:2] for _ in range(2)] == [("fail", 1), ("line", 3)]


def test_a_mistake_in_handing_a_line_on_fails_that_line_alone(open_room: OpenRoom) -> None:
    """Once it ended the text thread, and every later line with it."""
    heard = open_room()

    def broken(request: LineRequest, clauses: tuple[Clause, ...], warnings: tuple[str, ...]) -> None:
        heard.room._deliver = heard._deliver
        raise KeyError("a mistake")

    heard.room._deliver = broken
    heard.submit(1, "One.")
    heard.submit(2, "Two.")
    said = heard.next()
    assert (said[:2], code(said)) == (("fail", 1), "internal")
    assert heard.next()[:2] == ("line", 2)


@pytest.mark.parametrize("hook", [HANG_HOOK, CRASH_HOOK])
def test_a_line_that_breaks_the_process_fails_and_the_others_go_on_in_order(
    open_room: OpenRoom, hook: str
) -> None:
    heard = open_room(hang_s=0.5)
    heard.submit(1, "One.")
    assert heard.order(1) == [("line", 1)]
    first = heard.room.child_pid
    assert first is not None
    heard.submit(2, hook)
    heard.room.frame(7)
    heard.submit(3, "Three.")
    heard.submit(4, "Four.")
    said = heard.next()
    assert said[1] == 2
    assert code(said) == "text-failed"
    assert heard.order(3) == [("frame", 7), ("line", 3), ("line", 4)]
    assert heard.room.restarts == 1
    assert heard.room.child_pid != first
    assert not psutil.pid_exists(first)


def test_a_process_killed_from_outside_is_replaced(open_room: OpenRoom) -> None:
    heard = open_room()
    heard.submit(1, "One.")
    assert heard.order(1) == [("line", 1)]
    assert heard.room.child_pid is not None
    psutil.Process(heard.room.child_pid).kill()
    heard.submit(2, "Two.")  # may meet the dying process: then it fails, and the next one does not
    assert heard.next()[1] == 2
    heard.submit(3, "Three.")
    assert heard.order(1) == [("line", 3)]
    assert heard.room.restarts == 1


@pytest.mark.parametrize("command", [[sys.executable, "-c", "raise SystemExit(3)"], ["/no/such/program"]])
def test_a_process_that_cannot_start_fails_each_line_and_is_not_tried_for_ever(
    open_room: OpenRoom, command: list[str]
) -> None:
    heard = open_room(command=command)
    heard.submit(1, "One.")
    heard.room.frame(7)
    said = heard.next()
    assert code(said) == "text-failed"
    assert heard.order(1) == [("frame", 7)]
    tried = heard.room.restarts
    assert tried <= 3
    heard.submit(2, "Two.")
    assert code(heard.next()) == "text-failed"
    assert heard.room.restarts <= tried + 3


def test_a_process_that_talks_nonsense_is_replaced_and_the_line_fails(open_room: OpenRoom) -> None:
    nonsense = "import sys; sys.stdout.buffer.write(b'\\xff' * 64); sys.stdout.flush(); sys.stdin.read()"
    heard = open_room(command=[sys.executable, "-c", nonsense])
    heard.submit(1, "One.")
    assert code(heard.next()) == "text-failed"


def test_what_is_too_much_is_answered_with_busy(open_room: OpenRoom) -> None:
    heard = open_room(command=[sys.executable, "-c", "import sys; sys.stdin.read()"])
    for line in range(1, MAX_QUEUED + 1):
        heard.submit(line, "One.")
    with pytest.raises(InputError) as caught:
        heard.submit(MAX_QUEUED + 1, "One.")
    assert caught.value.code == "busy"


def test_stop_ends_the_process_even_while_it_hangs(open_room: OpenRoom) -> None:
    heard = open_room()
    heard.submit(1, "One.")
    assert heard.order(1) == [("line", 1)]
    pid = heard.room.child_pid
    assert pid is not None
    heard.submit(2, HANG_HOOK)
    heard.room.stop()
    assert heard.room.child_pid is None
    assert not psutil.pid_exists(pid)
    assert heard.nothing_more()


def test_a_room_that_was_never_started_stops() -> None:
    Heard().room.stop()


def test_a_warm_room_reads_both_languages(warm: Heard) -> None:
    warm.submit(1, "Hello there.", phonemes=True)
    warm.submit(2, "你好，John。", phonemes=True)
    warm.submit(3, "", phonemes=True)
    first, second, third = warm.next(), warm.next(), warm.next()
    assert isinstance(first[2], tuple)
    assert isinstance(second[2], tuple)
    assert [c.phonemes for c in first[2]] == ["həlˈO ðˈɛɹ."]
    assert [c.phonemes for c in second[2]] == ["ni↓xau↓, ʤˈɑn."]
    assert code(third) == "nothing-to-say"


def test_the_client_s_own_phonemes_are_checked(warm: Heard) -> None:
    request = replace(BASE, key=LineKey(1, 9), phonemes="həlˈO9")
    warm.room.submit(TextJob(request, True))
    assert code(warm.next()) == "bad-phonemes"
    warm.room.submit(TextJob(replace(request, phonemes="həlˈO."), True))
    clauses = warm.next()[2]
    assert isinstance(clauses, tuple)
    assert clauses[0].phonemes == "həlˈO."
