"""Kokoro's weights from the forms they are handed out in, as float32 tensors under their torch names.

    tensors = read_onnx(Path("kokoro-v1.0.int8.onnx"))      # dynamic int8, names taken from the graph
    tensors = read_pth(Path("kokoro-v1_0.pth"), model_shapes())     # or the original checkpoint
    check_whole(tensors)
    save(tensors, Path("kokoro-82m-v1.0.safetensors"), {"source": "…"})

Both give the same names: those of the original modules with weight norm folded into the weight,
without the ALBERT pooler (its output is unused) and the affines of the instance norms (identity).
Knows nothing of downloads, checksums and where files belong.

Peak memory of the int8 conversion: 0.46 GB resident (the graph 0.09, the tensors 0.33; measured).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import Failure

Array = npt.NDArray[Any]
Tensors = dict[str, npt.NDArray[np.float32]]

MODULES = ("bert", "bert_encoder", "predictor", "text_encoder", "decoder")
TENSORS = 457
"""Of the whole model."""
PARAMETERS = 81_140_664
"""Numbers in them; ALBERT's shared layer counted once."""


# -- the int8 ONNX export ----------------------------------------------------------------------------


def read_onnx(path: Path) -> Tensors:
    """Every weight of the dynamically quantised export, dequantised.

    A weight's own name in the graph is often a number, so it is named after the node that uses it:
    node names keep the module's path. What was not quantised under its torch name keeps it.
    Raises Failure "model-damaged" when the file is no such graph.
    """
    import onnx  # half a second and 26 MB that only a conversion needs

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # the protobuf library has a tree of its own for this
        raise Failure(f"{path.name} is not a readable ONNX file: {error}", "model-damaged") from None
    stored = {tensor.name: tensor for tensor in graph.initializer}
    tensors: Tensors = {}
    try:
        for node in graph.node:
            for name, value in _weights_of(node, stored):
                # ALBERT's twelve layers are one: its nodes come twelve times, the first names the tensor.
                tensors.setdefault(name, _float32(value))
        for name in stored:
            plain = _plain_name(name)
            if plain:
                tensors[plain] = _float32(_value(stored, name))
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise Failure(
            f"{path.name} is not the int8 export that we know: {error!r}", "model-damaged"
        ) from None
    return tensors


def module_path(node_name: str) -> str:
    """The torch module that a node came from.

    >>> module_path("/encoder/text_encoder/cnn.0/cnn.0.0/Conv_quant")
    'text_encoder.cnn.0.0'
    >>> module_path("/encoder/F0.0/conv1/Conv_quant")
    'predictor.F0.0.conv1'
    """
    parts = node_name.strip("/").split("/")[1:-1]  # the first is the half of the export: encoder or decoder
    if not parts:
        return ""
    if parts[0].split(".")[0] not in MODULES:
        parts.insert(0, "predictor")  # traced from one of its methods, which leaves its own name out
    path: list[str] = []
    for part in parts:
        if path and part.startswith(path[-1] + "."):  # a child of a list repeats the list's name
            path.pop()
        path.append(part)
    head, _, number = path[-1].rpartition("_")
    if path[0] == "bert" and number.isdigit():  # query_1 is the second use of query
        path[-1] = head
    return ".".join(path)


def _weights_of(node: Any, stored: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Names and values of the weights that a node uses."""
    inputs, module = list(node.input), module_path(node.name)
    held = [name for name in inputs if name in stored]
    match node.op_type:
        case "MatMulInteger" if inputs[1] in stored:
            # Held as (in, out), a scale for each output, so the columns' scales broadcast as they are.
            yield f"{module}.weight", _dequantised(stored, inputs[1], inputs[3:4]).T
        case "ConvInteger" if inputs[1] in stored:
            yield f"{module}.weight", _dequantised(stored, inputs[1], inputs[3:4], channel_first=True)
        case "Conv" | "ConvTranspose" if ".stft" not in module and "/stft" not in node.name:
            for kind, name in zip(("weight", "bias"), held, strict=False):
                yield f"{module}.{kind}", _value(stored, name)
        case "MatMul" if held:
            yield f"{module}.weight", _value(stored, held[0]).T
        case "Gather" if inputs[0].endswith("_quantized") and inputs[0] in stored:
            zero = inputs[0].removesuffix("_quantized") + "_zero_point"
            yield f"{module}.weight", _dequantised(stored, inputs[0], [zero] if zero in stored else [])
        case "DynamicQuantizeLSTM":
            yield from _lstm_weights(module, stored, inputs)


def _lstm_weights(module: str, stored: Mapping[str, Any], inputs: list[str]) -> Iterator[tuple[str, Array]]:
    """A bidirectional LSTM. The graph holds W (2, in, 4H), R (2, H, 4H), B (2, 8H), gates i o f c; torch
    wants (4H, in), (4H, H) and two biases of (4H,), gates i f c o."""
    w, r = (
        (_value(stored, values).astype(np.float32) - _per_direction(stored, zero))
        * _per_direction(stored, scale)
        for values, scale, zero in ((inputs[1], inputs[8], inputs[9]), (inputs[2], inputs[10], inputs[11]))
    )
    bias = _value(stored, inputs[3])
    hidden = r.shape[1]
    i, o, f, c = np.arange(4 * hidden).reshape(4, hidden)
    gates = np.concatenate([i, f, c, o])
    for direction, suffix in enumerate(("", "_reverse")):
        yield f"{module}.weight_ih_l0{suffix}", w[direction].T[gates]
        yield f"{module}.weight_hh_l0{suffix}", r[direction].T[gates]
        yield f"{module}.bias_ih_l0{suffix}", bias[direction, : 4 * hidden][gates]
        yield f"{module}.bias_hh_l0{suffix}", bias[direction, 4 * hidden :][gates]


def _per_direction(stored: Mapping[str, Any], name: str) -> Array:
    return _value(stored, name).astype(np.float32).reshape(2, 1, -1)


def _dequantised(stored: Mapping[str, Any], name: str, zero: list[str], channel_first: bool = False) -> Array:
    """(quantised - zero point) x scale; scale and zero point are one number or one for each output channel,
    which is the first axis of a convolution and the last of a matrix."""
    values = _value(stored, name).astype(np.float32)
    column = (-1,) + (1,) * (values.ndim - 1) if channel_first else (-1,)
    scale = _value(stored, name.removesuffix("_quantized") + "_scale").reshape(column)
    if zero:
        values -= _value(stored, zero[0]).astype(np.float32).reshape(column)
    return values * scale


def _plain_name(name: str) -> str:
    """The torch name of a weight that was left as it was, or "" for what is none."""
    half, _, rest = name.partition(".")
    if half == "decoder":
        rest = rest if rest.startswith("decoder.") else ""
    elif half != "encoder":
        rest = ""
    last = rest.rpartition(".")[2]
    # Left out: bases of the Fourier transform, which the model computes, and parts of quantised weights.
    if "stft" in rest or last.startswith(("weight_", "bias_")):
        return ""
    return rest


def _value(stored: Mapping[str, Any], name: str) -> Array:
    from onnx import TensorProto, numpy_helper

    tensor = stored[name]
    if tensor.data_location != TensorProto.DEFAULT:  # it could name any file of this machine
        raise ValueError(f"{name} lies outside the file")
    return np.asarray(numpy_helper.to_array(tensor))


def _float32(value: Array) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(value, dtype=np.float32)


# -- the original checkpoint -------------------------------------------------------------------------


def model_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that our model loads. Imports torch."""
    import torch

    from .model import Kokoro

    with torch.device("meta"):  # no memory, no numbers
        return {name: tuple(value.shape) for name, value in Kokoro().state_dict().items()}


def read_pth(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    """Every weight in `shapes` that the original checkpoint has: a dictionary of modules' state dictionaries.

    Names may begin with "module." (left by data-parallel training); weight norm is folded.
    Nothing but tensors is unpickled. Raises Failure "model-damaged" when it holds anything else.
    """
    import torch

    try:
        modules = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Failure(
            f"{path.name} is not a checkpoint of plain tensors: {reason}", "model-damaged"
        ) from None
    tensors: Tensors = {}
    try:
        for module in MODULES:
            state = {name.removeprefix("module."): value for name, value in modules[module].items()}
            for name, value in _folded(state):
                if f"{module}.{name}" in shapes:
                    tensors[f"{module}.{name}"] = _float32(value.float().numpy())
                else:
                    _check_unused(name, value)
    except (KeyError, AttributeError, TypeError, IndexError, RuntimeError) as error:
        raise Failure(
            f"{path.name} is not laid out as Kokoro's checkpoint: {error!r}", "model-damaged"
        ) from None
    return tensors


def _folded(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The state with weight norm's two halves joined: g x v / |v|, the norm over all but the first axis."""
    import torch

    for magnitude, direction in (
        ("weight_g", "weight_v"),
        ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    ):
        for name in [name for name in state if name.endswith(magnitude)]:
            stem = name.removesuffix(magnitude)
            g, v = state[name].double(), state[stem + direction].double()
            norm = torch.linalg.vector_norm(v, dim=tuple(range(1, v.ndim)), keepdim=True)
            yield stem + "weight", (g * v / norm)
    for name, value in state.items():
        if not name.endswith(("weight_g", "weight_v", "weight.original0", "weight.original1")):
            yield name, value


def _check_unused(name: str, value: Any) -> None:
    """Our instance norms have no affine: one that does something would be missed."""
    if name.endswith((".norm.weight", ".norm.bias")):
        identity = 1.0 if name.endswith("weight") else 0.0
        if bool((value != identity).any()):
            raise Failure(f"{name} is not the identity: this is not Kokoro-82M v1.0", "model-damaged")


# -- both --------------------------------------------------------------------------------------------


def check_whole(tensors: Tensors, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Raise Failure "model-damaged" unless every weight is there, has its shape and is finite.

    shapes: of every tensor by name; None: those of Kokoro-82M are checked by their number and their sum.
    """
    if shapes is None:
        numbers = sum(value.size for value in tensors.values())
        if (len(tensors), numbers) != (TENSORS, PARAMETERS):
            raise Failure(
                f"the weights hold {len(tensors)} tensors with {numbers:,} numbers; "
                f"Kokoro-82M v1.0 has {TENSORS} with {PARAMETERS:,}",
                "model-damaged",
            )
    else:
        for name, shape in shapes.items():
            if name not in tensors:
                raise Failure(f"the weights lack the tensor {name}", "model-damaged")
            if tensors[name].shape != shape:
                found = tensors[name].shape
                raise Failure(
                    f"the tensor {name} has the shape {found}; it must have {shape}", "model-damaged"
                )
    for name, value in tensors.items():
        if not np.isfinite(value).all():
            raise Failure(f"the tensor {name} holds numbers that are not finite", "model-damaged")


def save(tensors: Tensors, path: Path, origin: Mapping[str, str]) -> None:
    """Write one safetensors file. The same tensors and origin give the same bytes.

    origin goes into the file's metadata under the one key "gleeman", as JSON: safetensors writes several
    keys in an order that changes from run to run. Raises Failure "fetch-failed" when the disk does not
    take it.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    said = json.dumps(dict(origin), sort_keys=True, ensure_ascii=False)
    try:
        save_file(tensors, path, metadata={"gleeman": said})
    except SafetensorError as error:  # which also stands for a full disk
        raise Failure(f"{path} cannot be written: {error}", "fetch-failed") from None
