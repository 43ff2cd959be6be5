"""What a batch is: its limits, its rows, and where a row's noise comes from. Records; knows no queue."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

from ..records import Clause, LineRequest, Row


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch and the queues may hold. All above 0."""

    rows: int = 32
    """Rows of a batch; as many as there are lanes."""
    frames: int = 6_400
    """Predicted frames of a batch, 25 ms each: bounds the device's memory."""
    first_frames: int = 400
    """The same for a pipeline's first batch, before its pace is known: 10 s of speech, which a slow CPU makes
    in a few seconds."""
    run_ns: int = 100_000_000
    """Predicted time of a batch: the longest that an `immediate` line finds the engine busy, but for single
    rows that take longer by themselves. 100 ms for the teacher's vocoder on a CPU, 50 for the fast one there,
    30 on a GPU, which says so itself (`speech.base.Budget`)."""
    max_wait_ns: int = 16_666_667
    """How long a tick stays open for sessions that do not send `frame`: one frame at 60 a second."""
    session_lines: int = 256
    """Lines of one session that wait or are half spoken."""
    total_lines: int = 4_096
    ageing_ns: int = 2_000_000_000
    """A line that has waited this long goes as if its priority were one step higher."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; it must be above 0")


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to run together. Each is another line's."""

    pipeline: str
    rows: tuple[Row, ...]
    estimated_frames: int = 0
    """Of all rows, as `add`'s estimate had it."""


def row_of(request: LineRequest, index: int, clause: Clause) -> Row:
    """A line's clause on its way through a pipeline."""
    return Row(
        key=request.key,
        index=index,
        clause=clause,
        voice=request.voice,
        emotion=request.emotion,
        intensity=request.intensity,
        speed=request.speed,
        pitch=request.pitch,
        energy=request.energy,
        seed=row_seed(request.seed, index),
    )


def row_seed(seed: int, index: int) -> int:
    """The u63 that a line's clause `index` takes its noise from."""
    data = seed.to_bytes(8, "little") + index.to_bytes(4, "little")
    return int.from_bytes(hashlib.blake2b(data).digest()[:8], "little") >> 1
