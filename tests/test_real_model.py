"""The whole road on the real weights: what the command line, the Python client and the C client hear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from c_helpers import BINDING, NATIVE, CGame, compile_c
from conftest import StartDaemon
from gleeman.client import Client
from gleeman.records import End
from test_cli import gleeman

pytestmark = pytest.mark.weights

TEXT = "Halt! Who goes there? 把剑放下, and step into the light."
VOICE = "am_fenrir"


@pytest.mark.usefixtures("weights")
def test_command_line_python_and_c_hear_the_same_samples(start_daemon: StartDaemon, tmp_path: Path) -> None:
    start_daemon(model="kokoro")
    with Client.connect() as client:
        client.wait_ready(120)
        line = client.speak(TEXT, voice=VOICE, seed=11)
        client.frame()
        heard = line.audio(90)
        assert line.end is End.DONE
        assert client.status().model == "kokoro"
    assert 2 < heard.size / 24_000 < 12
    assert 0.05 < np.abs(heard).max() <= 1

    out = tmp_path / "said.wav"
    result = gleeman("say", TEXT, "--voice", VOICE, "--seed", "11", "--out", out)
    assert result.returncode == 0, result.stderr
    said, rate_hz = soundfile.read(out, dtype="float32")
    assert rate_hz == 24_000
    assert np.array_equal(said, heard)

    game = CGame(
        compile_c(tmp_path / "game", "plain", NATIVE / "c_client.c", BINDING / "gleeman.c"), tmp_path
    )
    try:
        assert game.connect().status == "ok"
        number = game.speak(TEXT, seed=11, voice=VOICE)
        game.ask(f"play {number}")
        game.ask("frame")
        game.end_of(number)
        assert np.array_equal(game.samples(number), heard)
    finally:
        game.quit()


@pytest.mark.usefixtures("weights")
def test_a_line_asked_for_while_the_model_loads_waits_or_babbles(start_daemon: StartDaemon) -> None:
    start_daemon(model="kokoro")
    with Client.connect() as patient, Client.connect(while_loading="babble") as hasty:
        assert patient.state.state in ("loading", "warming")
        waits, babbles = patient.speak("Who goes there?"), hasty.speak("Who goes there?")
        patient.frame()
        hasty.frame()
        assert babbles.audio(30).size
        assert babbles.end is End.DONE
        assert not waits.heard
        assert waits.audio(90).size
        assert waits.end is End.DONE
        assert patient.state.state == "ready"


@pytest.mark.usefixtures("weights")
def test_a_daemon_told_to_leave_in_the_middle_of_its_work_leaves_cleanly(start_daemon: StartDaemon) -> None:
    """torch's own threads once aborted the process: "terminate called without an active exception"."""
    daemon = start_daemon(model="kokoro")
    with Client.connect() as client:
        client.wait_ready(120)
        lines = [
            client.speak("Once upon a time there was an old king in a castle by the sea.", seed=n)
            for n in range(8)
        ]
        client.frame()
        assert next(iter(lines[0])).size
        assert daemon.terminate() == 0
