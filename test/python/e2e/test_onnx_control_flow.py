"""ONNX's If, Loop and Scan where data decides, against ONNX's reference at several shapes."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import disc

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def values(*infos):
    return [helper.make_tensor_value_info(*i) for i in infos]


def model(nodes, inputs, outputs, constants=()):
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()]
    graph = helper.make_graph(nodes, "test", values(*inputs), values(*outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def check(proto, calls, expected=None):
    """``expected``: what the model gives, where ONNX's reference lacks something."""
    compiled = disc.compile(proto)
    names = [i.name for i in proto.graph.input]
    for call in calls:
        if expected is None:
            want = ReferenceEvaluator(proto).run(None, dict(zip(names, call, strict=True)))
        else:
            want = expected(*call)
        got = compiled(*(torch.from_numpy(x) for x in call))
        got = list(got.values()) if isinstance(got, dict) else [got]
        for actual, wanted in zip(got, want, strict=True):
            torch.testing.assert_close(actual, torch.from_numpy(np.asarray(wanted)), rtol=1e-5, atol=1e-5)


def inputs(*shape):
    rng = np.random.default_rng(0)
    for batch in (3, 1, 7, 0, 16):
        for shift in (-1, 0.2, 1):
            yield (rng.standard_normal((batch, *shape)) + shift).astype("float32")


def graph(name, nodes, inputs, outputs, constants=()):
    tensors = [numpy_helper.from_array(np.asarray(value), key) for key, value in dict(constants).items()]
    return helper.make_graph(nodes, name, values(*inputs), values(*outputs), tensors)


def test_if():
    """Rows that data picks on one side, all of them on the other; a branch in a branch; a constant on both sides."""
    inner = [
        graph("more", [helper.make_node("Add", ["x", "x"], ["twice"])], [], [("twice", FLOAT, ["n", 4])]),
        graph("less", [helper.make_node("Neg", ["x"], ["minus"])], [], [("minus", FLOAT, ["n", 4])]),
    ]
    then = graph(
        "then",
        [
            helper.make_node("ReduceMax", ["x"], ["row_most"], axes=[1], keepdims=0),
            helper.make_node("Greater", ["row_most", "zero"], ["wanted"]),
            helper.make_node("Compress", ["x", "wanted"], ["picked"], axis=0),
            helper.make_node("Identity", ["five"], ["same"]),
        ],
        [],
        [("picked", FLOAT, ["k", 4]), ("same", FLOAT, [])],
        {"five": np.float32(5)},
    )
    orelse = graph(
        "else",
        [
            helper.make_node("Less", ["total", "ten"], ["less_than"]),
            helper.make_node("If", ["less_than"], ["either"], then_branch=inner[0], else_branch=inner[1]),
            helper.make_node("Identity", ["also_five"], ["same_too"]),
        ],
        [],
        [("either", FLOAT, ["n", 4]), ("same_too", FLOAT, [])],
        {"also_five": np.float32(5)},
    )
    proto = model(
        [
            helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["y", "five_"], then_branch=then, else_branch=orelse),
            helper.make_node("Mul", ["y", "five_"], ["z"]),
            helper.make_node("ReduceSum", ["z", "first"], ["sums"], keepdims=0),
        ],
        [("x", FLOAT, ["n", 4])],
        [("z", FLOAT, ["m", 4]), ("sums", FLOAT, [4])],
        {"zero": np.float32(0), "ten": np.float32(-10), "first": np.array([0])},
    )
    check(proto, [(x,) for x in inputs(4)])


def test_loop():
    """A loop whose condition and count are data, with a tensor that grows, and a row from each step."""
    body = graph(
        "body",
        [
            helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
            helper.make_node("Add", ["state", "number"], ["next"]),
            helper.make_node("Unsqueeze", ["next", "axis"], ["row"]),
            helper.make_node("Concat", ["grown", "row"], ["longer"], axis=0),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "limit"], ["go_on"]),
            helper.make_node("Mul", ["next", "next"], ["square"]),
        ],
        [("i", INT, []), ("go", BOOL, []), ("state", FLOAT, ["n"]), ("grown", FLOAT, ["k", "n"])],
        [("go_on", BOOL, []), ("next", FLOAT, ["n"]), ("longer", FLOAT, ["l", "n"]), ("square", FLOAT, ["n"])],
        {"axis": np.array([0])},
    )
    proto = model(
        [
            helper.make_node("Unsqueeze", ["x", "axis_"], ["first"]),
            helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "start"], ["begin"]),
            helper.make_node("Loop", ["most", "begin", "x", "first"], ["last", "grown_", "squares"], body=body),
            helper.make_node("Shape", ["grown_"], ["extents"]),
        ],
        [("x", FLOAT, ["n"]), ("most", INT, [])],
        [("last", FLOAT, ["n"]), ("grown_", FLOAT, ["l", "n"]), ("squares", FLOAT, ["t", "n"]), ("extents", INT, [2])],
        {"axis_": np.array([0]), "limit": np.float32(30), "start": np.float32(10)},
    )

    def expected(x, most):
        state, grown, squares = x, [x], [np.zeros((0, len(x)), "float32")]
        go_on, i = x.sum() < 10, 0
        while go_on and i < most:
            state = state + np.float32(i)
            grown.append(state)
            squares.append(state[None] ** 2)
            go_on, i = state.sum() < 30, i + 1
        return state, np.stack(grown), np.concatenate(squares), np.array([len(grown), len(x)])

    check(proto, [(x, np.array(most)) for x in inputs() for most in (0, 1, 2, 9, -1)], expected)


def test_scan():
    """Both directions, other axes, and a branch on data in the step."""
    then = graph("then", [helper.make_node("Add", ["state", "now"], ["a"])], [], [("a", FLOAT, [3])])
    orelse = graph("else", [helper.make_node("Sub", ["state", "now"], ["b"])], [], [("b", FLOAT, [3])])
    body = graph(
        "body",
        [
            helper.make_node("ReduceSum", ["now"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["next"], then_branch=then, else_branch=orelse),
            helper.make_node("Mul", ["next", "other"], ["product"]),
            helper.make_node("Identity", ["next"], ["copy"]),
        ],
        [("state", FLOAT, [3]), ("now", FLOAT, [3]), ("other", FLOAT, [3])],
        [("next", FLOAT, [3]), ("product", FLOAT, [3]), ("copy", FLOAT, [3])],
    )
    proto = model(
        [
            helper.make_node("Transpose", ["x"], ["xt"], perm=[1, 0]),
            helper.make_node(
                "Scan",
                ["start", "x", "xt"],
                ["last", "products", "copies"],
                body=body,
                num_scan_inputs=2,
                scan_input_axes=[0, 1],
                scan_input_directions=[1, 0],
                scan_output_axes=[1, 0],
                scan_output_directions=[0, 1],
            ),
        ],
        [("x", FLOAT, ["n", 3])],
        [("last", FLOAT, [3]), ("products", FLOAT, [3, "n"]), ("copies", FLOAT, ["n", 3])],
        {"start": np.zeros(3, "float32"), "zero": np.float32(0)},
    )

    def expected(x):
        state, products, copies = np.zeros(3, "float32"), [], []
        for now, other in zip(x[::-1], x, strict=True):
            state = state + now if now.sum() > 0 else state - now
            products.append(state * other)
            copies.append(state)
        return state, np.stack(products, 1), np.stack(copies[::-1])

    check(proto, [(x,) for x in inputs(3) if x.shape[0]], expected)


def test_data_decides_slices_and_shapes():
    """Ends of slices as numbers from data, also negative; a shape whose 0 keeps an extent and whose -1 is the rest."""
    proto = model(
        [
            helper.make_node("Cast", ["v"], ["w"], to=INT),
            helper.make_node("Slice", ["w", "zero", "two"], ["ends"]),
            helper.make_node("Neg", ["ends"], ["begins"]),
            helper.make_node("Slice", ["x", "begins", "ends"], ["piece"]),
            helper.make_node("Reshape", ["x", "w"], ["shaped"]),
        ],
        [("x", FLOAT, ["n", 6]), ("v", FLOAT, [3])],
        [("piece", FLOAT, [None, None]), ("shaped", FLOAT, [None] * 3)],
        {"zero": np.array([0]), "two": np.array([2])},
    )
    compiled = disc.compile(proto)
    for n, ends in ((4, (2, -1, 3)), (5, (0, 3, -1)), (2, (4, 3, 1)), (1, (1, 6, 1)), (7, (-1, 2, 7))):
        x = torch.randn(n, 6)
        first, second = (slice(-end, end) for end in ends[:2])
        found = compiled(x, torch.tensor(ends, dtype=torch.float32))
        torch.testing.assert_close(found["piece"], torch.from_numpy(x.numpy()[first, second]))
        torch.testing.assert_close(found["shaped"], x.reshape([end or n for end in ends]))
    with pytest.raises(disc.ShapeError, match="changes the number of elements"):
        compiled(torch.randn(4, 6), torch.tensor([5.0, 5.0, 1.0]))
