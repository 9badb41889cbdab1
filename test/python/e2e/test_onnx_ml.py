"""Operators of ai.onnx.ml: trees, linear models and encoders, compared with what they say, written out."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import disc

pytestmark = pytest.mark.share(2)

F, D, I = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def model(op, attributes, outputs=1, kind=F, width=4, dims=None):
    """One operator on x; its results are y0, y1, ..."""
    names = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, domain="ai.onnx.ml", name="made", **attributes)],
        "classical",
        [helper.make_tensor_value_info("x", kind, dims or ["n", width])],
        [helper.make_empty_tensor_value_info(name) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])


def samples(n, width=4):
    return np.random.default_rng(n).standard_normal((n, width)).astype("float32")


class Trees:
    """Random trees of different depths, as attributes and as a walk."""

    def __init__(self, count, weights, width=4, modes=("BRANCH_LEQ",), tracks=False):
        self.rng, self.modes, self.weights = np.random.default_rng(count), modes, weights
        self.width, self.tracks = width, tracks
        self.nodes, self.leaves = [], []
        for tree in range(count):
            self._grow(tree, depth=tree % 4)

    def _grow(self, tree, depth):
        place = len(self.nodes)
        number = sum(node["tree"] == tree for node in self.nodes)
        node = {"tree": tree, "id": number, "feature": 0, "split": 0.0, "mode": "LEAF", "yes": 0, "no": 0, "nan": 0}
        self.nodes.append(node)
        if depth == 0:
            node["weights"] = self.rng.standard_normal(self.weights).round(2)
            return place
        node["mode"] = str(self.rng.choice(self.modes))
        node["feature"], node["split"] = int(self.rng.integers(self.width)), float(np.float32(self.rng.normal()))
        node["nan"] = int(self.tracks and self.rng.integers(2))
        node["yes"] = self._grow(tree, depth - 1)
        node["no"] = self._grow(tree, int(self.rng.integers(depth)))
        return place

    def attributes(self, prefix, ids=None):
        given = [(n, i, float(w)) for n in self.nodes if n["mode"] == "LEAF" for i, w in enumerate(n["weights"])]
        return {
            "nodes_treeids": [n["tree"] for n in self.nodes],
            "nodes_nodeids": [n["id"] for n in self.nodes],
            "nodes_featureids": [n["feature"] for n in self.nodes],
            "nodes_values": [n["split"] for n in self.nodes],
            "nodes_modes": [n["mode"] for n in self.nodes],
            "nodes_truenodeids": [self.nodes[n["yes"]]["id"] for n in self.nodes],
            "nodes_falsenodeids": [self.nodes[n["no"]]["id"] for n in self.nodes],
            "nodes_missing_value_tracks_true": [n["nan"] for n in self.nodes],
            f"{prefix}_treeids": [n["tree"] for n, _, _ in given],
            f"{prefix}_nodeids": [n["id"] for n, _, _ in given],
            f"{prefix}_ids": [i if ids is None else ids for _, i, _ in given],
            f"{prefix}_weights": [w for _, _, w in given],
        }

    def leaf(self, root, row):
        node = self.nodes[root]
        while node["mode"] != "LEAF":
            value, split = row[node["feature"]], np.float32(node["split"])
            taken = {"BRANCH_LEQ": value <= split, "BRANCH_LT": value < split, "BRANCH_GT": value > split}[node["mode"]]
            taken = taken or (node["nan"] and np.isnan(value))
            node = self.nodes[node["yes"] if taken else node["no"]]
        return node["weights"]

    def __call__(self, x, fold=np.sum):
        roots = [i for i, n in enumerate(self.nodes) if n["id"] == 0]
        return np.array([fold([self.leaf(root, row) for root in roots], axis=0) for row in x]).reshape(len(x), -1)


@pytest.mark.parametrize(("aggregate", "fold"), [("SUM", np.sum), ("AVERAGE", np.mean), ("MIN", np.min)])
def test_trees_of_several_targets(aggregate, fold):
    trees = Trees(7, 3)
    attributes = {**trees.attributes("target"), "n_targets": 3, "aggregate_function": aggregate}
    compiled = disc.compile(model("TreeEnsembleRegressor", {**attributes, "base_values": [0.5, -1.0, 2.0]}))
    for n in (1, 5, 33):
        x = samples(n)
        wanted = trees(x, fold) + [0.5, -1.0, 2.0]
        np.testing.assert_allclose(compiled(torch.from_numpy(x)).numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_trees_ask_in_several_ways_and_of_missing_values():
    trees = Trees(6, 1, modes=("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT"), tracks=True)
    compiled = disc.compile(model("TreeEnsembleRegressor", {**trees.attributes("target"), "n_targets": 1}))
    x = samples(40)
    x[::3, 1] = np.nan
    x[::5, 2] = np.nan
    np.testing.assert_allclose(compiled(torch.from_numpy(x)).numpy(), trees(x), rtol=1e-5, atol=1e-5)


def test_trees_need_their_features():
    trees = Trees(4, 1, width=9)
    compiled = disc.compile(
        model("TreeEnsembleRegressor", {**trees.attributes("target"), "n_targets": 1}, dims=["n", "features"])
    )
    with pytest.raises(disc.ShapeError, match="more features"):
        compiled(torch.zeros(2, 3))


def test_trees_as_classifiers():
    trees = Trees(9, 3)
    attributes = {**trees.attributes("class"), "classlabels_int64s": [10, 20, 5], "post_transform": "SOFTMAX"}
    compiled = disc.compile(model("TreeEnsembleClassifier", attributes, outputs=2))
    x = samples(21)
    found, scores = compiled(torch.from_numpy(x)), trees(x)
    assert found["y0"].tolist() == [[10, 20, 5][i] for i in scores.argmax(1)]
    torch.testing.assert_close(found["y1"], torch.from_numpy(scores).softmax(1).float(), rtol=1e-5, atol=1e-5)


def test_two_classes_with_one_score():
    trees = Trees(9, 1)
    attributes = {**trees.attributes("class", ids=0), "classlabels_int64s": [0, 1], "post_transform": "LOGISTIC"}
    compiled = disc.compile(model("TreeEnsembleClassifier", {**attributes, "base_values": [0.25]}, outputs=2))
    x = samples(21)
    found, score = compiled(torch.from_numpy(x)), trees(x)[:, 0] + 0.25
    assert found["y0"].tolist() == (score > 0).tolist()
    wanted = 1 / (1 + np.exp(np.stack([score, -score], 1)))
    np.testing.assert_allclose(found["y1"].numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("which", [0, 1])
def test_two_classes_with_plain_scores(which, positive):
    """The first class has the complement, the negative, or, where the weights are the second's, no score."""
    trees = Trees(5, 1)
    for node in trees.nodes:
        if positive and "weights" in node:
            node["weights"] = np.abs(node["weights"]) / 4
    attributes = {**trees.attributes("class", ids=which), "classlabels_int64s": [3, 4]}
    compiled = disc.compile(model("TreeEnsembleClassifier", attributes, outputs=2))
    x = samples(21)
    found, score = compiled(torch.from_numpy(x)), trees(x)[:, 0]
    assert found["y0"].tolist() == np.where(score > (0.5 if positive else 0), 4, 3).tolist()
    first = np.zeros(21) if which else 1 - score if positive else -score
    np.testing.assert_allclose(found["y1"].numpy(), np.stack([first, score], 1), rtol=1e-5, atol=1e-5)


def test_two_classes_with_two_scores_are_refused():
    attributes = {**Trees(5, 2).attributes("class"), "classlabels_int64s": [3, 4]}
    with pytest.raises(disc.CompileError, match="both have weights"):
        disc.compile(model("TreeEnsembleClassifier", attributes, outputs=2))


def test_linear_models():
    rng = np.random.default_rng(1)
    coefficients, shift = rng.standard_normal((3, 4)).astype("float32"), np.float32([0.5, -1, 0])
    attributes = {"coefficients": coefficients.reshape(-1).tolist(), "intercepts": shift.tolist()}
    regressor = disc.compile(model("LinearRegressor", {**attributes, "targets": 3}))
    classifier = disc.compile(
        model(
            "LinearClassifier", {**attributes, "classlabels_ints": [7, 8, 9], "post_transform": "LOGISTIC"}, outputs=2
        )
    )
    for n in (1, 6, 31):
        x = samples(n)
        scores = x @ coefficients.T + shift
        np.testing.assert_allclose(regressor(torch.from_numpy(x)).numpy(), scores, rtol=1e-5, atol=1e-5)
        found = classifier(torch.from_numpy(x))
        assert found["y0"].tolist() == (scores.argmax(1) + 7).tolist()
        np.testing.assert_allclose(found["y1"].numpy(), 1 / (1 + np.exp(-scores)), rtol=1e-5, atol=1e-5)
    with pytest.raises(disc.CompileError, match="labels are strings"):
        disc.compile(model("LinearClassifier", {**attributes, "classlabels_strings": ["a", "b", "c"]}, outputs=2))


@pytest.mark.parametrize("kernel", ["RBF", "POLY", "SIGMOID", "LINEAR"])
def test_support_vectors(kernel):
    vectors, weights = samples(5), np.float32([1, -2, 0.5, 0.25, -1])
    attributes = {
        "support_vectors": vectors.reshape(-1).tolist(),
        "n_supports": 5,
        "coefficients": weights.tolist(),
        "rho": [0.75],
        "kernel_type": kernel,
        "kernel_params": [0.5, 1.0, 3.0],
    }
    x = samples(9)
    product = 0.5 * (x @ vectors.T) + 1
    near = {
        "RBF": np.exp(-0.5 * ((x[:, None] - vectors) ** 2).sum(-1)),
        "POLY": product**3,
        "SIGMOID": np.tanh(product),
        "LINEAR": x @ vectors.T,
    }[kernel]
    found = disc.compile(model("SVMRegressor", attributes))(torch.from_numpy(x))
    np.testing.assert_allclose(found.numpy()[:, 0], near @ weights + 0.75, rtol=1.3e-6, atol=1e-5)


def test_support_vectors_vote():
    vectors, weights = samples(6), np.random.default_rng(3).standard_normal((2, 6)).astype("float32")
    attributes = {
        "support_vectors": vectors.reshape(-1).tolist(),
        "vectors_per_class": [2, 1, 3],
        "coefficients": weights.reshape(-1).tolist(),
        "rho": [0.5, -0.25, 0.125],
        "classlabels_ints": [4, 5, 6],
    }
    x = samples(9)
    near, owner = x @ vectors.T, np.array([0, 0, 1, 2, 2, 2])
    scores, votes = np.zeros((9, 3)), np.zeros((9, 3))
    for pair, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        scores[:, pair] = (
            near[:, owner == i] @ weights[j - 1, owner == i] + near[:, owner == j] @ weights[i, owner == j]
        )
        scores[:, pair] += attributes["rho"][pair]
        votes[np.arange(9), np.where(scores[:, pair] > 0, i, j)] += 1
    found = disc.compile(model("SVMClassifier", attributes, outputs=2))(torch.from_numpy(x))
    np.testing.assert_allclose(found["y1"].numpy(), scores, rtol=1.3e-6, atol=1e-5)
    assert found["y0"].tolist() == (votes.argmax(1) + 4).tolist()


def test_scales_and_norms():
    x = samples(7)
    x[3] = 0
    offset, scale = [1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 2.0, 1.0]
    found = disc.compile(model("Scaler", {"offset": offset, "scale": scale}))(torch.from_numpy(x))
    np.testing.assert_allclose(found.numpy(), (x - offset) * scale, rtol=1e-5, atol=1e-6)
    for norm, size in (
        ("L1", np.abs(x).sum(1)),
        ("L2", np.sqrt((x * x).sum(1))),
        ("MAX", x.max(1)),
    ):
        found = disc.compile(model("Normalizer", {"norm": norm}))(torch.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), x / np.where(size == 0, 1, size)[:, None], rtol=1e-5, atol=1e-6)


def test_encoders():
    x = np.array([[3, 1, 7], [9, 3, 2]])
    encoder = model("LabelEncoder", {"keys_int64s": [9, 3, 1], "values_floats": [0.5, 1.5, 2.5]}, kind=I, width=3)
    found = disc.compile(encoder)(torch.from_numpy(x))
    np.testing.assert_array_equal(found.numpy(), np.float32([[1.5, 2.5, 0], [0.5, 1.5, 0]]))
    encoder = model("OneHotEncoder", {"cats_int64s": [9, 1, 3], "zeros": 1}, kind=I, width=3)
    found = disc.compile(encoder)(torch.from_numpy(x))
    np.testing.assert_array_equal(found.numpy(), (x[..., None] == [9, 1, 3]).astype("float32"))
    strict = disc.compile(model("OneHotEncoder", {"cats_int64s": [9, 1, 3], "zeros": 0}, kind=I, width=3))
    with pytest.raises(IndexError, match="OneHotEncoder"):
        strict(torch.from_numpy(x))


def test_missing_values_are_replaced():
    x = samples(6)
    x[1, 2] = x[4, 0] = np.nan
    attributes = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}
    found = disc.compile(model("Imputer", attributes))(torch.from_numpy(x))
    np.testing.assert_array_equal(found.numpy(), np.where(np.isnan(x), np.float32([1, 2, 3, 4]), x))


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 0, 7]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_maps_are_dicts(labels):
    x = samples(5, 3)
    compiled = disc.compile(model("ZipMap", labels, width=3))
    keys = next(iter(labels.values()))
    for n in (0, 1, 5):
        assert compiled(torch.from_numpy(x[:n])) == [dict(zip(keys, row.tolist(), strict=True)) for row in x[:n]]


def test_scores_of_a_classifier_as_maps():
    # What skl2onnx exports where nothing else is asked for.
    nodes = [
        helper.make_node("Softmax", ["x"], ["scores"]),
        helper.make_node("ZipMap", ["scores"], ["y1"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3]),
        helper.make_node("ArgMax", ["scores"], ["y0"], axis=1, keepdims=0),
    ]
    proto = model("ZipMap", {}, outputs=2)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    x = torch.from_numpy(samples(6))
    found = disc.compile(proto)(x)
    torch.testing.assert_close(torch.tensor([list(row.values()) for row in found["y1"]]), x.softmax(1))
    assert torch.equal(found["y0"], x.argmax(1))


def test_maps_elsewhere_are_refused_with_what_helps():
    with pytest.raises(disc.CompileError, match=r"3 keys(.|\n)*4 columns"):
        disc.compile(model("ZipMap", {"classlabels_int64s": [0, 1, 2]}))
    proto = model("ZipMap", {"classlabels_int64s": [0, 1, 2, 3]}, outputs=1)
    proto.graph.node.append(helper.make_node("SequenceLength", ["y0"], ["y1"]))
    proto.graph.output[0].name = "y1"
    with pytest.raises(disc.CompileError, match=r"zipmap=False"):
        disc.compile(proto)


def test_coefficients_for_other_samples_are_refused():
    attributes = {"coefficients": [1.0] * 12, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2]}
    with pytest.raises(disc.UnsupportedOpError, match=r"LinearClassifier(.|\n)*samples of 4 features(.|\n)*has 2"):
        disc.compile(model("LinearClassifier", attributes, outputs=2, width=2))
