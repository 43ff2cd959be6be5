"""One batch through one pipeline, so that whatever the model does, every row comes to an answer.

Knows no scheduler and no lane.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from ..errors import GleemanError, InputError
from ..records import LineKey, Row, RowAudio
from ..speech.base import Pipeline

log = logging.getLogger(__name__)


def synthesise(
    pipeline: Pipeline, rows: Sequence[Row]
) -> tuple[dict[LineKey, RowAudio], dict[LineKey, tuple[str, str]]]:
    """Each row's audio, or the code and message of its error: never both, never neither. Raises nothing.

    When the batch raises, each row is tried alone once, so that one line's error is not another's.
    """
    try:
        return _run_checked(pipeline, rows), {}
    except Exception as error:
        log.warning(
            "%s raised on a batch of %d rows (%s); each is tried alone", pipeline.name, len(rows), error
        )
    audios: dict[LineKey, RowAudio] = {}
    errors: dict[LineKey, tuple[str, str]] = {}
    for row in rows:
        try:
            audios |= _run_checked(pipeline, (row,))
        except InputError as error:  # the line asks for what the model does not have
            log.warning("session %016x line %d clause %d: %s", *row.key, row.index, error.message)
            errors[row.key] = (error.code, error.message)
        except Exception as error:
            log.exception("session %016x line %d clause %d: the model raised", *row.key, row.index)
            reason = error.message if isinstance(error, GleemanError) else type(error).__name__
            errors[row.key] = ("model-failed", f"the model raised an error on this line: {reason}")
    return audios, errors


def _run_checked(pipeline: Pipeline, rows: Sequence[Row]) -> dict[LineKey, RowAudio]:
    """The rows' audio. Raises what the pipeline raised, or ValueError when it gave what cannot be played."""
    audios = pipeline.run(rows)
    if len(audios) != len(rows):
        raise ValueError(f"{len(audios)} results for {len(rows)} rows")
    for audio in audios:
        samples = audio.samples
        if samples.dtype != np.float32 or samples.ndim != 1 or not np.isfinite(samples).all():
            raise ValueError(f"samples of {samples.dtype}, {samples.ndim} dimensions, or not all finite")
    return {row.key: audio for row, audio in zip(rows, audios, strict=True)}
