"""Both engines on the same phonemes: the product's pipeline as its daemon calls it, clause by clause, and the
original modules, sentence by sentence. Needs what `benchmarks.peers` needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from benchmarks.peers.engines import RATE_HZ, Reference, Samples
from gleeman.records import Clause, LineKey, Row
from gleeman.speech.registry import make_pipeline
from gleeman.text.frontend import accent_of, language_of, read
from gleeman.voices.store import VoiceStore

from .lines import Said

PLAIN, OURS = "plain", "gleeman"
Speak = Callable[[Said], Samples]


def clauses_of(said: Said) -> tuple[Clause, ...]:
    """As the text room cuts the line."""
    return read(said.text, "auto", accent_of(said.voice), True, bare=language_of(said.voice)).clauses


def sentences_of(clauses: Sequence[Clause]) -> list[str]:
    """Phonemes of each sentence that the clauses were cut from."""
    numbers = accumulate((clause.ends_sentence for clause in clauses), initial=0)
    parts: dict[int, list[str]] = {}
    for number, clause in zip(numbers, clauses, strict=False):
        parts.setdefault(number, []).append(clause.phonemes)
    return [" ".join(part) for part in parts.values()]


def ours(threads: int, precision: str) -> tuple[Speak, Callable[[], str]]:
    """The product, and what it computes in."""
    pipeline = make_pipeline(
        "kokoro", device="cpu", threads=threads, precision=precision, voices=VoiceStore()
    )
    pipeline.load(lambda _stage, _progress: None)

    def speak(said: Said) -> Samples:
        parts = []
        for index, clause in enumerate(clauses_of(said)):
            row = Row(LineKey(0, 1), index, clause, said.voice, "neutral", 1.0, 1.0, 0.0, 0.0, index)
            parts += [audio.samples for audio in pipeline.run([row])]
        return np.concatenate(parts)

    return speak, lambda: str(getattr(pipeline, "precision", ""))


def plain(threads: int) -> Speak:
    """The original modules in float32."""
    import torch

    reference, voices = Reference(threads), VoiceStore()

    def speak(said: Said) -> Samples:
        parts: list[Samples] = []
        for phonemes in sentences_of(clauses_of(said)):
            style = torch.from_numpy(voices.style(said.voice)[len(phonemes) - 1].copy())[None]
            parts.append(reference.model(phonemes, style).numpy())
        return np.concatenate(parts)

    return speak


__all__ = ["OURS", "PLAIN", "RATE_HZ", "Speak", "clauses_of", "ours", "plain", "sentences_of"]
