"""Models by name, devices by name, and that nothing heavy is imported before it must be."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from gleeman.errors import Failure, InputError
from gleeman.speech import registry
from gleeman.speech.registry import (
    LatePipeline,
    make_pipeline,
    pick_device,
    pick_precision,
    warm_torch_files,
)
from gleeman.voices.store import VoiceStore
from tick_helpers import FakePipeline, row


@pytest.mark.parametrize("model", ["babble", "silent"])
def test_stand_ins_are_made_by_name_and_need_no_phonemes(model):
    pipeline = make_pipeline(model, device="cuda:7", threads=3, quality="fast")
    assert pipeline.name == model
    assert not pipeline.needs_phonemes
    assert len(pipeline.run([row("hello")])) == 1


def test_an_unknown_model_is_named_with_the_known_ones_and_the_near_one():
    with pytest.raises(
        InputError, match=r"'kokroo' is not known.*kokoro, babble, silent.*mean 'kokoro'"
    ) as caught:
        make_pipeline("kokroo")
    assert caught.value.code == "unknown-model"


def test_a_quality_that_kokoro_does_not_have_is_refused():
    with pytest.raises(InputError, match="'auto' or 'high'") as caught:
        make_pipeline("kokoro", quality="fast", voices=VoiceStore())
    assert caught.value.code == "unsupported"


def test_making_pipelines_imports_no_torch():
    code = (
        "import sys\n"
        "from gleeman.speech.registry import make_pipeline\n"
        "from gleeman.voices.store import VoiceStore\n"
        "import gleeman.tick.engine\n"
        "for model in ('babble', 'silent', 'kokoro'):\n"
        "    make_pipeline(model, voices=VoiceStore())\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'soxr', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_missing_weights_name_the_command_that_fetches_them(tmp_path, monkeypatch):
    monkeypatch.setenv("GLEEMAN_HOME", str(tmp_path))
    pipeline = make_pipeline("kokoro", device="cpu", voices=VoiceStore())
    with pytest.raises(Failure, match="gleeman models fetch kokoro") as caught:
        pipeline.load(lambda *_: None)
    assert caught.value.code == "model-missing"


def test_a_late_pipeline_is_made_on_the_device_when_it_is_loaded():
    inner, asked, reports = FakePipeline(), [], []

    def make(device, precision):
        asked.append((device, precision))
        return inner

    late = LatePipeline("fake", "cpu", make, "float32")
    assert late.device == ""
    assert late.estimate_frames(row("hello there")) > 0
    with pytest.raises(Failure, match="not loaded"):
        late.run([row("hello")])
    late.load(lambda stage, progress: reports.append((stage, progress)))
    assert asked == [("cpu", "float32")] == [(late.device, late.precision)]
    assert (late.device_reason, late.precision_reason) == ("asked for", "asked for")
    assert late.budget is None
    assert late.device_memory() is None
    assert late.estimate_frames(row("hello there")) == len("hello there")
    assert late.run([row("hello")])[0].samples.size == 500
    loading = [progress for stage, progress in reports if stage == "loading"]
    assert loading == sorted(loading)
    assert ("warming", 0.5) in reports
    late.close()
    assert inner.closed


@pytest.fixture
def cuda(monkeypatch):
    """A torch that sees as many CUDA devices as the test says."""

    def pretend(count: int, driver: bool = True):
        fake = SimpleNamespace(
            is_available=lambda: count > 0, device_count=lambda: count, get_device_name=lambda n: f"GPU {n}"
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake))
        monkeypatch.setattr(registry, "_nvidia_driver", lambda: driver)

    return pretend


def test_the_processor_is_taken_when_asked_for(cuda):
    cuda(2)
    assert pick_device("cpu") == ("cpu", "asked for")


def test_auto_takes_the_first_gpu_where_there_is_one(cuda):
    cuda(2)
    assert pick_device("auto") == ("cuda:0", "GPU 0 found")


def test_auto_falls_back_to_the_processor_and_says_why(cuda):
    cuda(0, driver=False)
    assert pick_device("auto") == ("cpu", "no NVIDIA driver on this machine")
    cuda(0)
    assert pick_device("auto") == ("cpu", "torch finds no CUDA device that it can use")


@pytest.mark.parametrize(("asked", "given"), [("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_gpu_is_taken_by_its_number(cuda, asked, given):
    cuda(2)
    assert pick_device(asked) == (given, "asked for")


@pytest.mark.parametrize(("count", "told"), [(0, "torch sees none"), (1, "torch sees 1 CUDA device;")])
def test_a_gpu_that_is_not_there_is_refused(cuda, count, told):
    cuda(count)
    with pytest.raises(Failure, match=told) as caught:
        pick_device("cuda:1")
    assert caught.value.code == "no-device"


@pytest.mark.parametrize(
    ("native", "picked", "why"),
    [(True, "bfloat16", "A GPU computes in it"), (False, "float32", "A GPU has no bfloat16 of its own")],
)
def test_a_gpu_speaks_in_bfloat16_where_it_has_it_without_emulation(monkeypatch, native, picked, why):
    found = SimpleNamespace(name="A GPU", major=8 if native else 7)
    fake = SimpleNamespace(get_device_properties=lambda device: found)
    version = SimpleNamespace(hip=None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake, version=version))
    precision, reason = pick_precision("auto", "cuda:0")
    assert precision == picked
    assert reason.startswith(why)


def test_a_precision_that_is_asked_for_is_taken_but_float16_on_a_processor():
    assert pick_precision("float16", "cuda:0") == ("float16", "asked for")
    assert pick_precision("bfloat16", "cpu") == ("bfloat16", "asked for")
    with pytest.raises(Failure, match="float16 is for a GPU") as caught:
        pick_precision("float16", "cpu")
    assert caught.value.code == "unsupported"


def test_torchs_libraries_are_read_once_and_never_when_torch_is_there(tmp_path, monkeypatch):
    lib = tmp_path / "torch" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("")
    (lib / "libtorch_cpu.so").write_bytes(b"x" * 3_000_000)
    (lib / "libtorch_cuda.so").write_bytes(b"x" * 5_000_000)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert warm_torch_files(lambda _: None) == 3_000_000
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert warm_torch_files(lambda _: None) == 0
