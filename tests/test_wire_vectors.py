"""The golden bytes that every language reads are current, and mean what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gleeman.errors import CODES, InputError
from gleeman.wire import messages as m

SPEC = Path(__file__).parent.parent / "bindings" / "spec"
FILE = json.loads((SPEC / "vectors" / "messages.json").read_text("utf-8"))
DECODE = {"from_client": m.decode_from_client, "from_daemon": m.decode_from_daemon}


def _named(items: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(item, id=item["name"]) for item in items]


def test_the_vectors_are_what_the_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_vectors", SPEC / "make_vectors.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_vectors"] = module
    spec.loader.exec_module(module)
    current = (SPEC / "vectors" / "messages.json").read_text("utf-8")
    assert current == module.as_text(), "run python bindings/spec/make_vectors.py"


def test_every_message_has_a_vector() -> None:
    seen = {item["fields"]["type"] for item in FILE["messages"]}
    assert seen == {kind.__struct_config__.tag for kind in m.Message.__subclasses__()}


@pytest.mark.parametrize("item", _named(FILE["messages"]))
def test_a_golden_message_decodes_to_its_fields(item: dict[str, Any]) -> None:
    message = DECODE[item["direction"]](bytes.fromhex(item["hex"]))
    assert message.__struct_config__.tag == item["fields"]["type"]
    assert {"type": item["fields"]["type"], **msgspec.to_builtins(message)} == item["fields"]
    assert m.encode(message).hex() == item["hex"]


@pytest.mark.parametrize("item", _named(FILE["malformed"]))
def test_a_malformed_message_is_refused_with_its_code(item: dict[str, Any]) -> None:
    assert item["code"] in CODES
    with pytest.raises(InputError) as caught:
        m.decode_from_client(bytes.fromhex(item["hex"]))
    assert caught.value.code == item["code"]
    assert len(caught.value.message) > 10


@pytest.mark.parametrize("item", _named(FILE["messages"]))
def test_unknown_fields_are_skipped(item: dict[str, Any]) -> None:
    later = msgspec.msgpack.encode({**item["fields"], "of_a_later_minor": {"x": [1, None]}})
    decode = DECODE[item["direction"]]
    assert decode(later) == decode(bytes.fromhex(item["hex"]))
