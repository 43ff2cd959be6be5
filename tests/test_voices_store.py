"""Voices by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from gleeman.errors import Failure, InputError
from gleeman.voices.stock import read_stock
from gleeman.voices.store import VoiceStore


@pytest.fixture(scope="module")
def store() -> VoiceStore:
    return VoiceStore()


def test_the_54_stock_voices_are_there_with_their_languages(store: VoiceStore) -> None:
    assert len(store.names()) == 54
    assert store.info("bf_emma").language == "en-gb"
    assert store.info("zm_yunxi").gender == "male"
    assert {info.language for info in store.infos()} == {
        "en-us", "en-gb", "zh", "ja", "es", "fr", "hi", "it", "pt-br",
    }  # fmt: skip


def test_a_style_is_a_table_over_lengths(store: VoiceStore) -> None:
    style = store.style("af_heart")
    assert style.shape == (510, 256)
    assert style.dtype == np.float32
    assert np.isfinite(style).all()
    assert not np.allclose(style[5], style[400])
    assert not np.allclose(style[5], store.style("am_adam")[5])


def test_the_first_known_name_wins_and_nothing_asked_is_the_default(store: VoiceStore) -> None:
    assert store.resolve("am_adam") == "am_adam"
    assert store.resolve(["nobody", "bf_emma", "am_adam"]) == "bf_emma"
    assert store.resolve("") == store.default() == "af_heart"


@pytest.mark.parametrize(
    ("asked", "near"), [("af_hart", "af_heart"), ("Emma", "bf_emma"), (["x", "adam"], "am_adam")]
)
def test_an_unknown_voice_is_answered_with_near_names(
    store: VoiceStore, asked: str | list[str], near: str
) -> None:
    with pytest.raises(InputError, match=near) as told:
        store.resolve(asked)
    assert told.value.code == "unknown-voice"


def test_a_hostile_name_is_shown_short(store: VoiceStore) -> None:
    with pytest.raises(InputError) as told:
        store.resolve(["é" * 100_000] * 8)
    assert len(told.value.message) < 1000
    for call in (store.style, store.info):
        with pytest.raises(InputError):
            call("nobody")


@pytest.mark.parametrize("data", [b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}"])
def test_a_damaged_data_file_is_a_failure_with_a_code(data: bytes) -> None:
    with pytest.raises(Failure) as told:
        read_stock(data)
    assert told.value.code == "bad-file"


def test_reading_voices_does_not_import_torch() -> None:
    program = (
        "import sys, gleeman.voices.store as s, gleeman.speech.emotion; "
        "s.VoiceStore().style('af_heart'); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
