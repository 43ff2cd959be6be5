"""What the daemon and its text process say to each other over the process's pipes.

Each frame is its length (u32, little-endian) and that many bytes of MessagePack. A frame above
`MAX_FRAME_BYTES` ends the conversation: neither side believes the other's lengths.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Union

import msgspec

from ..records import Clause

MAX_FRAME_BYTES = 8 << 20
"""A line of 4,000 characters answers with about 1 MB at the most, every word with its place."""

_LENGTH = struct.Struct("<I")


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """To the process: read a line. `text`, or `phonemes_given` instead."""

    id: int
    text: str
    phonemes_given: str
    language: str
    voice: str
    phonemes: bool


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """To the process: load its languages in the background, lines come soon."""


class Up(msgspec.Struct, frozen=True, tag="up"):
    """From the process: it runs and listens."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """From the process: a language is being loaded; lines that need it wait."""

    language: str


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """From the process: it is loaded, after `ms`; or it could not be, and `message` says why."""

    language: str
    ms: float
    message: str = ""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """From the process: the line, read."""

    id: int
    clauses: tuple[Clause, ...]
    warnings: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """From the process: the line cannot be read."""

    id: int
    code: str
    message: str
    ours: bool
    """True: a failure of ours, not of the line."""


ToChild = Union[Ask, Warm]
FromChild = Union[Up, Loading, Loaded, Answer, Refusal]

_encoder = msgspec.msgpack.Encoder()
_to_child = msgspec.msgpack.Decoder(ToChild)
_from_child = msgspec.msgpack.Decoder(FromChild)


def write(stream: BinaryIO, message: ToChild | FromChild) -> None:
    """One frame, flushed. Raises OSError when the other side is gone."""
    data = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_to_child(stream: BinaryIO) -> ToChild | None:
    """The next request; None at the stream's end. Raises ValueError for anything that is none."""
    data = _read(stream)
    return None if data is None else _to_child.decode(data)


def read_from_child(stream: BinaryIO) -> FromChild | None:
    """The next answer; None at the stream's end. Raises ValueError for anything that is none."""
    data = _read(stream)
    return None if data is None else _from_child.decode(data)


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise ValueError("a frame broke off in its length")
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes; the limit is {MAX_FRAME_BYTES}")
    data = stream.read(length)
    if len(data) < length:
        raise ValueError("a frame broke off")
    return bytes(data)
