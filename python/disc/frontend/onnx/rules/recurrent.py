"""Recurrent layers of ONNX: the steps of :mod:`disc.frontend.rules.recurrent`, with the gates in PyTorch's order."""

from __future__ import annotations

from typing import Any

from ... import scalar
from ...registry import NotLowerable, lowers
from ...rules import recurrent as torch_rules
from ...rules.recurrent import Activation, Step, Weights
from ...scalar import Elem
from ...values import Extent, Tensor
from ..builder import OnnxBuilder

# The place in ONNX's weights of each of PyTorch's gates.
_ORDER = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "rnn": (0,)}
_DEFAULTS = {"lstm": ["Sigmoid", "Tanh", "Tanh"], "gru": ["Sigmoid", "Tanh"], "rnn": ["Tanh"]}


def _activation(name: str, alpha: float | None, beta: float | None, clip: float | None) -> Activation:
    """One of ONNX's, by name; ``clip`` bounds its argument."""

    def elu(x: Elem, scale: float) -> Elem:
        return scalar.select(x < 0.0, scale * (scalar.exp(x) - 1.0), x)

    def of(default: float, value: float | None) -> float:
        return default if value is None else value

    known: dict[str, Activation] = {
        "sigmoid": scalar.sigmoid,
        "tanh": scalar.tanh,
        "relu": torch_rules.relu,
        "affine": lambda x: x * of(1.0, alpha) + of(0.0, beta),
        "leakyrelu": lambda x: scalar.select(x < 0.0, x * of(0.01, alpha), x),
        "thresholdedrelu": lambda x: scalar.select(x < of(1.0, alpha), x * 0.0, x),
        "scaledtanh": lambda x: scalar.tanh(x * of(1.0, beta)) * of(1.0, alpha),
        "hardsigmoid": lambda x: scalar.minimum(scalar.maximum(x * of(0.2, alpha) + of(0.5, beta), 0.0), 1.0),
        "elu": lambda x: elu(x, of(1.0, alpha)),
        "softsign": lambda x: x / (scalar.absolute(x) + 1.0),
        "softplus": lambda x: scalar.maximum(x, 0.0) + scalar.log(scalar.exp(-scalar.absolute(x)) + 1.0),
    }
    found = known.get(name.lower())
    if found is None:
        raise NotLowerable(f"activation {name}")
    if clip is None:
        return found
    return lambda x: found(scalar.minimum(scalar.maximum(x, -clip), clip))


def _activations(kind: str, d: int, attributes: dict[str, Any]) -> list[Activation]:
    """Those of one direction."""
    names = attributes.get("activations") or _DEFAULTS[kind] * (d + 1)
    count = len(_DEFAULTS[kind])
    chosen = range(d * count, (d + 1) * count)
    alphas, betas = (list(attributes.get(f"activation_{which}") or ()) for which in ("alpha", "beta"))

    def at(values: list[float], i: int) -> float | None:
        return values[i] if i < len(values) else None

    return [_activation(names[i], at(alphas, i), at(betas, i), attributes.get("clip")) for i in chosen]


def _step(b: OnnxBuilder, kind: str, d: int, peepholes: Tensor | None, attributes: dict[str, Any]) -> Step:
    functions = _activations(kind, d, attributes)
    if kind == "rnn":
        return torch_rules.rnn_step(*functions)
    if kind == "gru":
        plain = attributes.get("linear_before_reset")
        return (torch_rules.gru_step if plain else torch_rules.reset_first_gru_step)(*functions)
    seen: list[Tensor] = []
    if peepholes is not None:
        own = b.reshape(b.slice(peepholes, 0, d, 1), [peepholes.dims[1]])
        each = b.floordiv(peepholes.dims[1], 3)
        # ONNX has them for i, o and f.
        seen = [b.slice(own, 0, b.mul(each, k), each) for k in (0, 2, 1)]
    gate, candidate, output = functions
    return torch_rules.lstm_step(gate, candidate, output, seen, bool(attributes.get("input_forget")))


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
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        if layout:
            x = b.permute(x, [1, 0, 2])
        hidden = r.dims[2]
        if not isinstance(hidden, int):
            raise NotLowerable("a dynamic hidden size")
        directions = 2 if direction == "bidirectional" else 1
        given = (h, c) if kind == "lstm" else (h,)
        x = _of_batch(b, x, [s.dims[0 if layout else 1] for s in given if s is not None], op)
        time, batch = x.dims[0], x.dims[1]
        states = [_state(b, x, s, directions, hidden, layout) for s in given]
        if lengths is not None:
            b.require_equal(lengths.dims[0], batch, f"{op}: not a length for each sequence")
            lengths = b.reshape(torch_rules.checked_lengths(b, lengths, time), [batch])
        gates = len(_ORDER[kind])
        # Where the reset gate acts on the product, the hidden bias of the last gate is inside it.
        inside = kind == "gru" and bool(attributes.get("linear_before_reset"))
        outside = range(gates - 1 if inside else gates)
        weights = [Weights(_params(b, kind, w, r, bias, d, hidden), bias is not None, gates) for d in range(directions)]
        projected = [torch_rules.project(b, each, x, outside) for each in weights]
        outputs: list[Tensor] = []
        finals: list[list[Tensor]] = [[] for _ in states]
        for d in range(directions):
            first = [b.reshape(b.slice(s, 0, d, 1), [batch, hidden]) for s in states]
            step = _step(b, kind, d, peepholes, attributes)
            backward = direction == "reverse" or d == 1
            y, last = torch_rules.run_direction(b, step, weights[d], projected[d], lengths, first, 0, backward)
            outputs.append(b.reshape(y, [time, 1, batch, hidden]))
            for final, value in zip(finals, last, strict=True):
                final.append(b.unsqueeze(value, 0))
        y = b.concat(outputs, 1)
        ends = [b.concat(final, 0) for final in finals]
        if layout:
            return (b.permute(y, [2, 0, 1, 3]), *(b.permute(s, [1, 0, 2]) for s in ends))
        return (y, *ends)


def _of_batch(b: OnnxBuilder, x: Tensor, sizes: list[Extent], op: str) -> Tensor:
    """x, whose batch is that of the first states; where these have a static one, it has, too."""
    for size in sizes:
        b.require_equal(x.dims[1], size, f"{op}: the batch is not that of the initial state")
        if isinstance(size, int):
            x = b.reshape(x, [x.dims[0], size, x.dims[2]])
    return x


def _state(b: OnnxBuilder, x: Tensor, given: Tensor | None, directions: int, hidden: Any, layout: int) -> Tensor:
    if given is None:
        return b.full([directions, x.dims[1], hidden], 0.0, x.dtype)
    return b.permute(given, [1, 0, 2]) if layout else given


def _params(b: OnnxBuilder, kind: str, w: Tensor, r: Tensor, bias: Tensor | None, d: int, hidden: int) -> list[Tensor]:
    """The weights of one direction."""
    order = _ORDER[kind]

    def gates(x: Tensor, offset: int = 0) -> Tensor:
        own = b.reshape(b.slice(x, 0, d, 1), list(x.dims[1:]))
        return b.concat([b.slice(own, 0, (offset + gate) * hidden, hidden) for gate in order], 0)

    params = [gates(w), gates(r)]
    return params if bias is None else [*params, gates(bias), gates(bias, len(order))]


for _op in ("GRU", "LSTM", "RNN"):
    _register(_op)
