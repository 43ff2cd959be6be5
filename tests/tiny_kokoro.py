"""A Kokoro model of random weights that is small enough to run in milliseconds: the same code, other sizes.

    python tests/tiny_kokoro.py FILE.safetensors      writes one, the same bytes each time

Its voice halves keep their 128 numbers, so the stock voices fit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from gleeman.speech.models.kokoro.config import METADATA_KEY, KokoroConfig, to_json
from gleeman.speech.models.kokoro.model import Kokoro

TINY = KokoroConfig(
    hidden=16,
    text_layers=2,
    max_duration=6,
    bert_embedding=8,
    bert_hidden=16,
    bert_heads=2,
    bert_layers=2,
    bert_feed_forward=24,
    decoder_hidden=24,
    decoder_skip=4,
    upsample_channels=16,
    resblock_kernels=(3, 5),
    resblock_dilations=(1, 3),
    harmonics=3,
)


def tiny_model(seed: int = 7) -> Kokoro:
    """Random weights, pitch about 100 Hz with unvoiced stretches, samples about 0.1. Every bias is set, so
    that a pad that is not zeroed shows."""
    model = Kokoro(TINY)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=draw)
            if "alpha" in name or "LayerNorm.weight" in name or name.endswith(("norm.weight", "gamma")):
                weight.copy_(1 + 0.2 * noise)
            elif weight.dim() < 2:
                weight.copy_(0.3 * noise)
            else:
                weight.copy_(noise * (1.5 / weight[0].numel() ** 0.5))
        predictor, generator = model.predictor, model.decoder.generator
        predictor.F0_proj.weight.mul_(60)
        predictor.F0_proj.bias.fill_(100)
        generator.conv_post.weight.mul_(0.1)
        generator.conv_post.bias[: TINY.n_fft // 2 + 1] = -1.0
    return model.eval().requires_grad_(False)


def write_tiny(path: Path, seed: int = 7) -> Path:
    """A weight file that `gleeman` takes in the place of the real one: its metadata names its sizes."""
    state = {name: weight.contiguous() for name, weight in tiny_model(seed).state_dict().items()}
    save_file(state, path, metadata={METADATA_KEY: to_json(TINY)})
    return path


if __name__ == "__main__":
    write_tiny(Path(sys.argv[1]))
