"""Operators of DISC that stand for whole layers, by their definitions: for their gradients.

Equations and the order of weights are those of PyTorch's documentation of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``. Time
is a loop, whose gradient is that of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...torch_compat import pytree
from ...torch_compat.tracing import (
    FakeTensor,
    disable_current_modes,
    enable_python_dispatcher,
    from_functional,
    make_fx,
)
from .. import recurrent
from ..decompositions import decomposition_table
from ..higher_order import flattened, scan
from .differentiation import Evaluation, fresh

_Step = Callable[[Tensor, "list[Tensor]"], "list[Tensor]"]
"""(products of the input's weights [B, G*H], state) to the next state, whose first tensor is the output."""


def differentiable(definition: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
    """The value of ``definition(*args, **kwargs)``, with gradients through its loops."""
    leaves, spec = pytree.tree_flatten((list(args), dict(kwargs)))
    inputs = [n for n, x in enumerate(leaves) if isinstance(x, (Tensor, torch.SymInt))]
    results: list[pytree.TreeSpec] = []

    def traced(*given: Any) -> list[Any]:
        mine = list(leaves)
        for n, x in zip(inputs, given, strict=True):
            mine[n] = x
        positional, named = pytree.tree_unflatten(mine, spec)
        found, found_spec = pytree.tree_flatten(definition(*positional, **named))
        results.append(found_spec)
        return found

    fakes = [from_functional(leaves[n]) for n in inputs]
    mode = next(x.fake_mode for x in fakes if isinstance(x, FakeTensor))
    with disable_current_modes(), torch.no_grad(), flattened(), mode, enable_python_dispatcher():
        fakes = [fresh(x) for x in fakes]
        module = make_fx(traced, decomposition_table=_without_autograd())(*fakes)  # type: ignore[arg-type]
    found = Evaluation(module).run([leaves[n] for n in inputs])
    return pytree.tree_unflatten(found, results[0])


def _without_autograd() -> dict[Any, Callable[..., Any]]:
    table = decomposition_table()
    # Autograd knows their gradients.
    return {op: f for op, f in table.items() if op in recurrent.decompositions()}


# -- recurrent layers ----------------------------------------------------------------------------------------


class _Weights:
    """The weights of one layer in one direction."""

    def __init__(self, params: Sequence[Tensor], biases: bool, summed: bool) -> None:
        """``summed``: whether both biases are added to the same values, so that their sum is added once."""
        self.w_ih, self.w_hh = params[:2]
        self.b_ih = params[2] if biases else None
        self.b_hh = params[3] if biases else None
        if biases and summed:
            self.b_ih, self.b_hh = params[2] + params[3], None
        self.w_hr = params[-1] if len(params) in (3, 5) else None


def _lstm_step(weights: _Weights) -> _Step:
    def step(row: Tensor, state: list[Tensor]) -> list[Tensor]:
        h, c = state
        i, f, g, o = (row + linear(h, weights.w_hh, weights.b_hh)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return [h if weights.w_hr is None else linear(h, weights.w_hr), c]

    return step


def _gru_step(weights: _Weights) -> _Step:
    def step(row: Tensor, state: list[Tensor]) -> list[Tensor]:
        (h,) = state
        r, z, n = row.chunk(3, 1)
        h_r, h_z, h_n = linear(h, weights.w_hh, weights.b_hh).chunk(3, 1)
        z = torch.sigmoid(z + h_z)
        n = torch.tanh(n + torch.sigmoid(r + h_r) * h_n)
        return [(h - n) * z + n]

    return step


def _rnn_step(nonlinearity: str) -> Callable[[_Weights], _Step]:
    function = torch.tanh if nonlinearity == "tanh" else torch.relu

    def of(weights: _Weights) -> _Step:
        return lambda row, state: [function(row + linear(state[0], weights.w_hh, weights.b_hh))]

    return of


def _layers(
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    *,
    step_of: Callable[[_Weights], _Step],
    summed_biases: bool = True,
) -> tuple[Tensor, ...]:
    """x is [T, B, F]; each state is [layers * directions, B, H]."""
    if batch_first:
        x = x.transpose(0, 1)
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions)
    inside = None
    if lengths is not None:
        inside = (torch.arange(x.shape[0], device=x.device)[:, None] < lengths[None, :].to(x.device)).unsqueeze(2)
    lasts: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = _Weights(params[number * each : (number + 1) * each], biases, summed_biases)
            first = [s.select(0, number) for s in states]
            y, last = _direction(x, inside, first, weights, step_of(weights), direction == 1)
            outputs.append(y)
            for found, value in zip(lasts, last, strict=True):
                found.append(value)
        x = outputs[0] if directions == 1 else torch.cat(outputs, 2)
    result = x.transpose(0, 1) if batch_first else x
    return (result, *(torch.stack(found) for found in lasts))


def _direction(
    x: Tensor, inside: Tensor | None, first: list[Tensor], weights: _Weights, step: _Step, backwards: bool
) -> tuple[Tensor, list[Tensor]]:
    if backwards:
        x, inside = x.flip(0), None if inside is None else inside.flip(0)
    # One product: of a tensor with two outer dims it would be one for each step, and so would be its gradient.
    rows = linear(x.reshape(x.shape[0] * x.shape[1], x.shape[2]), weights.w_ih, weights.b_ih)
    rows = rows.reshape(x.shape[0], x.shape[1], rows.shape[1])
    given = [rows] if inside is None else [rows, inside]

    def body(*now: Tensor) -> list[Tensor]:
        state, row = list(now[: len(first)]), now[len(first)]
        after = step(row, state)
        if inside is not None:
            after = [torch.where(now[-1], new, old) for new, old in zip(after, state, strict=True)]
        return [*after, after[0] if inside is None else torch.where(now[-1], after[0], 0.0)]

    *last, y = scan(body, first, given, [])
    return (y.flip(0) if backwards else y), list(last)


def _lstm(x: Tensor, lengths: Tensor | None, hx: Sequence[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    return _layers(x, lengths, hx, *rest, step_of=_lstm_step)


def _gru(x: Tensor, lengths: Tensor | None, hx: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    # Of the new state, the reset gate multiplies the product with its bias.
    return _layers(x, lengths, [hx], *rest, step_of=_gru_step, summed_biases=False)


def _rnn(x: Tensor, lengths: Tensor | None, hx: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return _layers(x, lengths, [hx], *rest[:-1], step_of=_rnn_step(rest[-1]))


DEFINITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.disc.lstm.default: _lstm,
    torch.ops.disc.gru.default: _gru,
    torch.ops.disc.rnn.default: _rnn,
    torch.ops.disc.rows.default: lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]),
    torch.ops.disc.steps.default: lambda x, time, batch: x.reshape(time, batch, *x.shape[1:]),
}
