"""The converters: an int8 graph and the original checkpoint to float32 tensors under their torch names."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors import safe_open

from gleeman.errors import Failure
from gleeman.speech.models.kokoro import convert
from gleeman.speech.models.kokoro.config import KokoroConfig
from gleeman.speech.models.kokoro.model import Kokoro, load
from gleeman.weights import verify
from weights_helpers import HIDDEN, INPUTS, LSTM_NAMES, TinyGraph, tiny_graph


def _read(graph: TinyGraph, folder: Path) -> convert.Tensors:
    path = folder / "tiny.onnx"
    graph.save(path)
    return convert.read_onnx(path)


def test_every_kind_of_weight_gets_its_torch_name_and_value(tmp_path: Path) -> None:
    graph = tiny_graph()
    tensors = _read(graph, tmp_path)
    assert tensors.keys() == graph.expected.keys() | LSTM_NAMES
    for name, value in graph.expected.items():
        assert tensors[name].dtype == np.float32
        np.testing.assert_array_equal(tensors[name], value, err_msg=name)


def test_a_converted_lstm_computes_what_the_graph_computes(tmp_path: Path) -> None:
    """Gate order and bias halves are proved by running both, not by repeating the permutation."""
    graph = tiny_graph()
    tensors = _read(graph, tmp_path)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.stored}

    def dequantised(name: str) -> np.ndarray:
        values = stored[f"{name}_quantized"].astype(np.float32)
        zero = stored[f"{name}_zero_point"].astype(np.float32)[:, None, None]
        return ((values - zero) * stored[f"{name}_scale"][:, None, None]).transpose(0, 2, 1)

    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=HIDDEN, direction="bidirectional"
    )
    values = {"w": dequantised("w"), "r": dequantised("r"), "b": stored["b"]}
    reference = helper.make_model(
        helper.make_graph(
            [node],
            "lstm",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 1, INPUTS])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in values.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    x = np.random.default_rng(2).normal(size=(7, 1, INPUTS)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(reference.SerializeToString()).run(None, {"x": x})

    lstm = torch.nn.LSTM(INPUTS, HIDDEN, bidirectional=True)
    prefix = "text_encoder.lstm."
    lstm.load_state_dict({n.removeprefix(prefix): torch.from_numpy(tensors[n]) for n in LSTM_NAMES})
    with torch.no_grad():
        y = lstm(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(y, np.concatenate([expected[:, 0], expected[:, 1]], -1), atol=1e-6)


@pytest.mark.parametrize("lost", ["c_scale", "w_zero_point", "q_scale"])
def test_a_graph_that_lacks_a_scale_is_refused(tmp_path: Path, lost: str) -> None:
    graph = tiny_graph()
    graph.stored = [tensor for tensor in graph.stored if tensor.name != lost]
    with pytest.raises(Failure, match=lost) as caught:
        _read(graph, tmp_path)
    assert caught.value.code == "model-damaged"


@pytest.mark.parametrize("data", [b"", b"no graph at all", bytes(range(256))])
def test_a_file_that_is_no_graph_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    with pytest.raises(Failure) as caught:
        convert.check_whole(convert.read_onnx(path))
    assert caught.value.code == "model-damaged"


def test_data_outside_the_graph_is_not_read(tmp_path: Path) -> None:
    """An ONNX file may name any path of the machine as the place of its weights."""
    (tmp_path / "secret").write_bytes(bytes(64))
    graph = tiny_graph()
    for tensor in graph.stored:
        if tensor.name == "c_quantized":
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="secret")
    with pytest.raises(Failure):
        _read(graph, tmp_path)


def test_the_same_tensors_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    tensors = _read(tiny_graph(), tmp_path)
    origin = {"source": "somewhere", "licence": "Apache-2.0", "model": "é"}
    files = []
    for n, names in enumerate([sorted(tensors), sorted(tensors, reverse=True), list(tensors)] * 3):
        path = tmp_path / f"{n}.safetensors"
        convert.save({name: tensors[name] for name in names}, path, origin)
        files.append(path.read_bytes())
    assert len(set(files)) == 1


# -- the original checkpoint -------------------------------------------------------------------------

TINY = KokoroConfig(
    tokens=12,
    hidden=8,
    style=4,
    text_layers=1,
    max_duration=5,
    bert_embedding=4,
    bert_hidden=8,
    bert_heads=2,
    bert_layers=1,
    bert_feed_forward=8,
    bert_positions=16,
    decoder_hidden=16,
    decoder_skip=4,
    upsample_channels=8,
)


def _checkpoint(model: Kokoro, magnitude: str, direction: str) -> dict[str, dict[str, torch.Tensor]]:
    """The model's state in the original's layout: modules, a "module." prefix, weight norm in two halves."""
    modules: dict[str, dict[str, torch.Tensor]] = {name: {} for name in convert.MODULES}
    for name, value in model.state_dict().items():
        module, _, rest = name.partition(".")
        if rest.endswith(".weight") and value.ndim == 3:
            stem = "module." + rest.removesuffix("weight")
            norm = value.flatten(1).norm(dim=1).view(-1, 1, 1)
            modules[module][stem + magnitude], modules[module][stem + direction] = norm, value * 3.0
        else:
            modules[module]["module." + rest] = value
    modules["bert"]["module.pooler.weight"] = torch.ones(8, 8)
    modules["bert"]["module.embeddings.position_ids"] = torch.arange(16)
    return modules


@pytest.fixture
def tiny() -> Kokoro:
    torch.manual_seed(3)
    return Kokoro(TINY)


def _shapes(model: Kokoro) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ("magnitude", "direction"),
    [
        ("weight_g", "weight_v"),
        ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    ],
)
def test_a_checkpoint_gives_the_weights_with_the_norm_folded(
    tmp_path: Path, tiny: Kokoro, magnitude: str, direction: str
) -> None:
    path = tmp_path / "tiny.pth"
    torch.save(_checkpoint(tiny, magnitude, direction), path)
    tensors = convert.read_pth(path, _shapes(tiny))
    convert.check_whole(tensors, _shapes(tiny))
    assert tensors.keys() == tiny.state_dict().keys()
    for name, value in tiny.state_dict().items():
        np.testing.assert_allclose(tensors[name], value.numpy(), rtol=1e-6, atol=1e-7, err_msg=name)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_that_runs_code_is_refused_and_does_not_run_it(tmp_path: Path, tiny: Kokoro) -> None:
    trace = tmp_path / "ran"
    for name, write in (("a.pth", torch.save), ("b.pth", lambda x, p: p.write_bytes(pickle.dumps(x, 2)))):
        write({**_checkpoint(tiny, "weight_g", "weight_v"), "extra": Bomb(trace)}, tmp_path / name)
        with pytest.raises(Failure) as caught:
            convert.read_pth(tmp_path / name, _shapes(tiny))
        assert caught.value.code == "model-damaged"
        assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"PK", [1, 2], {"bert": 3}, {"bert": {}}])
def test_a_checkpoint_of_another_layout_is_refused(tmp_path: Path, tiny: Kokoro, content: Any) -> None:
    path = tmp_path / "x.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(Failure) as caught:
        convert.read_pth(path, _shapes(tiny))
    assert caught.value.code == "model-damaged"


def test_an_instance_norm_with_an_affine_that_does_something_is_refused(tmp_path: Path, tiny: Kokoro) -> None:
    path = tmp_path / "x.pth"
    checkpoint = _checkpoint(tiny, "weight_g", "weight_v")
    checkpoint["decoder"]["module.encode.norm1.norm.weight"] = torch.ones(4)
    torch.save(checkpoint, path)
    convert.read_pth(path, _shapes(tiny))
    checkpoint["decoder"]["module.encode.norm1.norm.weight"] = torch.full((4,), 1.5)
    torch.save(checkpoint, path)
    with pytest.raises(Failure, match="norm1"):
        convert.read_pth(path, _shapes(tiny))


def test_missing_misshapen_and_infinite_tensors_are_named() -> None:
    shapes = {"a": (2, 3), "b": (1,)}
    good = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.float32)}
    convert.check_whole(good, shapes)
    for change, said in (
        ({"a": np.zeros((3, 2), np.float32)}, r"tensor a .*\(3, 2\).*\(2, 3\)"),
        ({"b": np.full(1, np.inf, np.float32)}, "tensor b"),
    ):
        with pytest.raises(Failure, match=said) as caught:
            convert.check_whole({**good, **change}, shapes)
        assert caught.value.code == "model-damaged"
    with pytest.raises(Failure, match="lack the tensor b"):
        convert.check_whole({"a": good["a"]}, shapes)
    with pytest.raises(Failure, match="2 tensors"):
        convert.check_whole(good)


def test_the_counts_are_those_of_the_model_that_loads_them() -> None:
    shapes = convert.model_shapes()
    assert len(shapes) == convert.TENSORS
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == convert.PARAMETERS


@pytest.mark.weights
def test_the_real_weights_are_whole_and_fit_the_model(weights: Path) -> None:
    path = verify.check("kokoro")
    assert path.parent == weights
    with safe_open(path, "pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert shapes == convert.model_shapes()
    load(path, torch.device("cpu"))  # raises where one is missing
