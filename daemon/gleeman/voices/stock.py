"""The stock voices that ship in the package. Knows no torch and no model.

The rows of a voice, one for each length of text, span twelve dimensions that all voices share, so a voice is
a product: basis (510, 12) @ coefficients (12, 256).
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from ..errors import Failure
from ..records import VoiceInfo

Style = npt.NDArray[np.float32]
"""(510, 256): row n - 1 for a text of n phonemes; 128 numbers of timbre, 128 of prosody."""

STYLE_ROWS = 510
STYLE_SIZE = 256


@dataclass(frozen=True)
class StockVoices:
    """Every voice out of the package's data."""

    infos: tuple[VoiceInfo, ...]
    basis: npt.NDArray[np.float32]
    """(510, rank)"""
    coefficients: npt.NDArray[np.float32]
    """(voices, rank, 256)"""

    def style(self, index: int) -> Style:
        """The style table of the voice at `index` of `infos`."""
        return np.ascontiguousarray(self.basis @ self.coefficients[index], dtype=np.float32)


@functools.cache
def stock_voices() -> StockVoices:
    """Read once. Raises Failure bad-file when the package's data is not what it should be."""
    data = resources.files(__package__).joinpath("data/voices.safetensors").read_bytes()
    return read_stock(data)


def read_stock(data: bytes) -> StockVoices:
    """The voices out of the bytes of the data file, checked."""
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        entries = json.loads(header["__metadata__"]["voices"])
        infos = tuple(VoiceInfo(entry["name"], entry["language"], entry["gender"]) for entry in entries)
        basis, coefficients = tensors["basis"], tensors["coef"]
    except Exception as error:  # safetensors raises types of its own; whatever it is, the file is no good
        raise Failure(
            f"the stock voices cannot be read: {error}; install the package again", "bad-file"
        ) from None
    rank = basis.shape[-1]
    if basis.shape != (STYLE_ROWS, rank) or coefficients.shape != (len(infos), rank, STYLE_SIZE):
        raise Failure(
            f"the stock voices have shapes {basis.shape} and {coefficients.shape}; install the package again",
            "bad-file",
        )
    return StockVoices(infos, basis, coefficients)
