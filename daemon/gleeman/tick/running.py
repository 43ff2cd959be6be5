"""One batch through one pipeline, so that whatever the model does, every row comes to an answer.

Two things can go wrong with a batch. A device's memory may not hold it: then it runs in halves, and those in
halves, and how much was too much is remembered for a while (`bound`). Or the model raises: then each row is
tried alone once, so that one line's error is not another's. Knows no scheduler and no lane.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from ..errors import GleemanError, InputError
from ..records import LineKey, Row, RowAudio
from ..speech.base import DeviceFull, Pipeline
from .bound import Bound

log = logging.getLogger(__name__)

Audios = dict[LineKey, RowAudio]
Errors = dict[LineKey, tuple[str, str]]
"""Code and message."""


def synthesise(pipeline: Pipeline, rows: Sequence[Row], bound: Bound | None = None) -> tuple[Audios, Errors]:
    """Each row's audio, or the code and message of its error: never both, never neither. Raises nothing.

    bound: what is known of this pipeline's memory, and learns. A row that the memory does not hold by itself
    ends as `busy`.
    """
    bound = bound or Bound()
    audios: Audios = {}
    errors: Errors = {}
    for piece in bound.pieces(_frames(pipeline, rows)):
        _run(pipeline, rows[piece], bound, audios, errors)
    return audios, errors


def _run(
    pipeline: Pipeline,
    rows: Sequence[Row],
    bound: Bound,
    audios: Audios,
    errors: Errors,
    *,
    again: bool = True,
) -> None:
    """Rows together, or where that fails in smaller parts; puts what comes of each into `audios` or
    `errors`. again: a row by itself is tried once more when memory was short, as much has been given back."""
    try:
        made = _run_checked(pipeline, rows)
    except DeviceFull as error:
        full = error.message
    except Exception as error:
        if len(rows) > 1:
            told = "%s raised on a batch of %d rows (%s); each is tried alone"
            log.warning(told, pipeline.name, len(rows), error)
            for row in rows:
                _run(pipeline, (row,), bound, audios, errors)
        else:
            errors[rows[0].key] = _told(rows[0], error)
        return
    else:
        audios |= made
        bound.ran()
        return
    # Here, where the error and the frames that it held are gone.
    if len(rows) == 1 and again:
        _run(pipeline, rows, bound, audios, errors, again=False)
        return
    bound.failed(_frames(pipeline, rows))
    if len(rows) == 1:
        row = rows[0]
        log.warning("session %016x line %d clause %d: %s", *row.key, row.index, full)
        errors[row.key] = ("busy", "the device's memory is full; send the line again later")
        return
    log.warning("%d rows of %s are run in halves: %s", len(rows), pipeline.name, full)
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        _run(pipeline, part, bound, audios, errors)


def _told(row: Row, error: Exception) -> tuple[str, str]:
    """The code and message of a row that the model raised on by itself; logs it. In an `except` only."""
    if isinstance(error, InputError):  # the line asks for what the model does not have
        log.warning("session %016x line %d clause %d: %s", *row.key, row.index, error.message)
        return error.code, error.message
    log.exception("session %016x line %d clause %d: the model raised", *row.key, row.index)
    reason = error.message if isinstance(error, GleemanError) else type(error).__name__
    return "model-failed", f"the model raised an error on this line: {reason}"


def _frames(pipeline: Pipeline, rows: Sequence[Row]) -> list[int]:
    """Predicted frames of each row; 1 where the pipeline cannot say, which its run will show."""
    frames = []
    for row in rows:
        try:
            frames.append(max(1, pipeline.estimate_frames(row)))
        except Exception:
            log.exception("%s cannot estimate a row", pipeline.name)
            frames.append(1)
    return frames


def _run_checked(pipeline: Pipeline, rows: Sequence[Row]) -> Audios:
    """The rows' audio. Raises what the pipeline raised, or ValueError when it gave what cannot be played."""
    audios = pipeline.run(rows)
    if len(audios) != len(rows):
        raise ValueError(f"{len(audios)} results for {len(rows)} rows")
    for audio in audios:
        samples = audio.samples
        if samples.dtype != np.float32 or samples.ndim != 1 or not np.isfinite(samples).all():
            raise ValueError(f"samples of {samples.dtype}, {samples.ndim} dimensions, or not all finite")
    return {row.key: audio for row, audio in zip(rows, audios, strict=True)}
