"""Kokoro on a GPU: the same network in three stages that are functions of tensors alone, at padded sizes, so
that each can be a graph of kernels.

    read     tokens            -> states, frames of each token          by tokens
             one look at the device: how long everything is
    curves   states by frames  -> pitch, energy, phase, features        by frames of the sentence
    wave     what is rendered  -> samples                               by frames of the clause
             the second look: the samples

Between the stages rows are spread over their frames and clauses cut out of their sentences, in a few kernels
that depend on more than one size. A batch is filled up to a number of rows with copies of its last, whose
sound is thrown away. Knows no CUDA: `speech.device` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ....errors import Failure
from ....records import Row, RowAudio
from ....voices.store import VoiceStore
from ...base import Budget, DeviceFull, Report
from ...device.buckets import Size, padded_length, padded_rows
from ...device.cuda import CudaDevice, Device
from ...device.memory import MB, DeviceMemory, frames_bound, is_full, require
from .alphabet import PAD
from .clip import clip
from .cut import Cut
from .layers import BiLSTM, DeviceRows, Rows
from .model import Kokoro, load
from .pipeline import WARM_PHONEMES, Controls, KokoroPipeline, limit, warm_row
from .prosody import bend_pitch, spread, whole_frames
from .source import draw_noise
from .spans import span_of
from .vocoder import CONTEXT

log = logging.getLogger(__name__)

RUN_NS = 30_000_000
"""The longest that an `immediate` line finds a GPU busy."""
MOST_FRAMES = 6_400
"""Of a batch, however large the device."""
FRAME_BYTES = 1_000_000
"""Working space of a padded frame before it has been measured. By arithmetic: the widest place of the vocoder
has 128 channels at 120 values a frame, of which about nine are held at once, 550 kB in float32; the rest is
for what cuDNN works in."""
SMALLEST_BATCH_BYTES = 64 * FRAME_BYTES
"""A line of a second and a half by itself."""
SHARE_FOR_BATCHES = 0.5
"""Of the memory that is left beside the weights; the rest is for graphs, and for what estimates are off."""
WARM_ROWS = (1, 4)
WARM_TWICE = 2
"""A size is captured when it comes for the second time."""


class _Read(NamedTuple):
    """Rows of which durations are known and no sound is made yet; tensors have the padded number of rows."""

    rows: tuple[Row, ...]
    timbre: Tensor
    """(B, style), as `manner`."""
    manner: Tensor
    want: Controls
    text: Tensor
    """(B, P, D)."""
    prosody: Tensor
    """(B, P, D + style)."""
    frames: Tensor
    """(B, P) int64."""
    ends: np.ndarray
    """(rows, P) int64: the frame at which each token ends."""


class DeviceKokoro(KokoroPipeline):
    """Implements `speech.base.Pipeline` on a device. `load` may run on another thread than `run`; only one at
    a time; `device_memory` on any."""

    def __init__(
        self,
        weights: Path,
        voices: VoiceStore,
        device: str,
        threads: int = 0,
        precision: str = "float32",
        vram_mb: int = 0,
        make: Callable[[torch.device, int], Device] = CudaDevice,
    ) -> None:
        """device: "cuda" or "cuda:N". threads: of the CPU, which draws the noise. precision: "float32",
        "bfloat16" or "float16", see `Kokoro.prepare`. vram_mb: the cap in 10^6 bytes; 0: none. make: the
        device out of its name and the cap in bytes."""
        super().__init__(weights, voices, device, threads, precision)
        self.budget: Budget | None = None
        self._vram_bytes = vram_mb * MB
        self._make = make
        self._at: Device | None = None

    def load(self, report: Report) -> None:
        """Take the device, read the weights onto it, speak until the common sizes are captured. Raises what
        `KokoroPipeline.load` raises, and Failure vram-too-small."""
        report("loading", 0.0)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise Failure("no CUDA device answers here; take --device cpu", "no-device")
        self._set_threads()
        try:
            at = self._make(self.device, self._vram_bytes)
            self._require(at)
            with at.at_work():
                model = load(self.weights, at.torch_device, getattr(torch, self.precision))
                for module in model.modules():
                    if isinstance(module, BiLSTM):
                        module.split()
            self._model, self._at = model, at
            report("loading", 1.0)
            self._warm(report)
        except (DeviceFull, RuntimeError) as error:
            if not isinstance(error, DeviceFull) and not is_full(error):
                raise
            # With a cap it is the cap's doing, without one another process's.
            code = "vram-too-small" if self._vram_bytes else "model-failed"
            raise Failure(f"the device's memory does not hold the model: {error}", code) from None

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        """As `KokoroPipeline.run`; raises DeviceFull when the device's memory does not hold the batch."""
        if self._model is None or self._at is None:
            raise Failure("the model is not loaded", "model-failed")
        if not rows:
            return []
        self._set_threads()
        with torch.inference_mode(), self._at.at_work():
            return self._sound(self._model, self._at, self._reading(self._model, self._at, rows))

    def device_memory(self) -> DeviceMemory | None:
        """Bytes of the device that are ours; None until it is taken. Any thread."""
        return self._at.memory() if self._at is not None else None

    def close(self) -> None:
        """Forget the model, and give the device back."""
        self._model = None
        at, self._at = self._at, None
        if at is not None:
            at.close()

    # ---- loading ---------------------------------------------------------------------------------

    def _require(self, at: Device) -> None:
        """While it is read the model is float32, as it is in its file."""
        weights = self.weights.stat().st_size if self.weights.is_file() else 0
        require(self._vram_bytes, at.share.context, weights, SMALLEST_BATCH_BYTES)

    def _warm(self, report: Report) -> None:
        assert self._at is not None
        report("warming", 0.0)
        rest, _ = self._at.tensors()
        sizes = [(count, text) for count in WARM_ROWS for text in (WARM_PHONEMES, WARM_PHONEMES * 2)]
        for step, (count, text) in enumerate(sizes):
            for _ in range(WARM_TWICE):
                audios = self.run([warm_row(text, self.voices.default())] * count)
            report("warming", (step + 1) / len(sizes))
        self._at.settled()
        self._require(self._at)
        cells = padded_rows(len(audios)) * padded_length(audios[0].frames)
        per_frame = max(FRAME_BYTES // 4, (self._at.tensors()[1] - rest) // cells)
        left = int((self._at.share.allocator - rest) * SHARE_FOR_BATCHES)
        self.budget = Budget(RUN_NS, frames_bound(left, per_frame, MOST_FRAMES))
        log.info(
            "%d kB of working space a frame, batches of up to %d frames, %d graphs",
            per_frame // 1000,
            self.budget.frames,
            len(self._at.graphs),
        )

    # ---- a batch -----------------------------------------------------------------------------------

    def _reading(self, model: Kokoro, at: Device, rows: Sequence[Row]) -> _Read:
        """What is said, and how long each phoneme lasts."""
        filled = [*rows, *[rows[-1]] * (padded_rows(len(rows)) - len(rows))]
        tokens = [[PAD, *self._ids(row, model.config.max_phonemes), PAD] for row in filled]
        lengths = [len(ids) for ids in tokens]
        size = Size("read", len(filled), padded_length(max(lengths), model.config.bert_positions))
        ids = torch.full((size.rows, size.length), PAD, dtype=torch.long)
        for place, row_ids in enumerate(tokens):
            ids[place, : len(row_ids)] = torch.tensor(row_ids)
        styles = at.send(torch.from_numpy(np.stack([self._style(row) for row in filled])))
        timbre, manner = styles.chunk(2, dim=1)  # (B, style) each
        want = Controls(*at.send(self._columns(filled)))
        inputs = (at.send(ids), at.send(torch.tensor(lengths)), manner, want.speed)
        text, prosody, frames = at.graphs.run(size, self._read_stage, inputs)
        ends = at.fetch(frames)[: len(rows)].cumsum(1)
        return _Read(tuple(rows), timbre, manner, want, text, prosody, frames, ends)

    def _sound(self, model: Kokoro, at: Device, read: _Read) -> list[RowAudio]:
        """Sound of what was read, all rows in one padded batch."""
        spans = [span_of(row.clause, own, CONTEXT) for row, own in zip(read.rows, read.ends, strict=True)]
        cut = Cut.of(spans, read.ends, len(read.timbre), at)
        whole = Size("curves", len(read.timbre), padded_length(int(read.ends[:, -1].max())))
        said = spread(read.text, read.frames, whole.length)
        hidden = spread(read.prosody, read.frames, whole.length)
        want = read.want
        bends = (want.pitch, want.pitch_range, want.energy, want.voicing)
        spoken = (said, hidden, read.manner, read.timbre, cut.whole, *bends)
        f0, energy, turns, features = at.graphs.run(whole, self._curves_stage, spoken)

        # Drawn here, the same on every device, while the device is at the curves.
        per_frame = model.config.samples_per_frame
        part = Size("wave", whole.rows, padded_length(max(span.last - span.first for span in spans)))
        lengths = tuple((span.last - span.first) * per_frame for span in spans)
        noise = draw_noise([row.seed for row in read.rows], Rows(lengths, torch.device("cpu")))
        padded = (0, part.length * per_frame - noise.shape[1], 0, part.rows - len(spans))
        noise = at.send(F.pad(noise, padded))
        rendered = (
            cut.out_of(features, 2, part.length),
            cut.out_of(f0, 2, part.length),
            cut.out_of(turns, per_frame, part.length),
            noise,
            read.timbre,
            want.voicing,
            want.gain * cut.level(energy),
            cut.last - cut.first,
        )
        (wave,) = at.graphs.run(part, self._wave_stage, rendered)
        samples = at.fetch(wave[: len(spans)])  # (rows, S)
        return [
            clip(row.clause, spans[place], read.ends[place], samples[place], per_frame, part.length)
            for place, row in enumerate(read.rows)
        ]

    # ---- the stages: tensors alone, nothing read back ----------------------------------------------------

    def _read_stage(self, ids: Tensor, lengths: Tensor, manner: Tensor, speed: Tensor) -> tuple[Tensor, ...]:
        """ids (B, P) int64, lengths (B,) in tokens, manner (B, style), speed (B,) -> text (B, P, D), prosody
        (B, P, D + style), frames (B, P) int64."""
        assert self._model is not None
        rows = DeviceRows(lengths, ids.shape[1])
        text, prosody, durations = self._model.read(ids, manner, rows)
        return text, prosody, whole_frames(durations, speed, rows)

    def _curves_stage(
        self,
        said: Tensor,
        hidden: Tensor,
        manner: Tensor,
        timbre: Tensor,
        lengths: Tensor,
        pitch: Tensor,
        pitch_range: Tensor,
        louder: Tensor,
        voicing: Tensor,
    ) -> tuple[Tensor, ...]:
        """said (B, F, D) and hidden (B, F, D + style), one state a frame, lengths (B,) in frames, the rest
        (B, style) or (B,) -> pitch and energy (B, 2 F), phase (B, S), features (B, 2 F, C)."""
        assert self._model is not None
        model, rows = self._model, DeviceRows(lengths, said.shape[1])
        f0, energy = model.predictor.curves(hidden, manner, rows)
        f0 = bend_pitch(f0, pitch, pitch_range)
        energy = rows.times(2).zero_pads((energy + louder[:, None])[:, None]).squeeze(1)
        voiced = f0 * voicing[:, None]
        features = model.decoder.features(said.transpose(1, 2), voiced, energy, timbre, rows)
        return f0, energy, model.turns(f0, rows), features.transpose(1, 2).contiguous()

    def _wave_stage(
        self,
        features: Tensor,
        f0: Tensor,
        turns: Tensor,
        noise: Tensor,
        timbre: Tensor,
        voicing: Tensor,
        gain: Tensor,
        lengths: Tensor,
    ) -> tuple[Tensor, ...]:
        """features (B, 2 F, C), f0 (B, 2 F), turns and noise (B, S), lengths (B,) in frames, the rest (B,) or
        (B, style) -> samples (B, S) within [-1, 1]."""
        assert self._model is not None
        rows = DeviceRows(lengths, f0.shape[1] // 2)
        source = self._model.source(f0, voicing, noise, rows, turns)
        wave = self._model.wave(features.transpose(1, 2), timbre, source, rows)
        return (limit(wave * gain[:, None]),)
