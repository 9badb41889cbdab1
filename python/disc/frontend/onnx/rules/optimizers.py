"""Steps of optimisers (ai.onnx.preview.training). Operands come by kind: all tensors, all gradients, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import scalar
from ...registry import lowers
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder


def _each(states: int, step: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """A rule that does ``step`` for each tensor, with its gradient and ``states`` more; results come by kind too."""

    def rule(b: OnnxBuilder, rate: Tensor, count: Tensor, *given: Tensor, **attributes: Any) -> list[Tensor]:
        kinds = 2 + states
        number = len(given) // kinds
        done = [step(b, rate, count, *given[i::number], **attributes) for i in range(number)]
        return [results[kind] for kind in range(1 + states) for results in done]

    return rule


def _adagrad(
    b: OnnxBuilder,
    rate: Tensor,
    count: Tensor,
    x: Tensor,
    g: Tensor,
    h: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> list[Tensor]:
    squares = b.elementwise(
        h.dtype, [x, g, h], lambda x, g, h: h + (x * norm_coefficient + g) * (x * norm_coefficient + g)
    )

    def step(x: Elem, g: Elem, h: Elem, rate: Elem, count: Elem) -> Elem:
        now = rate / (count * decay_factor + 1.0)
        return x - now * (x * norm_coefficient + g) / (scalar.sqrt(h) + epsilon)

    return [b.elementwise(x.dtype, [x, g, squares, rate, count], step), squares]


def _momentum(
    b: OnnxBuilder,
    rate: Tensor,
    count: Tensor,
    x: Tensor,
    g: Tensor,
    v: Tensor,
    alpha: float,
    beta: float,
    norm_coefficient: float,
    mode: str,
) -> list[Tensor]:
    def velocity(x: Elem, g: Elem, v: Elem, count: Elem) -> Elem:
        # The first gradient counts in full.
        return v * alpha + scalar.select(count > 0, count.like(beta), 1.0) * (x * norm_coefficient + g)

    def step(x: Elem, g: Elem, v: Elem, rate: Elem) -> Elem:
        return x - rate * (x * norm_coefficient + g + v * alpha if mode == "nesterov" else v)

    new = b.elementwise(v.dtype, [x, g, v, count], velocity)
    return [b.elementwise(x.dtype, [x, g, new, rate], step), new]


def _adam(
    b: OnnxBuilder,
    rate: Tensor,
    count: Tensor,
    x: Tensor,
    g: Tensor,
    v: Tensor,
    h: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> list[Tensor]:
    def moment(x: Elem, g: Elem, v: Elem) -> Elem:
        return v * alpha + (x * norm_coefficient + g) * (1 - alpha)

    def square(x: Elem, g: Elem, h: Elem) -> Elem:
        full = x * norm_coefficient + g
        return h * beta + full * full * (1 - beta)

    def step(x: Elem, v: Elem, h: Elem, rate: Elem, count: Elem) -> Elem:
        corrected = rate * scalar.sqrt(1.0 - scalar.power(count.like(beta), count))
        corrected = corrected / (1.0 - scalar.power(count.like(alpha), count))
        now = scalar.select(count > 0, corrected, rate)
        return (x - now * v / (scalar.sqrt(h) + epsilon)) * (1 - norm_coefficient_post)

    moments = b.elementwise(v.dtype, [x, g, v], moment)
    squares = b.elementwise(h.dtype, [x, g, h], square)
    return [b.elementwise(x.dtype, [x, moments, squares, rate, count], step), moments, squares]


lowers("onnx.Adagrad")(_each(1, _adagrad))
lowers("onnx.Momentum")(_each(1, _momentum))
lowers("onnx.Adam")(_each(2, _adam))
