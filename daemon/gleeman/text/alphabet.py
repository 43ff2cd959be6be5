"""The symbols a text may be turned into: the alphabet of the Kokoro model, one character a token.

The model's own table (its token numbers) lies with the model; a test holds the two together.
"""

from __future__ import annotations

PAUSES = ';:,.!?—…"()“” '
"""Marks that carry pauses and melody, and the space between words."""
SOUNDS = (
    "AIOQSTWYabcdefhijklmnopqrstuvwxyzæçðøŋœɐɑɒɔɕɖəɚɛɜɟɡɣɤɥɨɪɯɰɲɳɴɸɹɻɽɾʁʂʃʈʊʋʌʎʒʔʝʣʤʥʦʧʨβθχᵊᵻꭧ"
    "\u0303ʰʲˈˌːᵝ→↓↗↘"
)
ALPHABET = frozenset(PAUSES + SOUNDS)
MAX_PHONEMES = 480
"""Of a clause: the model takes 510; the rest is room for what it puts around them."""


def unknown(phonemes: str) -> str:
    """The symbols of `phonemes` outside the alphabet, each once, in order."""
    return "".join(dict.fromkeys(c for c in phonemes if c not in ALPHABET))


def keep_known(phonemes: str) -> str:
    """`phonemes` without the symbols outside the alphabet."""
    return "".join(c for c in phonemes if c in ALPHABET)
