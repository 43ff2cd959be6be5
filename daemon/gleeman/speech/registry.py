"""Models by name, and the device to run them on. Imports torch only where it says so."""

from __future__ import annotations

import difflib
import importlib.util
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Failure, InputError
from ..records import Row, RowAudio
from ..voices.store import VoiceStore
from .base import Budget, Pipeline, Report
from .models.babble.estimate import frames_of
from .models.babble.pipeline import make_babble, make_silent

if TYPE_CHECKING:
    from .device.memory import DeviceMemory

log = logging.getLogger(__name__)

MODELS = ("kokoro", "babble", "silent")
"""What `serve --model` takes."""
STANDINS = ("babble", "silent")
"""Models without weights, ready at once."""
READ_BYTES = 1 << 20
TORCH_SHARE = 0.3
"""Of the progress of loading: bringing torch in."""


def make_pipeline(
    model: str,
    *,
    device: str = "auto",
    threads: int = 0,
    quality: str = "auto",
    precision: str = "auto",
    vram_mb: int = 0,
    voices: VoiceStore | None = None,
) -> Pipeline:
    """The pipeline of a model, not loaded yet; returns at once and imports nothing heavy.

    device: "auto", "cpu", "cuda" or "cuda:N". threads: of the CPU, 0: the library's own choice. precision:
    "auto", "float32", "bfloat16" or "float16". vram_mb: the cap on a GPU's memory in 10^6 bytes, 0: none.
    Stand-ins run on the calling thread of the CPU whatever these say. voices: needed by models with weights.
    Raises InputError unknown-model, or unsupported for a quality that the model does not have.
    """
    if model == "babble":
        return make_babble()
    if model == "silent":
        return make_silent()
    if model != "kokoro":
        near = difflib.get_close_matches(model, MODELS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"model {model[:60]!r} is not known; known models: {', '.join(MODELS)}{hint}", "unknown-model"
        )
    if quality not in ("auto", "high"):
        raise InputError(f"quality {quality!r} is not there for kokoro; take 'auto' or 'high'", "unsupported")
    if voices is None:
        raise ValueError("kokoro needs the voice store")

    def make(chosen: str, kind: str) -> Pipeline:
        return _make_kokoro(voices, chosen, threads, kind, vram_mb)

    return LatePipeline("kokoro", device, make, precision)


def _make_kokoro(voices: VoiceStore, device: str, threads: int, precision: str, vram_mb: int) -> Pipeline:
    from ..weights.verify import check

    weights = check("kokoro")
    if device != "cpu":
        from .models.kokoro.on_device import DeviceKokoro

        return DeviceKokoro(weights, voices, device, threads, precision, vram_mb)
    from .models.kokoro.pipeline import KokoroPipeline

    if vram_mb:
        log.warning("vram-mb caps nothing: the model runs on the CPU")
    return KokoroPipeline(weights, voices, device, threads, precision)


class LatePipeline:
    """A torch pipeline that is imported, checked and made in `load`, on the loader's thread.

    `device` and `precision` are "" until then; `device_reason` and `precision_reason` say why they were
    picked.
    """

    rate_hz = 24_000
    needs_phonemes = True

    def __init__(
        self, name: str, device: str, make: Callable[[str, str], Pipeline], precision: str = "auto"
    ) -> None:
        """make: the pipeline on a device, in a precision."""
        self.name = name
        self.device = ""
        self.device_reason = ""
        self.precision = ""
        self.precision_reason = ""
        self._asked = device
        self._asked_precision = precision
        self._make = make
        self._inner: Pipeline | None = None

    def load(self, report: Report) -> None:
        """Raises Failure no-device, model-missing, model-damaged or unsupported (a precision that the device
        has not), and what the model raises."""
        warm_torch_files(lambda share: report("loading", TORCH_SHARE * share))
        self.device, self.device_reason = pick_device(self._asked)
        log.info("model %s on %s: %s", self.name, self.device, self.device_reason)
        precision, self.precision_reason = pick_precision(self._asked_precision, self.device)
        log.info("model %s in %s: %s", self.name, precision, self.precision_reason)
        inner = self._make(self.device, precision)
        if inner.rate_hz != self.rate_hz:
            raise Failure(
                f"model {self.name} speaks at {inner.rate_hz} Hz, not {self.rate_hz}", "model-failed"
            )

        def late(stage: str, progress: float) -> None:
            if stage == "loading":
                progress = TORCH_SHARE + (1 - TORCH_SHARE) * progress
            report(stage, progress)

        inner.load(late)
        self._inner = inner
        self.precision = getattr(inner, "precision", precision)

    @property
    def budget(self) -> Budget | None:
        """See `base.Budget`; None until it is loaded."""
        return getattr(self._inner, "budget", None)

    def device_memory(self) -> DeviceMemory | None:
        """Of a GPU, once it is loaded. Any thread."""
        tell = getattr(self._inner, "device_memory", None)
        return tell() if tell else None

    def estimate_frames(self, row: Row) -> int:
        """By the model once it is loaded, before from the symbols alone."""
        return self._inner.estimate_frames(row) if self._inner else frames_of(row.clause, row.speed)

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        """See `base.Pipeline`; after `load` only."""
        if self._inner is None:
            raise Failure(f"model {self.name} is not loaded", "model-failed")
        return self._inner.run(rows)

    def close(self) -> None:
        """Free the device."""
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def pick_device(asked: str) -> tuple[str, str]:
    """The torch device for "auto", "cpu", "cuda" or "cuda:N", and why. Imports torch unless that is plain
    without it: for the loader's thread. Raises Failure no-device when what was asked for by name is not
    there."""
    if asked == "cpu":
        return "cpu", "asked for"
    if asked == "auto" and not _nvidia_driver():
        return "cpu", "no NVIDIA driver on this machine"
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "auto":
        if count == 0:
            return "cpu", "torch finds no CUDA device that it can use"
        return "cuda:0", f"{torch.cuda.get_device_name(0)} found"
    number = int(asked.partition(":")[2] or 0)
    if number >= count:
        there = f"torch sees {count} CUDA device{'s' if count != 1 else ''}" if count else "torch sees none"
        raise Failure(f"device {asked!r} is not there: {there}; take 'auto' or 'cpu'", "no-device")
    return f"cuda:{number}", "asked for"


def pick_precision(asked: str, device: str) -> tuple[str, str]:
    """What the decoder's and the vocoder's convolutions are computed in, "float32", "bfloat16" or, only where
    it is asked for, "float16", and why. Imports torch: for the loader's thread. Raises Failure
    unsupported."""
    if asked == "float16" and device == "cpu":
        raise Failure("float16 is for a GPU; on the CPU take bfloat16, float32 or auto", "unsupported")
    if asked != "auto":
        return asked, "asked for"
    import torch

    if device != "cpu":
        # As torch.cuda.is_bf16_supported(including_emulation=False), which answers for the current device
        # only; making another one current would make its context before that can be measured.
        found = torch.cuda.get_device_properties(device)
        if torch.version.hip or found.major >= 8:
            return "bfloat16", f"{found.name} computes in it"
        return "float32", f"{found.name} has no bfloat16 of its own, and float16 was not judged"
    # Private names, so each may be absent. AVX-512 alone would emulate bfloat16, slower than float32.
    for name, unit in (("_is_amx_tile_supported", "AMX"), ("_is_avx512_bf16_supported", "AVX512-BF16")):
        if getattr(torch.cpu, name, lambda: False)():
            return "bfloat16", f"this processor has {unit}"
    return "float32", "this processor has neither AMX nor AVX512-BF16"


def _nvidia_driver() -> bool:
    if sys.platform == "win32":
        return (Path("C:/Windows/System32") / "nvcuda.dll").exists()
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()  # the latter: Windows' Linux


def warm_torch_files(report: Callable[[float], None]) -> int:
    """Read torch's libraries through once; returns the bytes read: 0 when torch is loaded or not there.

    Loading a library holds the interpreter's lock while its pages come from the disk, 12 s on a cold machine
    during which no other thread answers; reading the file lets go of it. CUDA's are left out: they are
    gigabytes, of which little is touched.
    """
    if "torch" in sys.modules:
        return 0
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return 0
    folder = Path(spec.origin).parent / "lib"
    files = [
        file
        for file in folder.glob("*")
        if file.suffix in (".so", ".dll", ".dylib") and file.stem.removeprefix("lib") in _TORCH_LIBRARIES
    ]
    total = sum(file.stat().st_size for file in files)
    buffer = bytearray(READ_BYTES)
    done = 0
    told_at = time.monotonic()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while count := opened.readinto(buffer):
                done += count
                if time.monotonic() - told_at > 0.25:
                    told_at = time.monotonic()
                    report(done / total)
    return done


_TORCH_LIBRARIES = ("torch", "torch_cpu", "torch_python", "c10", "shm", "gomp")
