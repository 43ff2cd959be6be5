"""The whole Kokoro network, stage by stage, and how its weights come out of a file.

    read        ids              -> text states, prosody states, durations
    curves      frames           -> pitch, energy
    features    text, curves     -> decoder features
    wave        features, source -> samples

Every stage takes a padded batch with its `Rows` and treats each row as if it were alone. Made for inference:
it writes in place. Knows no voices by name, no emotions and no events.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ....errors import Failure
from .config import KOKORO, METADATA_KEY, KokoroConfig, from_json
from .convs import TimeConv, TimeConvTranspose
from .decoder import Decoder
from .layers import Rows
from .prosody import ProsodyPredictor, spread
from .source import cycles
from .text import Albert, TextEncoder
from .vocoder import SnakeBlock


class Reading(NamedTuple):
    """What the text room's phonemes mean to the model."""

    text: Tensor
    """(B, P, D): what is said."""
    prosody: Tensor
    """(B, P, D + style): how."""
    durations: Tensor
    """(B, P) float32: frames at speed 1; pads undefined."""


class Kokoro(nn.Module):
    """Text encoder, prosody predictor, decoder, vocoder. Not thread-safe by promise: one caller at a time."""

    def __init__(self, config: KokoroConfig = KOKORO) -> None:
        super().__init__()
        self.config = config
        self.bert = Albert(config)
        self.bert_encoder = nn.Linear(config.bert_hidden, config.hidden)
        self.predictor = ProsodyPredictor(config)
        self.text_encoder = TextEncoder(config)
        self.decoder = Decoder(config)

    def prepare(self, dtype: torch.dtype = torch.float32) -> Kokoro:
        """Lay the weights out for inference, once, after they are set: they cannot be saved afterwards.

        dtype: of the convolutions of decoder and vocoder. What the pitch, the phase, the norms' statistics
        and the Fourier transforms are computed in stays float32: durations and curves do not depend on it.
        """
        for module in self.modules():
            if isinstance(module, SnakeBlock):
                module.fold()
        heavy = {id(module) for module in self.decoder.heavy()}
        for module in self.modules():
            if isinstance(module, TimeConv | TimeConvTranspose):
                module.lay_out(dtype if id(module) in heavy else torch.float32)
        return self

    def read(self, ids: Tensor, manner: Tensor, rows: Rows) -> Reading:
        """ids (B, P) int64, PAD at both ends of each row and after it; manner (B, style): the prosody half of
        the style row; `rows` lengths in tokens, the two pads included."""
        context = self.bert_encoder(self.bert(ids, rows))  # (B, P, D)
        prosody = self.predictor.text_encoder(context, manner, rows)
        return Reading(self.text_encoder(ids, rows), prosody, self.predictor.durations(prosody, rows))

    def curves(self, prosody: Tensor, frames: Tensor, manner: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """prosody (B, P, D + style), frames (B, P) int64, `rows` lengths in frames -> pitch in Hz and log
        energy, (B, 2 F) each; pads are 0."""
        return self.predictor.curves(spread(prosody, frames, rows.longest), manner, rows)

    def features(
        self, text: Tensor, frames: Tensor, f0: Tensor, energy: Tensor, timbre: Tensor, rows: Rows
    ) -> Tensor:
        """text (B, P, D), frames (B, P), f0 and energy (B, 2 F), timbre (B, style), `rows` lengths in frames
        -> decoder features (B, C, 2 F); pads undefined."""
        said = spread(text, frames, rows.longest).transpose(1, 2)  # (B, D, F)
        return self.decoder.features(said, f0, energy, timbre, rows)

    def turns(self, f0: Tensor, rows: Rows) -> Tensor:
        """f0 (B, 2 F), `rows` lengths in frames -> phase of the pitch (B, S) in turns, 0 to 1."""
        return cycles(f0, rows.times(2), self.config.samples_per_f0, self.config.rate_hz)

    def source(
        self, f0: Tensor, voicing: Tensor, noise: Tensor, rows: Rows, turns: Tensor | None = None
    ) -> Tensor:
        """f0 (B, 2 F), voicing (B,) 0 to 1, noise (B, S), `rows` lengths in frames -> excitation (B, S).
        turns: the phase (B, S), where it does not begin with this f0."""
        if turns is None:
            turns = self.turns(f0, rows)
        return self.decoder.generator.source(f0, turns, voicing, noise)

    def wave(self, features: Tensor, timbre: Tensor, source: Tensor, rows: Rows) -> Tensor:
        """features (B, C, 2 F), source (B, S), `rows` lengths in frames -> samples (B, S), S = 600 F; pads
        are 0."""
        return self.decoder.generator.forward(features, timbre, source, rows.times(2))


def load(path: Path, device: torch.device, dtype: torch.dtype = torch.float32) -> Kokoro:
    """The model out of a safetensors file, on the device, without gradients; see `Kokoro.prepare` for dtype.

    Raises Failure model-missing, or model-damaged when a tensor is absent or has another shape. Tensors that
    the model has no use for are skipped.
    """
    if not path.is_file():
        raise Failure(f"no weights at {path}; `gleeman models fetch` brings them", "model-missing")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            sizes = (file.metadata() or {}).get(METADATA_KEY)
            with torch.device("meta"):
                model = Kokoro(from_json(sizes) if sizes else KOKORO)
            wanted = model.state_dict()
            held = set(file.keys())
            tensors = {name: file.get_tensor(name) for name in wanted if name in held}
    except (SafetensorError, OSError) as error:
        raise Failure(
            f"{path} cannot be read as weights: {error}; fetch them again", "model-damaged"
        ) from None
    for name, tensor in wanted.items():
        if name not in tensors:
            raise Failure(f"{path} lacks the tensor {name}; fetch the weights again", "model-damaged")
        if tensors[name].shape != tensor.shape:
            raise Failure(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}, not {tuple(tensor.shape)}",
                "model-damaged",
            )
    model.load_state_dict(
        {name: tensor.to(device, torch.float32) for name, tensor in tensors.items()}, assign=True
    )
    return model.eval().requires_grad_(False).prepare(dtype)
