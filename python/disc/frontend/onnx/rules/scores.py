"""What the classifiers and regressors of ai.onnx.ml do with their scores at the end."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import scalar
from ...registry import NotLowerable
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder
from ..known import Known

F32 = torch.float32
I64 = torch.int64

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By the numbers that ``TreeEnsemble`` has for them."""


def constant(b: OnnxBuilder, values: Sequence[int] | Sequence[float], dtype: torch.dtype) -> Tensor:
    """A table of an attribute's numbers, to be read in bodies."""
    table: Tensor = b.tensor(Known.of(list(values), dtype))
    return table


def rows_of(b: OnnxBuilder, x: Tensor) -> Tensor:
    """An operand as [samples, features]: a vector is one sample."""
    if x.rank == 1:
        return b.reshape(x, [1, x.dims[0]])
    if x.rank != 2:
        raise NotLowerable(f"an operand of {x.rank} dims: samples have one row of features each")
    return x


def transformed(b: OnnxBuilder, scores: Tensor, transform: str) -> Tensor:
    """[samples, scores] after one of ``TRANSFORMS``."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return b.elementwise(F32, [scores], scalar.sigmoid)
    if transform == "SOFTMAX":
        result: Tensor = b.aten("softmax.int", scores, 1, None, dtype=F32)
        return result
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    raise NotLowerable(f"post_transform {transform}")


def _softmax_zero(b: OnnxBuilder, scores: Tensor) -> Tensor:
    """The softmax of what is not zero; the rest stays zero."""
    top = b.aten("amax", scores, [1], False, dtype=F32, rank=1)

    def power(s: Elem, most: Elem) -> Elem:
        return scalar.select(scalar.absolute(s) > 1e-7, scalar.exp(s - most), s * scalar.exp(-most))

    powers = b.along(scores, [1], F32, [top], power)
    total = b.reduce([powers], [1], F32, 0.0, lambda acc, p: acc + p)
    return b.along(powers, [1], F32, [total], lambda p, t: p / t)


def labels_of(ints: Sequence[int] | None, strings: Sequence[str] | None) -> list[int]:
    """A classifier's labels, which are whole numbers."""
    if strings:
        raise NotLowerable(
            "its labels are strings, which are not supported: export the model with whole numbers as labels, such as"
            " the places of the classes"
        )
    if not ints:
        raise NotLowerable("it has no labels")
    return list(ints)


def best_label(b: OnnxBuilder, scores: Tensor, labels: Sequence[int]) -> Tensor:
    """The label of each row's first largest score."""
    place = b.aten("argmax", scores, 1, False, dtype=I64)
    if list(labels) == list(range(len(labels))):
        return place
    table = constant(b, labels, I64)
    return b.map(I64, [place], lambda i: b.extract(table, [i]))


def label_of_two(b: OnnxBuilder, score: Tensor, threshold: float, labels: Sequence[int]) -> Tensor:
    """The second label where a score is above a threshold, else the first."""
    negative, positive = labels
    return b.map(
        I64,
        [score],
        lambda s: scalar.select(s > threshold, scalar.constant(positive, I64), scalar.constant(negative, I64)),
    )


def pair(b: OnnxBuilder, score: Tensor, complement: bool, transform: str) -> Tensor:
    """[samples, 2] of one score: of the first class, and of the second.

    ``complement``: the first is one minus the second, else it is its negative, or its complement after LOGISTIC.
    """
    if transform == "PROBIT":
        raise NotLowerable("post_transform PROBIT of one score for two classes")

    def both(s: Elem) -> Elem:
        second = scalar.loop_index(1).eq(1)
        if transform == "LOGISTIC":
            return scalar.sigmoid(scalar.select(second, s, -s))
        return scalar.select(second, s, 1.0 - s if complement else -s)

    column = b.broadcast(b.reshape(score, [score.dims[0], 1]), [score.dims[0], 2])
    return b.map(F32, [column], both)
