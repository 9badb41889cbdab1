"""Floats among the arguments as inputs: the value at each call is used.

``torch.export`` turns floats into constants. It receives them as tensors without dims, which become data-dependent
numbers again before the model's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import pytree
from .rewriting.hooks import NeedsRewriting

Path = tuple[Any, ...]


def find_floats(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Path]:
    """Where floats are among the arguments: paths into ``(args, kwargs)``."""
    leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    return [tuple(path) for path, leaf in leaves if isinstance(leaf, float)]


def as_tensors(args: Sequence[Any], kwargs: Mapping[str, Any], floats: Sequence[Path]) -> tuple[Any, Any]:
    """The arguments with tensors in the place of floats."""
    return _mapped(args, kwargs, floats, lambda value: torch.tensor(value, dtype=torch.float64))


def _mapped(args: Any, kwargs: Any, floats: Sequence[Path], make: Any) -> tuple[Any, Any]:
    places = set(floats)
    return pytree.tree_map_with_path(  # type: ignore[no-any-return]
        lambda path, leaf: make(leaf) if tuple(path) in places else leaf, (tuple(args), dict(kwargs))
    )


def _number(tensor: Any) -> Any:
    # Not Tensor.item: the model's code does not need this number.
    return torch.ops.aten.item.default(tensor) if isinstance(tensor, torch.Tensor) else tensor


@contextmanager
def floats_as_inputs(module: torch.nn.Module, floats: Sequence[Path]) -> Iterator[None]:
    """While it is active, a call of ``module`` makes numbers of the tensors that stand for floats."""
    if not floats:
        yield
        return

    def enter(_: Any, args: Any, kwargs: Any) -> Any:
        forward = getattr(module.forward, "__code__", None)
        names = () if forward is None or "_disc_" in forward.co_freevars else forward.co_names
        if "isinstance" in names or "type" in names:
            raise NeedsRewriting("the type of a number that is known at run time only")
        return _mapped(args, kwargs, floats, _number)

    first = module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True)
    try:
        yield
    finally:
        first.remove()
