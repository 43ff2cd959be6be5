"""Every message of the protocol, as a record, and the codec between records and bytes.

A message is one MessagePack map in one ZeroMQ frame; its field `type` names the record. Unknown
fields are skipped. Nothing here knows a socket. PROTOCOL.md is the same for other languages; a
test holds the two together through `bindings/spec/vectors`.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeVar, Union

import msgspec
from msgspec import Meta

from ..errors import InputError
from ..shm.layout import RATES_HZ as RATES_HZ

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 0
"""A daemon answers a client of its own major. Minor counts added optional fields and messages."""

MAX_MESSAGE_BYTES = 1 << 20
MAX_TEXT_BYTES = 16_000
MAX_TEXT_CHARS = 4_000
"""About five minutes of speech: what bounds the daemon's memory for one line."""
MAX_NAME = 128
MAX_VOICES = 8
WHILE_LOADING = ("wait", "babble", "silent")
LANGUAGES = ("auto", "en", "en-us", "en-gb", "zh")
PRIORITIES = ("immediate", "dialogue", "bark", "background")

U64 = Annotated[int, Meta(ge=0)]
"""MessagePack itself ends at 2^64 - 1 (a bound that high cannot be given to msgspec)."""
U63 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
U32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
LineId = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all messages."""


# ---- from the game -------------------------------------------------------------------------------


class Hello(Message, tag="hello", frozen=True, kw_only=True):
    """The first message of a connection; answered by `welcome` or `error`."""

    id: U64
    """Echoed as `re` in the answer, here and in every request below."""
    protocol: U32
    """The client's protocol major."""
    token: Annotated[str, Meta(max_length=128)]
    """64 hexadecimal digits out of the discovery file."""
    client: Name = ""
    """For people: "Skyrim 1.6 / gleeman-c 0.1.0"."""
    pid: U32 = 0
    """The client's process, watched so that a dead client leaves nothing; 0: none to watch (Wine)."""
    rate_hz: U32 = 24_000
    """Wanted sample rate: 24000, 44100 or 48000."""
    while_loading: Name = "wait"
    """What lines get that come before the model is ready: "wait", "babble" or "silent"."""


class Bye(Message, tag="bye", frozen=True, kw_only=True):
    """Ends the session: lines are dropped, the mapping is removed. Answered by `ok` then."""

    id: U64 = 0


class Speak(Message, tag="speak", frozen=True, kw_only=True):
    """One line. Answered by `accepted`, or by `ended` with end "refused"."""

    id: U64
    line: LineId
    """Chosen by the client; each above the one before."""
    text: str = ""
    phonemes: str = ""
    """Instead of text, in the model's alphabet."""
    voice: Union[Name, Annotated[list[Name], Meta(min_length=1, max_length=MAX_VOICES)]] = ""
    """A name, or a list of which the first known one is taken; "" is the daemon's default."""
    emotion: Name = "neutral"
    intensity: Annotated[float, Meta(ge=0, le=1)] = 1.0
    speed: Annotated[float, Meta(ge=0.25, le=4)] = 1.0
    pitch: Annotated[float, Meta(ge=-12, le=12)] = 0.0
    """Semitones."""
    energy: Annotated[float, Meta(ge=-20, le=20)] = 0.0
    """Decibels."""
    language: Name = "auto"
    priority: Name = "dialogue"
    deadline_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    """From arrival until the engine takes it up; 0: none."""
    seed: Union[U63, None] = None
    """None: made of the voice and the text."""

    def __post_init__(self) -> None:
        for name in ("intensity", "speed", "pitch", "energy"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number")
        if self.language not in LANGUAGES:
            raise ValueError(f"language {self.language[:40]!r} is not one of {', '.join(LANGUAGES)}")
        if self.priority not in PRIORITIES:
            raise ValueError(f"priority {self.priority[:40]!r} is not one of {', '.join(PRIORITIES)}")


class Cancel(Message, tag="cancel", frozen=True, kw_only=True):
    """Stop a line. The client library marks the lane first; this is for lines that have none yet, and
    tells the scheduler at once. Answered by `ok`, or by `error` unknown-line."""

    id: U64 = 0
    line: LineId


class Frame(Message, tag="frame", frozen=True, kw_only=True):
    """End of a game frame in which lines were submitted: the tick may close. Not answered."""


class Voices(Message, tag="voices", frozen=True, kw_only=True):
    """Which voices there are. Answered by `voice_list`."""

    id: U64 = 0


class Status(Message, tag="status", frozen=True, kw_only=True):
    """What the daemon is doing. Answered by `status_report`."""

    id: U64 = 0


class Ping(Message, tag="ping", frozen=True, kw_only=True):
    """Answered by `pong`."""

    id: U64 = 0


# ---- from the daemon -----------------------------------------------------------------------------


class Welcome(Message, tag="welcome", frozen=True, kw_only=True):
    """The answer to `hello`."""

    re: U64
    protocol: U32
    minor: U32
    version: str
    """Of the package."""
    session: U64
    mapping: str
    """Path of the session's shared-memory file."""
    mapping_bytes: U64
    rate_hz: U32
    """Given; the one asked for, or 24000."""
    lanes: U32
    model: str
    state: str
    """"loading", "warming", "ready" or "failed"."""
    progress: float
    eta_s: float
    voices: U32
    """How many; `voices` lists them."""
    emotions: list[str]
    max_text_chars: U32
    max_queued_lines: U32


class Error(Message, tag="error", frozen=True, kw_only=True):
    """A message could not be answered as asked. The daemon goes on."""

    re: U64
    """0 when the message could not be read so far."""
    code: str
    message: str


class Ok(Message, tag="ok", frozen=True, kw_only=True):
    """Done; nothing to tell."""

    re: U64


class Accepted(Message, tag="accepted", frozen=True, kw_only=True):
    """A line is queued."""

    re: U64
    line: U64
    voice: str
    """The one that was taken."""
    seed: U64
    warnings: list[str] = []
    """Sentences: an unknown emotion, a voice that was not the first choice."""


class ClauseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A clause of an accepted line, for subtitles."""

    spoken: str
    begin: U32
    end: U32
    ms: float
    """Estimated duration."""


class Clauses(Message, tag="clauses", frozen=True, kw_only=True):
    """What an accepted line will say, once its text is read: subtitles run on this without sound."""

    line: U64
    clauses: list[ClauseInfo]
    warnings: list[str] = []
    """Sentences: what of the text could not be read and was left out."""


class Ended(Message, tag="ended", frozen=True, kw_only=True):
    """The daemon's word on a line's end. Where `in_lane` is true the lane carries the end too, and the
    client tells it when the reader has come there; else it is told at once."""

    line: U64
    end: str
    """"cancelled", "expired", "failed" or "refused"."""
    code: str
    message: str
    in_lane: bool = False
    re: U64 = 0
    """The `speak` it answers, for "refused"."""


class State(Message, tag="state", frozen=True, kw_only=True):
    """The model's state changed. Sent to every session."""

    state: str
    progress: float
    eta_s: float
    message: str = ""
    code: str = ""


class VoiceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A voice in `voice_list`."""

    name: str
    language: str
    gender: str
    source: str = "stock"


class VoiceList(Message, tag="voice_list", frozen=True, kw_only=True):
    """The answer to `voices`."""

    re: U64
    default: str
    voices: list[VoiceEntry]


class StatusReport(Message, tag="status_report", frozen=True, kw_only=True):
    """The answer to `status`. Counters grow from the daemon's start."""

    re: U64
    version: str
    pid: U32
    uptime_s: float
    model: str
    device: str
    quality: str
    state: str
    progress: float
    eta_s: float
    sessions: U32
    live_lines: U32
    queued_lines: U32
    lines: dict[str, int]
    """Ended lines by end: done, cancelled, expired, failed, refused, lost."""
    batches: U64
    batch_rows_mean: float
    first_audio_ms_p50: Union[float, None]
    first_audio_ms_p95: Union[float, None]
    underrun_samples: U64
    rss_mb: float
    text_restarts: U32
    message: str = ""
    dtype: str = ""
    """What the model computes in; "" until it is loaded, and of the stand-ins."""
    padding_ratio: float = 1.0
    """Frames rendered, pads among them, over frames of the clauses alone."""
    device_reason: str = ""
    dtype_reason: str = ""
    """Why these were picked."""
    device_mb_used: Union[float, None] = None
    """GPU memory that the daemon has, 10^6 bytes, the driver's context included; None on a CPU, as the next
    two."""
    device_mb_peak: Union[float, None] = None
    device_mb_cap: Union[float, None] = None
    """None without a cap."""


class Pong(Message, tag="pong", frozen=True, kw_only=True):
    """The answer to `ping`."""

    re: U64


class Gone(Message, tag="gone", frozen=True, kw_only=True):
    """The daemon ends this session: it shuts down, or the client's mapping holds nonsense."""

    code: str
    message: str


FromClient = Union[Hello, Bye, Speak, Cancel, Frame, Voices, Status, Ping]
FromDaemon = Union[Welcome, Error, Ok, Accepted, Clauses, Ended, State, VoiceList, StatusReport, Pong, Gone]

_T = TypeVar("_T")

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_daemon: msgspec.msgpack.Decoder[FromDaemon] = msgspec.msgpack.Decoder(FromDaemon)


def encode(message: Message) -> bytes:
    """The bytes of a message; the field `type` first."""
    return _encoder.encode(message)


def decode_from_client(data: bytes | memoryview) -> FromClient:
    """A message of a client, checked. Raises InputError with code too-large, unknown-type, bad-message
    or bad-value, whatever the bytes."""
    return _decode(_from_client, data)


def decode_from_daemon(data: bytes | memoryview) -> FromDaemon:
    """A message of a daemon, checked in the same way."""
    return _decode(_from_daemon, data)


def _decode(decoder: msgspec.msgpack.Decoder[_T], data: bytes | memoryview) -> _T:
    if len(data) > MAX_MESSAGE_BYTES:
        raise InputError(f"the message has {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}", "too-large")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        whole = str(error)  # it repeats what was sent, however long
        reason = whole if len(whole) <= 300 else f"{whole[:200]} … {whole[-80:]}"
        if "$.type" in whole and "Invalid value" in whole:
            raise InputError(f"unknown message type: {reason}", "unknown-type") from None
        misfit = "missing required" in reason or ", got `" in reason
        raise InputError(reason, "bad-message" if misfit else "bad-value") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InputError(f"the message is not the MessagePack of one map: {error}", "bad-message") from None


class Glimpse(msgspec.Struct, frozen=True):
    """What could be read of a message that may be broken: enough to answer it."""

    type: str = ""
    id: int = 0
    line: int = 0


class _Raws(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    line: msgspec.Raw = msgspec.Raw()


_raws = msgspec.msgpack.Decoder(_Raws)
_raw_name = msgspec.msgpack.Decoder(Name)
_raw_u64 = msgspec.msgpack.Decoder(U64)
_raw_line = msgspec.msgpack.Decoder(LineId)


def glimpse(data: bytes | memoryview) -> Glimpse:
    """`type`, `id` and `line` of a message, each on its own: "" or 0 where it is absent or no good.
    Never raises."""
    if len(data) > MAX_MESSAGE_BYTES:
        return Glimpse()
    try:
        raws = _raws.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return Glimpse()
    return Glimpse(
        _part(_raw_name, raws.type, ""), _part(_raw_u64, raws.id, 0), _part(_raw_line, raws.line, 0)
    )


def _part(decoder: msgspec.msgpack.Decoder[_T], raw: msgspec.Raw, missing: _T) -> _T:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return missing
