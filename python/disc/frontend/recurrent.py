"""Recurrent layers kept whole through ``torch.export``.

PyTorch's ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` are unrolled by ``torch.export``, which fixes their length, and packed
sequences cannot be traced at all. While :func:`kept_whole` is active, the functions that the layers call become single
operators with a dynamic length: ``disc::lstm``, ``disc::gru`` and ``disc::rnn``. Run by PyTorch they give what the
layers give, so an exported program stays one that PyTorch can run.

A packed sequence is traced as what it was made from: all rows of the padded tensor, time first, and the lengths. Only
the functions of ``torch.nn.utils.rnn`` and the layers know that; arithmetic on its ``data`` is fine, ``batch_sizes``
has no more than its first entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import rnn as packing

from .. import errors
from ..torch_compat import patches, quiet
from ..torch_compat.patching import Replacement, instead, replaced
from .locations import user_line

_tracing = threading.RLock()


def _packed(x: Tensor, lengths: Tensor) -> packing.PackedSequence:
    return packing.pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)


def _outer(x: Tensor, batch_first: bool) -> tuple[Any, Any]:
    return (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])


def _run(
    function: Callable[..., Any],
    x: Tensor,
    lengths: Tensor | None,
    hx: Any,
    params: Sequence[Tensor],
    config: tuple[bool, int, bool, bool],
) -> tuple[Tensor, ...]:
    biases, layers, bidirectional, batch_first = config
    if lengths is None:
        return tuple(function(x, hx, params, biases, layers, 0.0, False, bidirectional, batch_first))
    packed = _packed(x, lengths)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None and back is not None

    def permuted(h: Any, by: Tensor) -> Any:
        return [t.index_select(1, by) for t in h] if isinstance(h, (list, tuple)) else h.index_select(1, by)

    data, *states = function(
        packed.data, packed.batch_sizes, permuted(hx, order), params, biases, layers, 0.0, False, bidirectional
    )
    result = packing.PackedSequence(data, packed.batch_sizes, order, back)
    padded, _ = packing.pad_packed_sequence(result, total_length=x.shape[0])
    return (padded, *(permuted(h, back) for h in states))


@torch.library.custom_op("disc::lstm", mutates_args=())
def lstm(
    x: Tensor,
    lengths: Tensor | None,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """A whole ``nn.LSTM``: x is [T, B, F] ([B, T, F] with ``batch_first``), ``hx`` are h [L*D, B, P] and c [L*D, B, H].

    ``lengths`` [B], i64, are those of the sequences in x, which is time-first then; the result is zero beyond them.
    """
    y, h, c = _run(torch.ops.aten.lstm, x, lengths, list(hx), params, (biases, layers, bidirectional, batch_first))
    return y.clone(), h.clone(), c.clone()


@torch.library.custom_op("disc::gru", mutates_args=())
def gru(
    x: Tensor,
    lengths: Tensor | None,
    hx: Tensor,
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """A whole ``nn.GRU``; see :func:`lstm`."""
    y, h = _run(torch.ops.aten.gru, x, lengths, hx, params, (biases, layers, bidirectional, batch_first))
    return y.clone(), h.clone()


@torch.library.custom_op("disc::rnn", mutates_args=())
def rnn(
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
    """A whole ``nn.RNN``, with ``nonlinearity`` ``"tanh"`` or ``"relu"``; see :func:`lstm`."""
    function = torch.ops.aten.rnn_tanh if nonlinearity == "tanh" else torch.ops.aten.rnn_relu
    y, h = _run(function, x, lengths, hx, params, (biases, layers, bidirectional, batch_first))
    return y.clone(), h.clone()


def _fake(x: Tensor, h: Tensor, bidirectional: bool, batch_first: bool) -> Tensor:
    if x.dim() != 3:
        raise RuntimeError(f"input must have 3 dimensions, got {x.dim()}")
    return x.new_empty((x.shape[0], x.shape[1], h.shape[-1] * (2 if bidirectional else 1)))


@lstm.register_fake
def _(
    x: Tensor,
    lengths: Tensor | None,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake(x, hx[0], bidirectional, batch_first), torch.empty_like(hx[0]), torch.empty_like(hx[1])


@gru.register_fake
def _(
    x: Tensor,
    lengths: Tensor | None,
    hx: Tensor,
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    return _fake(x, hx, bidirectional, batch_first), torch.empty_like(hx)


@rnn.register_fake
def _(
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
    return _fake(x, hx, bidirectional, batch_first), torch.empty_like(hx)


# PyTorch's reshape asks for which extents it is a view, and dynamic ones cannot answer.
@torch.library.custom_op("disc::rows", mutates_args=())
def _rows(x: Tensor) -> Tensor:
    """[T, B, ...] as [T * B, ...]."""
    return x.flatten(0, 1).clone()


@_rows.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0] * x.shape[1], *x.shape[2:]))


@torch.library.custom_op("disc::steps", mutates_args=())
def _steps(x: Tensor, time: int, batch: int) -> Tensor:
    """[T * B, ...] as [T, B, ...]."""
    return x.unflatten(0, (time, batch)).clone()


@_steps.register_fake
def _(x: Tensor, time: int, batch: int) -> Tensor:
    return x.new_empty((time, batch, *x.shape[1:]))


# -- packed sequences ---------------------------------------------------------------------------------


class _Lengths:
    """Stands for the ``batch_sizes`` of a packed sequence: knows what it was packed from."""

    device = torch.device("cpu")

    def __init__(self, lengths: Tensor, longest: int | None, time: Any, batch: Any) -> None:
        self.lengths, self.longest, self.time, self.batch = lengths, longest, time, batch

    def __getitem__(self, index: int) -> Any:
        if index != 0:
            raise NotImplementedError("batch sizes of a packed sequence, but for the first, are not known when tracing")
        return self.batch


def _pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> packing.PackedSequence:
    # The kernels mask by length, so the sequences stay in the order that they have.
    longest = None if isinstance(lengths, Tensor) else max(map(int, lengths))
    lengths = torch.as_tensor(lengths, dtype=torch.int64)
    x = input.transpose(0, 1) if batch_first else input
    time, batch = x.shape[0], x.shape[1]
    _check_lengths(lengths, time, batch, enforce_sorted)
    rows = _rows(x)
    return _sequence(rows, _Lengths(lengths, longest, time, batch))


def _check_lengths(lengths: Tensor, time: Any, batch: Any, enforce_sorted: bool) -> None:
    """Has calls raise errors where PyTorch would."""
    torch._check(lengths.shape[0] == batch, lambda: "pack_padded_sequence: expected a length for each sequence")
    where = f"pack_padded_sequence at {user_line()}"

    def require(condition: Tensor, what: str) -> None:
        torch.ops.aten._assert_async.msg(condition.all(), f"{where}: {what}")

    require(lengths > 0, "the length of each sequence must be greater than 0")
    require(lengths <= time, "a length exceeds that of the padded sequences")
    if enforce_sorted:
        longer = lengths.cummin(0).values
        require(lengths <= longer, "lengths must be in decreasing order, or enforce_sorted=False")


def _sequence(data: Tensor, batch_sizes: Any) -> packing.PackedSequence:
    # Past PackedSequence.__new__, which wants the batch sizes as a tensor.
    return tuple.__new__(packing.PackedSequence, (data, batch_sizes, None, None))


def _pad_packed_sequence(
    sequence: packing.PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None
) -> tuple[Tensor, Tensor]:
    known: Any = sequence.batch_sizes
    if not isinstance(known, _Lengths):
        raise NotImplementedError("a packed sequence that was not packed in the model cannot be traced")
    x = _steps(sequence.data, known.time, known.batch)
    if total_length is None:
        total_length = known.longest
    if total_length is None:
        total_length = known.lengths.max().item()
        torch._check(total_length >= 0)
        torch._check(total_length <= known.time)
        x = x.narrow(0, 0, total_length)
    elif total_length is not known.time:
        # Lengths beyond the padded input would have been an error when it was packed.
        more = total_length - min(total_length, known.time) if isinstance(total_length, int) else 0
        x = x[:total_length]
        if isinstance(more, int) and more > 0:
            x = torch.nn.functional.pad(x, (0, 0) * (x.dim() - 1) + (0, more))
    inside = torch.arange(x.shape[0], device=x.device)[:, None] < known.lengths[None, :].to(x.device)
    x = torch.where(inside.reshape(*inside.shape, *[1] * (x.dim() - 2)), x, padding_value)
    return (x.transpose(0, 1) if batch_first else x), known.lengths


# -- in exported programs ------------------------------------------------------------------------------


def _of_program(operator: Callable[..., Any], *extra: Any) -> Callable[..., Any]:
    """What ``aten.lstm.input`` and its like are, in the program of an exported module."""

    def decomposed(
        x: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        _check_dropout(dropout, train)
        hx = list(hx) if isinstance(hx, (list, tuple)) else hx
        return operator(x, None, hx, list(params), has_biases, num_layers, bidirectional, batch_first, *extra)

    return decomposed


def _of_packed_program(operator: Callable[..., Any], *extra: Any) -> Callable[..., Any]:
    """What ``aten.lstm.data`` and its like are: layers over the rows of a packed sequence, longest sequence first."""

    def decomposed(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Any:
        _check_dropout(dropout, train)
        hx = list(hx) if isinstance(hx, (list, tuple)) else hx
        batch = (hx[0] if isinstance(hx, list) else hx).shape[1]
        sizes = batch_sizes.to(data.device)
        ends = sizes.cumsum(0)
        starts = ends - sizes
        number = torch.arange(batch, device=data.device)
        inside = number[None, :] < sizes[:, None]
        padded = data[torch.where(inside, starts[:, None] + number[None, :], 0)]
        y, *states = operator(
            padded, inside.sum(0), hx, list(params), has_biases, num_layers, bidirectional, False, *extra
        )
        rows = torch.arange(data.shape[0], device=data.device)
        step = torch.searchsorted(ends, rows, right=True)
        return (y[step, rows - starts[step]], *states)

    return decomposed


def _check_dropout(dropout: float, train: bool) -> None:
    if train and dropout > 0:
        raise errors.CompileError(
            "import", "dropout between recurrent layers in training mode: call model.eval() before the export"
        )


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's operators of whole recurrent layers in terms of ours."""
    aten = torch.ops.aten
    found = {}
    for packet, operator, extra in (
        (aten.lstm, lstm, ()),
        (aten.gru, gru, ()),
        (aten.rnn_tanh, rnn, ("tanh",)),
        (aten.rnn_relu, rnn, ("relu",)),
    ):
        found[packet.input] = _of_program(operator, *extra)
        found[packet.data] = _of_packed_program(operator, *extra)
    return found


# -- the functions that layers call ----------------------------------------------------------------------


def _whole(operator: Callable[..., Any], *extra: Any) -> Replacement:
    def run(original: Callable[..., Any], x: Tensor, second: Any, third: Any, *rest: Any) -> Any:
        # (input, hx, params, ...) or, of a packed sequence, (data, batch_sizes, hx, params, ...)
        lengths = None
        batch_first = False
        if isinstance(second, _Lengths):
            hx, (params, biases, layers, dropout, training, bidirectional) = third, rest
            lengths = second.lengths
        elif isinstance(third, (list, tuple)) and isinstance(third[0], Tensor) and len(rest) == 6:
            hx, params, (biases, layers, dropout, training, bidirectional, batch_first) = second, third, rest
        else:
            return original(x, second, third, *rest)
        if lengths is not None:
            x = _steps(x, second.time, second.batch)
        hx = list(hx) if isinstance(hx, (list, tuple)) else hx
        config = (biases, layers, bidirectional, batch_first, *extra)
        if training and dropout > 0 and layers > 1:
            y, *states = _with_dropout(operator, dropout, x, lengths, hx, list(params), *config)
        else:
            y, *states = operator(x, lengths, hx, list(params), *config)
        if lengths is not None:
            y = _rows(y)
        return (y, *states)

    return run


def _with_dropout(
    operator: Callable[..., Any],
    dropout: float,
    x: Tensor,
    lengths: Tensor | None,
    hx: Any,
    params: list[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    *extra: Any,
) -> tuple[Tensor, ...]:
    """Layers one by one, with dropout of what each but the last returns."""
    directions = 2 if bidirectional else 1
    each = len(params) // layers
    found: list[list[Tensor]] = []
    for layer in range(layers):
        rows = slice(layer * directions, (layer + 1) * directions)
        first = [h[rows] for h in hx] if isinstance(hx, list) else hx[rows]
        mine = params[layer * each : (layer + 1) * each]
        x, *states = operator(x, lengths, first, mine, biases, 1, bidirectional, batch_first, *extra)
        found.append(states)
        if layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    return (x, *(torch.cat(list(parts)) for parts in zip(*found, strict=True)))


def _expected_size(last: Callable[[Any], int]) -> Replacement:
    def size(_: Any, self: Any, input: Tensor, batch_sizes: Any) -> tuple[int, Any, int]:
        # As PyTorch's, but without int(), which would fix the batch.
        if batch_sizes is not None:
            batch = batch_sizes[0]
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        return self.num_layers * (2 if self.bidirectional else 1), batch, last(self)

    return size


_REPLACEMENTS: dict[patches.Patch, Replacement] = {
    patches.RECURRENT_LAYERS["lstm"]: _whole(lstm),
    patches.RECURRENT_LAYERS["gru"]: _whole(gru),
    patches.RECURRENT_LAYERS["rnn_tanh"]: _whole(rnn, "tanh"),
    patches.RECURRENT_LAYERS["rnn_relu"]: _whole(rnn, "relu"),
    patches.HIDDEN_SIZE: _expected_size(lambda m: m.proj_size or m.hidden_size),
    patches.CELL_SIZE: _expected_size(lambda m: m.hidden_size),
    patches.PACK: instead(_pack_padded_sequence),
    patches.UNPACK: instead(_pad_packed_sequence),
}


@contextmanager
def kept_whole() -> Iterator[None]:
    """While it is active, PyTorch's recurrent layers and packed sequences are traced as this module says.

    Other threads that trace wait.
    """
    # Not more than one thread traces at a time: torch.export itself has state of the whole process.
    with _tracing, replaced(_REPLACEMENTS), quiet.STATE_OF_LAYERS.silenced():
        yield
