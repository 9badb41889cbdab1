"""Several requests in one call of a compiled model, and its results cut apart again.

The results of a request are those of a call with the request alone. A request that the model rejects has its own error,
and the others have their results: joined calls that fail are made again, one request at a time.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentValueError
from .policies import Policy
from .request_layout import OFFSETS, RequestLayout, TensorLayout
from .served_model import ServedModel

_logger = logging.getLogger("disc.serve")


@dataclass(frozen=True)
class Call:
    """The arguments of a request, as the model takes them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """The result of a request, or its error."""

    result: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """The result; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.result


@dataclass
class _Request:
    """A request whose arguments fit the model."""

    number: int
    call: Call
    flat: list[Any]
    sizes: dict[str, int]


class _Absent:
    """In the place of an input that a request lacks."""


_ABSENT = _Absent()


class JoinedCalls:
    """Answers requests by as few calls of a model as a policy allows.

    Args:
        model: the model.
        policy: which requests are joined.
        flat: the results are lists of arrays, in the order of the model's outputs, and not what a call returns.

    Raises:
        ArgumentValueError: the policy does not fit the model, or calls of the model update state.
    """

    def __init__(self, model: ServedModel, policy: Policy, *, flat: bool = False) -> None:
        if model.has_state:
            raise ArgumentValueError(
                "batching: calls of this model update an input, a buffer or a parameter, so requests cannot be joined;"
                " serve it without batching"
            )
        self._model = model
        self._flat = flat
        self.layout = RequestLayout(model.interface, policy)
        self.calls = 0
        """How often the model was called."""

    def __call__(self, calls: Sequence[Call]) -> list[Answer]:
        """The answers, in the order of the calls."""
        answers: list[Answer | None] = [None] * len(calls)
        groups: dict[Any, list[_Request]] = {}
        for number, call in enumerate(calls):
            try:
                request, fits = self._request(number, call)
                if fits:
                    groups.setdefault(self._key(request), []).append(request)
                else:
                    answers[number] = self._alone(request)
            except Exception as error:
                answers[number] = Answer(error=error)
        for group in groups.values():
            for chunk in self._chunks(group):
                for request, answer in zip(chunk, self._answers(chunk), strict=True):
                    answers[request.number] = answer
        return [answer for answer in answers if answer is not None]

    # -- One request ---------------------------------------------------------------------------------------------------

    def _request(self, number: int, call: Call) -> tuple[_Request, bool]:
        """A request with the inputs that it lacked, and whether it may be joined with others.

        One that may not is a call that the model must answer, or reject, alone.
        """
        kwargs = dict(call.kwargs)
        missing: list[str] = []
        for n, layout in enumerate(self.layout.inputs):
            name = layout.spec.name
            if name in self.layout.optional and name not in kwargs and n >= len(call.args):
                kwargs[name] = _ABSENT
                missing.append(name)
        flat = self._model.flat(call.args, kwargs)
        flat = [value if value is _ABSENT else _array(value) for value in flat]
        sizes, fits = self.layout.sizes([None if x is _ABSENT or x is None else tuple(x.shape) for x in flat])
        like = next((x for x in flat if x is not _ABSENT and x is not None), np.empty(0))
        for n, layout in enumerate(self.layout.inputs):
            if flat[n] is _ABSENT:
                kwargs[layout.spec.name] = flat[n] = self._filled_in(layout, sizes, like)
        fits = fits and all(
            x is not None and _dtype(x) == layout.spec.dtype for x, layout in zip(flat, self.layout.inputs, strict=True)
        )
        fits = fits and self._has_whole_offsets(flat, sizes)
        return _Request(number, Call(call.args, kwargs) if missing else call, flat, sizes), fits

    def _filled_in(self, layout: TensorLayout, sizes: Mapping[str, int], like: Any) -> Any:
        """An input that a request lacks: offsets of one sequence, or a mask of ones."""
        # Of a size that no input has the model rejects that input, whatever this one is.
        sizes = {**{name: max(symbol.min, 1) for name, symbol in self.layout.symbols.items()}, **sizes}
        array = _new(like, layout.spec.dtype, layout.extents(sizes), 1)
        if layout.part == OFFSETS:
            array[0], array[-1] = 0, sizes[self.layout.policy.along]
        return array

    def _has_whole_offsets(self, flat: Sequence[Any], sizes: Mapping[str, int]) -> bool:
        """Whether the sequences of a request begin at 0 and end at its end: only such can be shifted."""
        for x, layout in zip(flat, self.layout.inputs, strict=True):
            if layout.part == OFFSETS and (int(x[0]) != 0 or int(x[-1]) != sizes[self.layout.policy.along]):
                return False
        return True

    def _alone(self, request: _Request) -> Answer:
        self.calls += 1
        try:
            if self._flat:
                return Answer(list(self._model.run(request.flat)))
            return Answer(self._model.call(request.call.args, request.call.kwargs))
        except Exception as error:
            return Answer(error=error)

    # -- Several -------------------------------------------------------------------------------------------------------

    def _key(self, request: _Request) -> Any:
        """Requests with equal keys may be joined."""
        kinds, shared = [], []
        for x, layout in zip(request.flat, self.layout.inputs, strict=True):
            kinds.append(str(x.device) if _is_torch(x) else "numpy")
            if layout.joined is None:
                # One tensor for all of them.
                shared.append(_bytes(x))
        sizes = tuple(sorted(item for item in request.sizes.items() if item[0] not in self.layout.varying))
        return tuple(kinds), tuple(shared), sizes

    def _chunks(self, group: Sequence[_Request]) -> Iterable[list[_Request]]:
        """Splits a group where a call would be larger than the model or the policy allows."""
        policy = self.layout.policy
        chunk: list[_Request] = []
        for request in group:
            if chunk:
                sizes = self.layout.joined_values([r.sizes for r in (*chunk, request)])
                maxima = [(self.layout.symbols[name].max, value) for name, value in sizes.items()]
                maxima.append((policy.limit, sizes[policy.along]))
                if len(chunk) == policy.requests or any(most is not None and value > most for most, value in maxima):
                    yield chunk
                    chunk = []
            chunk.append(request)
        if chunk:
            yield chunk

    def _answers(self, requests: Sequence[_Request]) -> list[Answer]:
        if len(requests) > 1:
            try:
                return self._in_one_call(requests)
            except Exception as error:
                _logger.info("a call for %d requests failed, so each is called alone: %s", len(requests), error)
        return [self._alone(request) for request in requests]

    def _in_one_call(self, requests: Sequence[_Request]) -> list[Answer]:
        sizes = self.layout.joined_values([request.sizes for request in requests])
        flat = [self._join(n, layout, requests, sizes) for n, layout in enumerate(self.layout.inputs)]
        self.calls += 1
        results = self._model.run(flat)
        bases = itertools.accumulate((r.sizes[self.layout.policy.along] for r in requests), initial=0)
        starts = list(bases)[: len(requests)]
        pieces = [
            self._cut(layout, result, requests, starts)
            for layout, result in zip(self.layout.outputs, results, strict=True)
        ]
        if self._flat:
            return [Answer(own) for own in map(list, zip(*pieces, strict=True))]
        return [Answer(self._model.result(own, r.flat)) for r, *own in zip(requests, *pieces, strict=True)]

    def _join(self, n: int, layout: TensorLayout, requests: Sequence[_Request], sizes: Mapping[str, int]) -> Any:
        """One input of a joined call."""
        first, axis = requests[0].flat[n], layout.joined
        if axis is None:
            return first
        value = self.layout.pad_values.get(layout.spec.name, 0)
        joined = _new(first, layout.spec.dtype, layout.extents(sizes), value)
        at, base = 0, 0
        for request in requests:
            array = request.flat[n]
            part: list[slice] = [slice(0, extent) for extent in array.shape]
            part[axis] = slice(at, at + array.shape[axis])
            if layout.part == OFFSETS:
                joined[tuple(part)] = array + base
                base += request.sizes[self.layout.policy.along]
                at -= 1  # The end of one is the start of the next.
            else:
                joined[tuple(part)] = array
            at += array.shape[axis]
        return joined

    def _cut(self, layout: TensorLayout, result: Any, requests: Sequence[_Request], bases: Sequence[int]) -> list[Any]:
        """A result of a joined call, as those of the requests."""
        axis = layout.joined
        assert axis is not None
        pieces, at = [], 0
        for request, base in zip(requests, bases, strict=True):
            extents = layout.extents(request.sizes)
            part = [slice(0, extent) for extent in extents]
            part[axis] = slice(at, at + extents[axis])
            piece = result[tuple(part)]
            pieces.append(piece - base if layout.part == OFFSETS else piece)
            at += extents[axis] - (layout.part == OFFSETS)
        return pieces


# -- Arrays of NumPy and torch -----------------------------------------------------------------------------------------


def _is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _array(value: Any) -> Any:
    """An array of NumPy or a tensor of torch; None for what is neither."""
    if isinstance(value, np.ndarray):
        return value
    if _is_torch(value) and hasattr(value, "detach"):
        return value.detach()
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return None


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _bytes(array: Any) -> bytes:
    if _is_torch(array):
        import torch

        return array.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()  # type: ignore[no-any-return]
    return array.tobytes()  # type: ignore[no-any-return]


def _new(like: Any, dtype: str, shape: tuple[int, ...], value: Any) -> Any:
    """An array of the kind of another, full of a value."""
    if _is_torch(like):
        import torch

        return torch.full(shape, value, dtype=getattr(torch, dtype), device=like.device)
    # NumPy knows the name of bfloat16 only through ml_dtypes.
    return np.full(shape, value, like.dtype if _dtype(like) == dtype else dtype)
