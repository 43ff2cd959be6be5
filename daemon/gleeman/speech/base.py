"""What the engine asks of a speech pipeline. Knows no threads, no clock, no sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..errors import Failure
from ..records import Row, RowAudio

Report = Callable[[str, float], None]
"""Called with ("loading" or "warming", progress 0 to 1) from the loading thread."""


class DeviceFull(Failure):
    """The device's memory does not hold this batch. All that could be given back has been: a smaller batch
    may do."""

    default_code = "busy"


class Budget(NamedTuple):
    """What a pipeline wants its batches held to; a pipeline without an attribute `budget`, or with None
    there, leaves it to the daemon's own limits. Known once it is loaded."""

    run_ns: int
    """Predicted time of a batch, as `tick.batch.Limits` has it."""
    frames: int
    """Predicted frames of a batch: what the device's memory holds."""


class Pipeline(Protocol):
    """Turns a batch of clauses into sound. One thread at a time may call it, but for `estimate_frames`."""

    name: str
    rate_hz: int
    """Of the samples it makes."""
    needs_phonemes: bool
    """False: `Clause.phonemes` may be empty (babble, silent)."""

    def load(self, report: Report) -> None:
        """Bring everything onto the device and speak a warm-up line. Raises Failure."""

    def estimate_frames(self, row: Row) -> int:
        """Predicted work of a row before it is run, in units of 600 samples at 24 kHz (25 ms). Cheap
        arithmetic on nothing that `load` or `run` change: any thread may call it at any time."""

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        """Synthesise the rows together, in order. A row's audio does not depend on its neighbours
        (to float tolerance). Raises Failure when the whole batch failed, DeviceFull when it was too large
        for the device."""

    def close(self) -> None:
        """Free the device."""
