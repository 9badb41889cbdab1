"""Linear and kernel models of ai.onnx.ml, and what scales their inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ... import scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder
from ..known import Known
from .scores import F32, I64, best_label, constant, label_of_two, labels_of, pair, rows_of, transformed


def _floats(b: OnnxBuilder, x: Tensor) -> Tensor:
    rows = rows_of(b, x)
    return rows if rows.dtype == F32 else b.map(F32, [rows], lambda v: v.to(F32))


def _product(b: OnnxBuilder, rows: Tensor, coefficients: Sequence[float], intercepts: Sequence[float] | None) -> Tensor:
    """rows @ coefficients^T + intercepts; a row of coefficients for each result."""
    count = len(intercepts) if intercepts else 1
    width = len(coefficients) // count
    if isinstance(rows.dims[1], int) and rows.dims[1] != width:
        raise NotLowerable(f"its coefficients are for samples of {width} features, its operand has {rows.dims[1]}")
    b.require_equal(rows.dims[1], width, f"the model was made for samples of {width} features")
    weight = b.tensor(Known.of(np.array(list(coefficients), dtype=object).reshape(count, width), F32))
    shift = None if not intercepts else b.tensor(Known.of(list(intercepts), F32))
    result: Tensor = b.aten("linear", rows, weight, shift, dtype=F32)
    return result


@lowers("onnx.LinearRegressor")
def linear_regressor(
    b: OnnxBuilder,
    x: Tensor,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    targets: int = 1,
    post_transform: str = "NONE",
) -> Tensor:
    """A product with coefficients, plus intercepts."""
    rows = _floats(b, x)
    scores = _product(b, rows, coefficients, intercepts or [0.0] * targets)
    return scores if targets == 1 and post_transform != "PROBIT" else transformed(b, scores, post_transform)


@lowers("onnx.LinearClassifier")
def linear_classifier(
    b: OnnxBuilder,
    x: Tensor,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:
    """The label of each sample, and the score of each class."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    rows = _floats(b, x)
    scores = _product(b, rows, coefficients, intercepts or [0.0] * len(labels))
    if scores.dims[1] != 1:
        return best_label(b, scores, labels), transformed(b, scores, post_transform)
    score = b.reshape(scores, [scores.dims[0]])
    label = label_of_two(b, score, 0.0, labels if len(labels) == 2 else [0, 1])
    if len(labels) != 2:
        return label, transformed(b, scores, post_transform)
    if post_transform == "LOGISTIC":
        score = b.elementwise(F32, [score], scalar.sigmoid)
    elif post_transform != "NONE":
        raise NotLowerable(f"post_transform {post_transform} of one score for two classes")
    return label, pair(b, score, True, "NONE")


@lowers("onnx.SVMRegressor")
def svm_regressor(
    b: OnnxBuilder,
    x: Tensor,
    coefficients: Sequence[float],
    rho: Sequence[float],
    support_vectors: Sequence[float] | None = None,
    n_supports: int = 0,
    kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] | None = None,
    one_class: int = 0,
    post_transform: str = "NONE",
) -> Tensor:
    """A sum of kernels of each sample with the support vectors."""
    rows = _floats(b, x)
    if n_supports == 0:
        total = _product(b, rows, coefficients, [rho[0]])
    else:
        vectors = np.array(list(support_vectors or ()), dtype=object).reshape(n_supports, -1)
        width = vectors.shape[1]
        b.require_equal(rows.dims[1], width, f"the model was made for samples of {width} features")
        near = _kernels(b, rows, vectors, kernel_type, list(kernel_params or (0.0, 0.0, 3.0)))
        total = _product(b, near, coefficients, [rho[0]])
    if one_class:
        return b.elementwise(F32, [total], lambda t: scalar.select(t > 0.0, t.like(1.0), t.like(-1.0)))
    if post_transform != "NONE":
        raise NotLowerable(f"post_transform {post_transform}")
    return total


@lowers("onnx.SVMClassifier")
def svm_classifier(
    b: OnnxBuilder,
    x: Tensor,
    coefficients: Sequence[float],
    rho: Sequence[float],
    support_vectors: Sequence[float] | None = None,
    vectors_per_class: Sequence[int] | None = None,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    prob_a: Sequence[float] | None = None,
    prob_b: Sequence[float] | None = None,
    kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] | None = None,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:
    """The label that most pairs of classes vote for, and the score of each pair."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    if prob_a or not vectors_per_class or post_transform != "NONE":
        what = "probabilities" if prob_a else "no support vectors" if not vectors_per_class else post_transform
        raise NotLowerable(f"support vectors that vote are supported, with plain scores; this one has {what}")
    rows = _floats(b, x)
    count = len(labels)
    vectors = np.array(list(support_vectors or ()), dtype=object).reshape(sum(vectors_per_class), -1)
    width = vectors.shape[1]
    b.require_equal(rows.dims[1], width, f"the model was made for samples of {width} features")
    near = _kernels(b, rows, vectors, kernel_type, list(kernel_params or (0.0, 0.0, 3.0)))
    # The decision between two classes is a sum over the vectors of both.
    own = np.array(list(coefficients)).reshape(count - 1, -1)
    owner = np.repeat(np.arange(count), vectors_per_class)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    weights = np.array([np.where(owner == i, own[j - 1], np.where(owner == j, own[i], 0.0)) for i, j in pairs])
    scores = _product(b, near, weights.reshape(-1).tolist(), list(rho[: len(pairs)]))
    first, second = (constant(b, side, I64) for side in zip(*pairs, strict=True))

    def vote(acc: Elem, score: Elem) -> Elem:
        pair_ = scalar.loop_index(2)
        winner = scalar.select(score > 0.0, b.extract(first, [pair_]), b.extract(second, [pair_]))
        return acc + winner.eq(scalar.loop_index(1)).to(F32)

    each = b.broadcast(scores, [rows.dims[0], count, len(pairs)], [0, 2])
    votes = b.reduce([each], [2], F32, 0.0, vote)
    label = best_label(b, votes, labels)
    if count > 2:
        return label, scores
    return label, pair(b, b.reshape(scores, [rows.dims[0]]), False, "NONE")


def _kernels(b: OnnxBuilder, rows: Tensor, vectors: np.ndarray, kind: str, parameters: list[float]) -> Tensor:
    """[samples, support vectors]."""
    gamma, coefficient, degree = parameters
    table = b.tensor(Known.of(vectors, F32))
    if kind == "RBF":
        distance = b.aten("cdist", rows, table, 2.0, None, dtype=F32, rank=2)
        return b.elementwise(F32, [distance], lambda d: scalar.exp(d * d * -gamma))
    product: Tensor = b.aten("linear", rows, table, None, dtype=F32)
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return b.elementwise(F32, [product], lambda p: scalar.power(p * gamma + coefficient, degree))
    if kind == "SIGMOID":
        return b.elementwise(F32, [product], lambda p: scalar.tanh(p * gamma + coefficient))
    raise NotLowerable(f"kernel_type {kind}")


@lowers("onnx.Scaler")
def scaler(b: OnnxBuilder, x: Tensor, offset: Sequence[float], scale: Sequence[float]) -> Tensor:
    """(x - offset) * scale, the same for all features or for each its own."""
    parameters = []
    for values in (offset, scale):
        if len(values) > 1:
            b.require_equal(x.dims[-1], len(values), f"the model was made for samples of {len(values)} features")
        parameters.append(constant(b, values, F32))
    return b.map(F32, [x, *parameters], lambda v, o, s: (v.to(F32) - o) * s)


@lowers("onnx.Normalizer")
def normalizer(b: OnnxBuilder, x: Tensor, norm: str = "MAX") -> Tensor:
    """Each row over its norm, or as it is where that is 0."""
    folds = {
        "MAX": (-math.inf, lambda acc, v: scalar.maximum(acc, v)),
        "L1": (0.0, lambda acc, v: acc + scalar.absolute(v)),
        "L2": (0.0, lambda acc, v: acc + v * v),
    }
    if norm not in folds:
        raise NotLowerable(f"norm {norm}")
    neutral, fold = folds[norm]
    wide = x if x.dtype == F32 else b.map(F32, [x], lambda v: v.to(F32))
    size = b.reduce([wide], [-1], F32, neutral, fold)

    def divided(v: Elem, n: Elem) -> Elem:
        n = scalar.sqrt(n) if norm == "L2" else n
        return scalar.select(n.eq(0.0), v, v / n)

    return b.along(wide, [-1], F32, [size], divided)
