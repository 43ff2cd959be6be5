"""The model's phoneme alphabet: one character a token. Knows no torch and no language."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources

from ....errors import InputError

PAD = 0
"""Stands before and after every row, and fills the rest of a batch."""


@functools.cache
def symbols() -> Mapping[str, int]:
    """Token id by character; 114 of the 178 ids are in use."""
    text = resources.files(__package__).joinpath("data/phonemes.json").read_text("utf-8")
    table: dict[str, int] = json.loads(text)["symbols"]
    return table


def unknown_symbols(phonemes: str) -> str:
    """The characters of `phonemes` that are outside the alphabet, each once, in order."""
    table = symbols()
    return "".join(dict.fromkeys(symbol for symbol in phonemes if symbol not in table))


def ids_of(phonemes: str) -> list[int]:
    """Token ids, one a character, without pads. Raises InputError bad-phonemes."""
    strange = unknown_symbols(phonemes)
    if strange:
        shown = ", ".join(f"{symbol!r} (U+{ord(symbol):04X})" for symbol in strange[:8])
        raise InputError(
            f"phonemes outside the model's alphabet: {shown}; accepted are {''.join(symbols())}",
            "bad-phonemes",
        )
    table = symbols()
    return [table[symbol] for symbol in phonemes]
