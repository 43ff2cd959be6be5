"""The daemon: builds the four rooms, ties them together in the order of the data flow, runs until told.

    server -> text room -> engine -> feeder -> lane
       ^________|____________|__________|            what they tell comes back through the server's outbox

It knows every room and no message, clause, tick or lane. `serve` is the program; `Daemon` is the rooms.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from . import __version__, host, paths
from .config import Config, as_flags
from .errors import GleemanError, InputError
from .notes import Notes
from .records import Clause, End, LineKey, LineRequest, ModelState
from .shm.feeder import Feeder
from .speech.base import Pipeline
from .speech.emotion import EMOTIONS, resolve
from .speech.models.babble.pipeline import make_babble, make_silent
from .speech.registry import STANDINS, make_pipeline
from .stats import RoomFigures
from .text.room import TextJob, TextRoom
from .tick.batch import row_of
from .tick.engine import MAIN, Engine
from .tick.scheduler import Limits
from .voices.store import VoiceStore
from .wire.discovery import (
    Discovery,
    new_token,
    remove_discovery,
    sweep_instances,
    take_lock,
    write_discovery,
)
from .wire.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR, ClauseInfo
from .wire.server import Server

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""How long a thread keeps the interpreter while another wants it. With Python's 5 ms, text work in a thread
cost the server's p50 5.5 ms; with this, 0.8 ms."""
PARENT_CHECK_S = 0.5
REFUSED = ("vram-too-small",)
"""What the loader finds wrong with the flags themselves: the daemon then leaves, as for a flag that it could
judge at once."""
FRAME_MS = 25.0
"""What `Pipeline.estimate_frames` counts."""


class Daemon:
    """The rooms, and what the server asks of them (`wire.house.House`). `start` and `stop` on one thread."""

    def __init__(self, config: Config) -> None:
        """Build every room; nothing runs yet, nothing is loaded. Raises Failure and InputError
        (unknown-model, no-device …)."""
        self.config = config
        self.notes = Notes()
        """A reason to stop, or "" when the number of sessions changed. May be put from a signal handler."""
        self.empty_since_s: float | None = time.monotonic()
        """`time.monotonic` since when there is no session; None while there is one."""
        self.voices = VoiceStore()
        self.emotions: Sequence[str] = EMOTIONS
        self._standins: dict[str, Pipeline] = {"babble": make_babble(), "silent": make_silent()}
        self._main = make_pipeline(
            config.model,
            device=config.device,
            threads=config.threads,
            quality=config.quality,
            precision=config.precision,
            vram_mb=config.vram_mb,
            voices=self.voices,
        )
        self.refusal: GleemanError | None = None
        """Why the daemon must not go on as it was asked to."""
        self._lock = threading.Lock()
        self._reading: set[LineKey] = set()
        """Lines in the text room that are still wanted."""
        self._token = new_token()
        self._discovery: Discovery | None = None
        self._ipc: Path | None = None

        self._server = Server(self, self._token, config.model, lambda: self.notes.put("fatal"))
        self._text = TextRoom(self._deliver, self._unreadable, self._framed, warm=self._main.needs_phonemes)
        self._feeder = Feeder(
            on_opened=self._server.tell_opened,
            on_failed=self._server.tell_not_opened,
            on_ended=self._server.tell_ended,
            on_freed=self._server.tell_freed,
            on_room=self._room_changed,
            on_gone=self._server.tell_gone,
            on_cancel=self._cancelled_by_reader,
            on_closed=self._server.tell_closed,
            on_first_audio=lambda key: self._server.tell_first_audio(key, time.monotonic_ns()),
        )
        self._engine = Engine(
            self._main,
            self._standins,
            hand=self._feeder.hand,
            end=self._feeder.end,
            room=self._feeder.room,
            state=self._new_state,
            beat=self._feeder.beat,
            limits=Limits(max_wait_ns=config.max_wait_ns),
        )

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> list[str]:
        """Open the doors, then load the model behind them. The endpoints."""
        if sys.platform != "win32":
            self._ipc = paths.ipc_path(self.config.instance)
        endpoints = self._server.bind(self._ipc)
        self._feeder.start()
        self._text.start()
        self._server.start()
        self._discovery = Discovery(
            protocol=PROTOCOL_MAJOR,
            minor=PROTOCOL_MINOR,
            version=__version__,
            pid=os.getpid(),
            start_ns=host.own_start_ns(),
            endpoints=endpoints,
            token=self._token,
            model=self.config.model,
        )
        write_discovery(self._discovery, self.config.instance)
        # Last: loading takes the interpreter for long stretches, and `hello` is promised within a second.
        self._engine.start()
        return endpoints

    def stop(self) -> None:
        """End the rooms in the order of the data flow and leave no file. Safe after a failed `start`."""
        if self._discovery is not None:
            remove_discovery(self._discovery, self.config.instance)
        for room in (self._server, self._text, self._engine, self._feeder):
            try:
                room.stop()
            except Exception:
                log.exception("a mistake of ours in stopping %s", type(room).__name__)
        if self._ipc is not None:  # libzmq leaves it; whoever holds the lock may remove it
            self._ipc.unlink(missing_ok=True)
            paths.remove_ipc_folder(self._ipc)

    # ---- what the server asks, on its thread ----------------------------------------------------------

    def emotion_of(self, name: str) -> tuple[str, str]:
        """The emotion that a name means, and a warning or ""."""
        return resolve(name)

    def open_session(self, session: int, rate_hz: int, client_pid: int) -> None:
        """Answered by the feeder."""
        self._feeder.open_session(session, rate_hz, client_pid)

    def close_session(self, session: int) -> None:
        """Drop its lines wherever they are, and its mapping."""
        with self._lock:
            self._reading = {key for key in self._reading if key.session != session}
            self._engine.drop_session(session)
        self._feeder.close_session(session)

    def submit(self, request: LineRequest) -> None:
        """On to the text room. Raises InputError busy."""
        with self._lock:
            self._reading.add(request.key)
        try:
            self._text.submit(TextJob(request, self._pipeline_of(request).needs_phonemes))
        except GleemanError:
            with self._lock:
                self._reading.discard(request.key)
            raise

    def _pipeline_of(self, request: LineRequest) -> Pipeline:
        return self._main if request.pipeline == MAIN else self._standins[request.pipeline]

    def cancel(self, key: LineKey) -> None:
        """Drop a line wherever it is; the feeder tells its end."""
        self._cancelled_by_reader(key)
        self._feeder.end(key, End.CANCELLED, "cancelled", "the game cancelled it")

    def frame(self, session: int) -> None:
        """Through the text room, so that it comes to the engine after the lines before it."""
        self._text.frame(session)

    def sessions_changed(self, count: int) -> None:
        """Starts and stops the idle clock."""
        self.empty_since_s = None if count else time.monotonic()
        self.notes.put("")

    def figures(self) -> RoomFigures:
        """What the rooms count."""
        counters = self._engine.counters()
        tell = getattr(self._main, "device_memory", None)
        memory = tell() if tell else None
        return RoomFigures(
            device=getattr(self._main, "device", "cpu"),
            quality=self.config.quality,
            dtype=getattr(self._main, "precision", ""),
            device_reason=getattr(self._main, "device_reason", ""),
            dtype_reason=getattr(self._main, "precision_reason", ""),
            device_mb_used=memory.used / 1e6 if memory else None,
            device_mb_peak=memory.peak / 1e6 if memory else None,
            device_mb_cap=memory.cap / 1e6 if memory and memory.cap else None,
            queued_lines=counters.queued_lines,
            batches=counters.batches,
            rows=counters.rows,
            frames=counters.frames,
            padding_frames=counters.padding_frames,
            underrun_samples=self._feeder.underrun_samples,
            text_restarts=self._text.restarts,
        )

    # ---- from the text room, on its thread --------------------------------------------------------------

    def _deliver(self, request: LineRequest, clauses: tuple[Clause, ...], warnings: tuple[str, ...]) -> None:
        infos = self._estimate(request, clauses)
        with self._lock:  # a session dropped meanwhile must find the line in the engine or nowhere
            if request.key not in self._reading:
                return
            self._reading.discard(request.key)
            self._engine.add(request, clauses)
        self._server.tell_read(request.key, infos, list(warnings))

    def _unreadable(self, request: LineRequest, error: GleemanError) -> None:
        with self._lock:
            if request.key not in self._reading:
                return
            self._reading.discard(request.key)
        end = End.EXPIRED if error.code == "expired" else End.FAILED
        self._feeder.end(request.key, end, error.code, error.message)

    def _framed(self, session: int) -> None:
        self._engine.frame(session)

    def _estimate(self, request: LineRequest, clauses: tuple[Clause, ...]) -> list[ClauseInfo]:
        """Subtitles with how long each will be heard."""
        pipeline = self._pipeline_of(request)
        infos = []
        for index, clause in enumerate(clauses):
            ms = pipeline.estimate_frames(row_of(request, index, clause)) * FRAME_MS
            infos.append(ClauseInfo(spoken=clause.spoken, begin=clause.begin, end=clause.end, ms=ms))
        return infos

    # ---- from the engine and the feeder, on theirs ----------------------------

    def _new_state(self, state: ModelState) -> None:
        if state.state in ("ready", "failed"):
            level = logging.INFO if state.state == "ready" else logging.ERROR
            why = f" ({state.code}: {state.message})" if state.code else ""
            log.log(level, "model %s: %s%s", self.config.model, state.state, why)
        self._server.tell_state(state)
        if state.code in REFUSED:
            self.refusal = InputError(state.message, state.code)
            self.notes.put(state.code)

    def _room_changed(self) -> None:
        self._engine.room_changed()

    def _cancelled_by_reader(self, key: LineKey) -> None:
        with self._lock:
            self._reading.discard(key)
            self._engine.cancel(key)


def serve(config: Config) -> int:
    """Run a daemon until a signal, its parent's end or idleness; the exit status. Main thread only.

    Raises Failure already-running, InputError for a bad flag, and whatever keeps a room from starting.
    """
    if config.vram_mb and (config.device == "cpu" or config.model in STANDINS):
        what = f"model {config.model}" if config.model in STANDINS else "device cpu"
        raise InputError(f"vram-mb caps a GPU's memory, and {what} uses none: leave it out", "unsupported")
    _start_logging(config.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    parent_start_ns = _parent_start_ns(config.parent_pid)
    with contextlib.ExitStack() as stack:
        stack.callback(take_lock(config.instance).release)
        log.info("effective configuration: %s", as_flags(config))
        daemon = Daemon(config)
        stack.callback(daemon.notes.close)
        stack.callback(daemon.stop)
        daemon.notes.listen((signal.SIGTERM, signal.SIGINT))
        host.lower_priority()
        host.allow_many_files()
        endpoints = daemon.start()
        log.info("listening on %s", ", ".join(endpoints))
        paths.sweep_ipc_folders()
        sweep_instances()
        reason = _wait(daemon, config, parent_start_ns)
        log.info("going down: %s", reason)
    if daemon.refusal is not None:
        raise daemon.refusal
    status = 1 if reason == "fatal" else 0
    if any(thread.name.startswith("gleeman-") for thread in threading.enumerate()):
        # In the middle of loading or of a long batch. All is put away, and torch's own threads abort a
        # process that ends in the ordinary way under them.
        logging.shutdown()
        os._exit(status)
    return status


def _wait(daemon: Daemon, config: Config, parent_start_ns: int) -> str:
    """Sleep until there is a reason to stop, and say it. Without a parent to watch, without a timer."""
    while True:
        reason = daemon.notes.take(_patience_s(daemon, config))
        if reason:
            return reason
        if config.parent_pid and not host.pid_alive(config.parent_pid, parent_start_ns):
            return f"its parent, process {config.parent_pid}, has gone"
        since_s = daemon.empty_since_s
        if config.idle_exit_s and since_s is not None and time.monotonic() - since_s >= config.idle_exit_s:
            return f"no session for {config.idle_exit_s:g} s"


def _patience_s(daemon: Daemon, config: Config) -> float | None:
    waits_s = []
    if config.parent_pid:
        waits_s.append(PARENT_CHECK_S)
    since_s = daemon.empty_since_s
    if config.idle_exit_s and since_s is not None:
        waits_s.append(max(0.0, since_s + config.idle_exit_s - time.monotonic()))
    return min(waits_s, default=None)


def _parent_start_ns(pid: int) -> int:
    if not pid:
        return 0
    start_ns = host.process_start_ns(pid)
    if start_ns is None:
        raise InputError(f"parent-pid is {pid}, but no such process runs; give the game's", "bad-config")
    return start_ns


def _start_logging(level: str) -> None:
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format=form)
