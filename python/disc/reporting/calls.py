"""The calls that a report measures: the sizes of dynamic dims, and arguments of these sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ArgumentTypeError, ArgumentValueError
from ..expressions import Expression, parse
from ..torch_compat import pytree

if TYPE_CHECKING:
    from ..frontend import Input
    from ..model import Model

_USUAL = 16
"""The size of a dynamic dim where nothing else says one, within its range."""
_MOST_TRIED = 1 << 16


@dataclass(frozen=True)
class Call:
    """The arguments of a call, and the sizes of the dynamic dims in them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)

    def copy(self) -> Call:
        """The same call with tensors of its own: the model may write to them."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (self.args, dict(self.kwargs)))
        return Call(args, kwargs, self.extents)

    @property
    def name(self) -> str:
        """``"batch=8, length=64"``, or ``"static sizes"``."""
        return ", ".join(f"{name}={size}" for name, size in self.extents.items()) or "static sizes"


def given_call(model: Model, inputs: Any, fixed: Mapping[str, Any] | None = None) -> Call:
    """A call from the user's example: a tuple of arguments, a dict of keyword arguments, or one argument.

    ``fixed``: further keyword arguments.

    Raises:
        CallError, InputTypeError: the arguments are not those of the model.
    """
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        kwargs = dict(inputs)
    else:
        args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    kwargs.update(fixed or {})
    return Call(args, kwargs, extents_of(model, args, kwargs))


def extents_of(model: Model, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the dynamic dims in the arguments of a call."""
    leaves = model._flatten(tuple(args), dict(kwargs))
    names = [symbol.name for symbol in model.symbols if not symbol.data_dependent]
    found: dict[str, int] = {}
    open_dims: list[tuple[Expression, int]] = []
    for entry, leaf in zip(model.inputs, leaves, strict=True):
        if entry.is_number:
            if entry.name in names:
                found.setdefault(entry.name, int(leaf))
            continue
        for dim, size in zip(entry.dims, leaf.shape, strict=False):
            if not isinstance(dim, str):
                continue
            expression = parse(dim)
            if expression.kind == "symbol":
                found.setdefault(expression.name, int(size))
            else:
                open_dims.append((expression, int(size)))
    for expression, size in open_dims:
        _solve(model, expression, size, found)
    return {name: found[name] for name in names if name in found}


def _solve(model: Model, expression: Expression, size: int, found: dict[str, int]) -> None:
    """The value of the only unknown symbol in an expression of a known value."""
    unknown = [name for name in expression.symbols() if name not in found]
    if len(unknown) != 1:
        return
    symbol = next((s for s in model.symbols if s.name == unknown[0]), None)
    if symbol is None:
        return
    most = _MOST_TRIED if symbol.max is None else min(symbol.max, symbol.min + _MOST_TRIED)
    for value in range(max(symbol.min, 0), most + 1):
        try:
            if expression.evaluate({**found, symbol.name: value}) == size:
                found[symbol.name] = value
                return
        except ZeroDivisionError:
            continue


def usual_extents(model: Model, example: Call | None = None) -> dict[str, int]:
    """A size for each dynamic dim: that of the example, or one within the range."""
    sizes = {}
    for symbol in model.symbols:
        if symbol.data_dependent:
            continue
        size = max(symbol.min, _USUAL)
        sizes[symbol.name] = size if symbol.max is None else min(size, symbol.max)
    if example is not None:
        sizes.update({name: size for name, size in example.extents.items() if name in sizes})
    for size in _candidates(model):
        if _fits(model, sizes):
            break
        # Some dims are, say, multiples of 3: try the same size for all, which every relation between dims allows.
        sizes = {
            s.name: max(s.min, size if s.max is None else min(size, s.max)) for s in model.symbols if s.name in sizes
        }
    return sizes


def _candidates(model: Model) -> Sequence[int]:
    return [_USUAL, *(size for size in range(1, 65) if size != _USUAL)]


def _fits(model: Model, sizes: Mapping[str, int]) -> bool:
    """Whether the model's guards allow these sizes, as far as they concern sizes of inputs alone."""
    for guard in model.guards():
        try:
            if not guard.holds(sizes):
                return False
        except (KeyError, ZeroDivisionError):
            continue
    return True


def complete_extents(model: Model, given: Mapping[str, int], example: Call | None = None) -> dict[str, int]:
    """The given sizes, and usual ones for the other dynamic dims.

    Raises:
        ArgumentValueError: the model has no such dynamic dim, or the size is outside of its range.
    """
    sizes = usual_extents(model, example)
    for name, size in given.items():
        if name not in sizes:
            known = ", ".join(sizes) or "there are none"
            raise ArgumentValueError(f"shapes: the model has no dynamic dim {name!r}; its dynamic dims: {known}")
        symbol = next(s for s in model.symbols if s.name == name)
        if size < symbol.min or (symbol.max is not None and size > symbol.max):
            most = "more" if symbol.max is None else symbol.max
            raise ArgumentValueError(f"shapes: {name}: expected {symbol.min} to {most}, got {size}")
        sizes[name] = int(size)
    return sizes


def random_call(
    model: Model,
    extents: Mapping[str, int],
    example: Call | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    high: int = 2,
    seed: int = 0,
) -> Call:
    """A call with random tensors of these sizes; the example itself if it has them.

    Integers are between the least and the largest of the example's input, without an example from 0 to ``high - 1``.
    ``fixed``: keyword arguments that are not random.

    Raises:
        ArgumentTypeError: the model takes trees or nested tensors, which have no shape to fill.
    """
    if example is not None and dict(example.extents) == dict(extents):
        return example
    program = model._program
    if program.trees or program.nested:
        raise ArgumentTypeError(
            "inputs: expected example arguments for a model that takes trees or nested tensors, got sizes alone"
        )
    examples: Sequence[Any] = [None] * len(model.inputs)
    if example is not None:
        examples = model._flatten(example.args, dict(example.kwargs))
    device = torch.device(model.device)
    generator = torch.Generator().manual_seed(seed)
    leaves: list[Any] = [program.constants.get(i) for i in range(program.in_spec.num_leaves)]
    for entry, like in zip(model.inputs, examples, strict=True):
        leaves[entry.leaf] = _random(entry, extents, like, high, generator)
        if isinstance(leaves[entry.leaf], torch.Tensor):
            leaves[entry.leaf] = leaves[entry.leaf].to(device)
    args, kwargs = pytree.tree_unflatten(leaves, program.in_spec)
    return Call(tuple(args), {**kwargs, **(fixed or {})}, dict(extents))


def _random(entry: Input, extents: Mapping[str, int], like: Any, high: int, generator: torch.Generator) -> Any:
    if entry.is_number:
        if entry.name in extents:
            return extents[entry.name]
        if isinstance(like, torch.Tensor):
            return like.item()
        return 1.0 if entry.dtype.is_floating_point else 1
    shape = [parse(str(dim)).evaluate(extents) for dim in entry.dims]
    dtype = entry.dtype
    if dtype.is_floating_point or dtype.is_complex:
        made = dtype if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=made).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    low = 0
    if isinstance(like, torch.Tensor) and like.numel():
        low, high = int(like.min()), int(like.max()) + 1
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def calls_for(
    model: Model,
    inputs: Any = None,
    shapes: Sequence[Mapping[str, int]] | None = None,
    example: Call | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    high: int = 2,
    seed: int = 0,
) -> list[Call]:
    """The calls to measure: those of ``inputs``, then one for each of ``shapes``; one of usual sizes without both.

    ``fixed``: keyword arguments that all calls have in addition.
    """
    calls: list[Call] = []
    if inputs is not None:
        several = isinstance(inputs, list) and all(isinstance(x, (tuple, dict, torch.Tensor)) for x in inputs)
        calls += [given_call(model, x, fixed) for x in (inputs if several else [inputs])]
    first = example or (calls[0] if calls else None)
    wanted = shapes if shapes is not None else ([] if calls else [{}])
    for sizes in wanted:
        if not isinstance(sizes, Mapping):
            raise ArgumentTypeError(
                f"shapes: expected a list of dicts, {{'batch': 8}}, got {type(sizes).__name__} in it"
            )
        extents = complete_extents(model, sizes, first)
        calls.append(random_call(model, extents, first, fixed=fixed, high=high, seed=seed))
    return calls
