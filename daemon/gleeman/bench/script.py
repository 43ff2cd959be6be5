"""The lines that the bench speaks. Never the same text twice where a cache could answer for the engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

SHORT = "Halt! Who goes there?"
"""The line of the first-audio figures."""
DIALOGUE = "Put your sword on the ground and step into the light."
LONG = (
    "The seal under the tower will hold for another year, but not for another winter. When the ice reached "
    "the gate the old king rode west at dawn, and nobody saw him again until the snow had gone. They found "
    "his horse in the valley, his cloak by the river, and his crown on the altar of a church that no map "
    "has shown since. Some say that he is waiting there still, with a candle and a closed book, for "
    "somebody to ask him the right question."
)
"""About 25 seconds."""
MIXED = (
    "Yes.",
    "Welcome to the Silver Stag. The stew is hot and the beds are dry.",
    "Who told you that?",
    "There are wolves on the north road, and something larger is walking behind them.",
    "Put it down.",
    "He left before the snow came.",
    "That blade has seen better days. Leave it with me until tomorrow morning.",
    "Not today, friend.",
    "Keep your voice down. The captain drinks here, and his men are at the next table.",
    "Run!",
    "I still keep a candle in the window for him.",
    "Two coins, and not one more.",
    "Gather round, good people, and I will sing of the dragon and the miller's daughter.",
    "The bridge is out.",
    "Follow me, and step where I step.",
    "Good night.",
)
"""Sixteen lines as a tavern has them: a word to two sentences."""
VOICES = ("af_heart", "am_fenrir", "bf_emma", "bm_george", "af_bella", "am_michael", "bm_fable", "af_sarah")


def voice_of(place: int) -> str:
    """Voices in turn, so that rows of a batch differ."""
    return VOICES[place % len(VOICES)]


def patter() -> Iterator[str]:
    """Short lines without end, each another: for runs that look at memory."""
    for number in count(1):
        yield f"{MIXED[number % len(MIXED)]} That is {number}."
