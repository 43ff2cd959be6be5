"""What wakes the main thread: reasons that any thread may give, and signals, none of which is missed.

Python runs a signal's handler on the main thread between two instructions. One that comes between the last of
them and the sleep of a lock or a queue is not seen until that sleep ends by itself; so the sleep is on a
socket, into which the signal's own C handler writes.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections import deque
from collections.abc import Iterable
from types import FrameType

KEPT_BYTES = 4096


class Notes:
    """One to be closed; `take`, `listen` and `close` on the main thread only."""

    def __init__(self) -> None:
        self._notes: deque[str] = deque()
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self._before = -1
        self._listens = False

    def put(self, note: str) -> None:
        """Wake the main thread with a note. Any thread; also after `close`."""
        self._notes.append(note)
        with contextlib.suppress(OSError):  # full: it is awake already
            self._writing.send(b"\0")

    def listen(self, signals: Iterable[signal.Signals]) -> None:
        """From here on these signals are notes: their names."""
        self._before = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._listens = True
        for number in signals:
            signal.signal(number, self._note_signal)

    def take(self, timeout_s: float | None) -> str | None:
        """The oldest note, or None when none came in time. timeout_s None: wait without end."""
        if not self._notes:
            select.select([self._reading], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            self._reading.recv(KEPT_BYTES)
        return self._notes.popleft() if self._notes else None

    def close(self) -> None:
        """Signals do what they did before; what is put is heard no more."""
        if self._listens:
            signal.set_wakeup_fd(self._before)
        self._reading.close()
        self._writing.close()

    def _note_signal(self, number: int, _frame: FrameType | None) -> None:
        self._notes.append(signal.Signals(number).name)
