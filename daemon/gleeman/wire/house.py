"""What the server asks of the other rooms of the daemon, as types: so that it imports none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..records import LineKey, LineRequest, VoiceInfo
from ..stats import RoomFigures
from .sessions import VoiceNames


class Voices(VoiceNames, Protocol):
    """The voice store as the server reads it."""

    def names(self) -> Sequence[str]:
        """All known names."""

    def info(self, name: str) -> VoiceInfo:
        """How a known voice is listed."""


class House(Protocol):
    """What the server asks of the other rooms: on the server thread, answered later through `Server`."""

    @property
    def voices(self) -> Voices: ...
    @property
    def emotions(self) -> Sequence[str]: ...
    def emotion_of(self, name: str) -> tuple[str, str]:
        """The emotion that a name means, and a warning for the game or ""."""

    def open_session(self, session: int, rate_hz: int, client_pid: int) -> None: ...
    def close_session(self, session: int) -> None: ...
    def submit(self, request: LineRequest) -> None:
        """Raises InputError busy when the text room is full."""

    def cancel(self, key: LineKey) -> None: ...
    def frame(self, session: int) -> None: ...
    def sessions_changed(self, count: int) -> None: ...
    def figures(self) -> RoomFigures: ...
