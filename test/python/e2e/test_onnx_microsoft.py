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
    assert " nibbles " in compiled.ir("schedule")  # two codes in a byte
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


def real(x, scale, zero):
    return (x.astype("float64") - zero) * scale


def quantised(x, scale, zero):
    return np.clip(np.rint(x / scale) + zero, 0, 255)


def whole(*shape):
    return np.random.default_rng(sum(shape)).integers(0, 256, shape).astype("uint8")


def quantised_model(items):
    """Nodes on one input x of bytes, with constants; ``items``: result, operator, operands (None: x), attributes."""
    nodes, constants = [], {}
    for name, op, operands, attributes in items:
        names = ["x" if value is None else f"{name}_{i}" for i, value in enumerate(operands)]
        constants.update({n: value for n, value in zip(names, operands, strict=True) if value is not None})
        nodes.append(helper.make_node(op, names, [name], domain="com.microsoft", **attributes))
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", 6])],
        [helper.make_empty_tensor_value_info(name) for name, *_ in items],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def test_operators_on_quantised_tensors():
    """Each is its operator on real numbers, rounded: at most one step from the exact result."""
    scale, out = np.float32(0.05), np.float32(0.07)
    zero, middle = np.uint8(120), np.uint8(90)
    other, signed = whole(6), whole(6, 4).astype("int8")
    columns = np.float32([0.01, 0.02, 0.03, 0.04])
    more, shift = np.int32([50, -70, 3, 0]), floats(4)
    ends = (out, middle)
    fine = (np.float32(1 / 256), np.uint8(0))
    compiled = disc.compile(
        quantised_model(
            [
                ("sum", "QLinearAdd", (None, scale, zero, other, out, middle, *ends), {}),
                ("product", "QLinearMul", (None, scale, zero, other, out, middle, *ends), {}),
                ("sigmoid", "QLinearSigmoid", (None, scale, zero, *fine), {}),
                ("leaky", "QLinearLeakyRelu", (None, scale, zero, *ends), {"alpha": 0.2}),
                ("softmax", "QLinearSoftmax", (None, scale, zero, *fine), {"axis": -1, "opset": 13}),
                ("both", "QLinearConcat", (*ends, None, scale, zero, other[None], out, middle), {"axis": 0}),
                ("gemm", "QGemm", (None, scale, zero, signed, columns, np.zeros(4, "int8"), more, *ends), {}),
                (
                    "floats",
                    "MatMulIntegerToFloat",
                    (None, signed, scale, columns, zero, np.int8([0, 1, 2, 3]), shift),
                    {},
                ),
            ]
        )
    )
    for n in (1, 4, 7):
        x = whole(n, 6)
        a, b = real(x, scale, zero), real(other, out, middle)
        e = np.exp(a - a.max(-1, keepdims=True))
        wanted = {
            "sum": quantised(a + b, *ends),
            "product": quantised(a * b, *ends),
            "sigmoid": quantised(1 / (1 + np.exp(-a)), *fine),
            "leaky": quantised(np.where(a < 0, 0.2 * a, a), *ends),
            "softmax": quantised(e / e.sum(-1, keepdims=True), *fine),
            "both": quantised(np.concatenate([a, b[None]]), *ends),
            "gemm": quantised(a @ (signed * columns) + more * scale * columns, *ends),
        }
        found = compiled(torch.from_numpy(x))
        for name, value in wanted.items():
            assert np.abs(found[name].numpy().astype(float) - value).max() <= 1, name
        exact = a @ ((signed.astype(float) - [0, 1, 2, 3]) * columns) + shift
        np.testing.assert_allclose(found["floats"].numpy(), exact, rtol=1.3e-6, atol=1e-5)


def test_dynamic_quantize_lstm():
    """Weights as bytes with a scale; the input of each product is quantised again."""
    rng = np.random.default_rng(5)
    w, r = (rng.integers(-127, 128, (1, k, 12)).astype("int8") for k in (5, 3))
    bias, scale, zero = floats(1, 24), np.float32([0.01]), np.zeros(1, "int8")
    names = ["x", "w", "r", "bias", "", "h", "c", "", "ws", "wz", "rs", "rz"]
    constants = {"w": w, "r": r, "bias": bias, "ws": scale, "wz": zero, "rs": scale, "rz": zero}
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=3)],
        "lstm",
        [
            helper.make_tensor_value_info("x", F, ["time", "n", 5]),
            helper.make_tensor_value_info("h", F, [1, "n", 3]),
            helper.make_tensor_value_info("c", F, [1, "n", 3]),
        ],
        [helper.make_tensor_value_info("y", F, [None] * 4)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    compiled = disc.compile(helper.make_model(graph, opset_imports=opsets))

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for time, n in ((1, 1), (4, 2), (7, 3)):
        x, h, c = floats(time, n, 5), floats(1, n, 3)[0], floats(n, 3)
        found = compiled(*(torch.from_numpy(v) for v in (x, h[None], c[None]))).numpy()
        steps = []
        for step in x:
            gates = step @ (w[0] * scale) + h @ (r[0] * scale) + bias[0, :12] + bias[0, 12:]
            i, o, f, g = np.split(gates, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            steps.append(h)
        # The steps of the inputs' quantisation are 1/255 of their range.
        assert np.abs(found[:, 0] - np.stack(steps)).max() < 0.03
