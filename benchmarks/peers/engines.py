"""The three engines behind one face: loaded with a thread count, then asked for a line.

Each import stands where it is needed: a process has one engine only.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

VOICE = "af_heart"
TEXT = "Put your sword on the ground and step into the light, slowly, where my men can see your hands."
PHONEMES = "pˌʊt jʊɹ sˈɔɹd ˌɔn ðə ɡɹˈWnd ænd stˈɛp ˈɪntu ðə lˈIt, slˈOli, wˌɛɹ mI mˈɛn kæn sˈi jʊɹ hˈændz."
"""What `gleeman phonemes` makes of TEXT; six seconds of speech."""
RATE_HZ = 24_000
KMODEL_CONFIG: dict[str, Any] = {
    "hidden_dim": 512,
    "style_dim": 128,
    "n_layer": 3,
    "n_token": 178,
    "max_dur": 50,
    "dropout": 0.2,
    "text_encoder_kernel_size": 5,
    "n_mels": 80,
    "istftnet": {
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5]] * 3,
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
    },
}
"""Of Kokoro-82M v1.0, as its config.json has it; the package would fetch that from the hub."""
NOT_IN_WEIGHTS = ("pooler", ".norm", "position_ids")
"""What `KModel` has and no line needs: the pooler, affines of instance norms (identity), a buffer."""
NEEDED = ("kokoro", "transformers", "loguru", "attr", "kokoro_onnx", "onnxruntime")
"""What the two peers import."""


class Missing(Exception):
    """Something is not installed; the sentence says what to do."""


class Engine(Protocol):
    """An engine that is loaded."""

    dtype: str
    version: str

    def speak(self) -> Samples:
        """PHONEMES in VOICE at RATE_HZ."""


def check_installed() -> None:
    """Raises Missing when a package of the peers is not there."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise Missing(
            f"not installed here: {', '.join(absent)}. `make bench-peers` does it in an environment of its "
            "own; by hand: pip install -r benchmarks/peers/requirements.txt, then pip install --no-deps -r "
            "benchmarks/peers/requirements-no-deps.txt"
        )


def make(name: str, threads: int, onnx: Path, precision: str) -> Engine:
    """Load an engine of `plan.ENGINES`; `precision` is ours. Raises Failure where there are no weights."""
    if name == "gleeman":
        return Ours(threads, precision)
    return Reference(threads) if name == "kokoro" else Onnx(threads, onnx)


def style() -> Samples:
    """VOICE's table, (510, 256)."""
    from gleeman.voices.store import VoiceStore

    return VoiceStore().style(VOICE)


class Ours:
    """Our engine, as the daemon calls it."""

    def __init__(self, threads: int, precision: str) -> None:
        from gleeman import __version__
        from gleeman.records import Clause, LineKey, Row
        from gleeman.speech.registry import make_pipeline
        from gleeman.voices.store import VoiceStore

        self.version = __version__
        self._pipeline = make_pipeline(
            "kokoro", device="cpu", threads=threads, precision=precision, voices=VoiceStore()
        )
        self._pipeline.load(lambda _stage, _progress: None)
        self.dtype = getattr(self._pipeline, "precision", "") or "not told"
        clause = Clause(TEXT, PHONEMES, "en-us", 0, len(TEXT), (), len(PHONEMES), True)
        self._rows = [Row(LineKey(0, 0), 0, clause, VOICE, "neutral", 1.0, 1.0, 0.0, 0.0, 0)]

    def speak(self) -> Samples:
        """Events for lips and subtitles come with it."""
        return self._pipeline.run(self._rows)[0].samples


class Reference:
    """The `kokoro` package's model with our float32 weights."""

    dtype = "float32"

    def __init__(self, threads: int) -> None:
        import torch
        from safetensors.torch import load_file

        from gleeman.speech.models.kokoro.alphabet import symbols
        from gleeman.weights.verify import check

        torch.set_num_threads(threads)
        self.version = version("kokoro")
        importlib.import_module("loguru").logger.disable("kokoro")  # as its __init__ does
        kmodel = _without_init("kokoro", "kokoro.model").KModel
        with tempfile.NamedTemporaryFile(suffix=".pth") as nothing:
            torch.save({}, nothing.name)  # else it fetches weights from the hub
            config = {**KMODEL_CONFIG, "vocab": dict(symbols())}
            self.model = kmodel("hexgrad/Kokoro-82M", config=config, model=nothing.name).eval()
        for module in self.model.modules():
            if hasattr(module, "weight_g"):  # our weights have it folded
                torch.nn.utils.remove_weight_norm(module)
        lacking, _ = self.model.load_state_dict(load_file(check("kokoro")), strict=False)
        lacking = [name for name in lacking if not any(part in name for part in NOT_IN_WEIGHTS)]
        if lacking:
            raise ValueError(f"KModel of kokoro {self.version} wants what the weights lack: {lacking[:4]}")
        self._style = torch.from_numpy(style()[len(PHONEMES) - 1].copy())[None]

    def speak(self) -> Samples:
        """As the package's own pipeline calls it."""
        samples: Samples = self.model(PHONEMES, self._style).numpy()
        return samples

    def macs(self) -> float:
        """Multiplications that the line takes in convolutions, LSTMs and linear layers; attention's own, a
        thousandth of them, are left out."""
        import torch

        total = 0

        def count(module: Any, given: Any, out: Any) -> None:
            nonlocal total
            if isinstance(module, torch.nn.LSTM):
                x = given[0].data if isinstance(given[0], torch.nn.utils.rnn.PackedSequence) else given[0]
                steps = x.numel() // x.shape[-1]
                total += steps * sum(each.numel() for each in module.parameters() if each.dim() == 2)
            elif isinstance(module, torch.nn.ConvTranspose1d):
                total += given[0].shape[-1] * module.weight.numel()
            elif isinstance(module, torch.nn.Conv1d):
                total += out.shape[-1] * module.weight.numel()
            else:
                total += out.numel() * module.in_features

        kinds = (torch.nn.Conv1d, torch.nn.ConvTranspose1d, torch.nn.LSTM, torch.nn.Linear)
        counted = [module for module in self.model.modules() if isinstance(module, kinds)]
        hooks = [module.register_forward_hook(count) for module in counted]
        self.speak()
        for hook in hooks:
            hook.remove()
        return float(total)


class Onnx:
    """The `kokoro-onnx` package on the int8 export."""

    dtype = "int8"

    def __init__(self, threads: int, onnx: Path) -> None:
        import onnxruntime
        from kokoro_onnx import Kokoro

        self.version = version("kokoro-onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
        self._voice = style()[:, None]  # (510, 1, 256), as its voices file has them
        with tempfile.TemporaryDirectory() as folder:
            voices = Path(folder) / "voices.npz"
            np.savez(voices, af_heart=self._voice)
            self._kokoro = Kokoro.from_session(session, str(voices))

    def speak(self) -> Samples:
        """Untrimmed, as ours is."""
        samples, _ = self._kokoro.create(PHONEMES, self._voice, is_phonemes=True, trim=False)
        return np.asarray(samples, np.float32)


def _without_init(package: str, module: str) -> Any:
    """Import a module of a package without the package's __init__, which wants misaki[en] and spaCy."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    shell = types.ModuleType(package)
    shell.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[package] = shell
    return importlib.import_module(module)
