"""The feeder thread: alone writes mappings, and alone decides what of a line lies in its lane.

Woken at once when something is handed to it; besides that every 5 ms while a line is live, every
250 ms while a session exists, else asleep without a timer. What does not fit a lane waits in memory
(lines.py), so a slow or paused reader holds up nobody. Knows no torch, no sockets and no scheduler;
everything it has to tell it tells through callbacks, called on its own thread, which must not block.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .. import host
from ..errors import Failure, GleemanError, InputError
from ..records import Chunk, End, LineEnded, LineKey, LineRoom
from .lines import BadClient, Line, Session
from .mapping import DaemonMapping, sweep

LIVE_S = 0.005
IDLE_S = 0.250
STOP_S = 5.0

log = logging.getLogger(__name__)


class Feeder:
    """See the module. Methods may be called from any thread and never wait."""

    def __init__(
        self,
        on_opened: Callable[[int, str, int], None],
        on_failed: Callable[[int, GleemanError], None],
        on_ended: Callable[[LineEnded], None],
        on_freed: Callable[[LineKey, End], None],
        on_room: Callable[[], None],
        on_gone: Callable[[int, str, str], None],
        on_cancel: Callable[[LineKey], None],
        on_first_audio: Callable[[LineKey], None],
        on_closed: Callable[[int], None] = lambda session: None,
        folders: Sequence[Path] | None = None,
    ) -> None:
        """on_opened       (session, path, bytes): the mapping is there
        on_failed       (session, error): it could not be made
        on_ended        a line ended without more samples, because `end` was called
        on_freed        the reader gave a line's lane back: the line is over, in this way
        on_room         a line has nothing waiting any more, or a lane was freed
        on_gone         (session, code, sentence): "bad-client", or "" when its process is gone; its
                        mapping is removed already
        on_cancel       the reader wants no more of a line
        on_first_audio  a line's first samples can be seen by its reader
        on_closed       (session): `close_session` is done; on_freed has told what was read to its end
        folders         where mappings may lie; None: the host's choice
        """
        self._on_opened = on_opened
        self._on_failed = on_failed
        self._on_ended = on_ended
        self._on_freed = on_freed
        self._on_room = on_room
        self._on_gone = on_gone
        self._on_cancel = on_cancel
        self._on_first_audio = on_first_audio
        self._on_closed = on_closed
        self._folders = folders
        self._inbox: deque[Callable[[], None]] = deque()
        self._sessions: dict[int, Session] = {}
        self._lines: dict[LineKey, Line] = {}
        self._unremoved: list[DaemonMapping] = []
        self._handed: dict[LineKey, int] = {}
        self._handed_lock = threading.Lock()
        self._progress = 0
        self._busy = False
        self._beats = 0
        self._room_made = False
        self._next_check_s = 0.0
        self._stopping = False
        self._underrun_of_freed = 0
        # A lock as a binary semaphore: held while there is nothing to do. An Event costs ten times as much.
        self._bell = _thread.allocate_lock()
        self._bell.acquire()
        self._thread = threading.Thread(target=self._run, name="gleeman-feeder", daemon=True)

    # ---- for the other rooms -------------------------------------------------------------------------

    def start(self) -> None:
        """Sweep what dead daemons left, then run. Raises Failure bad-file when there is no folder."""
        if self._folders is None:
            from .. import paths

            self._folders = host.mapping_folders(paths.runtime_dir())
        swept = sweep(self._folders)
        if swept:
            log.info("removed %d mappings of daemons that are gone", swept)
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more, remove all mappings, end the thread. Harmless to repeat."""
        self._stopping = True
        self._ring()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def open_session(self, session: int, rate_hz: int, client_pid: int) -> None:
        """Make a session's mapping; answered by on_opened or on_failed. `client_pid` 0: none to watch."""
        self._post(lambda: self._open(session, rate_hz, client_pid))

    def close_session(self, session: int) -> None:
        """Drop a session's lines, without a word but for those that were read to their end, and remove its
        mapping; answered by on_closed."""
        self._post(lambda: self._close_session(session))

    def hand(self, chunk: Chunk) -> None:
        """Put samples on their way to their line's lane. Those of a line that is over are dropped."""
        with self._handed_lock:
            self._handed[chunk.key] = self._handed.get(chunk.key, 0) + len(chunk.samples)
        self._post(lambda: self._take(chunk))

    def end(self, key: LineKey, end: End, code: str, message: str) -> None:
        """End a line without more samples: in its lane if it has one, where what is written still plays.
        Answered by on_ended, unless the line is over already."""
        self._post(lambda: self._end(key, end, code, message))

    def room(self) -> Mapping[LineKey, LineRoom]:
        """Where each line stands that may get more samples; chunks just handed are counted as pending."""
        lines = list(self._lines.values())
        with self._handed_lock:
            handed = dict(self._handed)
        found = {}
        for line in lines:
            if line.complete or line.end is not None:
                continue
            waiting = line.pending_samples + handed.pop(line.key, 0)
            found[line.key] = LineRoom(line.write - line.read, waiting, line.rate_hz, line.paused)
        for key, waiting in handed.items():
            session = self._sessions.get(key.session)
            if session is not None and key not in found and key not in self._lines:
                found[key] = LineRoom(0, waiting, session.rate_hz)
        return found

    def beat(self, progress: int, busy: bool) -> None:
        """The engine's state, to be shown to clients with the next beat."""
        self._progress = progress & ((1 << 64) - 1)
        self._busy = busy

    @property
    def underrun_samples(self) -> int:
        """Zeros that readers had to play because we were late, in all."""
        return self._underrun_of_freed + sum(line.underrun for line in list(self._lines.values()))

    def _post(self, task: Callable[[], None]) -> None:
        self._inbox.append(task)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # rung already
            self._bell.release()

    # ---- the feeder thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait()
                while self._inbox and not self._stopping:
                    self._guarded(self._inbox.popleft())
                if not self._stopping:
                    self._guarded(self._pass)
        finally:
            for number in list(self._sessions):
                self._drop_session(number)
            self._remove_left()

    def _guarded(self, task: Callable[[], None]) -> None:
        """A mistake of ours in one task must not keep the others waiting."""
        try:
            task()
        except Exception:
            log.exception("the feeder met an error and goes on")

    def _wait(self) -> None:
        if self._lines:
            self._bell.acquire(timeout=LIVE_S)
        elif self._sessions or self._unremoved:
            self._bell.acquire(timeout=max(self._next_check_s - time.monotonic(), 0.001))
        else:
            self._bell.acquire()

    def _pass(self) -> None:
        self._beats += 1
        now_s = time.monotonic()
        check = now_s >= self._next_check_s
        if check:
            self._next_check_s = now_s + IDLE_S
            self._remove_left()
        for session in list(self._sessions.values()):
            try:
                self._serve(session, check)
            except BadClient as error:
                self._lose(session, "bad-client", str(error))
            except Exception:  # the other sessions play on
                log.exception("session %016x: a mistake of ours in feeding it", session.number)
                self._lose(session, "internal", "the daemon made a mistake in this session")
        if self._room_made:
            self._room_made = False
            self._on_room()

    def _serve(self, session: Session, check: bool) -> None:
        """One session's turn; `check`: see whether its client lives. Raises BadClient."""
        if check and session.client_pid and not host.pid_alive(session.client_pid, session.client_start):
            self._lose(session, "", f"the client's process {session.client_pid} is gone")
            return
        if session.live:
            for line in session.look():
                self._changed(session, line)
            self._give_lanes(session)
        if session.live or check:
            session.mapping.beat(self._beats, self._progress, self._busy)

    def _changed(self, session: Session, line: Line) -> None:
        """The reader of a line moved, cancelled it or gave it back."""
        # A reader that gives its lane back early wants no more either, though it marked nothing.
        if (line.cancelled or line.done) and not line.cancel_told:
            line.cancel_told = True
            if line.end is None:
                if not line.complete:
                    self._on_cancel(line.key)
                if not line.done:
                    session.end(line, End.CANCELLED)
        if line.done:
            how = session.free(line)
            del self._lines[line.key]
            self._underrun_of_freed += line.underrun
            self._room_made = True
            self._on_freed(line.key, how)
        else:
            self._fill(session, line)

    def _fill(self, session: Session, line: Line) -> None:
        """Write what fits; notice the first samples and the last ones."""
        first = line.write == 0
        moved = session.fill(line)
        if moved and first:
            self._on_first_audio(line.key)
        if moved and not line.pending_samples:
            self._room_made = True

    def _open(self, number: int, rate_hz: int, client_pid: int) -> None:
        try:
            if number in self._sessions:
                raise InputError(f"session {number} is open already", "bad-value")
            start_ns = host.process_start_ns(client_pid) if client_pid else 0
            if start_ns is None:
                raise InputError(
                    f"pid {client_pid} of the client is not a process of this machine; 0 means none to watch"
                )
            mapping = DaemonMapping.create(number, rate_hz, client_pid, self._folders or ())
        except GleemanError as error:
            self._on_failed(number, error)
            return
        except OSError as error:
            why = f"the daemon cannot open more files now ({error.strerror}); come again later"
            self._on_failed(number, Failure(why, "busy"))
            return
        self._sessions[number] = Session(number, rate_hz, client_pid, start_ns, mapping)
        mapping.beat(self._beats, self._progress, self._busy)
        self._on_opened(number, str(mapping.path), len(mapping.raw))

    def _take(self, chunk: Chunk) -> None:
        key = chunk.key
        session = self._sessions.get(key.session)
        if session is not None and not session.is_over(key.line):
            line = self._lines.get(key)
            if line is None:
                line = session.add(key, chunk.priority, chunk.preroll_samples)
                self._lines[key] = line
            if line.end is None and not line.complete and not line.cancelled:
                line.add(chunk)
        with self._handed_lock:
            left = self._handed.pop(key, 0) - len(chunk.samples)
            if left > 0:
                self._handed[key] = left
        if session is not None and key in self._lines:
            self._give_lanes(session)
            line = self._lines[key]
            if line.lane >= 0:
                self._fill(session, line)
            self._room_made = self._room_made or not line.pending_samples

    def _give_lanes(self, session: Session) -> None:
        while (line := session.next_with_lane()) is not None:
            self._fill(session, line)

    def _end(self, key: LineKey, end: End, code: str, message: str) -> None:
        session = self._sessions.get(key.session)
        if session is None or session.is_over(key.line):
            return
        line = self._lines.get(key)
        if line is not None and (line.end is not None or line.cancelled):
            return
        in_lane = line is not None and line.lane >= 0
        if line is not None and in_lane:
            session.end(line, end)
        else:
            session.forget(key.line, line)
            self._lines.pop(key, None)
        self._on_ended(LineEnded(key, end, code, message, in_lane))

    def _lose(self, session: Session, code: str, message: str) -> None:
        log.log(logging.WARNING if code else logging.INFO, "session %016x ends: %s", session.number, message)
        self._drop_session(session.number)
        self._on_gone(session.number, code, message)

    def _close_session(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is not None:
            with contextlib.suppress(BadClient):  # whatever it wrote, it leaves
                for line in session.look():
                    if line.done:
                        self._changed(session, line)
        self._drop_session(number)
        self._on_closed(number)

    def _drop_session(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is None:
            return
        for line in session.all_lines():
            self._underrun_of_freed += line.underrun
            self._lines.pop(line.key, None)
        session.close()
        if not session.mapping.remove():
            self._unremoved.append(session.mapping)

    def _remove_left(self) -> None:
        self._unremoved = [mapping for mapping in self._unremoved if not host.remove_file(mapping.path)]
