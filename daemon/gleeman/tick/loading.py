"""Bringing the main pipeline up on a thread of its own, and telling how far it is.

Remembers from one start to the next how long that took, so that the next can say when it will be done.
Knows no model by name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

from ..errors import GleemanError
from ..records import ModelState
from ..speech.base import Pipeline

log = logging.getLogger(__name__)

FIRST_LOAD_S = 20.0
"""Expected of a model that was never loaded here: on 2 cores with a cold disk importing torch took 12 s and
reading 330 MB of weights a few."""
LOADING_SHARE = 0.8
"""Of the whole progress; warming up is the rest."""
WORTH_REMEMBERING_S = 0.5
MAX_FILE_BYTES = 1 << 16


def load(
    pipeline: Pipeline,
    state: Callable[[ModelState], None],
    clock: Callable[[], int],
    times: Path,
) -> GleemanError | None:
    """Load it, telling `state` of each step: "loading" and "warming" on the way, then "ready" or "failed".

    Blocks for seconds. Returns what went wrong, or None. `times`: the file of earlier loads' seconds; it need
    not be there, and not being able to write it is no failure.
    """
    began_ns = clock()
    expected_s = read_seconds(times).get(pipeline.name, FIRST_LOAD_S)

    def elapsed_s() -> float:
        return (clock() - began_ns) / 1e9

    def report(stage: str, progress: float) -> None:
        share = min(max(progress, 0.0), 1.0)
        done = LOADING_SHARE * share if stage == "loading" else LOADING_SHARE + (1 - LOADING_SHARE) * share
        state(ModelState(stage, round(done, 3), round(max(0.0, expected_s - elapsed_s()), 1)))

    report("loading", 0.0)
    try:
        pipeline.load(report)
    except GleemanError as error:
        log.error("model %s: %s: %s", pipeline.name, error.code, error.message)
        failed = error
    except Exception as error:
        log.exception("model %s could not be loaded", pipeline.name)
        failed = GleemanError(
            f"model {pipeline.name} could not be loaded: {type(error).__name__}: {error}", "model-failed"
        )
    else:
        took_s = elapsed_s()
        log.info("model %s ready after %.1f s", pipeline.name, took_s)
        if took_s > WORTH_REMEMBERING_S:
            _write_seconds(times, pipeline.name, took_s)
        state(ModelState("ready", 1.0))
        return None
    state(ModelState("failed", 0.0, 0.0, failed.message, failed.code))
    return failed


def read_seconds(times: Path) -> dict[str, float]:
    """Seconds by pipeline name; empty when there is no such file or it holds nonsense."""
    try:
        with times.open("rb") as file:
            table = json.loads(file.read(MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(table, dict):
        return {}
    return {
        name: float(seconds)
        for name, seconds in table.items()
        if isinstance(seconds, int | float) and math.isfinite(seconds) and 0 < seconds < 3600
    }


def _write_seconds(times: Path, name: str, seconds: float) -> None:
    table = read_seconds(times) | {name: round(seconds, 2)}
    fresh = times.with_name(f"{times.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        times.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(table), "utf-8")
        os.replace(fresh, times)
