"""ONNX: operators of com.microsoft against their definitions in numpy."""

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper

import disc

F = TensorProto.FLOAT


def model(op, inputs, constants, rank, outputs=1, **attributes):
    """One node; ``inputs`` are (name, dims), ``constants`` by name, both in the operator's order."""
    names = [name for name, _ in inputs] + list(constants)
    results = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain="com.microsoft", **attributes)],
        "test",
        [helper.make_tensor_value_info(name, F, dims) for name, dims in inputs],
        [helper.make_tensor_value_info("y0", F, [None] * rank)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_skip_layer_normalization():
    scale, shift = floats(8), floats(9)[:8]
    proto = model("SkipLayerNormalization", [("x", ["n", 8]), ("s", ["n", 8])], {"g": scale, "b": shift}, 2)
    compiled = disc.compile(proto)
    for n in (1, 5):
        x, s = floats(n, 8), floats(8, n).T.copy()
        t = x + s
        want = (t - t.mean(-1, keepdims=True)) / np.sqrt(t.var(-1, keepdims=True) + 1e-12) * scale + shift
        np.testing.assert_allclose(compiled(torch.from_numpy(x), torch.from_numpy(s)).numpy(), want, atol=1e-5)


def test_dynamic_quantize_matmul():
    weight = np.random.default_rng(0).integers(-128, 128, (6, 4)).astype("int8")
    scale = np.float32([0.02, 0.01, 0.03, 0.05])
    proto = model("DynamicQuantizeMatMul", [("x", ["n", 6])], {"w": weight, "s": scale}, 2)
    compiled = disc.compile(proto)
    for n in (1, 3):
        x = floats(n, 6)
        step = np.float32((max(x.max(), 0) - min(x.min(), 0)) / np.float32(255))
        zero = np.clip(np.rint(-min(x.min(), 0) / step), 0, 255)
        whole = np.clip(np.rint(x / step) + zero, 0, 255) - zero
        want = (whole @ weight.astype("float32")) * (step * scale)
        np.testing.assert_allclose(compiled(torch.from_numpy(x)).numpy(), want, rtol=1e-5, atol=1e-5)


def test_matmul_of_four_bits():
    values = np.random.default_rng(1).integers(0, 16, (3, 32)).astype("uint8")
    packed = (values[:, 0::2] | values[:, 1::2] << 4).reshape(3, 2, 8)
    scales, zeros = np.abs(floats(3, 2)), np.uint8([[0x37], [0x88], [0xF0]])
    proto = model(
        "MatMulNBits",
        [("x", ["n", 32])],
        {"w": packed, "s": scales.reshape(-1), "z": zeros.reshape(-1)},
        2,
        K=32,
        N=3,
        bits=4,
        block_size=16,
    )
    compiled = disc.compile(proto)
    middle = np.stack([zeros[:, 0] & 15, zeros[:, 0] >> 4], 1)
    weight = (values.reshape(3, 2, 16).astype("float32") - middle[..., None]) * scales[..., None]
    for n in (1, 4):
        x = floats(n, 32)
        np.testing.assert_allclose(compiled(torch.from_numpy(x)).numpy(), x @ weight.reshape(3, 32).T, atol=1e-3)


def test_attention():
    weight, bias = floats(8, 24), floats(24)
    proto = model("Attention", [("x", ["n", "t", 8])], {"w": weight, "b": bias}, 3, num_heads=2, unidirectional=1)
    compiled = disc.compile(proto)
    for n, t in ((1, 1), (2, 5)):
        x = floats(n, t, 8)
        q, k, v = (p.reshape(n, t, 2, 4).transpose(0, 2, 1, 3) for p in np.split(x @ weight + bias, 3, -1))
        scores = q @ k.transpose(0, 1, 3, 2) / 2 + np.triu(np.full((t, t), -np.inf, "float32"), 1)
        want = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(n, t, 8)
        np.testing.assert_allclose(compiled(torch.from_numpy(x)).numpy(), want, atol=1e-4)
