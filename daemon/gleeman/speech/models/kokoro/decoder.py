"""What is said and how -> features at 80 a second, all that the vocoder needs. Knows no phonemes and no
samples."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from .config import KokoroConfig
from .convs import TimeConv, joined
from .layers import Rows, StyledBlock
from .vocoder import Generator


class Decoder(nn.Module):
    """Styled blocks over frames; every one sees the text, pitch and energy again. The vocoder hangs below it
    because the weights are named so."""

    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        size, skip, style = config.decoder_hidden, config.decoder_skip, config.style
        self.encode = StyledBlock(config.hidden + 2, size, style)
        self.decode = nn.ModuleList(StyledBlock(size + skip + 2, size, style) for _ in range(3))
        self.decode.append(StyledBlock(size + skip + 2, config.upsample_channels, style, doubles=True))
        self.F0_conv = TimeConv(1, 1, 3, stride=2, padding=1)
        self.N_conv = TimeConv(1, 1, 3, stride=2, padding=1)
        self.asr_res = nn.Sequential(TimeConv(config.hidden, skip, 1))
        self.generator = Generator(config)

    def heavy(self) -> Iterator[nn.Module]:
        """The modules whose convolutions may be of a reduced type."""
        for part in (self.encode, self.decode, self.generator.ups, self.generator.noise_res):
            yield from part.modules()
        yield from self.generator.resblocks.modules()

    def features(self, text: Tensor, f0: Tensor, energy: Tensor, timbre: Tensor, rows: Rows) -> Tensor:
        """Decoder features.

        text    (B, D, F)      text states, one a frame; pads undefined
        f0      (B, 2 F)       Hz; pads 0
        energy  (B, 2 F)       log; pads 0
        timbre  (B, style)
        rows    lengths in frames

        Returns (B, C, 2 F); pads undefined.
        """
        pitch, loudness = self.F0_conv(f0[:, None]), self.N_conv(energy[:, None])  # (B, 1, F) each
        beside = [self.asr_res(text), pitch, loudness]
        x: Tensor = self.encode(joined([text, pitch, loudness], 1), timbre, rows, rows)
        for block in self.decode:
            rows_out = rows.times(2) if block is self.decode[-1] else rows
            x = block(joined([x, *beside], 1), timbre, rows, rows_out)
        return x
