"""The command line on babble: answers, errors and their form, and what each verb must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from conftest import StartDaemon

RUN_TIMEOUT_S = 90


def gleeman(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    command = [sys.executable, "-m", "gleeman", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
    )


def answers(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run the program with --json; its objects."""
    result = gleeman(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return [json.loads(row) for row in result.stdout.splitlines()]


def test_say_starts_a_daemon_for_the_call_and_leaves_none(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "line.wav"
    (facts,) = answers(
        "say", "Halt! Who goes there?", "--model", "babble", "--voice", "am_fenrir", "--out", out
    )
    samples, rate_hz = soundfile.read(out, dtype="float32")
    assert rate_hz == facts["rate_hz"] == 24_000
    assert samples.size / rate_hz == pytest.approx(facts["seconds"], abs=1e-3)
    assert 0.5 < facts["seconds"] < 5
    assert np.abs(samples).max() > 0.01
    assert [facts["words"][0]["start"], facts["words"][-1]["end"]] == [0, len("Halt! Who goes there")]
    assert facts["visemes"][-1]["viseme"] == "sil"
    assert gleeman("status").returncode == 1
    assert not list((home / "run").glob("*.json"))


def test_a_written_file_says_that_it_is_synthetic(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "line.wav"
    assert gleeman("say", "Good evening.", "--model", "babble", "--out", out).returncode == 0
    with soundfile.SoundFile(out) as file:
        assert "synthetic" in file.comment
        assert "af_heart" in file.comment


def test_say_uses_the_running_daemon(start_daemon: StartDaemon, tmp_path: Path) -> None:
    start_daemon()
    assert gleeman("say", "One.", "--out", tmp_path / "1.wav", "--model", "kokoro").returncode == 0
    (status,) = answers("status")
    assert status["model"] == "babble"
    assert status["lines"]["done"] == 1


@pytest.mark.parametrize("rate_hz", [44_100, 48_000])
def test_other_sample_rates_have_the_same_length_in_seconds(
    start_daemon: StartDaemon, tmp_path: Path, rate_hz: int
) -> None:
    start_daemon()
    (base,) = answers("say", "The stew is hot.", "--out", tmp_path / "a.wav", "--seed", "3")
    (other,) = answers(
        "say", "The stew is hot.", "--out", tmp_path / "b.wav", "--seed", "3", "--rate", str(rate_hz)
    )
    assert other["rate_hz"] == rate_hz
    assert other["seconds"] == pytest.approx(base["seconds"], abs=0.002)


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("say", "", "--model", "babble", "--json"), "empty-text", 2),
        (("say", "Hello.", "--model", "babble", "--voice", "af_hart", "--json"), "unknown-voice", 2),
        (("say", "Hello.", "--model", "babble", "--out", "line.mp3"), "bad-file", 2),
        (("say", "Hello.", "--model", "babble", "--speed", "99", "--json"), "bad-value", 2),
        (("say", "Hello.", "--model", "babble", "--speed", "nan", "--json"), "bad-value", 2),
        (("say", "Hello.", "--model", "babble", "--lang", "tlh", "--json"), "bad-value", 2),
        (("say", "Hello.", "--model", "babble", "--rate", "8000", "--json"), "bad-value", 2),
        (("say", "x" * 5000, "--model", "babble", "--json"), "text-too-long", 2),
        (("say", "--speed", "fast", "Hello."), "bad-value", 2),
        (("sya", "Hello."), "bad-value", 2),
        (("status",), "no-daemon", 1),
        (("serve", "--model", "parrot"), "unknown-model", 2),
        (("serve", "--config", "absent.toml"), "bad-file", 2),
        (("voices", "preview", "nobody", "--model", "babble", "--json"), "unknown-voice", 2),
    ],
)
def test_bad_input_gives_one_line_with_a_code(
    home: Path, arguments: tuple[str, ...], code: str, status: int
) -> None:
    result = gleeman(*arguments)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f"gleeman: {code}: "), result.stderr
    assert result.returncode == status
    assert "Traceback" not in result.stderr


def test_a_wav_that_cannot_be_written_is_an_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = gleeman("say", "Hello.", "--model", "babble", "--out", tmp_path / "file" / "x.wav")
    assert result.returncode == 2
    assert "gleeman: bad-file: cannot write" in result.stderr


def test_voices_are_listed_without_a_daemon(home: Path) -> None:
    voices = answers("voices", "list")
    assert len(voices) == 54
    assert {"name": "zf_xiaobei", "language": "zh", "gender": "female"}.items() <= voices[-1].items() or any(
        v["name"] == "zf_xiaobei" and v["language"] == "zh" for v in voices
    )


def test_phonemes_show_every_clause_with_its_span(home: Path) -> None:
    (result,) = answers("phonemes", "Pay 3 coins.")
    assert "θɹ" in result["clauses"][0]["phonemes"]  # three
    assert result["clauses"][-1]["end"] <= len("Pay 3 coins.")


def test_doctor_finds_something_to_say_about_every_part(home: Path) -> None:
    result = gleeman("doctor", "--json")
    findings = [json.loads(row) for row in result.stdout.splitlines()]
    assert [finding["check"] for finding in findings][:3] == ["system", "home", "runtime"]
    assert {finding["level"] for finding in findings} <= {"ok", "warning", "problem"}
    assert all(finding["says"] for finding in findings)
    assert result.returncode == any(finding["level"] == "problem" for finding in findings)


@pytest.mark.parametrize(
    "statement",
    [
        "import gleeman.client",
        "import gleeman.cli, gleeman.commands.say, gleeman.commands.status, gleeman.commands.voices",
        "import gleeman.daemon",
        "import gleeman.text.child",
        "from gleeman.voices.store import VoiceStore; VoiceStore().names()",
    ],
)
def test_what_runs_beside_a_game_does_not_load_torch(statement: str) -> None:
    check = f"{statement}\nimport sys\nassert 'torch' not in sys.modules and 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=RUN_TIMEOUT_S)


def test_babble_runs_without_torch(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon()
    assert gleeman("say", "One.", "--out", tmp_path / "1.wav").returncode == 0
    maps = Path(f"/proc/{daemon.pid}/maps")
    if maps.exists():
        assert "libtorch" not in maps.read_text()


def test_nothing_of_a_line_leaves_the_machine_or_is_kept_by_a_library(home: Path, tmp_path: Path) -> None:
    """onnxruntime, under the English front end, kept a device id and events in the user's cache folder and
    asked for its maker's host."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "gleeman", "phonemes", "Hello there, zorblax."]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=RUN_TIMEOUT_S)
    kept = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert kept <= {"home"}, kept


def test_without_a_place_for_the_sound_it_is_played(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = gleeman("say", "Hello.", "--model", "babble")
    assert (result.returncode, "gleeman: unsupported-platform: no sound player" in result.stderr) == (1, True)


def test_what_is_no_plain_file_is_not_replaced(home: Path, tmp_path: Path) -> None:
    """A device node once became a WAV."""
    fifo, link, kept = tmp_path / "pipe.wav", tmp_path / "link.wav", tmp_path / "kept.wav"
    os.mkfifo(fifo)
    link.symlink_to(kept)
    refused = gleeman("say", "Hello.", "--model", "babble", "--out", fifo)
    assert (refused.returncode, "gleeman: bad-file: " in refused.stderr) == (2, True)
    assert fifo.is_fifo()
    assert gleeman("say", "Hello.", "--model", "babble", "--out", link).returncode == 0
    assert link.is_symlink()
    assert soundfile.info(kept).frames


@pytest.mark.parametrize("out", ["/", "", "a\udcff.wav", "dir.wav"])
def test_odd_places_for_a_file_are_refused(home: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "dir.wav").mkdir()
    result = gleeman(
        "say", "Hello.", "--model", "babble", "--out", str(tmp_path / out) if out == "dir.wav" else out
    )
    assert result.returncode == 2
    assert "gleeman: bad-file: " in result.stderr


def test_a_relative_home_means_the_same_folder_to_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLEEMAN_HOME", "here")
    result = gleeman("say", "Hello.", "--model", "babble", "--json")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "here" / "run").is_dir()
