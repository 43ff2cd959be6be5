"""Text as a game sends it -> text that can be read, each character tied to the bytes it came from.

Full-width forms are folded, typographic variants of one mark become that mark, emoji, invisible
characters and mark-up go. Knows no language and cuts nothing.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple


class Marked(NamedTuple):
    """A text whose characters know where they came from."""

    text: str
    begins: list[int]
    """For each character: the UTF-8 byte offset, in the text as sent, of the first byte it stands for."""
    ends: list[int]
    """One past the last."""

    def cut(self, start: int, end: int) -> Marked:
        """The characters from `start` to `end`."""
        return Marked(self.text[start:end], self.begins[start:end], self.ends[start:end])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Bytes that the characters from `start` to `end` (at least one) came from."""
        return self.begins[start], self.ends[end - 1]


# One mark for each of its variants. What is not here and not a letter, digit or known mark goes.
_MARKS = {
    "’": "'",
    "‘": "'",
    "‛": "'",
    "ʼ": "'",
    "`": "'",
    "‐": "-",
    "‑": "-",
    "‒": "-",
    "−": "-",
    "―": "—",
    "─": "—",
    "〜": "~",
    "～": "~",
    "、": ",",
    "，": ",",
    "。": "。",
    "｡": "。",
    "「": "“",
    "『": "“",
    "《": "“",
    "〈": "“",
    "«": "“",
    "„": "“",
    "【": "“",
    "」": "”",
    "』": "”",
    "》": "”",
    "〉": "”",
    "»": "”",
    "】": "”",
    "〔": "(",
    "〕": ")",
    "[": "(",
    "]": ")",
    "‥": "…",
    "⋯": "…",
    "·": " ",
    "・": " ",
    "•": " ",
    "*": " ",
    "_": " ",
    "|": " ",
    "\\": " ",
    "{": " ",
    "}": " ",
    "^": " ",
    "¿": "",
    "¡": "",
    "〇": "〇",
}
_KEPT_SYMBOLS = frozenset("°$€£¥₩₹¢+=<>~&%@#/")
_FOLDED = re.compile(
    "[\uff00-\uffef\ufb00-\ufb06\u2100-\u214f\u2460-\u24ff\u3200-\u33ff\uf900-\ufaff\U0001d400-\U0001d7ff\U0002f800-\U0002fa1f]"
)
_TAG = re.compile(
    r"</?(?:b|i|u|s|p|br|em|strong|span|font|color|size|sprite|mark|sub|sup|align|link|speak|break)"
    r"(?:[\s=/][^<>\n]{0,120})?>",
    re.IGNORECASE,
)
_ANGLE = re.compile(r"(?<=\d) ?[<>] ?(?=\d)")
_LONGEST_WORD = 64
"""A longer run without a space is taken apart: no reading of it could be right, and none may cost much."""


def byte_length(character: str) -> int:
    """UTF-8 bytes of one character."""
    point = ord(character)
    return 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4


def clean(text: str) -> Marked:
    """`text` as it can be read. Line ends are kept as one newline; other white space is one space."""
    dropped = bytearray(len(text))
    for tag in _TAG.finditer(text):
        dropped[tag.start() : tag.end()] = b"\x01" * (tag.end() - tag.start())
    compared = {tag.start() + offset for tag in _ANGLE.finditer(text) for offset in range(len(tag.group()))}
    characters: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    offset = 0
    word = 0
    for index, character in enumerate(text):
        begin, offset = offset, offset + byte_length(character)
        if dropped[index] or (character in "<>" and index not in compared):
            readable = " "
        elif character.isascii() and character.isalnum():
            readable = character
        else:
            readable = _readable(character)
        if not readable:
            if ends and characters[-1] != " " and unicodedata.combining(character):
                composed = unicodedata.normalize("NFC", characters[-1] + character)
                if len(composed) == 1:
                    characters[-1] = composed
                ends[-1] = offset
            continue
        if readable in (" ", "\n"):
            word = 0
            if characters and characters[-1] in " \n":
                if readable == "\n":
                    characters[-1] = readable
                continue
        for piece in readable:
            word = 0 if is_han(piece) else word + 1
            if word > _LONGEST_WORD:
                word = 1
                characters.append(" ")
                begins.append(begin)
                ends.append(begin)
            characters.append(piece)
            begins.append(begin)
            ends.append(offset)
    return Marked("".join(characters), begins, ends)


def _readable(character: str) -> str:
    """What stands for a character; "" for nothing."""
    mark = _MARKS.get(character)
    if mark is not None:
        return mark
    if character in "\n\r\x0b\x0c\x85\u2028\u2029":
        return "\n"
    if character.isspace():
        return " "
    if _FOLDED.match(character):
        folded = unicodedata.normalize("NFKC", character)
        if folded != character:
            return "".join(_readable(piece) for piece in folded)
    if character in _KEPT_SYMBOLS:
        return character
    category = unicodedata.category(character)
    if category[0] in "LNP":
        return character
    if category in ("So", "Sk", "Sm", "Sc", "Co", "Cn", "Cs"):
        return " "
    return ""  # marks that could not be composed, format and control characters


def is_han(character: str) -> bool:
    """True for a Chinese character."""
    return (
        "\u4e00" <= character <= "\u9fff"
        or "\u3400" <= character <= "\u4dbf"
        or character == "〇"
        or "\U00020000" <= character <= "\U0003134f"
    )
