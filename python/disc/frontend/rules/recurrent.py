"""Recurrent layers: the inputs' products of all steps at once, then a loop of one kernel per step.

Equations and the order of weights are those of PyTorch's documentation of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..builder import Builder
from ..regions import LoopStep
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor
from .elementwise import convert

# (input products by gate, h, further states, weights) -> (new h, new further states); `keep(new, old)` masks.
Step = Callable[..., "tuple[Tensor, list[Tensor]]"]
Activation = Callable[[Elem], Elem]


class Weights:
    """The weights of one direction of one layer; biases may be None."""

    def __init__(self, params: Sequence[Tensor], biases: bool, gates: int) -> None:
        params = list(params)
        self.w_ih, self.w_hh = params[:2]
        self.b_ih: Tensor | None = params[2] if biases else None
        self.b_hh: Tensor | None = params[3] if biases else None
        self.w_hr = params[-1] if len(params) == (5 if biases else 3) else None
        self.gates = gates
        hidden = self.w_ih.dims[0]
        assert isinstance(hidden, int)
        self.hidden = hidden // gates

    def of_gate(self, b: Builder, x: Tensor, gate: int, dim: int) -> Tensor:
        """The part of a weight, bias or product that belongs to one gate."""
        return b.slice(x, dim, gate * self.hidden, self.hidden)


def linear(b: Builder, x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T, in the type it is accumulated in."""
    n = x.rank - 1
    return b.contract(x, weight, [*range(n), n + 1], [n, n + 1], [*x.dims[:-1], *weight.dims])


def lstm_step(
    gate: Activation = scalar.sigmoid,
    candidate: Activation = scalar.tanh,
    output: Activation = scalar.tanh,
    peepholes: Sequence[Tensor] = (),
    coupled: bool = False,
) -> Step:
    """A step of an LSTM; ``peepholes`` let the gates i, f and o see the cell; a coupled forget gate is 1 - i."""

    def step(b: Builder, w: Weights, inputs: list[Tensor], h: Tensor, states: list[Tensor]) -> Any:
        dtype = h.dtype
        i, f, g, o = (linear(b, h, w.of_gate(b, w.w_hh, k, 0)) for k in range(4))
        xi, xf, xg, xo = inputs

        def cell(i: Elem, f: Elem, g: Elem, xi: Elem, xf: Elem, xg: Elem, c: Elem, *peep: Elem) -> Elem:
            keep, take = f + xf, i + xi
            if peep:
                take, keep = take + peep[0] * c, keep + peep[1] * c
            take = gate(take)
            keep = 1.0 - take if coupled else gate(keep)
            return keep * c + take * candidate(g + xg)

        def result(o: Elem, xo: Elem, c: Elem, *peep: Elem) -> Elem:
            shown = o + xo
            return gate(shown + peep[0] * c if peep else shown) * output(c)

        c = b.elementwise(dtype, [i, f, g, xi, xf, xg, states[0], *peepholes[:2]], cell)
        new = b.elementwise(dtype, [o, xo, c, *peepholes[2:]], result)
        if w.w_hr is not None:
            new = convert(b, linear(b, new, w.w_hr), dtype)
        return new, [c]

    return step


def gru_step(gate: Activation = scalar.sigmoid, candidate: Activation = scalar.tanh) -> Step:
    """A step of a GRU as PyTorch has it: the reset gate acts on the hidden state's product."""

    def step(b: Builder, w: Weights, inputs: list[Tensor], h: Tensor, states: list[Tensor]) -> Any:
        r, z, n = (linear(b, h, w.of_gate(b, w.w_hh, k, 0)) for k in range(3))
        bias = [] if w.b_hh is None else [w.of_gate(b, w.b_hh, 2, 0)]

        def cell(r: Elem, z: Elem, n: Elem, xr: Elem, xz: Elem, xn: Elem, h: Elem, *bias: Elem) -> Elem:
            inner = n + bias[0] if bias else n
            new = candidate(xn + gate(r + xr) * inner)
            return new + gate(z + xz) * (h - new)

        return b.elementwise(h.dtype, [r, z, n, *inputs, h, *bias], cell), []

    return step


def reset_first_gru_step(gate: Activation = scalar.sigmoid, candidate: Activation = scalar.tanh) -> Step:
    """A step of a GRU as first published: the reset gate acts on the hidden state, before its product."""

    def step(b: Builder, w: Weights, inputs: list[Tensor], h: Tensor, states: list[Tensor]) -> Any:
        r, z = (linear(b, h, w.of_gate(b, w.w_hh, k, 0)) for k in range(2))
        xr, xz, xn = inputs
        reset = b.elementwise(h.dtype, [r, xr, h], lambda r, xr, h: gate(r + xr) * h)
        n = linear(b, reset, w.of_gate(b, w.w_hh, 2, 0))

        def cell(z: Elem, n: Elem, xz: Elem, xn: Elem, h: Elem) -> Elem:
            new = candidate(n + xn)
            return new + gate(z + xz) * (h - new)

        return b.elementwise(h.dtype, [z, n, xz, xn, h], cell), []

    return step


def rnn_step(activation: Activation) -> Step:
    """A step of a plain recurrent layer."""

    def step(b: Builder, w: Weights, inputs: list[Tensor], h: Tensor, states: list[Tensor]) -> Any:
        product = linear(b, h, w.w_hh)
        return b.elementwise(h.dtype, [product, inputs[0]], lambda p, x: activation(p + x)), []

    return step


def relu(x: Elem) -> Elem:
    """x, or 0 below zero."""
    return scalar.maximum(x, 0.0)


def project(b: Builder, w: Weights, x: Tensor, hidden_biases: Sequence[int]) -> Tensor:
    """The inputs' share of all gates at all steps; the hidden biases of the gates that only add them are in it."""
    product = linear(b, x, w.w_ih)
    if w.b_ih is None or w.b_hh is None:
        return convert(b, product, x.dtype)
    inside = w.hidden * len(hidden_biases)

    def both(x: Elem, h: Elem) -> Elem:
        if len(hidden_biases) == w.gates:
            return x + h
        return x + scalar.select(scalar.compare("lt", scalar.loop_index(0), inside), h, 0.0)

    bias = b.elementwise(dtypes.opmath(x.dtype), [w.b_ih, w.b_hh], both)
    return b.elementwise(x.dtype, [product, bias], lambda p, c: p + c)


def run_direction(
    b: Builder,
    step: Step,
    w: Weights,
    projected: Tensor,
    lengths: Tensor | None,
    first: list[Tensor],
    time_dim: int,
    reverse: bool,
) -> tuple[Tensor, list[Tensor]]:
    """The outputs [T, B, P] and the last states of one direction of one layer."""
    count, batch = projected.dims[time_dim], projected.dims[1 - time_dim]

    def body(index: ir.Value, carried: list[Tensor]) -> LoopStep:
        now = b.reshape(b.slice(projected, time_dim, index, 1), [batch, projected.dims[2]])
        inputs = [w.of_gate(b, now, gate, 1) for gate in range(w.gates)]
        h, *states = carried
        new, others = step(b, w, inputs, h, states)
        if lengths is None:
            return LoopStep([new, *others], [new])
        column = b.unsqueeze(lengths, 1)

        def kept(new: Tensor, old: Tensor | None) -> Tensor:
            def choose(new: Elem, length: Elem, *old: Elem) -> Elem:
                inside = scalar.compare("lt", scalar.from_extent(index, torch.int64), length)
                return scalar.select(inside, new, old[0] if old else 0.0)

            return b.map(new.dtype, [new, column, *([] if old is None else [old])], choose)

        return LoopStep([kept(a, o) for a, o in zip([new, *others], carried, strict=True)], [kept(new, None)])

    last, (y,) = b.loop(first, body, [([batch, first[0].dims[-1]], first[0].dtype)], count=count, reverse=reverse)
    return y, last


def checked_lengths(b: Builder, lengths: Tensor, steps: Extent) -> Tensor:
    """Lengths of 1 to ``steps``, as i64; others are an IndexError (PyTorch checks it where sequences are packed)."""
    return b.map(torch.int64, [lengths], lambda n: b.checked_index(n.to(torch.int64) - 1, steps, wrap=False) + 1)


def _layers(
    b: Builder,
    step: Step,
    gates: int,
    x: Tensor,
    lengths: Tensor | None,
    states: list[Tensor],
    params: Sequence[Tensor],
    config: tuple[bool, int, bool, bool],
    hidden_biases: Sequence[int],
) -> tuple[Tensor, list[Tensor]]:
    biases, layers, bidirectional, batch_first = config
    directions = 2 if bidirectional else 1
    if not x.dtype.is_floating_point:
        raise NotLowerable(f"a recurrent layer of {x.dtype}")
    time_dim = 1 if batch_first else 0
    b.require_at_most(1, x.dims[time_dim], "Expected sequence length to be larger than 0 in RNN")
    per = len(params) // (layers * directions)
    lengths = None if lengths is None else checked_lengths(b, lengths, x.dims[time_dim])
    finals: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layers):
        weights = []
        for d in range(directions):
            at = (layer * directions + d) * per
            weights.append(Weights(params[at : at + per], biases, gates))
        # Beside each other, so that they become one kernel.
        projected = [project(b, w, x, hidden_biases) for w in weights]
        outputs = []
        for d in range(directions):
            number = layer * directions + d
            first = [b.reshape(b.slice(s, 0, number, 1), list(s.dims[1:])) for s in states]
            y, last = run_direction(b, step, weights[d], projected[d], lengths, first, time_dim, reverse=d == 1)
            outputs.append(y)
            for final, value in zip(finals, last, strict=True):
                final.append(b.unsqueeze(value, 0))
        x = b.concat(outputs, 2)
        time_dim = 0
    if batch_first:
        x = b.permute(x, [1, 0, 2])
    return x, [b.concat(final, 0) for final in finals]


@lowers("torch.disc.lstm")
def lstm(
    b: Builder, x: Tensor, lengths: Tensor | None, hx: Sequence[Tensor], params: Sequence[Tensor], *config: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """A whole ``nn.LSTM``; ``config`` is (biases, layers, bidirectional, batch_first)."""
    y, (h, c) = _layers(b, lstm_step(), 4, x, lengths, list(hx), params, config, range(4))  # type: ignore[arg-type]
    return y, h, c


@lowers("torch.disc.gru")
def gru(
    b: Builder, x: Tensor, lengths: Tensor | None, hx: Tensor, params: Sequence[Tensor], *config: Any
) -> tuple[Tensor, Tensor]:
    """A whole ``nn.GRU``. The hidden bias of the new gate is inside its product with the reset gate."""
    y, (h,) = _layers(b, gru_step(), 3, x, lengths, [hx], params, config, range(2))  # type: ignore[arg-type]
    return y, h


@lowers("torch.disc.rnn")
def rnn(
    b: Builder,
    x: Tensor,
    lengths: Tensor | None,
    hx: Tensor,
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    nonlinearity: str,
) -> tuple[Tensor, Tensor]:
    """A whole ``nn.RNN``."""
    step = rnn_step(scalar.tanh if nonlinearity == "tanh" else relu)
    config = (biases, layers, bidirectional, batch_first)
    y, (h,) = _layers(b, step, 1, x, lengths, [hx], params, config, range(1))
    return y, h


@lowers("torch.disc.rows")
def rows(b: Builder, x: Tensor) -> Tensor:
    """[T, B, ...] as [T * B, ...]."""
    return b.reshape(x, [b.mul(x.dims[0], x.dims[1]), *x.dims[2:]])


@lowers("torch.disc.steps")
def steps(b: Builder, x: Tensor, time: Extent, batch: Extent) -> Tensor:
    """[T * B, ...] as [T, B, ...]."""
    return b.reshape(x, [time, batch, *x.dims[1:]])


def _cell(b: Builder, x: Tensor, w: Weights, hidden_biases: Sequence[int]) -> list[Tensor]:
    now = project(b, w, x, hidden_biases)
    return [w.of_gate(b, now, gate, 1) for gate in range(w.gates)]


def _cell_params(*params: Tensor | None) -> tuple[list[Tensor], bool]:
    given = [p for p in params if p is not None]
    return given, len(given) == 4


@lowers("torch.aten.lstm_cell")
def lstm_cell(b: Builder, x: Tensor, hx: Sequence[Tensor], *params: Tensor | None) -> tuple[Tensor, Tensor]:
    """``nn.LSTMCell``."""
    w = Weights(*_cell_params(*params), 4)
    h, (c,) = lstm_step()(b, w, _cell(b, x, w, range(4)), hx[0], [hx[1]])
    return h, c


@lowers("torch.aten.gru_cell")
def gru_cell(b: Builder, x: Tensor, hx: Tensor, *params: Tensor | None) -> Tensor:
    """``nn.GRUCell``."""
    w = Weights(*_cell_params(*params), 3)
    h: Tensor = gru_step()(b, w, _cell(b, x, w, range(2)), hx, [])[0]
    return h


def _register_rnn_cell(name: str, activation: Callable[[Elem], Elem]) -> None:
    @lowers(f"torch.aten.{name}")
    def cell(b: Builder, x: Tensor, hx: Tensor, *params: Tensor | None) -> Tensor:
        w = Weights(*_cell_params(*params), 1)
        return rnn_step(activation)(b, w, _cell(b, x, w, range(1)), hx, [])[0]


_register_rnn_cell("rnn_tanh_cell", scalar.tanh)
_register_rnn_cell("rnn_relu_cell", relu)
