"""A session's mapping as typed views: made by the daemon, opened by a client.

Knows the layout and who may be on the other side; knows nothing of lines' lives (feeder.py, lane.py).
Positions are read as plain items and written with `publish`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from .. import host
from ..errors import Failure
from . import layout
from .publish import fence, publish

U64_PER_HEAD = layout.LANE_HEAD_BYTES // 8
_NAME = re.compile(r"gleeman-([^-]+)-(\d+)-(\d+)-[0-9a-f]{16}\.lanes")


def u64_at(lane: int, offset: int) -> int:
    """Index into `Views.u64` of a field of a lane's head."""
    return (layout.LANE_HEADS + lane * layout.LANE_HEAD_BYTES + offset) // 8


def u32_at(lane: int, offset: int) -> int:
    """Index into `Views.u32` of a field of a lane's head."""
    return (layout.LANE_HEADS + lane * layout.LANE_HEAD_BYTES + offset) // 4


class Views:
    """The typed views of a mapping. `close` when done; views in use keep the memory until they go."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self._memory = memory
        self._open = True
        self.raw = memoryview(memory)
        self.u64: memoryview[int] = self.raw.cast("Q")
        self.u32: memoryview[int] = self.raw.cast("I")
        self.samples: npt.NDArray[np.float32] = np.frombuffer(
            memory, np.float32, layout.LANES * layout.CAPACITY, layout.SAMPLE_RINGS
        ).reshape(layout.LANES, layout.CAPACITY)
        """One row a lane."""

    def column(self, offset: int) -> memoryview[int]:
        """One u64 field of all lane heads, as a strided view: `tolist()` reads it for 32 lanes at once."""
        return self.u64[u64_at(0, offset) : u64_at(layout.LANES, 0) : U64_PER_HEAD]

    def _release(self) -> None:
        del self.samples, self.raw, self.u64, self.u32

    def close(self) -> None:
        """Unmap now, or when the last view elsewhere goes. Harmless to repeat."""
        if not self._open:
            return
        self._open = False
        self._release()
        with contextlib.suppress(BufferError):
            self._memory.close()


class DaemonMapping(Views):
    """The daemon's side. Only the feeder thread may touch it."""

    @classmethod
    def create(cls, session: int, rate_hz: int, client_pid: int, folders: Sequence[Path]) -> Self:
        """Make a mapping in the first of `folders` that has room and write its header.

        Raises Failure no-space when none has room, bad-file when none can be written.
        """
        pid, start_ns = os.getpid(), host.own_start_ns()
        name = f"gleeman-{host.user_tag()}-{pid}-{start_ns}-{session:016x}.lanes"
        failures = []
        for folder in folders:
            path = folder / name
            try:
                host.create_mapping_file(path, layout.TOTAL_BYTES)
            except Failure as failure:
                failures.append(failure)
                continue
            try:
                made = cls(path, host.map_file(path, layout.TOTAL_BYTES))
            except BaseException:
                host.remove_file(path)
                raise
            made._write_header(session, rate_hz, client_pid, pid, start_ns)
            return made
        code = "no-space" if any(failure.code == "no-space" for failure in failures) else "bad-file"
        raise Failure("; ".join(failure.message for failure in failures) or "no folder for mappings", code)

    def _write_header(self, session: int, rate_hz: int, client_pid: int, pid: int, start_ns: int) -> None:
        self.u64[layout.H_MAGIC // 8] = layout.MAGIC
        self.u64[layout.H_TOTAL_BYTES // 8] = layout.TOTAL_BYTES
        self.u64[layout.H_SESSION_ID // 8] = session
        self.u32[layout.H_LANES // 4] = layout.LANES
        self.u32[layout.H_RATE_HZ // 4] = rate_hz
        self.u32[layout.H_CAPACITY // 4] = layout.CAPACITY
        self.u32[layout.H_EVENTS // 4] = layout.EVENTS
        self.u32[layout.H_DAEMON_PID // 4] = pid
        self.u32[layout.H_CLIENT_PID // 4] = client_pid
        self.u64[layout.H_START_NS // 8] = start_ns
        publish(self.u32, layout.H_LAYOUT_VERSION // 4, layout.LAYOUT_VERSION)

    def beat(self, count: int, progress: int, busy: bool) -> None:
        """Show that the feeder (and how far the engine) is alive."""
        publish(self.u64, layout.H_ENGINE_PROGRESS // 8, progress)
        publish(self.u32, layout.H_ENGINE_BUSY // 4, int(busy))
        publish(self.u64, layout.H_FEEDER_BEAT // 8, count)

    def remove(self) -> bool:
        """Close and delete the file. False when the system keeps it for now (Windows, while a client
        maps it)."""
        self.close()
        return host.remove_file(self.path)


def sweep(folders: Sequence[Path]) -> int:
    """Delete the mappings of this user whose daemon is gone (pid with start time); returns how many."""
    removed = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                named = _NAME.fullmatch(entry.name)
                if not named or named[1] != host.user_tag():
                    continue
                if host.pid_alive(int(named[2]), int(named[3])):
                    continue
                removed += host.remove_file(Path(entry.path))
    return removed


class LiveLane(NamedTuple):
    """A lane that holds a line."""

    lane: int
    generation: int
    line_id: int


class ClientMapping(Views):
    """The client's side. `lanes` and `beat` may be called from any one thread."""

    session: int
    rate_hz: int
    daemon_pid: int
    daemon_start_ns: int

    @classmethod
    def open(cls, path: str | Path, total_bytes: int) -> Self:
        """Map what `welcome` announced. Raises Failure: bad-file when there is no such file, bad-daemon
        when a number in it is impossible, unsupported for another version of the layout."""
        if total_bytes != layout.TOTAL_BYTES:
            raise Failure(
                f"a mapping of {total_bytes} bytes was announced; layout {layout.LAYOUT_VERSION} has "
                f"{layout.TOTAL_BYTES}",
                "bad-daemon",
            )
        opened = cls(Path(path), host.map_file(Path(path), total_bytes))
        try:
            opened._read_header()
        except Failure:
            opened.close()
            raise
        return opened

    def _read_header(self) -> None:
        version = self.u32[layout.H_LAYOUT_VERSION // 4]
        fence()
        if self.u64[layout.H_MAGIC // 8] != layout.MAGIC:
            raise Failure(f"{self.path} is not a mapping of gleeman: its magic differs", "bad-daemon")
        if version != layout.LAYOUT_VERSION:
            raise Failure(
                f"the daemon's mapping has layout version {version}, this client reads "
                f"{layout.LAYOUT_VERSION}; update the older of the two",
                "unsupported",
            )
        expected = (
            ("total_bytes", self.u64[layout.H_TOTAL_BYTES // 8], (layout.TOTAL_BYTES,)),
            ("lanes", self.u32[layout.H_LANES // 4], (layout.LANES,)),
            ("capacity", self.u32[layout.H_CAPACITY // 4], (layout.CAPACITY,)),
            ("events", self.u32[layout.H_EVENTS // 4], (layout.EVENTS,)),
            ("rate_hz", self.u32[layout.H_RATE_HZ // 4], layout.RATES_HZ),
        )
        for name, value, accepted in expected:
            if value not in accepted:
                wanted = " or ".join(map(str, accepted))
                raise Failure(f"{name} of the mapping is {value}; it must be {wanted}", "bad-daemon")
        self.session = self.u64[layout.H_SESSION_ID // 8]
        self.rate_hz = self.u32[layout.H_RATE_HZ // 4]
        self.daemon_pid = self.u32[layout.H_DAEMON_PID // 4]
        self.daemon_start_ns = self.u64[layout.H_START_NS // 8]
        self._generations = self.column(layout.L_GENERATION)
        self._done = self.column(layout.L_DONE_GENERATION)
        self._idle = [0] * layout.LANES

    def _release(self) -> None:
        super()._release()
        self._generations = self._done = memoryview(b"")

    def lanes(self) -> list[LiveLane]:
        """The lanes that hold a line we have not finished, by lane number.

        Generations only grow within a session. When another thread finishes a lane during the call, that
        lane may still be named: attach only to generations above the last one you knew of that lane.
        """
        # `done` first: the daemon clears the generation before it, so a lane of which we have seen the
        # end cannot look live.
        done = self._done.tolist()
        fence()
        generations = self._generations.tolist()
        if generations == self._idle:
            return []
        fence()
        found = []
        for lane, generation in enumerate(generations):
            if generation != 0 and generation != done[lane]:
                line_id = self.u64[u64_at(lane, layout.L_LINE_ID)]
                if line_id:
                    found.append(LiveLane(lane, generation, line_id))
        return found

    def beat(self) -> None:
        """Show that the client is alive."""
        at = layout.H_CLIENT_BEAT // 8
        publish(self.u64, at, (self.u64[at] + 1) & ((1 << 64) - 1))

    @property
    def feeder_beat(self) -> int:
        """Grows while the daemon's feeder lives; time it by your own clock."""
        return self.u64[layout.H_FEEDER_BEAT // 8]

    @property
    def engine_progress(self) -> int:
        """Grows while the engine gets on."""
        return self.u64[layout.H_ENGINE_PROGRESS // 8]

    @property
    def engine_busy(self) -> bool:
        """Whether the engine has work."""
        return self.u32[layout.H_ENGINE_BUSY // 4] != 0
