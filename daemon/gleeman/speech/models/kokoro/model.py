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
from .decoder import Decoder
from .layers import Rows
from .prosody import ProsodyPredictor, spread
from .text import Albert, TextEncoder


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

    def source(self, f0: Tensor, voicing: Tensor, noise: Tensor, rows: Rows) -> Tensor:
        """f0 (B, 2 F), voicing (B,) 0 to 1, noise (B, S), `rows` lengths in frames -> excitation (B, S)."""
        return self.decoder.generator.source(f0, voicing, noise, rows.times(2))

    def wave(self, features: Tensor, timbre: Tensor, source: Tensor, rows: Rows) -> Tensor:
        """features (B, C, 2 F), source (B, S), `rows` lengths in frames -> samples (B, S), S = 600 F; pads
        are 0."""
        return self.decoder.generator.forward(features, timbre, source, rows.times(2))


def load(path: Path, device: torch.device) -> Kokoro:
    """The model out of a safetensors file, float32, on the device, without gradients.

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
    return model.eval().requires_grad_(False)
