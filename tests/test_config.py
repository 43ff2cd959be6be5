"""Flags over file over defaults; every mistake is named with what would be accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gleeman.config import Config, as_flags, default_threads, load
from gleeman.errors import InputError


def written(folder: Path, text: str) -> Path:
    file = folder / "gleeman.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_defaults_need_no_file() -> None:
    config = load(None, {})
    assert config == Config()
    assert (config.model, config.device, config.tick_hz) == ("kokoro", "auto", 60.0)
    assert config.threads == default_threads() >= 1
    assert config.max_wait_ns == 16_666_666


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, 'model = "babble"\ntick-hz = 30\nidle-exit = 5\nparent_pid = 7\n')
    config = load(file, {"model": "silent", "device": None, "threads": 3})
    assert (config.model, config.tick_hz, config.idle_exit_s, config.parent_pid) == ("silent", 30.0, 5.0, 7)
    assert (config.device, config.threads) == ("auto", 3)


@pytest.mark.parametrize("key", ["tick-hz", "tick_hz"])
def test_keys_may_have_either_dash(tmp_path: Path, key: str) -> None:
    assert load(written(tmp_path, f"{key} = 120"), {}).tick_hz == 120.0


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("modell = 'babble'", "'model'"),
        ("tick-hertz = 1", "'tick-hz'"),
        ("idle_exitt = 1", "'idle-exit'"),
        ("paren-pid = 1", "'parent-pid'"),
        ("zzzzz = 1", "known are device, model"),
        ("[serve]\nmodel = 'x'", "unknown key 'serve'"),
    ],
)
def test_an_unknown_key_names_the_near_one(tmp_path: Path, line: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, line), {})
    assert caught.value.code == "bad-config"
    assert near in caught.value.message
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("device", "gpu", "cuda:N"),
        ("device", 3, "cuda:N"),
        ("model", "../x", "a model's name"),
        ("quality", "best", "auto, high, fast"),
        ("parent_pid", -1, "0 to 4294967295"),
        ("parent_pid", 1.5, "a whole number"),
        ("parent_pid", True, "a whole number"),
        ("idle_exit_s", -0.1, "from 0 to"),
        ("idle_exit_s", float("nan"), "from 0 to"),
        ("vram_mb", "lots", "a whole number"),
        ("tick_hz", 0, "from 1 to 1000"),
        ("tick_hz", float("inf"), "from 1 to 1000"),
        ("threads", 1025, "0 to 1024"),
        ("instance", "a/b", "letters, digits"),
        ("instance", "x" * 33, "at most 32"),
        ("log_level", "loud", "debug, info, warning, error"),
    ],
)
def test_a_bad_value_says_what_would_be_accepted(name: str, value: Any, accepted: str) -> None:
    with pytest.raises(InputError) as caught:
        load(None, {name: value})
    assert caught.value.code == "bad-config"
    assert accepted in caught.value.message


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"model = ", "bad-config"), (b"\xff\xfe", "bad-config"), (b"a = " + b"[" * 10_000, "bad-config")],
)
def test_a_file_that_is_not_toml(tmp_path: Path, data: bytes, code: str) -> None:
    file = tmp_path / "gleeman.toml"
    file.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load(file, {})
    assert caught.value.code == code


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path / "none.toml", {})
    assert caught.value.code == "bad-file"


def test_the_log_shows_every_flag_by_its_name() -> None:
    shown = as_flags(Config())
    assert set(shown) == {
        *("device", "model", "quality", "parent-pid", "idle-exit", "vram-mb", "tick-hz", "threads"),
        *("instance", "log-level", "precision"),
    }


@pytest.mark.parametrize(
    "text", ["threads = " + "9" * 5000, "tick-hz = " + "9" * 400, "a" + ".a" * 3000 + " = 1"]
)
def test_numbers_and_keys_of_absurd_length_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "long.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load(file, {})
    assert caught.value.code == "bad-config"
