"""One conversation with one daemon, as the client keeps it: the mapping and who reads which lane.

Knows no sockets. Every method is called with the client's lock held, from whichever thread.
A session outlives its daemon until its lanes are read out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .. import host
from ..shm import layout
from ..shm.lane import LaneReader
from ..shm.mapping import ClientMapping, u64_at
from ..wire.discovery import Discovery

if TYPE_CHECKING:
    from .life import LineLife

STILL_NS = 2_000_000_000
"""A feeder that has not moved for this long is looked at (DESIGN "Shared memory")."""
STUCK_NS = 10_000_000_000
"""An engine that is busy this long without progress is stalled."""
LOOK_NS = 500_000_000
"""The most that one look adds: time in which this process itself stood still is not the daemon's."""


class Session:
    """The mapping of one `welcome`, and the lines that are heard through it."""

    def __init__(self, daemon: Discovery, number: int, rate_hz: int, mapping: ClientMapping) -> None:
        self.daemon = daemon
        self.number = number
        self.rate_hz = rate_hz
        self.dead = False
        """No more will be written: what the lanes hold is all there is."""
        self.lines: dict[int, LineLife] = {}
        """Lines sent to this daemon that have not ended, by id."""
        self._mapping = mapping
        self._seen = [0] * layout.LANES
        """The generation last adopted or released, lane by lane."""
        self._beat = 0
        self._beat_still_ns = 0
        self._progress = 0
        self._stuck_ns = 0
        self._looked_ns = time.monotonic_ns()
        self._closed = False

    def scan(self) -> None:
        """Adopt the lanes that lines were given since the last scan; free those whose line has ended.

        Raises Failure bad-daemon.
        """
        if self._closed:
            return
        for lane in self._mapping.lanes():
            if lane.generation == self._seen[lane.lane]:
                continue
            reader = LaneReader(self._mapping, lane.lane, lane.generation)
            self._seen[lane.lane] = lane.generation
            line = self.lines.get(reader.line_id)
            if line is None or line.has_lane:
                reader.mark_cancel(0)
                reader.finish()
            else:
                line.adopt(reader)

    def holds_all(self, lane: LaneReader) -> bool:
        """Whether a lane holds its line to the end, so that a dead daemon is not missed."""
        return self._mapping.u64[u64_at(lane.lane, layout.L_END_POS)] != layout.UNKNOWN_END

    def beat(self) -> None:
        """Show the daemon that this client lives."""
        if not self._closed:
            self._mapping.beat()

    def look(self) -> str:
        """ "alive", "stalled" (there, but still) or "dead". Called a few times a second."""
        now_ns = time.monotonic_ns()
        passed_ns = min(now_ns - self._looked_ns, LOOK_NS)
        self._looked_ns = now_ns
        if self.dead or not host.pid_alive(self.daemon.pid, self.daemon.start_ns):
            return "dead"
        beat, progress = self._mapping.feeder_beat, self._mapping.engine_progress
        busy = self._mapping.engine_busy
        self._beat_still_ns = 0 if beat != self._beat else self._beat_still_ns + passed_ns
        self._stuck_ns = 0 if not busy or progress != self._progress else self._stuck_ns + passed_ns
        self._beat, self._progress = beat, progress
        return "stalled" if self._beat_still_ns >= STILL_NS or self._stuck_ns >= STUCK_NS else "alive"

    def forget(self, line_id: int) -> None:
        """A line has ended. The mapping goes with the last line of a dead session."""
        self.lines.pop(line_id, None)
        self.close_when_read_out()

    def close_when_read_out(self) -> None:
        """Unmap when the daemon is dead and no line is left."""
        if self.dead and not self.lines and not self._closed:
            self._closed = True
            self._mapping.close()
