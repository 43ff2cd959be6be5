"""Convolutions over time with fewer products: tiles of the input are transformed, multiplied channel by
channel with the transformed kernel, and transformed back.

A tile of N values gives N - K + 1 values of the convolution with a kernel of K. Done plainly, each costs K
products per pair of channels. Here each costs P / (N - K + 1), where P counts the products between the
tile's transform and the kernel's:

    kernel   transform                N    P    products a value
       3     values at six points     6    6    1.5
       7     Fourier                 16   23    2.3
      11     Fourier                 32   47    2.14

A dilation D makes D sequences of every D-th value, which are done side by side. Knows no layers and no rows:
pads are values like others here.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 128
"""Values of each transform that are worked on at a time, so that they stay in the processor's cache. 128
channels, kernel 11, 16,921 values on one thread: blocks of 64, 128 and 256 take 31, 31 and 34 ms."""

FEWEST_CHANNELS = 64
"""Below this the transforms cost more than the products that they save."""

_POINTS = (0.0, 1.0, -1.0, 0.5, -0.5)
"""And infinity. Small ones lose the least in float32."""


class Scheme(NamedTuple):
    """y = inverse [(kernel w) (forward x)] for y[i] = sum over q of w[q] x[i + q]; float64."""

    forward: Tensor
    """(P, N)"""
    kernel: Tensor
    """(P, K)"""
    inverse: Tensor
    """(N - K + 1, P)"""
    constant: int
    """The product that reaches every output alike; a bias goes in there."""


def _powers(count: int) -> Tensor:
    """(points, count): the powers of each point; those of infinity are all in the last."""
    finite = [[point**power for power in range(count)] for point in _POINTS]
    return torch.tensor([*finite, [0.0] * (count - 1) + [1.0]], dtype=torch.float64)


def _at_points(kernel: int) -> Scheme:
    """Toom and Cook's: polynomials multiplied by way of their values at as many points as they need."""
    size = len(_POINTS) + 1
    forward = torch.linalg.inv(_powers(size)).T
    scale = forward.abs().amax(1, keepdim=True)
    return Scheme(forward / scale, _powers(kernel) * scale, _powers(size + 1 - kernel).T, _POINTS.index(1.0))


def _fourier(kernel: int, size: int) -> Scheme:
    """The discrete Fourier transform of real values. A complex product (a - i b)(p + i q) is made of three:
    q (a + b), a (p - q) and b (p + q)."""
    outputs = size - kernel + 1
    at = torch.arange(size, dtype=torch.float64) * (2 * math.pi / size)
    ones, signs = torch.ones_like(at), torch.cos(at * (size // 2))
    forward, weights, inverse = [ones], [ones[:kernel]], [ones[:outputs] / size]
    for number in range(1, size // 2):
        real, imaginary = torch.cos(at * number), torch.sin(at * number)
        forward += [real + imaginary, real, imaginary]
        weights += [part[:kernel] for part in (imaginary, real - imaginary, real + imaginary)]
        inverse += [part[:outputs] * (2 / size) for part in (real - imaginary, real, imaginary)]
    forward.append(signs)
    weights.append(signs[:kernel])
    inverse.append(signs[:outputs] / size)
    return Scheme(torch.stack(forward), torch.stack(weights), torch.stack(inverse, 1), 0)


@functools.cache
def scheme(kernel: int) -> Scheme:
    """The one for a kernel of odd width, 3 to 15."""
    if kernel == 3:
        return _at_points(kernel)
    return _fourier(kernel, 16 if kernel <= 7 else 32)


def pays(weight: Tensor) -> bool:
    """Whether the convolution with this weight (O, I, K) is done faster in tiles than by the library."""
    channels, kernel = min(weight.shape[:2]), weight.shape[2]
    if kernel == 3:
        return weight.dtype == torch.float32 and channels >= 256
    return kernel % 2 == 1 and 3 < kernel <= 15 and channels >= FEWEST_CHANNELS


class TiledConv:
    """One convolution that keeps its length: stride 1, odd kernel, zeros beyond the ends."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dilation: int) -> None:
        """weight (O, I, K), whose type is that of the products; bias (O,) or None."""
        self.channels_out, self.channels_in, self.kernel = weight.shape
        self.dilation = dilation
        plan, dtype = scheme(self.kernel), weight.dtype
        self.outputs, self.size = self.kernel_outputs(plan), plan.forward.shape[1]
        self.forward = plan.forward.to(dtype)
        self.inverse = plan.inverse.to(dtype)
        self.weight = torch.einsum("oik,pk->pio", weight.double(), plan.kernel).to(dtype).contiguous()
        self.constant = plan.constant
        self.bias = None if bias is None else (bias.double() / plan.inverse[0, plan.constant]).to(dtype)

    @staticmethod
    def kernel_outputs(plan: Scheme) -> int:
        return int(plan.inverse.shape[0])

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, I, T) -> (B, O, T), both (B, T, channels) in memory."""
        batch, channels, length = x.shape
        line, inside = self.line(batch, length, x)
        inside.copy_(x.transpose(1, 2))
        return self.convolve(line, batch, length)

    def line(self, batch: int, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Room for an input, its rows one after the other with zeros between: the whole (L, I) and the place
        of the values (B, T, I), which are for the caller to set."""
        reach = self.dilation * (self.kernel // 2)
        step = self.dilation * self.outputs
        row = -(-(length + reach) // step) * step  # zeros enough that no row reaches into the next
        line = like.new_empty(batch * row + self.dilation * self.size, self.channels_in)
        rows = line[: batch * row].view(batch, row, -1)
        rows[:, :reach] = 0
        rows[:, reach + length :] = 0
        line[batch * row :] = 0
        return line, line[reach : reach + batch * row].view(batch, row, -1)[:, :length]

    def convolve(self, line: Tensor, batch: int, length: int) -> Tensor:
        """What `line` gave, filled -> (B, O, T)."""
        step = self.dilation * self.outputs
        row = (line.shape[0] - self.dilation * self.size) // (batch * step)  # tiles
        tiles = (batch - 1) * row + -(-length // step)
        wide, wide_out = self.dilation * self.channels_in, self.dilation * self.channels_out
        products = self.weight.shape[0]
        block = min(tiles, max(1, BLOCK // self.dilation))
        block = -(-tiles // -(-tiles // block))
        windows = line.as_strided((self.size, tiles, wide), (wide, step * self.channels_in, 1))
        out = line.new_empty(batch * row, self.outputs, wide_out)
        seen = line.new_empty(self.size * block * wide)
        spectra = line.new_empty(products * block * wide)
        results = line.new_empty(products * block * wide_out)
        back = line.new_empty(self.outputs * block * wide_out)
        for at in range(0, tiles, block):
            count = min(block, tiles - at)
            values = self.dilation * count
            tile = seen[: self.size * count * wide].view(self.size, -1)
            tile.view(self.size, count, wide).copy_(windows[:, at : at + count])
            spectrum = spectra[: products * count * wide].view(products, -1)
            torch.mm(self.forward, tile, out=spectrum)
            result = results[: products * count * wide_out].view(products, values, -1)
            torch.bmm(spectrum.view(products, values, -1), self.weight, out=result)
            if self.bias is not None:
                result[self.constant].add_(self.bias)
            place = back[: self.outputs * count * wide_out].view(self.outputs, -1)
            torch.mm(self.inverse, result.view(products, -1), out=place)
            out[at : at + count].copy_(place.view(self.outputs, count, wide_out).transpose(0, 1))
        return out.view(batch, row * step, -1)[:, :length].transpose(1, 2)
