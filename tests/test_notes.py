"""What wakes the main thread, signals at the worst moment included."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from gleeman.notes import Notes


@pytest.fixture
def notes() -> Iterator[Notes]:
    before = signal.getsignal(signal.SIGTERM)
    made = Notes()
    yield made
    made.close()
    signal.signal(signal.SIGTERM, before)


def test_notes_come_in_order_and_a_wait_ends_without_one(notes: Notes) -> None:
    notes.put("one")
    notes.put("two")
    assert [notes.take(1.0), notes.take(1.0), notes.take(0.0)] == ["one", "two", None]


def test_another_thread_wakes_a_wait_without_end(notes: Notes) -> None:
    threading.Timer(0.05, notes.put, ("now",)).start()
    assert notes.take(None) == "now"


def test_a_note_that_finds_the_socket_full_is_kept(notes: Notes) -> None:
    count = 1_000_000
    for number in range(count):
        notes.put(str(number))
    assert [notes.take(0.0) for _ in range(3)] == ["0", "1", "2"]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of Unix")
def test_a_signal_between_the_last_instruction_and_the_sleep_is_heard(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread takes the signal, so that no system call of the main thread is interrupted by it."""
    notes.listen((signal.SIGTERM,))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sleeping, plain = threading.Event(), select.select

    def take_signal() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        sleeping.wait(5)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    def select_slowly(*args: object) -> object:
        sleeping.set()
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(select, "select", select_slowly)
    taker = threading.Thread(target=take_signal)
    taker.start()
    try:
        assert notes.take(5.0) == "SIGTERM"
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        taker.join()


def test_what_is_put_after_the_end_does_no_harm(notes: Notes) -> None:
    other = Notes()
    other.close()
    other.put("late")
