"""Recurrent layers of ONNX, in PyTorch's order of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...registry import NotLowerable, lowers
from ...values import Tensor
from ..builder import OnnxBuilder
from .shapes import flip

# The place in ONNX's weights of each of PyTorch's gates.
_ORDER = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "rnn": (0,)}
_DEFAULTS = {"lstm": ["Sigmoid", "Tanh", "Tanh"], "gru": ["Sigmoid", "Tanh"], "rnn": ["Tanh"]}


def _register(op: str) -> None:
    kind = op.lower()

    @lowers(f"onnx.{op}")
    def rule(
        b: OnnxBuilder,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
        h: Tensor | None = None,
        c: Tensor | None = None,
        peepholes: Tensor | None = None,
        direction: str = "forward",
        layout: int = 0,
        linear_before_reset: int = 0,
        activations: Sequence[str] | None = None,
        **others: Any,
    ) -> tuple[Tensor, ...]:
        directions = 2 if direction == "bidirectional" else 1
        unusual = [name for name in ("activation_alpha", "activation_beta", "clip", "input_forget") if others.get(name)]
        if unusual or peepholes is not None:
            raise NotLowerable(f"with {', '.join(unusual) or 'peepholes'}")
        if activations is not None and list(activations) != _DEFAULTS[kind] * directions:
            raise NotLowerable(f"activations {', '.join(activations)}")
        if kind == "gru" and not linear_before_reset:
            raise NotLowerable("linear_before_reset=0: PyTorch has no such GRU")
        if direction == "reverse" and lengths is not None:
            raise NotLowerable("sequences of different lengths in reverse")
        if layout:
            x = b.permute(x, [1, 0, 2])
        if direction == "reverse":
            x = flip(b, x, 0)
        hidden = r.dims[2]
        states = [_state(b, x, s, directions, hidden, layout) for s in ((h, c) if kind == "lstm" else (h,))]
        params = [p for d in range(directions) for p in _params(b, kind, w, r, bias, d, hidden)]
        config: list[Any] = [bias is not None, 1, directions == 2, False]
        if kind == "rnn":
            config.append("tanh")
        if lengths is not None:
            lengths = b.map(torch.int64, [lengths], lambda n: n.to(torch.int64))
        given = states if kind == "lstm" else states[0]
        types = [x.dtype] * (1 + len(states))
        y, *last = b.aten(f"torch.disc.{kind}", x, lengths, given, params, *config, dtype=types, rank=3)
        if direction == "reverse":
            y = flip(b, y, 0)
        time, batch = x.dims[0], x.dims[1]
        y = b.permute(b.reshape(y, [time, batch, directions, hidden]), [1, 0, 2, 3] if layout else [0, 2, 1, 3])
        return (y, *(b.permute(s, [1, 0, 2]) if layout else s for s in last))


def _state(b: OnnxBuilder, x: Tensor, given: Tensor | None, directions: int, hidden: Any, layout: int) -> Tensor:
    if given is None:
        return b.full([directions, x.dims[1], hidden], 0.0, x.dtype)
    return b.permute(given, [1, 0, 2]) if layout else given


def _params(b: OnnxBuilder, kind: str, w: Tensor, r: Tensor, bias: Tensor | None, d: int, hidden: Any) -> list[Tensor]:
    """The weights of one direction."""
    order = _ORDER[kind]

    def gates(x: Tensor, offset: int = 0) -> Tensor:
        own = b.reshape(b.slice(x, 0, d, 1), list(x.dims[1:]))
        return b.concat([b.slice(own, 0, (offset + gate) * hidden, hidden) for gate in order], 0)

    params = [gates(w), gates(r)]
    return params if bias is None else [*params, gates(bias), gates(bias, len(order))]


for _op in ("GRU", "LSTM", "RNN"):
    _register(_op)
