"""ONNX: windows of pools that are larger than the input, and sizes nested in each other."""

import itertools

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import disc

F = TensorProto.FLOAT
WINDOWS = [
    {"kernel": 2, "stride": 2},
    {"kernel": 3, "stride": 2},
    {"kernel": 3, "stride": 3, "pads": (1, 0)},
    {"kernel": 4, "stride": 3, "dilation": 2},
    {"kernel": 5, "stride": 2, "pads": (1, 1)},
    {"kernel": 5, "stride": 2, "ceil": 1},
    {"kernel": 3, "stride": 2, "pads": (1, 1), "ceil": 1},
    {"kernel": 3, "stride": 1},
]


KINDS = {
    "max": ("MaxPool", {}),
    "mean": ("AveragePool", {}),
    "padded": ("AveragePool", {"count_include_pad": 1}),
    "norm": ("LpPool", {"p": 2}),
}


def pools(window):
    """Each kind of pool over the same windows, in one model."""
    low, high = window.get("pads", (0, 0))
    common = {
        "kernel_shape": [window["kernel"], 1],
        "strides": [window["stride"], 1],
        "pads": [low, 0, high, 0],
        "dilations": [window.get("dilation", 1), 1],
        "ceil_mode": window.get("ceil", 0),
    }
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], [kind], **common, **more) for kind, (op, more) in KINDS.items()],
        "pools",
        [helper.make_tensor_value_info("x", F, ["n", 2, "h", 1])],
        [helper.make_tensor_value_info(kind, F, [None] * 4) for kind in KINDS],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])


def windows(size, kernel, stride, pads=(0, 0), dilation=1, ceil=0):
    """The places of each window, as ONNX Runtime counts windows: rounded towards zero without ``ceil``."""
    low, high = pads
    room = size + low + high - dilation * (kernel - 1) - 1
    count = -(-room // stride) + 1 if ceil else int(room / stride) + 1
    if ceil and (count - 1) * stride >= size + low:
        count -= 1
    return None if count < 0 else [[w * stride - low + k * dilation for k in range(kernel)] for w in range(count)]


def expected(x, kind, window):
    """The pool along the dim before the last."""
    places, size = windows(x.shape[2], **window), x.shape[2]
    low, high = window.get("pads", (0, 0))
    out = []
    for place in places:
        values = x[:, :, [p for p in place if 0 <= p < size]]
        padded = sum(-low <= p < size + high for p in place)
        out.append(
            {
                "max": lambda v: v.max(2),
                "mean": lambda v: v.mean(2),
                "padded": lambda v, n=padded: v.sum(2) / n,
                "norm": lambda v: np.sqrt((v * v).sum(2)),
            }[kind](values)
        )
    return np.stack(out, 2) if out else x[:, :, :0]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_inputs_smaller_than_a_window(window):
    """Less than a stride smaller: one window, of what there is."""
    compiled = disc.compile(pools(window))
    for batch, size in itertools.product((1, 3), (9, 1, 2, 3, 4, 5, 6, 13)):
        x = np.random.default_rng(size).standard_normal((batch, 2, size, 1)).astype("float32")
        if windows(size, **window) is None:
            with pytest.raises(disc.ShapeError, match="its input is smaller than a window"):
                compiled(torch.from_numpy(x))
            continue
        found = compiled(torch.from_numpy(x))
        for kind in KINDS:
            np.testing.assert_allclose(found[kind].numpy(), expected(x, kind, window), rtol=1e-5)
    with pytest.raises(disc.ShapeError, match="the input has a spatial size of 0"):
        compiled(torch.empty(1, 2, 0, 1))


def test_sizes_nested_in_each_other():
    """Padding that keeps a size mentions it several times: expressions are as large as the graph, not as its tree."""
    count = 6
    nodes = [
        helper.make_node(
            "MaxPool", [f"x{i}"], [f"x{i + 1}"], kernel_shape=[3, 1], strides=[2, 1], auto_pad="SAME_LOWER"
        )
        for i in range(count)
    ]
    graph = helper.make_graph(
        nodes,
        "nested",
        [helper.make_tensor_value_info("x0", F, [1, 1, "h", 1])],
        [helper.make_tensor_value_info(f"x{count}", F, [None] * 4)],
    )
    compiled = disc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]))
    x = torch.randn(1, 1, 2**count, 1)
    assert compiled(x).shape == (1, 1, 1, 1)
    torch.testing.assert_close(compiled(x[:, :, :5]).flatten(), x[:, :, :5].amax().reshape(1))
