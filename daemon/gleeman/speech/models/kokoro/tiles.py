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
"""Values of each transform that one thread works on at a time, so that they stay in the processor's caches.
128 channels, kernel 11, 16,921 values on one thread: blocks of 64, 128 and 256 take 31, 31 and 34 ms."""

SHARED_BLOCK = 256
"""The same for each of several threads, which wait for one another six times a block."""

_POINTS = (0.0, 1.0, -1.0, 0.5, -0.5)
"""And infinity. Small ones lose the least in float32."""


class Room(NamedTuple):
    """Where the input of a convolution is put together."""

    line: Tensor
    """(L, I): the rows one after the other, zeros between."""
    values: Tensor
    """(B, I, T), a view into it: for the caller to fill, pads with zeros."""
    tiles: int
    """That a row takes."""


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
    """Whether the convolution with this weight (O, I, K) is done faster in tiles than by oneDNN.

    Milliseconds on one thread of a processor with AVX-512 and its bfloat16 unit, plain and in tiles:

        channels   values   kernel   float32        bfloat16
             128   16,921        3   15.6   14.9     7.7   10.8
             128   16,921        7   35.2   24.0    17.3   12.2
             128   16,921       11   54.3   29.2    26.8   12.7
             256    2,820        3   10.6    8.2     5.3    5.0
             256    2,820        7   23.6   14.3    11.9    7.1
             256    2,820       11   36.5   15.7    18.3    7.9

    A dilation changes the plain one only: kernel 11 in float32 then takes 76 and 40 ms. At kernel 3 the six
    points lose too much in bfloat16. Narrow convolutions are small, and the transforms outweigh what they
    save.
    """
    channels, kernel = min(weight.shape[:2]), weight.shape[2]
    if kernel == 3:
        return weight.dtype == torch.float32 and channels >= 256
    return kernel in (5, 7, 9, 11, 13, 15) and channels >= 64


class TiledConv:
    """One convolution that keeps its length: stride 1, odd kernel, zeros beyond the ends. Its weight takes
    P / K times the room of the plain one: 2.0 at kernel 3, 3.3 at 7, 4.3 at 11."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dilation: int) -> None:
        """weight (O, I, K), whose type all is computed in; bias (O,) or None."""
        self.channels_out, self.channels_in, kernel = weight.shape
        self.dilation = dilation
        self.reach = dilation * (kernel // 2)
        plan, dtype = scheme(kernel), weight.dtype
        self.forward = plan.forward.to(dtype)  # (P, N)
        self.inverse = plan.inverse.to(dtype)  # (outputs, P)
        self.size, self.outputs = plan.forward.shape[1], plan.inverse.shape[0]
        self.step = dilation * self.outputs
        """Values from one tile to the next."""
        self.weight = torch.einsum("oik,pk->pio", weight.double(), plan.kernel).to(dtype).contiguous()
        self.constant = plan.constant
        self.bias = None if bias is None else (bias.double() / plan.inverse[0, plan.constant]).to(dtype)

    def room(self, like: Tensor) -> Room:
        """Room for an input of the shape and type of `like` (B, I, T)."""
        batch, _, length = like.shape
        row = -(-(length + self.reach) // self.step) * self.step  # zeros enough that no row reaches the next
        line = like.new_empty(batch * row + self.dilation * self.size, self.channels_in)
        rows = line[: batch * row].view(batch, row, -1)
        rows[:, : self.reach] = 0
        rows[:, self.reach + length :] = 0
        line[batch * row :] = 0
        return Room(line, rows[:, self.reach : self.reach + length].transpose(1, 2), row // self.step)

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, I, T) -> (B, O, T), both (B, T, channels) in memory."""
        room = self.room(x)
        room.values.copy_(x)
        return self.convolve(room)

    def convolve(self, room: Room) -> Tensor:
        """What `room` made and the caller filled -> (B, O, T)."""
        line, products = room.line, self.weight.shape[0]
        batch, _, length = room.values.shape
        tiles = (batch - 1) * room.tiles + -(-length // self.step)
        wide, wide_out = self.dilation * self.channels_in, self.dilation * self.channels_out
        threads = torch.get_num_threads()
        block = max(1, (BLOCK if threads == 1 else SHARED_BLOCK * threads) // self.dilation)
        block = -(-tiles // -(-tiles // block))  # blocks of one size
        windows = line.as_strided((self.size, tiles, wide), (wide, self.step * self.channels_in, 1))
        out = line.new_empty(batch * room.tiles, self.outputs, wide_out)
        # One row a tile position, product or output; in each row all values of the block.
        scratch = [
            line.new_empty(size * block * width)
            for size, width in (
                (self.size, wide),
                (products, wide),
                (products, wide_out),
                (self.outputs, wide_out),
            )
        ]
        for at in range(0, tiles, block):
            count = min(block, tiles - at)
            seen = scratch[0][: self.size * count * wide].view(self.size, -1)
            spectrum = scratch[1][: products * count * wide].view(products, -1)
            result = scratch[2][: products * count * wide_out].view(products, -1)
            back = scratch[3][: self.outputs * count * wide_out].view(self.outputs, -1)
            seen.view(self.size, count, wide).copy_(windows[:, at : at + count])
            torch.mm(self.forward, seen, out=spectrum)
            by_value = result.view(products, count * self.dilation, -1)
            torch.bmm(spectrum.view(products, count * self.dilation, -1), self.weight, out=by_value)
            if self.bias is not None:
                by_value[self.constant].add_(self.bias)
            torch.mm(self.inverse, result, out=back)
            out[at : at + count].copy_(back.view(self.outputs, count, wide_out).transpose(0, 1))
        return out.view(batch, room.tiles * self.step, -1)[:, :length].transpose(1, 2)
