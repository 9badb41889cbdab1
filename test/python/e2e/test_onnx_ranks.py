"""ONNX: ranks and sizes that depend on extents, names that are data, conditions on extents, unknown dims."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

F, I = TensorProto.FLOAT, TensorProto.INT64


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def model(nodes, inputs, outputs, constants=(), opset=17):
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def check(proto, compiled, *arrays):
    wanted = ReferenceEvaluator(proto).run(None, {i.name: a for i, a in zip(proto.graph.input, arrays, strict=False)})
    found = compiled(*(torch.from_numpy(a) for a in arrays))
    found = [found] if isinstance(found, torch.Tensor) else list(found.values())
    for want, have in zip(wanted, found, strict=True):
        assert have.numpy().shape == want.shape
        np.testing.assert_allclose(have.numpy(), want, rtol=1e-5, atol=1e-6)


def floats(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def squeeze(declared):
    return model([node("Squeeze", ["x"], ["y"])], [("x", F, ["n", 3])], [("y", F, declared)])


def test_squeeze_without_axes_never_guesses():
    proto = squeeze(None)
    compiled = disc.compile(proto)
    for n in (0, 2, 1, 5):
        check(proto, compiled, floats(n, 3))
    check(proto, disc.compile(proto, dynamic_shapes={"n": 1}), floats(1, 3))
    check(proto, disc.compile(proto, dynamic_shapes={"n": Dim("n", min=2)}), floats(4, 3))


def test_squeeze_follows_the_sizes_where_the_file_declares_a_rank():
    proto = squeeze([3])
    compiled = disc.compile(proto)
    for n in (1, 2, 0):
        check(proto, compiled, floats(n, 3))


def test_squeeze_of_two_dims_that_may_be_one():
    proto = model([node("Squeeze", ["x"], ["y"])], [("x", F, ["n", 3, "m"])], [("y", F, None)])
    compiled = disc.compile(proto)
    for n, m in ((2, 2), (1, 2), (2, 1), (1, 1), (0, 1), (1, 0), (7, 5)):
        check(proto, compiled, floats(n, 3, m))


def test_squeeze_inside_a_model_for_one_and_for_more():
    """The ranks between depend on the size, that of the result does not; one input has another dim of that size."""
    proto = model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Squeeze", ["a"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("ReduceSum", ["c"], ["d"], keepdims=0),
            node("Add", ["d", "z"], ["y"]),
            node("Shape", ["c"], ["s"]),
        ],
        [("x", F, ["n", 4]), ("z", F, ["n", "m"])],
        [("y", F, ["n", "m"])],
        {"w": floats(4, 3)},
    )
    compiled = disc.compile(proto)
    for n, m in ((2, 3), (1, 3), (1, 1), (0, 2), (5, 1)):
        check(proto, compiled, floats(n, 4), floats(n, m))


def test_a_library_has_one_rank(tmp_path):
    with pytest.raises(ValueError, match=r'Squeeze without axes.*dynamic_shapes=\{"n": 1\}'):
        disc.aot_compile(squeeze(None), output=tmp_path / "squeeze.so")
        disc.load(tmp_path / "squeeze.so", trust_files=True)(torch.zeros(1, 3))


def test_expand_of_sizes_that_may_be_one():
    proto = model(
        [node("Shape", ["y"], ["shape"]), node("Expand", ["x", "shape"], ["z"])],
        [("x", F, ["a", "b"]), ("y", F, ["c", 4])],
        [("z", F, [None, None])],
    )
    compiled = disc.compile(proto)
    for x, y in (((1, 1), (5, 4)), ((5, 4), (1, 4)), ((3, 1), (3, 4)), ((1, 4), (0, 4)), ((2, 4), (2, 4))):
        check(proto, compiled, floats(*x), floats(*y))
    with pytest.raises(ValueError, match="Expand"):
        compiled(torch.zeros(2, 1), torch.zeros(3, 4))


def test_expand_of_a_dim_of_size_one_beside_others():
    """A dim that is 1 is repeated, also where another one may or may not be."""
    proto = model(
        [node("Shape", ["y"], ["shape"]), node("Expand", ["x", "shape"], ["z"])],
        [("x", F, ["a", 1, "b"]), ("y", F, ["c", "d", "e"])],
        [("z", F, [None, None, None])],
    )
    compiled = disc.compile(proto)
    for x, y in (((2, 1, 3), (2, 3, 3)), ((1, 1, 3), (2, 17, 3)), ((2, 1, 1), (2, 1, 5)), ((1, 1, 1), (4, 5, 6))):
        check(proto, compiled, floats(*x), floats(*y))


def test_slice_whose_bounds_change_sign():
    proto = model(
        [
            node("Shape", ["y"], ["shape"]),
            node("Sub", ["shape", "five"], ["end"]),
            node("Slice", ["x", "zero", "end", "zero"], ["z"]),
        ],
        [("x", F, ["n"]), ("y", F, ["m"])],
        [("z", F, [None])],
        {"five": np.array([5]), "zero": np.array([0])},
    )
    compiled = disc.compile(proto)
    for n, m in ((7, 9), (7, 2), (3, 1), (0, 4), (4, 5)):
        check(proto, compiled, floats(n), floats(m))


def test_range_of_floats_from_a_shape():
    proto = model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "one"], ["size"]),
            node("Cast", ["size"], ["end"], to=F),
            node("Range", ["start", "end", "step"], ["steps"]),
            node("Add", ["steps", "half"], ["y"]),
        ],
        [("x", F, ["n", "w"])],
        [("y", F, [None])],
        {"one": np.array(1), "start": np.float32(0), "step": np.float32(1), "half": np.float32(0.5)},
    )
    compiled = disc.compile(proto)
    for w in (0, 1, 13, 64):
        check(proto, compiled, floats(1, w))


def test_sizes_scaled_by_fractions():
    proto = model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Cast", ["shape"], ["sizes"], to=F),
            node("Mul", ["sizes", "half"], ["scaled"]),
            node("Floor", ["scaled"], ["floored"]),
            node("Cast", ["floored"], ["end"], to=I),
            node("Slice", ["x", "zero", "end", "zero"], ["y"]),
        ],
        [("x", F, ["n"])],
        [("y", F, [None])],
        {"half": np.float32([0.5]), "zero": np.array([0])},
    )
    compiled = disc.compile(proto)
    for n in (0, 1, 2, 9):
        check(proto, compiled, floats(n))


@pytest.mark.parametrize("how", ["products", "where"])
def test_a_condition_on_sizes_is_a_number(how):
    """A crop at the end that may be 0, as converters from TensorFlow write it: -crop, or everything."""
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Neg", ["n"], ["less"]),
        node("Mod", ["less", "three"], ["crop"]),
        node("Equal", ["crop", "zero"], ["none"]),
        node("Neg", ["crop"], ["end"]),
    ]
    if how == "where":
        nodes.append(node("Where", ["none", "most", "end"], ["stop"]))
    else:
        nodes += [
            node("Cast", ["none"], ["whole"], to=I),
            node("Not", ["none"], ["some"]),
            node("Cast", ["some"], ["part"], to=I),
            node("Mul", ["end", "part"], ["a"]),
            node("Mul", ["most", "whole"], ["b"]),
            node("Add", ["a", "b"], ["stop"]),
        ]
    nodes.append(node("Slice", ["x", "zero", "stop", "zero"], ["y"]))
    constants = {"zero": np.array([0]), "three": np.array([3]), "most": np.array([2147483647])}
    proto = model(nodes, [("x", F, ["n"])], [("y", F, [None])], constants)
    compiled = disc.compile(proto)
    for n in (3, 4, 5, 6, 7, 2, 1, 0):
        check(proto, compiled, floats(n))


def test_divisions_of_negative_numbers_round_towards_zero():
    proto = model(
        [
            node("Shape", ["x"], ["n"]),
            node("Sub", ["n", "ten"], ["less"]),
            node("Div", ["less", "three"], ["q"]),
            node("Mod", ["less", "three"], ["r"]),
            node("Concat", ["q", "r"], ["both"], axis=0),
            node("Add", ["both", "ten"], ["dims"]),
            node("ConstantOfShape", ["dims"], ["y"]),
        ],
        [("x", F, ["n"])],
        [("y", F, [None, None])],
        {"ten": np.array([10]), "three": np.array([3])},
    )
    compiled = disc.compile(proto)
    for n in (0, 1, 5, 8, 9, 10, 11, 14):
        less = n - 10
        assert tuple(compiled(torch.zeros(n)).shape) == (int(less / 3) + 10, less % 3 + 10), n


def squeezed_if(value, declared=None):
    """TorchScript's squeeze(0)."""
    then = helper.make_graph(
        [node("Squeeze", ["x", "axes"], ["a"])],
        "then",
        [],
        [helper.make_tensor_value_info("a", F, None)],
        [numpy_helper.from_array(np.array([0]), "axes")],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["a"])], "else", [], [helper.make_tensor_value_info("a", F, None)]
    )
    return model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["size"]),
            node("Equal", ["size", "one"], ["is_one"]),
            node("If", ["is_one"], ["y"], then_branch=then, else_branch=other),
        ],
        [("x", F, [value, 3])],
        [("y", F, declared)],
        {"zero": np.array(0), "one": np.array(1)},
    )


def test_if_whose_branches_differ_in_rank():
    proto = squeezed_if("n")
    compiled = disc.compile(proto)
    for n in (4, 1, 0, 2):
        check(proto, compiled, floats(n, 3))
    check(proto, disc.compile(proto, dynamic_shapes={"n": 1}), floats(1, 3))
    check(proto, disc.compile(proto, dynamic_shapes={"n": Dim("n", min=2)}), floats(2, 3))
    declared = squeezed_if("n", [3])
    check(declared, disc.compile(declared), floats(1, 3))


def test_if_takes_the_branch_that_the_rest_accepts():
    proto = squeezed_if("n")
    proto.graph.node.append(node("Transpose", ["y"], ["z"], perm=[0]))
    proto.graph.output[0].name = "z"
    compiled = disc.compile(proto)
    check(proto, compiled, floats(1, 3))
    with pytest.raises(ValueError, match="the model works only where n == 1"):
        compiled(torch.zeros(2, 3))


def test_initializers_in_branches_share_names():
    def branch(name, value):
        return helper.make_graph(
            [node("Mul", ["x", "c"], ["a"])],
            name,
            [],
            [helper.make_tensor_value_info("a", F, None)],
            [numpy_helper.from_array(value, "c")],
        )

    small, large = np.full(300, 2, "float32"), np.full(300, 3, "float32")
    proto = model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Greater", ["sum", "zero"], ["positive"]),
            node("If", ["positive"], ["y"], then_branch=branch("t", small), else_branch=branch("e", large)),
        ],
        [("x", F, ["n", 300])],
        [("y", F, ["n", 300])],
        {"zero": np.float32(0)},
    )
    compiled = disc.compile(proto)
    for sign in (1, -1):
        x = np.abs(floats(2, 300)) * sign
        expected = x * (2 if sign > 0 else 3)
        np.testing.assert_allclose(compiled(torch.from_numpy(x)).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("names", [("615", "0", "1"), ('a"b\\c', "node:0", "constant:1"), ("größe", "x y", "%0")])
def test_names_are_data(names):
    large, small, value = names
    weight = floats(20, 20)
    proto = model(
        [
            node("MatMul", ["x", large], [value], name="7"),
            node("Add", [value, small], ["y"], name=large),
        ],
        [("x", F, ["n", 20])],
        [("y", F, ["n", 20])],
        {large: weight, small: floats(20)},
    )
    check(proto, disc.compile(proto), floats(3, 20))


def test_unknown_dims_are_symbols_of_their_own():
    proto = model([node("Relu", ["x"], ["y"])], [("x", F, ["?", "?", 3])], [("y", F, ["?", "?", 3])])
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    compiled = disc.compile(proto)
    for shape in ((1, 2, 3), (4, 0, 3)):
        check(proto, compiled, floats(*shape))


def test_an_initial_state_tells_the_batch():
    """The states are of a batch of one, so the input is, and Squeeze drops that dim."""
    rng = np.random.default_rng(3)
    weights = {
        name: rng.standard_normal(shape).astype("float32") for name, shape in (("w", (1, 12, 5)), ("r", (1, 12, 4)))
    }
    proto = model(
        [node("GRU", ["x", "w", "r", "", "", "h"], ["", "last"], hidden_size=4), node("Squeeze", ["last"], ["y"])],
        [("x", F, ["time", "n", 5]), ("h", F, [1, 1, 4])],
        [("y", F, [4])],
        weights,
    )
    compiled = disc.compile(proto)
    for time in (1, 3):
        check(proto, compiled, floats(time, 1, 5), floats(1, 1, 4))
    with pytest.raises(disc.ShapeError, match="the batch is not that of the initial state"):
        compiled(torch.randn(3, 2, 5), torch.randn(1, 1, 4))
