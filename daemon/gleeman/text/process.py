"""One text process as its room sees it: started, written to, listened to, killed."""

from __future__ import annotations

import contextlib
import logging
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from ..children import no_window, own_environment, own_folder
from . import messages

log = logging.getLogger("gleeman.text")

STOP_S = 2.0
"""How long a thread may take to end once its process is dead."""


class Note(NamedTuple):
    """Something a process said; `message` is None when its pipe closed."""

    process: TextProcess
    message: messages.FromChild | None


class TextProcess:
    """A running text process, and the two threads that listen to it."""

    def __init__(self, command: Sequence[str], inbox: queue.SimpleQueue[object]) -> None:
        """`inbox` gets a `Note` for each message, and one with None when the process is gone.
        Raises OSError when it cannot be started."""
        self.up = False
        """It has said that it listens. Kept by the owner, like `loading`."""
        self.loading: set[str] = set()
        """Languages it is loading."""
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=own_folder(),
            env=own_environment(),
            creationflags=no_window(),
        )
        self.pid = self._child.pid
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._input = self._child.stdin
        self._threads = [
            threading.Thread(target=self._listen, args=(self._child.stdout, inbox), name="text-listen"),
            threading.Thread(target=self._copy_log, args=(self._child.stderr,), name="text-log"),
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def send(self, message: messages.ToChild) -> bool:
        """False when the process is gone. Called only while it waits for work, so that it cannot block."""
        try:
            messages.write(self._input, message)  # type: ignore[arg-type]
        except (OSError, ValueError):
            return False
        return True

    def _listen(self, stream: BinaryIO, inbox: queue.SimpleQueue[object]) -> None:
        with stream:
            try:
                while (message := messages.read_from_child(stream)) is not None:
                    inbox.put(Note(self, message))
            except (ValueError, OSError) as error:
                log.error("text process %d: %s", self.pid, error)
        inbox.put(Note(self, None))

    def _copy_log(self, stream: BinaryIO) -> None:
        with stream:
            while line := stream.readline(4096):
                shown = line.decode("utf-8", "replace").rstrip()
                if shown:
                    log.info("text process %d: %s", self.pid, shown)

    def kill(self) -> int:
        """End it and everything that belongs to it; returns its exit status."""
        self._child.kill()
        status = self._child.wait()
        with contextlib.suppress(OSError):  # what was not flushed has no reader
            self._input.close()
        for thread in self._threads:
            thread.join(STOP_S)
        return status
