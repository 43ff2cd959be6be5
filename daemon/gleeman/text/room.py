"""The text room: hands lines to the text process, one after another, and its answers to the engine.

One thread owns everything here; a second one only reads the process's pipe, a third copies what the
process logs. Lines and frame marks come out in the order they went in, but for `immediate` lines, which
wait for no frame and overtake what has not been read yet. A line whose deadline passes while it waits fails
as `expired`. A process that hangs or dies costs the line it was reading, and nothing else. Knows no language
and no socket.
"""

from __future__ import annotations

import collections
import heapq
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..children import own_command
from ..errors import Failure, GleemanError, InputError
from ..records import Clause, LineRequest, Priority
from . import messages
from .process import STOP_S, Note, TextProcess

log = logging.getLogger("gleeman.text")

MAX_QUEUED = 1024
"""Lines waiting to be read."""
LOAD_S = 120.0
"""How long a language may take to load, on a cold and busy disk, before the process counts as hung."""
START_S = 30.0
"""How long a new process may take to answer."""
AFTER_MISTAKE_S = 0.1
MAX_STARTS = 3
"""A process that dies as often while it starts is given up until the next line comes."""


class TextJob(NamedTuple):
    """A line to read."""

    request: LineRequest
    phonemes: bool
    """False: clauses and words only (babble, silent)."""


class _Frame(NamedTuple):
    session: int


class _Wake(NamedTuple):
    pass


class TextRoom:
    """Reads lines in a process of its own. See the module's docstring."""

    def __init__(
        self,
        deliver: Callable[[LineRequest, tuple[Clause, ...], tuple[str, ...]], None],
        fail: Callable[[LineRequest, GleemanError], None],
        frame: Callable[[int], None],
        *,
        warm: bool,
        hang_s: float = 10.0,
        command: Sequence[str] | None = None,
    ) -> None:
        """The callbacks are called on the text thread. `deliver` gets a line, its clauses, and sentences on
        what could not be read; an error out of it fails the line.
        `warm`: load American English and Chinese at the start.
        `command` replaces the process in tests."""
        self.restarts = 0
        """Text processes replaced because they hung or died."""
        self.child_pid: int | None = None
        self._deliver = deliver
        self._fail = fail
        self._frame = frame
        self._hang_s = hang_s
        self._command = list(command) if command else own_command("_text")
        self._warm = warm
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="text", daemon=True)
        self._lock = threading.Lock()
        self._lines = 0  # submitted and not ended; under the lock
        # Owned by the text thread:
        self._urgent: collections.deque[TextJob] = collections.deque()
        self._waiting: collections.deque[TextJob | _Frame] = collections.deque()
        self._deadlines: list[tuple[int, int, TextJob]] = []  # a heap: when, which came first, whose
        self._jobs = 0
        self._now: TextJob | None = None
        self._asked = 0
        self._deadline = 0.0
        self._process: TextProcess | None = None
        self._failed_starts = 0

    def start(self) -> None:
        """Start the thread, which starts the process. Does not wait."""
        self._thread.start()

    def submit(self, job: TextJob) -> None:
        """Queue a line, from any thread. Raises InputError busy when MAX_QUEUED lines wait."""
        with self._lock:
            if self._lines >= MAX_QUEUED:
                raise InputError(f"{MAX_QUEUED} lines wait to be read; send it again later", "busy")
            self._lines += 1
        self._inbox.put(job)

    def frame(self, session: int) -> None:
        """Queue a frame mark, from any thread: it comes out after every line submitted before it."""
        self._inbox.put(_Frame(session))

    def stop(self) -> None:
        """End the thread and the process, within STOP_S. Lines not read yet are forgotten."""
        self._stopping.set()
        self._inbox.put(_Wake())
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    # ---- the text thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._begin_process()
            while not self._stopping.is_set():
                try:
                    self._take_one()
                    self._expire()
                    self._advance()
                except Exception:  # lines to come must not wait for ever
                    log.exception("the text room met a mistake of ours and goes on")
                    self._stopping.wait(AFTER_MISTAKE_S)
        finally:
            if self._process is not None:
                self._process.kill()
                self._process = None
                self.child_pid = None

    def _take_one(self) -> None:
        """Wait for one thing to happen, and note it."""
        patience = [wait for wait in (self._patience(), self._until_deadline()) if wait is not None]
        try:
            item = self._inbox.get(timeout=min(patience, default=None))
        except queue.Empty:
            if self._process is not None and self._patience() == 0.0:
                self._lose_process("hung")
            return
        if isinstance(item, TextJob):
            self._queue(item)
        elif isinstance(item, _Frame):
            self._waiting.append(item)
        elif isinstance(item, Note) and item.process is self._process:
            self._hear(item.message)

    def _queue(self, job: TextJob) -> None:
        request = job.request
        (self._urgent if request.priority is Priority.IMMEDIATE else self._waiting).append(job)
        if request.deadline_ns:
            self._jobs += 1
            heapq.heappush(self._deadlines, (request.deadline_ns, self._jobs, job))

    def _until_deadline(self) -> float | None:
        """Seconds until the next deadline of a line that may wait; None without one."""
        if not self._deadlines:
            return None
        return max(0.0, (self._deadlines[0][0] - time.monotonic_ns()) / 1e9)

    def _expire(self) -> None:
        """End the lines whose deadlines have passed before they could be read."""
        while self._deadlines and self._deadlines[0][0] <= time.monotonic_ns():
            job = heapq.heappop(self._deadlines)[2]
            for place in (self._urgent, self._waiting):
                if any(item is job for item in place):
                    place.remove(job)
                    self._forget(1)
                    why = "its deadline passed before its text could be read"
                    self._fail(job.request, InputError(why, "expired"))

    def _patience(self) -> float | None:
        """Seconds until the process counts as hung; None while nothing is asked of it."""
        if self._process is None or (self._process.up and self._now is None):
            return None
        return max(0.0, self._deadline - time.monotonic())

    def _hear(self, message: messages.FromChild | None) -> None:
        process = self._process
        assert process is not None
        if message is None:
            self._lose_process("died")
        elif isinstance(message, messages.Up):
            process.up = True
            self._failed_starts = 0
            if self._warm:
                process.send(messages.Warm())
        elif isinstance(message, messages.Loading):
            process.loading.add(message.language)
            self._deadline = time.monotonic() + LOAD_S
        elif isinstance(message, messages.Loaded):
            process.loading.discard(message.language)
            self._deadline = time.monotonic() + (LOAD_S if process.loading else self._hang_s)
            if message.message:
                log.error("text: %s cannot be read: %s", message.language, message.message)
            else:
                log.info("text: %s loaded in %.0f ms", message.language, message.ms)
        elif self._now is None or message.id != self._asked:
            self._lose_process("answered what nobody asked")
        else:
            request = self._take_now()
            if isinstance(message, messages.Answer):
                try:
                    self._deliver(request, message.clauses, message.warnings)
                except GleemanError as error:  # the next room is full
                    self._fail(request, error)
                except Exception:
                    log.exception("session %016x line %d: a mistake of ours in handing it on", *request.key)
                    self._fail(request, Failure("the daemon made a mistake on this line", "internal"))
            elif message.ours:
                self._fail(request, Failure(message.message, message.code))
            else:
                self._fail(request, InputError(message.message, message.code))

    def _take_now(self) -> LineRequest:
        """The line in hand, which ends now."""
        assert self._now is not None
        request = self._now.request
        self._now = None
        self._forget(1)
        return request

    def _forget(self, lines: int) -> None:
        with self._lock:
            self._lines -= lines

    def _advance(self) -> None:
        """Pass on frame marks that are due, and ask for the next line."""
        while self._now is None and (self._urgent or self._waiting):
            if not self._urgent and isinstance(self._waiting[0], _Frame):
                mark = self._waiting.popleft()
                assert isinstance(mark, _Frame)
                self._frame(mark.session)
                continue
            if self._process is None:
                self._begin_process()
            if self._process is None:
                self._fail_waiting()
                return
            if not self._process.up:
                return
            job = (self._urgent or self._waiting).popleft()
            assert isinstance(job, TextJob)
            self._ask(job)

    def _ask(self, job: TextJob) -> None:
        assert self._process is not None
        self._now = job
        self._asked += 1
        self._deadline = time.monotonic() + (LOAD_S if self._process.loading else self._hang_s)
        request = job.request
        ask = messages.Ask(
            id=self._asked,
            text=request.text,
            phonemes_given=request.phonemes,
            language=request.language,
            voice=request.voice,
            phonemes=job.phonemes,
        )
        if not self._process.send(ask):
            self._lose_process("died")

    def _begin_process(self) -> None:
        """Start a process; after MAX_STARTS failures in a row there is none, and the next line tries once."""
        try:
            self._process = TextProcess(self._command, self._inbox)
        except OSError as error:
            log.error("the text process cannot be started: %s", error)
            self._process = None
            return
        self.child_pid = self._process.pid
        self._deadline = time.monotonic() + START_S

    def _lose_process(self, how: str) -> None:
        """The process hung or died: its line fails, a new one takes the rest."""
        process = self._process
        assert process is not None
        self._process = None
        self.child_pid = None
        status = process.kill()
        log.error("text process %d %s (exit status %d)", process.pid, how, status)
        self.restarts += 1
        if self._now is not None:
            request = self._take_now()
            self._fail(request, Failure(f"the text process {how} while it read this line", "text-failed"))
        if not process.up:
            self._failed_starts += 1
        if self._stopping.is_set():
            return
        if self._failed_starts < MAX_STARTS:
            self._begin_process()
        else:
            self._failed_starts = MAX_STARTS - 1
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Without a process: every waiting line fails; frame marks keep their place."""
        waiting = [*self._urgent, *self._waiting]
        self._urgent.clear()
        self._waiting.clear()
        for item in waiting:
            if isinstance(item, _Frame):
                self._frame(item.session)
                continue
            self._forget(1)
            self._fail(
                item.request,
                Failure("the text process cannot be started; the daemon's log says why", "text-failed"),
            )
