"""Fakes for the tick room: a clock that stands still, a pipeline without sound, lines in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from gleeman.errors import Failure
from gleeman.records import (
    Chunk,
    Clause,
    End,
    Event,
    EventType,
    LineKey,
    LineRequest,
    LineRoom,
    ModelState,
    Priority,
    Row,
    RowAudio,
    Viseme,
)

MS = 1_000_000
RATE_HZ = 24_000


class ManualClock:
    """Nanoseconds that only tests move."""

    def __init__(self, now_ns: int = 1_000 * MS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance_ms(self, ms: float) -> None:
        self.now_ns += int(ms * MS)


class FakePipeline:
    """Gives each clause 100 samples a character, of its row's index + 1 in thousandths."""

    rate_hz = RATE_HZ
    needs_phonemes = False

    def __init__(self, name: str = "fake", clock: ManualClock | None = None, ms_a_row: float = 0.0) -> None:
        self.name = name
        self.batches: list[tuple[Row, ...]] = []
        self.poison = ""
        """Raise on a batch with a clause that holds this."""
        self.poison_error: Exception = Failure("poisoned")
        self.load_error: Exception | None = None
        self.closed = False
        self.padding = 0
        """Frames beside each row."""
        self.while_running = lambda: None
        self._clock = clock
        self._ms_a_row = ms_a_row

    def load(self, report) -> None:
        report("loading", 0.5)
        if self._clock:
            self._clock.advance_ms(2_000)
        if self.load_error:
            raise self.load_error
        report("warming", 0.5)

    def estimate_frames(self, row: Row) -> int:
        return len(row.clause.spoken)

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        self.batches.append(tuple(rows))
        if self._clock:
            self._clock.advance_ms(self._ms_a_row * len(rows))
        self.while_running()
        if self.poison and any(self.poison in row.clause.spoken for row in rows):
            raise self.poison_error
        return [self.audio(row) for row in rows]

    def audio(self, row: Row) -> RowAudio:
        count = 100 * len(row.clause.spoken)
        samples = np.full(count, (row.index + 1) / 1000, np.float32)
        events = (Event(0, EventType.CLAUSE), Event(count, EventType.VISEME, Viseme.SIL, 1.0))
        return RowAudio(samples, events, len(row.clause.spoken), self.padding)

    def close(self) -> None:
        self.closed = True


def clause(spoken: str, phonemes: str = "") -> Clause:
    """One clause over the whole of its text, without words."""
    return Clause(spoken, phonemes, "en-us", 0, len(spoken.encode()), (), len(phonemes), True)


def clauses(*spoken: str) -> tuple[Clause, ...]:
    return tuple(clause(text) for text in spoken)


BASE = LineRequest(
    key=LineKey(1, 1),
    text="hello",
    phonemes="",
    voice="af_heart",
    emotion="neutral",
    intensity=1.0,
    speed=1.0,
    pitch=0.0,
    energy=0.0,
    language="en",
    priority=Priority.DIALOGUE,
    arrived_ns=0,
    deadline_ns=0,
    seed=7,
    rate_hz=RATE_HZ,
    pipeline="main",
)


def request(line: int, session: int = 1, **changes) -> LineRequest:
    """A line request with everything ordinary but what is named."""
    return dataclasses.replace(BASE, key=LineKey(session, line), **changes)


def row(spoken: str, phonemes: str = "", **changes) -> Row:
    """A row of one clause."""
    made = Row(LineKey(1, 1), 0, clause(spoken, phonemes), "af_heart", "neutral", 1.0, 1.0, 0.0, 0.0, 7)
    return dataclasses.replace(made, **changes)


def lane(buffered_ms: float, pending: int = 0, paused: bool = False) -> LineRoom:
    """A line's place at its reader."""
    return LineRoom(int(buffered_ms * RATE_HZ / 1000), pending, RATE_HZ, paused)


class Listener:
    """Hears everything an engine says."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.ends: list[tuple[LineKey, End, str, str]] = []
        self.states: list[ModelState] = []
        self.beats: list[tuple[int, bool]] = []
        self.rooms: dict[LineKey, LineRoom] = {}

    def of(self, line: int, session: int = 1) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.key == LineKey(session, line)]

    def ended(self) -> list[tuple[int, End, str]]:
        return [(key.line, end, code) for key, end, code, _ in self.ends]
