"""Sequences of ONNX whose length is known while importing, and models of old opsets."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import disc

F = TensorProto.FLOAT


def model(nodes, inputs, outputs, constants=(), opset=17, ir=8):
    """A ModelProto; ``inputs`` are (name, type, shape), ``outputs`` names."""
    graph = helper.make_graph(
        nodes,
        "sequences",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_heads_by_a_split_are_joined_again():
    # As torch.jit.script exports chunk, a list of the pieces, and cat or stack of it.
    proto = model(
        [
            helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
            helper.make_node("SequenceAt", ["parts", "first"], ["a"]),
            helper.make_node("SequenceAt", ["parts", "last"], ["b"]),
            helper.make_node("Tanh", ["b"], ["c"]),
            helper.make_node("SequenceEmpty", [], ["none"]),
            helper.make_node("SequenceInsert", ["none", "c"], ["one"]),
            helper.make_node("SequenceInsert", ["one", "a", "first"], ["list"]),
            helper.make_node("ConcatFromSequence", ["list"], ["joined"], axis=-1),
            helper.make_node("SequenceErase", ["list", "last"], ["short"]),
            helper.make_node("ConcatFromSequence", ["short"], ["stacked"], axis=1, new_axis=1),
            helper.make_node("SequenceLength", ["parts"], ["length"]),
        ],
        [("x", F, ["n", 6])],
        ["joined", "stacked", "length"],
        {"two": np.array(2), "first": np.array(0), "last": np.array(-1)},
    )
    compiled, reference = disc.compile(proto), ReferenceEvaluator(proto)
    for n in (1, 2, 7, 0):
        x = values(n, 6)
        for want, got in zip(reference.run(None, {"x": x}), compiled(torch.from_numpy(x)).values(), strict=True):
            np.testing.assert_allclose(got.numpy(), want, atol=1e-6)


def test_sizes_stay_sizes_in_a_sequence():
    proto = model(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("SplitToSequence", ["shape"], ["sizes"], axis=0, keepdims=0),
            helper.make_node("SequenceAt", ["sizes", "one"], ["n"]),
            helper.make_node("Unsqueeze", ["n", "zero"], ["lead"]),
            helper.make_node("Concat", ["lead", "rest"], ["turned"], axis=0),
            helper.make_node("Reshape", ["x", "turned"], ["y"]),
        ],
        [("x", F, ["m", "n"])],
        ["y"],
        {"one": np.array(1), "zero": np.array([0]), "rest": np.array([-1])},
    )
    x = torch.from_numpy(values(3, 5))
    assert torch.equal(disc.compile(proto)(x), x.reshape(5, 3))


def test_a_sequence_as_output_is_a_list():
    proto = model(
        [
            helper.make_node("SplitToSequence", ["x", "lengths"], ["parts"], axis=1),
            helper.make_node("Relu", ["x"], ["y"]),
        ],
        [("x", F, ["n", 6])],
        ["parts", "y"],
        {"lengths": np.array([1, 2, 3])},
    )
    x = torch.from_numpy(values(4, 6))
    found = disc.compile(proto)(x)
    assert all(torch.equal(a, e) for a, e in zip(found["parts"], x.split([1, 2, 3], 1), strict=True))
    assert torch.equal(found["y"], x.relu())


def test_lengths_that_sizes_decide_are_refused():
    proto = model(
        [
            helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0),
            helper.make_node("SequenceAt", ["parts", "zero"], ["y"]),
        ],
        [("x", F, ["n", 6])],
        ["y"],
        {"zero": np.array(0)},
    )
    with pytest.raises(disc.UnsupportedOpError, match=r"SplitToSequence(.|\n)*depends on a size, n"):
        disc.compile(proto)
    x = torch.from_numpy(values(3, 6))
    assert torch.equal(disc.compile(proto, dynamic_shapes={"n": 3})(x), x[:1])


def test_slopes_of_opset_6_are_one_for_each_channel():
    slopes = np.float32([0.25, 0.5, 2.0])
    # The model's own name for its slopes is no input, as writers of this version of the format left it.
    proto = model(
        [helper.make_node("PRelu", ["x", "slopes"], ["y"]), helper.make_node("Mul", ["y", "y"], ["z"])],
        [("x", F, [2, 3, 4, 5])],
        ["z"],
        {"slopes": slopes},
        opset=6,
        ir=3,
    )
    x = torch.from_numpy(values(2, 3, 4, 5))
    want = torch.nn.functional.prelu(x, torch.from_numpy(slopes)).square()
    torch.testing.assert_close(disc.compile(proto)(x), want)
