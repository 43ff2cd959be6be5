"""The sizes of a Kokoro model, in one record. The real model and the tiny one of the tests are the same
code with other numbers. Knows no torch.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields

from ....errors import Failure

METADATA_KEY = "kokoro_config"
"""Where a weight file names its sizes, as JSON, in the safetensors metadata; absent: `KOKORO`."""


@dataclass(frozen=True, slots=True)
class KokoroConfig:
    """Sizes; the defaults are those of Kokoro-82M v1.0."""

    tokens: int = 178
    hidden: int = 512
    style: int = 128
    """Each half of a style row: timbre and prosody."""
    text_layers: int = 3
    text_kernel: int = 5
    max_duration: int = 50
    """A token's duration is a sum of that many sigmoids."""
    bert_embedding: int = 128
    bert_hidden: int = 768
    bert_heads: int = 12
    bert_layers: int = 12
    """Passes through the one shared layer."""
    bert_feed_forward: int = 2048
    bert_positions: int = 512
    decoder_hidden: int = 1024
    decoder_skip: int = 64
    """Channels of text that every decoder block sees again."""
    upsample_rates: tuple[int, ...] = (10, 6)
    upsample_kernels: tuple[int, ...] = (20, 12)
    upsample_channels: int = 512
    """Of the decoder features; halved by each upsampling."""
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    resblock_dilations: tuple[int, ...] = (1, 3, 5)
    n_fft: int = 20
    hop: int = 5
    harmonics: int = 9
    rate_hz: int = 24_000

    @property
    def samples_per_f0(self) -> int:
        """Samples a value of the F0 and energy curves covers: 300."""
        return math.prod(self.upsample_rates) * self.hop

    @property
    def samples_per_frame(self) -> int:
        """Samples a duration frame covers: 600. The curves have two values a frame."""
        return 2 * self.samples_per_f0

    @property
    def max_phonemes(self) -> int:
        """Longest row, without the pad at each end: 510."""
        return self.bert_positions - 2


KOKORO = KokoroConfig()


def to_json(config: KokoroConfig) -> str:
    """What goes under `METADATA_KEY`."""
    return json.dumps(asdict(config))


def from_json(text: str) -> KokoroConfig:
    """The inverse of `to_json`. The text comes out of a file: anything but positive whole numbers under known
    names raises Failure model-damaged."""
    known = {field.name: field.default for field in fields(KokoroConfig)}
    try:
        given = json.loads(text)
        sizes: dict[str, int | tuple[int, ...]] = {}
        for name, value in given.items():
            if isinstance(known[name], tuple):
                sizes[name] = tuple(_size(item) for item in value)
            else:
                sizes[name] = _size(value)
        return KokoroConfig(**sizes)  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Failure(
            f"the weight file's metadata names no sizes we know: {error}", "model-damaged"
        ) from None


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 20:
        raise ValueError(f"{value!r} is not a size from 1 to 1048576")
    return value
