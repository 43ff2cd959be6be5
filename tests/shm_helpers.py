"""A feeder on a temporary folder whose callbacks are recorded, and what tests of shared memory share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gleeman.records import Chunk, Event, LineKey, Priority
from gleeman.shm.feeder import Feeder
from gleeman.shm.lane import LaneReader
from gleeman.shm.mapping import ClientMapping

WAIT_S = 10.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition` gives something true, and return it; fail with `what` after WAIT_S."""
    limit_s = time.monotonic() + WAIT_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < limit_s, f"waited {WAIT_S:g} s for {what}"
        time.sleep(0.001)


def ramp(start: int, count: int) -> np.ndarray:
    """Samples that tell their own position."""
    return np.arange(start, start + count, dtype=np.float32)


class Rig:
    """A running feeder; `told` holds what it said: (name, arguments) in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        self._lock = threading.Lock()
        names = ["opened", "failed", "ended", "freed", "room", "gone", "cancel", "first_audio"]
        self.feeder = Feeder(**{f"on_{name}": self._record(name) for name in names}, folders=[folder])
        self.mappings: list[ClientMapping] = []

    def _record(self, name: str) -> Callable[..., None]:
        def record(*arguments: Any) -> None:
            with self._lock:
                self.told.append((name, arguments))

        return record

    def all(self, name: str) -> list[tuple[Any, ...]]:
        with self._lock:
            return [arguments for told, arguments in self.told if told == name]

    def wait(self, name: str, count: int = 1) -> tuple[Any, ...]:
        """The `count`th word of that name."""
        return until(lambda: len(self.all(name)) >= count and self.all(name), name)[count - 1]

    def open(self, session: int = 7, rate_hz: int = 24_000, pid: int = 0) -> ClientMapping:
        before = len(self.all("opened"))
        self.feeder.open_session(session, rate_hz, pid)
        number, path, size = self.wait("opened", before + 1)
        assert number == session
        self.mappings.append(ClientMapping.open(path, size))
        return self.mappings[-1]

    def hand(
        self,
        line: int,
        samples: np.ndarray,
        last: bool = False,
        events: tuple[Event, ...] = (),
        session: int = 7,
        priority: Priority = Priority.DIALOGUE,
        preroll: int = 0,
    ) -> LineKey:
        key = LineKey(session, line)
        self.feeder.hand(Chunk(key, samples, events, last, priority, preroll))
        return key

    def reader(self, mapping: ClientMapping, line: int) -> LaneReader:
        """Attach to a line as soon as it has a lane."""
        live = until(lambda: [lane for lane in mapping.lanes() if lane.line_id == line], f"line {line}")[0]
        return LaneReader(mapping, live.lane, live.generation)

    def close(self) -> None:
        self.feeder.stop()
        for mapping in self.mappings:
            mapping.close()


def play(reader: LaneReader, block: int = 4096) -> np.ndarray:
    """Read a line to its end."""
    parts = []

    def step() -> bool:
        parts.append(reader.read(block))
        return reader.ended is not None

    until(step, f"the end of line {reader.line_id}")
    return np.concatenate(parts)
