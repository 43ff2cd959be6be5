"""Voices by name: who there is, which name was meant, and the style table the model wants. Knows no torch.

Any thread may call; nothing changes after construction but a cache that is safe to lose.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence

from ..errors import InputError
from ..records import VoiceInfo
from .stock import StockVoices, Style, stock_voices

DEFAULT_VOICE = "af_heart"
STYLES_CACHED = 64
"""Half a megabyte each."""


class VoiceStore:
    """The voices of this daemon: the stock ones."""

    def __init__(self, stock: StockVoices | None = None) -> None:
        self._stock = stock_voices() if stock is None else stock
        self._index = {info.name: place for place, info in enumerate(self._stock.infos)}
        self._style = functools.lru_cache(STYLES_CACHED)(self._stock.style)

    def names(self) -> tuple[str, ...]:
        """In the order they are listed."""
        return tuple(self._index)

    def infos(self) -> tuple[VoiceInfo, ...]:
        """As `names`."""
        return self._stock.infos

    def info(self, name: str) -> VoiceInfo:
        """Raises InputError unknown-voice."""
        return self._stock.infos[self._place(name)]

    def default(self) -> str:
        """The voice of a line that asks for none."""
        return DEFAULT_VOICE if DEFAULT_VOICE in self._index else next(iter(self._index))

    def resolve(self, names: str | Sequence[str]) -> str:
        """The first known voice of a name or a list of names; "" asks for the default. Raises InputError
        unknown-voice with names that are near."""
        asked = [names] if isinstance(names, str) else list(names)
        for name in asked:
            if not name:
                return self.default()
            if name in self._index:
                return name
        raise self._unknown(asked)

    def style(self, name: str) -> Style:
        """(510, 256) float32, not to be written to; row n - 1 for n phonemes. Raises InputError
        unknown-voice."""
        return self._style(self._place(name))

    def _place(self, name: str) -> int:
        if name not in self._index:
            raise self._unknown([name])
        return self._index[name]

    def _unknown(self, asked: list[str]) -> InputError:
        near: list[str] = []
        # names are af_heart and the like: a person types "heart"
        by_tail = {name.partition("_")[2] or name: name for name in self._index}
        for name in asked[:8]:
            plain = name[:64].strip().casefold()
            near += difflib.get_close_matches(plain, self._index, n=3)
            near += [by_tail[tail] for tail in difflib.get_close_matches(plain, by_tail, n=2)]
        near = list(dict.fromkeys(near))[:4]
        called = ", ".join(repr(name[:64]) for name in asked[:8]) or "(no name)"
        hint = f"near: {', '.join(near)}; " if near else ""
        return InputError(
            f"no voice named {called}; {hint}`gleeman voices list` shows all {len(self._index)}",
            "unknown-voice",
        )
