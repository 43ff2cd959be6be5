"""PROTOCOL.md and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gleeman.errors import CODES
from gleeman.records import End
from gleeman.speech.registry import STANDINS
from gleeman.wire import messages as m
from gleeman.wire.server import MAX_FRAME_BYTES, QUEUED_MESSAGES
from gleeman.wire.sessions import MAX_QUEUED_LINES, MAX_SESSIONS
from wire_helpers import tagged

TEXT = (Path(__file__).parent.parent / "bindings" / "spec" / "PROTOCOL.md").read_text("utf-8")
KINDS = sorted(m.Message.__subclasses__(), key=tagged)


def test_the_error_table_is_the_dictionary() -> None:
    table = TEXT[TEXT.index("## 4.") : TEXT.index("## 5.")]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", table, re.MULTILINE)
    assert dict(rows) == CODES
    assert len(rows) == len(CODES)


def part(kind: type[m.Message]) -> str:
    """The text that describes a message: from its name in backquotes at the start of a paragraph to the
    next such paragraph or heading."""
    found = re.search(rf"^`{tagged(kind)}`,", TEXT, re.MULTILINE)
    assert found, f"no paragraph begins with `{tagged(kind)}`"
    rest = TEXT[found.start() :]
    names = "|".join(tagged(each) for each in KINDS)
    end = re.search(rf"\n(?=`(?:{names})`,|##)", rest)
    return rest[: end.start()] if end else rest


@pytest.mark.parametrize("kind", KINDS, ids=tagged)
def test_every_field_of_every_message_is_described(kind: type[m.Message]) -> None:
    described = set(re.findall(r"`([a-z0-9_]+)`", part(kind)))
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert fields <= described, f"not described: {fields - described}"


@pytest.mark.parametrize("kind", [m.Hello, m.Speak], ids=tagged)
def test_the_defaults_are_those_of_the_code(kind: type[m.Message]) -> None:
    for field in msgspec.structs.fields(kind):
        row = re.search(rf"^\| `{field.name}` \| [^|]* \| ([^|]*) \|", part(kind), re.MULTILINE)
        assert row, field.name
        said = row[1].strip().strip("`").strip('"')
        if field.required:
            assert said == "required", field.name
        elif field.default is None:
            assert said == "nil", field.name
        elif isinstance(field.default, str):
            assert said == field.default, field.name
        else:
            assert float(said) == field.default, field.name


@pytest.mark.parametrize(
    "limit",
    [
        m.MAX_MESSAGE_BYTES,
        m.MAX_TEXT_CHARS,
        m.MAX_TEXT_BYTES,
        m.MAX_NAME,
        m.MAX_VOICES,
        MAX_FRAME_BYTES,
        QUEUED_MESSAGES,
        MAX_SESSIONS,
        MAX_QUEUED_LINES,
        *m.RATES_HZ,
    ],
)
def test_limits_stand_in_the_text(limit: int) -> None:
    assert re.search(rf"\b({limit}|{limit:,})\b", TEXT)


@pytest.mark.parametrize("word", [*STANDINS, *m.LANGUAGES, *m.PRIORITIES, *(end.name.lower() for end in End)])
def test_words_stand_in_the_text(word: str) -> None:
    assert f"`{word}`" in TEXT


def test_the_bytes_shown_are_the_codecs() -> None:
    shown = [
        bytes.fromhex(row) for row in re.findall(r"^    ((?:[0-9a-f]{2} +)+[0-9a-f]{2})$", TEXT, re.MULTILINE)
    ]
    expected = [m.encode(message) for message in (m.Frame(), m.Ping(id=8), m.Pong(re=8))]
    assert shown == [b"\0" + bytes([len(data)]) + data for data in expected]
