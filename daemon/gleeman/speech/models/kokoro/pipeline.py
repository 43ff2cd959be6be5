"""Kokoro as the engine sees it: rows of clauses in, samples and events out, one batch through every stage.

Knows voices through their store and emotions by name; knows no lines, no lanes and no clock.
"""

from __future__ import annotations

import itertools
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
LEAD_FRAMES = 2
"""Silence before a sentence's first phoneme, 50 ms: the model itself would give 300."""
TAIL_FRAMES = 6
"""Silence rendered after a sentence's last phoneme, 150 ms, in which its last sound dies away. The rest of
the pause that the model gives there is zeros, and is left out where a clause does not end its sentence."""
CONTEXT_FRAMES = 4
"""Rendered on the far side of a cut within a sentence, and thrown away, so that what the convolutions see
there is the sentence and not its edge: 100 ms."""
FADE_SAMPLES = 72
"""At both ends of a clause, 3 ms: a cut in the middle of a voiced sound must not click."""
LEVEL_DB = 0.95
"""The vocoder norms over a clause's own time, so a clause that is louder than its sentence comes out softer
than there, and the other way round: by so many decibels a unit of the energy curve's mean (fitted to 15
clauses of five voices; they were up to 1.7 dB off, and at most 1 is left)."""
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


class _Span(NamedTuple):
    """Which frames of its sentence a row renders, which of those it keeps, and what silence follows."""

    first: int
    """Rendered are the sentence's frames `first` to `last`."""
    last: int
    begin: int
    """Kept are `begin` to `end`."""
    end: int
    pause: int
    """Frames of zeros after them."""
    tokens: int
    """Index in `ends` of the frame where the clause's first phoneme starts."""
    whole: tuple[int, int]
    """What would be rendered of the whole sentence."""


class KokoroPipeline:
    """Implements `speech.base.Pipeline`. `load` may run on another thread than `run`; only one at a time."""

    name = "kokoro"
    rate_hz = 24_000
    needs_phonemes = True

    def __init__(
        self,
        weights: Path,
        voices: VoiceStore,
        device: str = "cpu",
        threads: int = 0,
        precision: str = "float32",
    ) -> None:
        """weights: a safetensors file. device: "cpu", "cuda" or "cuda:N". threads: of the CPU; 0 leaves
        torch's own choice. precision: "float32" or "bfloat16", see `Kokoro.prepare`. Loads nothing yet."""
        self.weights = weights
        self.voices = voices
        self.device = torch.device(device)
        self.threads = threads
        self.precision = precision
        self._model: Kokoro | None = None

    def load(self, report: Report) -> None:
        """Read the weights, move them to the device, speak a warm-up line. Raises Failure model-missing,
        model-damaged, no-device or model-failed."""
        report("loading", 0.0)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise Failure("no CUDA device answers here; take --device cpu", "no-device")
        self._set_threads()
        self._model = load(self.weights, self.device, getattr(torch, self.precision))
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
        """One padded batch through every stage. Durations, pitch and energy are those of each row's whole
        sentence, and so are the decoder's features; the vocoder renders the clause's part of it.

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
            whole = Rows(tuple(int(own[-1]) for own in ends), self.device)
            f0, energy = model.curves(reading.prosody, frames, manner, whole)
            f0 = bend_pitch(f0, want.pitch, want.pitch_range)
            energy = whole.times(2).zero_pads((energy + want.energy[:, None])[:, None]).squeeze(1)

            spans = [_span(row.clause, ends[place]) for place, row in enumerate(rows)]
            part = Rows(tuple(span.last - span.first for span in spans), self.device)
            per_frame = model.config.samples_per_frame
            noise = draw_noise([row.seed for row in rows], part.times(per_frame))
            # The phase runs through the whole sentence, so that it goes on where the clause before left off.
            turns = model.turns(f0, whole)
            turns = window(turns, spans, part, per_frame)
            source = model.source(window(f0, spans, part, 2), want.voicing, noise, part, turns)
            # The decoder norms over time too: over a part of a sentence its level would be 2 to 5 dB off.
            features = model.features(reading.text, frames, f0 * want.voicing[:, None], energy, timbre, whole)
            features = window(features.transpose(1, 2), spans, part, 2).transpose(1, 2)
            gain = want.gain * level(energy, spans)
            wave = model.wave(features, timbre, source, part) * gain[:, None]
            samples = limit(wave).cpu().numpy()  # (B, S)
        return [
            self._audio(row, samples[place], ends[place], spans[place], per_frame)
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
        ids = ids_of(row.clause.sentence or row.clause.phonemes)
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
        self,
        row: Row,
        samples: np.ndarray[tuple[int], np.dtype[np.float32]],
        ends: np.ndarray,
        span: _Span,
        per_frame: int,
    ) -> RowAudio:
        kept = (span.end - span.begin) * per_frame
        total = kept + span.pause * per_frame
        out = np.zeros(total, np.float32)
        skipped = (span.begin - span.first) * per_frame
        out[:kept] = samples[skipped : skipped + kept]
        if not np.isfinite(out).all():
            raise Failure("the model gave samples that are not numbers", "model-failed")
        fade = np.linspace(0, 1, FADE_SAMPLES, dtype=np.float32)
        out[:FADE_SAMPLES] *= fade
        out[kept - FADE_SAMPLES : kept] *= fade[::-1]
        count = len(row.clause.phonemes)
        edges = (ends[span.tokens : span.tokens + count + 1] - span.begin) * per_frame
        spans = [(int(begin), int(end)) for begin, end in itertools.pairwise(edges)]
        return RowAudio(out, tuple(events_of(row.clause, spans, total)), span.last - span.first)


def _span(clause: Clause, ends: np.ndarray) -> _Span:
    """The part of its sentence that a clause is. ends: frame at which each token of the sentence ends; token
    0 is the pad before the first phoneme."""
    first, last = clause.sentence_first, clause.sentence_last
    if not clause.sentence:
        first, last = 0, len(clause.phonemes)
    begin, end = int(ends[first]), int(ends[last])
    total = int(ends[-1])
    whole = (
        max(0, int(ends[0]) - LEAD_FRAMES),
        min(total, int(ends[len(clause.sentence or clause.phonemes)]) + TAIL_FRAMES),
    )
    starts, finishes = first == 0, not clause.sentence or last == len(clause.sentence)
    kept_begin = whole[0] if starts else begin
    kept_end = whole[1] if finishes else end
    return _Span(
        first=kept_begin if starts else max(0, begin - CONTEXT_FRAMES),
        last=kept_end if finishes else min(total, end + CONTEXT_FRAMES),
        begin=kept_begin,
        end=kept_end,
        pause=total - kept_end if finishes and clause.ends_sentence else 0,
        tokens=first,
        whole=whole,
    )


def window(x: Tensor, spans: Sequence[_Span], part: Rows, per_frame: int) -> Tensor:
    """x (B, T, …), `per_frame` values a frame, of whole sentences -> (B, T', …) of the frames that each row
    renders; pads are 0."""
    out = x.new_zeros(len(x), part.longest * per_frame, *x.shape[2:])
    for row, span in enumerate(spans):
        values = x[row, span.first * per_frame : span.last * per_frame]
        out[row, : len(values)] = values
    return out


def level(energy: Tensor, spans: Sequence[_Span]) -> Tensor:
    """energy (B, 2 F) of whole sentences -> the factor (B,) that gives each row the level it has in its
    sentence."""
    factors = torch.ones(len(spans), device=energy.device)
    for row, span in enumerate(spans):
        first, last = span.whole
        if (span.first, span.last) != span.whole:
            curve = energy[row]
            louder = curve[2 * span.first : 2 * span.last].mean() - curve[2 * first : 2 * last].mean()
            factors[row] = 10 ** (LEVEL_DB / 20 * louder)
    return factors


def limit(wave: Tensor) -> Tensor:
    """(B, S) -> the same within [-1, 1]: unchanged below the knee, bent towards 1 above."""
    over = (wave.abs() - KNEE).clamp_(min=0)
    bent = KNEE + (1 - KNEE) * torch.tanh(over / (1 - KNEE))
    return torch.where(over > 0, torch.copysign(bent, wave), wave)


def _warm_row(phonemes: str, voice: str) -> Row:
    clause = Clause("", phonemes, "en-us", 0, 0, (), len(phonemes), True)
    return Row(LineKey(0, 0), 0, clause, voice, "neutral", 1.0, 1.0, 0.0, 0.0, 0)
