"""How the other rooms talk to the server thread: a queue of calls, and a byte that ends its poll.

Knows no socket of the protocol and no message. What waits here is bounded by what the server
admitted: a line causes a handful of calls, and the number of lines is limited.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable

Call = Callable[[], None]


class Outbox:
    """Calls to be made on the server thread. `post` from any thread; the rest from the server's."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._lock = threading.Lock()
        self._rung = False
        self._closed = False
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)

    def fileno(self) -> int:
        """Readable while calls wait: for the server's poll."""
        return self._ear.fileno()

    def post(self, call: Call) -> None:
        """Have the server thread make this call soon. Never blocks; dropped once closed."""
        with self._lock:
            if self._closed:
                return
            self._calls.append(call)
            if not self._rung:
                # One byte however many calls wait, so the pipe can never be full.
                self._rung = True
                self._bell.send(b"\0")

    def take(self) -> list[Call]:
        """All calls that wait, in the order in which they were posted."""
        with self._lock:
            if self._rung:
                self._ear.recv(16)
                self._rung = False
            calls = list(self._calls)
            self._calls.clear()
            return calls

    def close(self) -> None:
        """Drop what waits and what is still to come."""
        with self._lock:
            self._closed = True
            self._calls.clear()
            self._bell.close()
            self._ear.close()
