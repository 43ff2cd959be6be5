"""Convolutions in tiles against the plain one in float64, for shapes that fill no tile and no block."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gleeman.speech.models.kokoro.convs import TimeConv
from gleeman.speech.models.kokoro.tiles import BLOCK, TiledConv, scheme
from gleeman.speech.models.kokoro.vocoder import Generator
from tiny_kokoro import TINY


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(before)


def drawn(batch: int, channels: int, length: int, seed: int = 0) -> Tensor:
    """(B, C, T), normal, (B, T, C) in memory."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, channels, generator=draw).transpose(1, 2)


def a_conv(channels_in: int, channels_out: int, kernel: int, dilation: int, *, bias: bool = True) -> TimeConv:
    """Of weights that keep the size of what they are given."""
    draw = torch.Generator().manual_seed(kernel)
    conv = TimeConv(
        channels_in, channels_out, kernel, dilation=dilation, padding=dilation * (kernel // 2), bias=bias
    )
    conv.weight.data = torch.randn(conv.weight.shape, generator=draw) / (channels_in * kernel) ** 0.5
    if conv.bias is not None:
        conv.bias.data = torch.randn(channels_out, generator=draw)
    return conv.requires_grad_(False)


def plain(conv: TimeConv, x: Tensor) -> Tensor:
    return F.conv1d(
        x.double(),
        conv.weight.double(),
        None if conv.bias is None else conv.bias.double(),
        padding=conv.padding,
        dilation=conv.dilation,
    )


def tiled(conv: TimeConv) -> TiledConv:
    return TiledConv(conv.weight, conv.bias, conv.dilation[0])


@pytest.mark.parametrize("kernel", [3, 5, 7, 9, 11, 13, 15])
@pytest.mark.parametrize("dilation", [1, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 26, 111, 5 * BLOCK + 3])
def test_tiles_give_the_convolution(kernel: int, dilation: int, length: int) -> None:
    for batch, channels_in, channels_out, bias in ((1, 5, 3, True), (3, 16, 24, False)):
        conv = a_conv(channels_in, channels_out, kernel, dilation, bias=bias)
        x = drawn(batch, channels_in, length)
        got = tiled(conv)(x)
        assert got.transpose(1, 2).is_contiguous() or batch > 1 or got.stride(1) == 1
        torch.testing.assert_close(got.double(), plain(conv, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kernel", [3, 7, 11])
def test_the_error_is_that_of_float32(kernel: int) -> None:
    """Three times the library's own, whose sum is a plain one, is what six points may lose."""
    conv, x = a_conv(128, 128, kernel, 3), drawn(1, 128, 2000)
    exact = plain(conv, x)
    error = (tiled(conv)(x) - exact).square().mean().sqrt()
    assert error < 1.5e-6 * exact.square().mean().sqrt()


def test_every_row_is_the_row_alone_whatever_lies_beside_it() -> None:
    lengths = (7, 260, 1, 133)
    for kernel, dilation in ((3, 1), (7, 5), (11, 3)):
        conv = tiled(a_conv(16, 16, kernel, dilation))
        x = torch.zeros(len(lengths), max(lengths), 16).transpose(1, 2)
        for row, length in enumerate(lengths):
            x[row, :, :length] = drawn(1, 16, length, row)[0]
        got = conv(x)
        for row, length in enumerate(lengths):
            alone = conv(drawn(1, 16, length, row))[0]
            torch.testing.assert_close(got[row, :, :length], alone, rtol=0, atol=1e-5)


def test_the_same_input_gives_the_same_bits() -> None:
    conv, x = tiled(a_conv(24, 24, 11, 3)), drawn(2, 24, 700)
    first = conv(x)
    noise = [torch.randn(size) for size in (999, 12_345)]  # other memory
    assert torch.equal(conv(x.clone()), first)
    del noise


def test_bfloat16_stays_within_its_own_roundings() -> None:
    for kernel in (7, 11):
        conv, x = a_conv(64, 64, kernel, 1), drawn(1, 64, 1500)
        exact = plain(conv, x)
        rounded = TiledConv(conv.weight.bfloat16(), conv.bias.bfloat16(), 1)(x.bfloat16())
        assert rounded.dtype == torch.bfloat16
        error = (rounded - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        assert error < 2e-2**1.0 / 2


def test_laid_out_a_wide_convolution_goes_in_tiles_and_keeps_no_second_weight() -> None:
    for kernel, dtype, expected in (
        (7, torch.float32, True),
        (11, torch.bfloat16, True),
        (3, torch.bfloat16, False),
        (1, torch.float32, False),
    ):
        conv, x = a_conv(64, 64, kernel, 1), drawn(2, 64, 90)
        exact = plain(conv, x)
        conv.lay_out(dtype)
        assert (conv.tiled is not None) is expected
        assert (conv.weight.numel() == 0) is expected
        got = conv(x)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.1)


def test_a_stride_or_another_padding_is_left_to_the_library() -> None:
    for conv in (TimeConv(64, 64, 7, stride=3, padding=3), TimeConv(64, 64, 7)):
        x = drawn(1, 64, 40)
        before = conv(x)
        conv.requires_grad_(False).lay_out(torch.float32)
        assert conv.tiled is None
        torch.testing.assert_close(conv(x), before, rtol=0, atol=1e-5)


def test_a_scheme_is_an_identity_of_numbers() -> None:
    draw = torch.Generator().manual_seed(3)
    for kernel in (3, 7, 11):
        plan = scheme(kernel)
        x = torch.randn(plan.forward.shape[1], generator=draw, dtype=torch.float64)
        w = torch.randn(kernel, generator=draw, dtype=torch.float64)
        y = plan.inverse @ ((plan.kernel @ w) * (plan.forward @ x))
        torch.testing.assert_close(y, x.unfold(0, kernel, 1) @ w, rtol=0, atol=1e-12)
        assert plan.inverse[:, plan.constant].std() == 0


def test_the_tiny_model_is_too_narrow_for_tiles() -> None:
    """Its tests are of the plain way; these here and those of the real weights are of the other."""
    generator = Generator(TINY)
    for module in generator.modules():
        if isinstance(module, TimeConv):
            module.requires_grad_(False).lay_out(torch.float32)
            assert module.tiled is None
