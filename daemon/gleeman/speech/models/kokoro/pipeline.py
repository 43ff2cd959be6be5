"""Kokoro as the engine sees it: rows of clauses in, samples and events out, one batch through every stage.

Knows voices through their store and emotions by name; knows no lines, no lanes and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....errors import Failure, InputError
from ....records import Clause, LineKey, Row, RowAudio
from ....voices.store import VoiceStore
from ...base import Report
from ...emotion import decibels, manner_of, semitones
from ...visemes import events_of
from .alphabet import PAD, ids_of
from .layers import Rows
from .model import Kokoro, load
from .prosody import bend_pitch, whole_frames
from .source import draw_noise

FRAMES_PER_PHONEME = 2.6
"""For estimates before a row is run, spaces and stresses counted: 22 clauses of two English voices and all
emotions took 0.93 to 1.19 times the estimate."""
KNEE = 0.98
"""Peaks above it are bent softly so that nothing leaves [-1, 1]; below it samples are as the model made
them."""
WARM_PHONEMES = "wˈʌn tˈu θɹˈi, ðə wˈɛðəɹ ɪz fˈaɪn."


class _Controls(NamedTuple):
    """What rows ask for, (B,) float32 each."""

    speed: Tensor
    pitch: Tensor
    pitch_range: Tensor
    energy: Tensor
    voicing: Tensor
    gain: Tensor


class KokoroPipeline:
    """Implements `speech.base.Pipeline`. `load` may run on another thread than `run`; only one at a time."""

    name = "kokoro"
    rate_hz = 24_000
    needs_phonemes = True

    def __init__(self, weights: Path, voices: VoiceStore, device: str = "cpu", threads: int = 0) -> None:
        """weights: a safetensors file. device: "cpu", "cuda" or "cuda:N". threads: of the CPU; 0 leaves
        torch's own choice. Loads nothing yet."""
        self.weights = weights
        self.voices = voices
        self.device = torch.device(device)
        self.threads = threads
        self._model: Kokoro | None = None

    def load(self, report: Report) -> None:
        """Read the weights, move them to the device, speak a warm-up line. Raises Failure model-missing,
        model-damaged, no-device or model-failed."""
        report("loading", 0.0)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise Failure("no CUDA device answers here; take --device cpu", "no-device")
        self._set_threads()
        self._model = load(self.weights, self.device)
        report("loading", 1.0)
        report("warming", 0.0)
        for step, text in enumerate((WARM_PHONEMES, WARM_PHONEMES * 2)):
            self.run([_warm_row(text, self.voices.default())])
            report("warming", (step + 1) / 2)

    def estimate_frames(self, row: Row) -> int:
        """Frames of 600 samples this row will take, roughly."""
        speed = row.speed * manner_of(row.emotion, row.intensity).speed
        return max(1, round((len(row.clause.phonemes) + 6) * FRAMES_PER_PHONEME / speed))

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        """One padded batch through every stage. Nothing is trimmed: the silence that the model gives its two
        pad tokens, before and after the phonemes, stays, for it is the pause between clauses.

        Raises InputError bad-phonemes or bad-value for a row that the text room should not have made,
        unknown-voice, and Failure model-failed when the model gives something that is not a number.
        """
        model = self._model
        if model is None:
            raise Failure("the model is not loaded", "model-failed")
        if not rows:
            return []
        self._set_threads()
        with torch.inference_mode():
            tokens = [[PAD, *self._ids(row, model.config.max_phonemes), PAD] for row in rows]
            at = Rows(tuple(len(ids) for ids in tokens), self.device)
            ids = torch.full((len(rows), at.longest), PAD, dtype=torch.long)
            for place, row_ids in enumerate(tokens):
                ids[place, : len(row_ids)] = torch.tensor(row_ids)
            styles = torch.from_numpy(np.stack([self._style(row) for row in rows])).to(self.device)
            timbre, manner = styles.chunk(2, dim=1)  # (B, style) each
            want = self._controls(rows)

            reading = model.read(ids.to(self.device), manner, at)
            frames = whole_frames(reading.durations, want.speed, at)  # (B, P)
            ends = frames.cpu().numpy().cumsum(1)  # the one look at the device before the samples: lengths
            lengths = Rows(
                tuple(int(ends[place, count - 1]) for place, count in enumerate(at.lengths)), self.device
            )
            f0, energy = model.curves(reading.prosody, frames, manner, lengths)
            curve_rows = lengths.times(2)
            f0 = bend_pitch(f0, want.pitch, want.pitch_range)
            energy = curve_rows.zero_pads((energy + want.energy[:, None])[:, None]).squeeze(1)
            features = model.features(
                reading.text, frames, f0 * want.voicing[:, None], energy, timbre, lengths
            )
            noise = draw_noise([row.seed for row in rows], lengths.times(model.config.samples_per_frame))
            source = model.source(f0, want.voicing, noise, lengths)
            wave = model.wave(features, timbre, source, lengths) * want.gain[:, None]
            samples = limit(wave).cpu().numpy()  # (B, S)
        return [
            self._audio(row, samples[place], ends[place], lengths.lengths[place])
            for place, row in enumerate(rows)
        ]

    def close(self) -> None:
        """Forget the model; its memory goes with the last reference."""
        self._model = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _set_threads(self) -> None:
        if self.threads > 0 and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def _ids(self, row: Row, limit_tokens: int) -> list[int]:
        ids = ids_of(row.clause.phonemes)
        if not 1 <= len(ids) <= limit_tokens:
            raise InputError(
                f"a clause has {len(ids)} phonemes; accepted are 1 to {limit_tokens}", "bad-value"
            )
        return ids

    def _style(self, row: Row) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """The style row (V,) of the whole sentence's length: by its own length a fragment would sound like
        one."""
        table = self.voices.style(row.voice)
        place = min(max(row.clause.sentence_phonemes, 1), len(table)) - 1
        style: np.ndarray[tuple[int], np.dtype[np.float32]] = table[place]
        return style

    def _controls(self, rows: Sequence[Row]) -> _Controls:
        manners = [manner_of(row.emotion, row.intensity) for row in rows]
        columns = (
            [row.speed * manner.speed for row, manner in zip(rows, manners, strict=True)],
            [semitones(row.pitch) * manner.pitch for row, manner in zip(rows, manners, strict=True)],
            [manner.pitch_range for manner in manners],
            [manner.energy for manner in manners],
            [1.0 - manner.whisper for manner in manners],
            [decibels(row.energy) for row in rows],
        )
        return _Controls(*torch.tensor(columns, dtype=torch.float32, device=self.device))

    def _audio(
        self, row: Row, samples: np.ndarray[tuple[int], np.dtype[np.float32]], ends: np.ndarray, frames: int
    ) -> RowAudio:
        model = self._model
        per_frame = 600 if model is None else model.config.samples_per_frame
        total = frames * per_frame
        cut = samples[:total].copy()  # its own memory, so that a short row does not keep a long batch alive
        if not np.isfinite(cut).all():
            raise Failure("the model gave samples that are not numbers", "model-failed")
        # ends[0] is the pad before the first phoneme
        spans = [
            (int(ends[place]) * per_frame, int(ends[place + 1]) * per_frame)
            for place in range(len(row.clause.phonemes))
        ]
        return RowAudio(cut, tuple(events_of(row.clause, spans, total)), frames)


def limit(wave: Tensor) -> Tensor:
    """(B, S) -> the same within [-1, 1]: unchanged below the knee, bent towards 1 above."""
    over = (wave.abs() - KNEE).clamp_(min=0)
    bent = KNEE + (1 - KNEE) * torch.tanh(over / (1 - KNEE))
    return torch.where(over > 0, torch.copysign(bent, wave), wave)


def _warm_row(phonemes: str, voice: str) -> Row:
    clause = Clause("", phonemes, "en-us", 0, 0, (), len(phonemes), True)
    return Row(LineKey(0, 0), 0, clause, voice, "neutral", 1.0, 1.0, 0.0, 0.0, 0)
