"""What is left of a line's way when nothing is synthesised, and how soon a cancelled line is silent.

Both are measured on the stand-ins, whose work is known: what a model takes is the model's figure.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from ..client import Client, Line
from ..errors import Failure
from ..records import LineKey, Row
from ..speech.models.babble.pipeline import make_silent
from ..text.frontend import read
from .script import LONG, SHORT, VOICES
from .served import first_audio_ms

BLOCK_SAMPLES = 256
"""What an audio thread asks for at a time: 11 ms at 24 kHz."""
FADE_MS = 20.0
WARM_BLOCKS = 8
"""Blocks heard before a line is cancelled."""
SILENT_BLOCKS = 3
"""So many blocks of zeros count as silence."""
PATIENCE_S = 10.0
BASE_RUNS = 50


def lane_us(client: Client, runs: int) -> list[float]:
    """Microseconds from `speak` (then `frame`, so there is no tick to wait for) until the first sample is
    seen, less text and synthesis, line by line, on a daemon of the model `silent`.

    What is taken off is what reading and synthesis of the same line take in this process (medians), so the
    pipes to the text process and the engine's hand-over stay in the figure.
    """
    off_us = text_us() + silent_us()
    first_audio_ms(client, 3, priority="immediate")
    return [max(0.0, 1e3 * ms - off_us) for ms in first_audio_ms(client, runs, priority="immediate")]


def text_us() -> float:
    """Reading SHORT for a stand-in, which wants no phonemes."""
    return _median_us(lambda: read(SHORT, "auto", False, False))


def silent_us() -> float:
    """Synthesis of SHORT by `silent`."""
    clauses = read(SHORT, "auto", False, False).clauses
    pipeline = make_silent()
    rows = [
        Row(LineKey(0, 0), 0, clause, VOICES[0], "neutral", 1.0, 1.0, 0.0, 0.0, 0) for clause in clauses[:1]
    ]
    return _median_us(lambda: pipeline.run(rows))


def cancel_ms(client: Client, runs: int, seed: int = 1) -> list[float]:
    """Milliseconds from `cancel` to the last sample that is not zero, as somebody hears it who plays blocks
    of BLOCK_SAMPLES in real time; on a daemon of the model `babble`. The moments of cancelling are chance,
    by `seed`. At best: what is left of the block that plays, and FADE_MS."""
    chance = random.Random(seed)
    return [_cancel_one(client, chance.random()) for _ in range(runs)]


def _cancel_one(client: Client, share: float) -> float:
    """`share` of a block has been played when the line is cancelled."""
    block_s = BLOCK_SAMPLES / client.rate_hz
    line = client.speak(LONG, voice=VOICES[0], priority="immediate")
    client.frame()
    _wait_for_sound(line)
    started = time.monotonic()
    cancelled_at = silent_at = 0.0
    zeros = blocks = 0
    while zeros < SILENT_BLOCKS:
        time.sleep(max(0.0, started + blocks * block_s - time.monotonic()))
        asked_at = time.monotonic()  # what is read now plays from now on
        heard = np.flatnonzero(line.read(BLOCK_SAMPLES))
        blocks += 1
        if heard.size:
            silent_at = asked_at + (float(heard[-1]) + 1) / client.rate_hz
        if cancelled_at:
            zeros = 0 if heard.size else zeros + 1
        elif blocks == WARM_BLOCKS:
            time.sleep(share * block_s)
            cancelled_at = time.monotonic()
            line.cancel(FADE_MS)
        if blocks * block_s > PATIENCE_S:
            raise Failure("a cancelled line of the bench did not fall silent", "timeout")
    _hear_out(line)
    return 1e3 * max(0.0, silent_at - cancelled_at)


def _hear_out(line: Line) -> None:
    """Read what is left of a cancelled line."""
    until = time.monotonic() + PATIENCE_S
    while line.end is None and time.monotonic() < until:
        line.read(BLOCK_SAMPLES)
        time.sleep(0.001)


def _wait_for_sound(line: Line) -> None:
    until = time.monotonic() + PATIENCE_S
    while not np.any(line.read(BLOCK_SAMPLES)):
        if line.end is not None or time.monotonic() > until:
            raise Failure(f"a line of the bench made no sound: {line.message}", line.code or "timeout")
        time.sleep(0.001)


def _median_us(call: Callable[[], object]) -> float:
    took = []
    for _ in range(BASE_RUNS):
        began = time.perf_counter_ns()
        call()
        took.append((time.perf_counter_ns() - began) / 1e3)
    return median(took)
