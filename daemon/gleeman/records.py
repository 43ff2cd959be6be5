"""The records that pass between the rooms of the daemon. Frozen, no behaviour, no imports of ours.

Dimension key, used in `speech/`:

    B batch rows   P phoneme tokens   F duration frames (600 samples at 24 kHz)   S samples
    D hidden       V style (256: 128 timbre, 128 prosody)

Positions and lengths in samples are counted from the line's first sample. Text positions are
UTF-8 byte offsets into the text as the game sent it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:  # the text process and the command line use these records without numpy's start-up
    import numpy as np
    import numpy.typing as npt

Samples: TypeAlias = "npt.NDArray[np.float32]"
"""Mono float32 in [-1, 1], shape (S,)."""


class LineKey(NamedTuple):
    """Names a line inside the daemon."""

    session: int
    """The random id of the client's session, u64."""
    line: int
    """The number the client gave the line: u64, above 0, growing within a session."""


class Priority(enum.IntEnum):
    """Lower goes first."""

    IMMEDIATE = 0
    DIALOGUE = 1
    BARK = 2
    BACKGROUND = 3


class End(enum.IntEnum):
    """How a line ended; the numbers stand in shared memory (`end_code`). 0 there: it has not."""

    DONE = 1
    CANCELLED = 2
    EXPIRED = 3
    FAILED = 4
    REFUSED = 5
    LOST = 6


class EventType(enum.IntEnum):
    """What an event record in shared memory tells; the numbers stand there."""

    WORD = 1
    """A word starts: `text_begin`, `text_end`, `duration_samples`."""
    VISEME = 2
    """The mouth moves to `code` (a `Viseme`) at `weight`."""
    MARK = 3
    """A mark that the game put into its text; `code` is its number."""
    CLAUSE = 4
    """A clause starts: `text_begin`, `text_end`, `duration_samples`."""


class Viseme(enum.IntEnum):
    """The fifteen mouth shapes of OpenXR/Oculus lip sync, by their usual numbers."""

    SIL = 0
    PP = 1
    FF = 2
    TH = 3
    DD = 4
    KK = 5
    CH = 6
    SS = 7
    NN = 8
    RR = 9
    AA = 10
    E = 11
    IH = 12
    OH = 13
    OU = 14


class Event(NamedTuple):
    """Something that happens at a sample of a line (in a `RowAudio`: of the row)."""

    sample: int
    type: int
    code: int = 0
    weight: float = 0.0
    text_begin: int = 0
    text_end: int = 0
    duration_samples: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word of a clause."""

    begin: int
    """UTF-8 byte offset of its first byte in the text as sent."""
    end: int
    """One past its last byte."""
    first: int
    """Index of its first symbol in the clause's `phonemes` (in `spoken` where there are no phonemes)."""
    last: int
    """One past its last symbol."""


@dataclass(frozen=True, slots=True)
class Clause:
    """The part of a line that is synthesised at once. Cut by the text alone, never by load."""

    spoken: str
    """The words as they will be read, punctuation included."""
    phonemes: str
    """One character a token, in the model's alphabet; "" when only estimated timings are wanted."""
    language: str
    """Of its greater part: "en-us", "en-gb", "zh"."""
    begin: int
    end: int
    """Span in the text as sent, UTF-8 bytes."""
    words: tuple[Word, ...]
    sentence_phonemes: int
    """Phoneme tokens of the whole sentence this clause was cut from: picks the kokoro style row."""
    ends_sentence: bool
    sentence: str = ""
    """Phonemes of the sentence that this clause was cut from, by which a model carries melody and timing over
    the cut; of a stretch of it where it is very long. "": the clause is read by itself."""
    sentence_first: int = 0
    """Index in `sentence` of this clause's first phoneme."""
    sentence_last: int = 0
    """Index in `sentence` of the next clause's first phoneme; its length for the last clause."""


@dataclass(frozen=True, slots=True)
class LineRequest:
    """A line as the server admitted it: every field checked, the voice resolved."""

    key: LineKey
    text: str
    phonemes: str
    """Given by the client instead of `text`; else ""."""
    voice: str
    """A known voice's name."""
    emotion: str
    intensity: float
    speed: float
    """2.0 is twice as fast; 0.25 to 4."""
    pitch: float
    """Semitones, -12 to 12."""
    energy: float
    """Decibels, -20 to 20."""
    language: str
    """"auto", "en", "en-us", "en-gb" or "zh"."""
    priority: Priority
    arrived_ns: int
    """`time.monotonic_ns` of its arrival."""
    deadline_ns: int
    """`time.monotonic_ns` by which its first clause must have been given to the engine; 0: none."""
    seed: int
    """u63; the same request with the same seed gives the same samples."""
    rate_hz: int
    """Of its session's lanes."""
    pipeline: str
    """"main", or "babble" or "silent": the stand-in that the session takes while the model loads."""


@dataclass(frozen=True, slots=True)
class Row:
    """One clause on its way through a pipeline: a row of the batch."""

    key: LineKey
    index: int
    """Which clause of its line, from 0."""
    clause: Clause
    voice: str
    emotion: str
    intensity: float
    speed: float
    pitch: float
    energy: float
    seed: int
    """hash(line seed, index): this row's noise and nothing else's."""


@dataclass(frozen=True, slots=True)
class RowAudio:
    """What a pipeline made of a row."""

    samples: Samples
    """At the pipeline's `rate_hz`."""
    events: tuple[Event, ...]
    """In order of `sample`, which is counted from this row's first sample. The first is a CLAUSE, the
    last a VISEME `SIL` at weight 1."""
    frames: int = 0
    """Work done, in the pipeline's own unit of `estimate_frames`."""
    padding: int = 0
    """Work on pads beside this row, in the same unit: what it is shorter than the longest it was run with."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Samples on their way from the engine to a lane."""

    key: LineKey
    samples: Samples
    """At the session's rate."""
    events: tuple[Event, ...]
    """`sample` counted from the line's first sample, at the session's rate."""
    last: bool
    """The line is complete with this chunk."""
    priority: Priority = Priority.DIALOGUE
    preroll_samples: int = 0
    """How much should be buffered before playing starts; told with the first chunk."""


@dataclass(frozen=True, slots=True)
class LineRoom:
    """Where a live line stands at its reader, as the feeder saw it last."""

    buffered_samples: int
    """Written to its lane, not read yet."""
    pending_samples: int
    """Waiting in the daemon's memory because the lane is full or not given yet."""
    rate_hz: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class LineEnded:
    """The one word about a line's end that a room of the daemon gives to the server."""

    key: LineKey
    end: End
    code: str
    """Out of `errors.CODES`; "" for DONE."""
    message: str
    in_lane: bool
    """True: the lane carries the end too, and the reader reaches it at `end_pos`."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """What the engine says of its model. `state`: loading, warming, ready or failed."""

    state: str
    progress: float = 0.0
    """0 to 1."""
    eta_s: float = 0.0
    """Seconds to `ready` by our estimate; 0 when ready or unknown."""
    message: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice as it is listed."""

    name: str
    language: str
    gender: str
    source: str = "stock"
    tags: tuple[str, ...] = field(default=())
