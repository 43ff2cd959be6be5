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
from torch.nn.utils.rnn import pad_sequence

from ....errors import Failure, InputError
from ....records import Clause, LineKey, Row, RowAudio
from ....voices.store import VoiceStore
from ...base import Report
from ...emotion import decibels, manner_of, semitones
from ...grouping import Cost, Size, grouped
from .alphabet import PAD, ids_of
from .clip import clip
from .layers import Rows
from .length import frames_of
from .model import Kokoro, load
from .prosody import bend_pitch, whole_frames
from .source import draw_noise
from .spans import Span, level, span_of, window
from .vocoder import CONTEXT

READ_COSTS = {"cpu": Cost(25), "cuda": Cost(500)}
SPEAK_COSTS = {"cpu": Cost(9, 700), "cuda": Cost(200, 6_400)}
"""In tokens, and in frames of the vocoder. On a CPU (one thread, bfloat16, 37 to 146 frames a row, 1 to 16
rows alike) reading took 46 ms + 1.8 ms a token, speaking 60 to 75 ms + 7.4 ms a frame; from 1,200 frames on a
batch was 8 to 24 % slower than its parts, as its tensors outgrow what the allocator keeps. On a GPU, where
most of a small batch is the starting of kernels, they are reckoned from that and not measured."""
WHOLE_SHARE = 0.12
"""What a frame of the whole sentence costs up to the features, in frames of the vocoder: 0.85 of 7.0 ms."""
KNEE = 0.98
"""Peaks above it are bent softly so that nothing leaves [-1, 1]; below it samples are as the model made
them."""
WARM_PHONEMES = "wˈʌn tˈu θɹˈi, ðə wˈɛðəɹ ɪz fˈaɪn."


class Controls(NamedTuple):
    """What rows ask for, (B,) float32 each."""

    speed: Tensor
    pitch: Tensor
    pitch_range: Tensor
    energy: Tensor
    voicing: Tensor
    gain: Tensor


class _Read(NamedTuple):
    """A row of which durations are known and no sound is made yet. P tokens, with the pads at its ends."""

    row: Row
    style: Tensor
    """(2 style,): timbre, then manner."""
    text: Tensor
    """(P, D)"""
    prosody: Tensor
    """(P, D + style)"""
    frames: Tensor
    """(P,) int64, as `whole_frames` gives them."""
    ends: np.ndarray
    """(P,) int64: the frame at which each token ends."""
    span: Span

    @property
    def size(self) -> Size:
        """For `grouped`: frames that the vocoder renders, frames of the whole sentence."""
        return (self.span.last - self.span.first, WHOLE_SHARE * int(self.ends[-1]))


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
        self._read_cost = READ_COSTS[self.device.type]
        self._speak_cost = SPEAK_COSTS[self.device.type]
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
            self.run([warm_row(text, self.voices.default())])
            report("warming", (step + 1) / 2)

    def estimate_frames(self, row: Row) -> int:
        """Frames of 600 samples this row will take, roughly."""
        speed = row.speed * manner_of(row.emotion, row.intensity).speed
        return frames_of(row.clause, row.voice, speed, CONTEXT)

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        """One batch through every stage. Durations, pitch and energy are those of each row's whole
        sentence, and so are the decoder's features; the vocoder renders the clause's part of it.

        Raises InputError bad-phonemes or bad-value for a row that the text room should not have made,
        unknown-voice, and Failure model-failed when the model gives something that is not a number.
        """
        if self._model is None:
            raise Failure("the model is not loaded", "model-failed")
        if not rows:
            return []
        self._set_threads()
        limit_tokens = self._model.config.max_phonemes
        tokens = [[PAD, *self._ids(row, limit_tokens), PAD] for row in rows]
        with torch.inference_mode():
            read: dict[int, _Read] = {}
            for group in grouped([(len(ids),) for ids in tokens], self._read_cost):
                together = [rows[index] for index in group]
                made = self._read(self._model, together, [tokens[index] for index in group])
                read |= zip(group, made, strict=True)
            audios: dict[int, RowAudio] = {}
            for group in grouped([read[index].size for index in range(len(rows))], self._speak_cost):
                spoken = self._speak(self._model, [read[index] for index in group])
                audios |= zip(group, spoken, strict=True)
        return [audios[index] for index in range(len(rows))]

    def _read(self, model: Kokoro, rows: Sequence[Row], tokens: Sequence[Sequence[int]]) -> list[_Read]:
        """What is said, and how long each phoneme lasts, all rows in one padded batch."""
        at = Rows(tuple(len(ids) for ids in tokens), self.device)
        ids = torch.full((len(rows), at.longest), PAD, dtype=torch.long)
        for place, row_ids in enumerate(tokens):
            ids[place, : len(row_ids)] = torch.tensor(row_ids)
        styles = torch.from_numpy(np.stack([self._style(row) for row in rows])).to(self.device)
        manner = styles.chunk(2, dim=1)[1]  # (B, style)
        reading = model.read(ids.to(self.device), manner, at)
        frames = whole_frames(reading.durations, self._controls(rows).speed, at)  # (B, P)
        ends = frames.cpu().numpy().cumsum(1)  # the one look at the device before the samples: lengths
        read = []
        for place, (row, length) in enumerate(zip(rows, at.lengths, strict=True)):
            text, prosody = reading.text[place, :length], reading.prosody[place, :length]
            own = ends[place, :length]
            span = span_of(row.clause, own, CONTEXT)
            read.append(_Read(row, styles[place], text, prosody, frames[place, :length], own, span))
        return read

    def _speak(self, model: Kokoro, read: Sequence[_Read]) -> list[RowAudio]:
        """Sound of what was read, all rows in one padded batch."""
        rows = [each.row for each in read]
        spans = [each.span for each in read]
        timbre, manner = torch.stack([each.style for each in read]).chunk(2, dim=1)  # (B, style) each
        text = pad_sequence([each.text for each in read], batch_first=True)  # (B, P, D)
        prosody = pad_sequence([each.prosody for each in read], batch_first=True)
        frames = pad_sequence([each.frames for each in read], batch_first=True)  # (B, P)
        want = self._controls(rows)
        whole = Rows(tuple(int(each.ends[-1]) for each in read), self.device)
        f0, energy = model.curves(prosody, frames, manner, whole)
        f0 = bend_pitch(f0, want.pitch, want.pitch_range)
        energy = whole.times(2).zero_pads((energy + want.energy[:, None])[:, None]).squeeze(1)

        part = Rows(tuple(span.last - span.first for span in spans), self.device)
        per_frame = model.config.samples_per_frame
        noise = draw_noise([row.seed for row in rows], part.times(per_frame))
        # The phase runs through the whole sentence, so that it goes on where the clause before left off.
        turns = window(model.turns(f0, whole), spans, part, per_frame)
        source = model.source(window(f0, spans, part, 2), want.voicing, noise, part, turns)
        # The decoder norms over time too: over a part of a sentence its level would be 2 to 5 dB off.
        features = model.features(text, frames, f0 * want.voicing[:, None], energy, timbre, whole)
        features = window(features.transpose(1, 2), spans, part, 2).transpose(1, 2)
        gain = want.gain * level(energy, spans)
        wave = model.wave(features, timbre, source, part) * gain[:, None]
        samples = limit(wave).cpu().numpy()  # (B, S)
        return [
            clip(each.row.clause, each.span, each.ends, samples[place], per_frame, part.longest)
            for place, each in enumerate(read)
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

    def _controls(self, rows: Sequence[Row]) -> Controls:
        return Controls(*self._columns(rows).to(self.device))

    def _columns(self, rows: Sequence[Row]) -> Tensor:
        """(6, B) on the host, in the order of `Controls`."""
        manners = [manner_of(row.emotion, row.intensity) for row in rows]
        columns = (
            [row.speed * manner.speed for row, manner in zip(rows, manners, strict=True)],
            [semitones(row.pitch) * manner.pitch for row, manner in zip(rows, manners, strict=True)],
            [manner.pitch_range for manner in manners],
            [manner.energy for manner in manners],
            [1.0 - manner.whisper for manner in manners],
            [decibels(row.energy) for row in rows],
        )
        return torch.tensor(columns, dtype=torch.float32)


def limit(wave: Tensor) -> Tensor:
    """(B, S) -> the same within [-1, 1]: unchanged below the knee, bent towards 1 above."""
    over = (wave.abs() - KNEE).clamp_(min=0)
    bent = KNEE + (1 - KNEE) * torch.tanh(over / (1 - KNEE))
    return torch.where(over > 0, torch.copysign(bent, wave), wave)


def warm_row(phonemes: str, voice: str) -> Row:
    clause = Clause("", phonemes, "en-us", 0, 0, (), len(phonemes), True)
    return Row(LineKey(0, 0), 0, clause, voice, "neutral", 1.0, 1.0, 0.0, 0.0, 0)
