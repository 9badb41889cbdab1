"""Examples of size 0 or 1 in dynamic dims, replaced by larger ones while a model is traced.

The code of models and of PyTorch asks whether sizes are 1, and takes the example's answer for granted: a batch of one
would be a batch of one for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram

from .. import jagged
from ..torch_compat import pytree
from .entry_guards import entry_guards
from .example import differing
from .hints import dims, is_hint, spec_of

_SMALLEST_MOST = 16
"""A named dim has other sizes than 0 and 1 that an example can have if it may be so large."""


def enlarged(args: Any, kwargs: Any, specs: Sequence[Any], named: bool = False) -> list[tuple[Any, Any]]:
    """Examples with another size for each 0 and 1 in a dim without a range of the user's, the best one first.

    The second one keeps what is not the first dim of an input: channels, say, of which a model takes one alone. With
    ``named`` they have other sizes in dims that are a ``Dim`` instead.
    """
    leaves, _ = pytree.tree_flatten((args, kwargs))
    more = jagged.more_than_sequences((args, kwargs))
    every = [_small(x, spec, n, named) for x, spec, n in zip(leaves, specs, more, strict=False)]
    batches = [[dim for dim in dims if dim == 0] for dims in every]
    chosen = [every, batches] if batches != every else [every]
    return [_with_larger(args, kwargs, dims) for dims in chosen if any(dims)]


def _with_larger(args: Any, kwargs: Any, chosen: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    leaves, tree = pytree.tree_flatten((args, kwargs))
    taken = {size for x in leaves if isinstance(x, torch.Tensor) for size in x.shape}
    more = jagged.more_than_sequences((args, kwargs))
    small = {x.shape[dim] - n for x, dims, n in zip(leaves, chosen, more, strict=False) for dim in dims}
    # Equal sizes stay equal, and are equal to no others: those may be of dims that have nothing to do with them.
    free = (n for n in range(5, 5 + len(taken) + len(small) + 1) if n not in taken)
    sizes = {size: next(free) for size in sorted(small)}
    for i, (x, found, n) in enumerate(zip(leaves, chosen, more, strict=False)):
        if found:
            shape = [sizes[size - n] + n if dim in found else size for dim, size in enumerate(x.shape)]
            order = sorted(range(x.dim()), key=lambda dim: -x.stride(dim))
            leaves[i] = torch.empty_permuted(shape, order, dtype=x.dtype, device=x.device)
    new: tuple[Any, Any] = pytree.tree_unflatten(leaves, tree)
    return new


def _small(x: Any, spec: Any, more: int, named: bool) -> list[int]:
    """The dims of an example that are 0 or 1, and as many ``more``, and may be anything."""
    if type(x) is not torch.Tensor or x.layout is not torch.strided:
        return []

    def is_free(dim: int) -> bool:
        found = spec_of(spec, dim)
        if not (isinstance(found, Dim) if named else is_hint(found)):
            return False
        return (found.min or 0) - more < 2 and (found.max is None or found.max >= (_SMALLEST_MOST if named else 65))

    return [dim for dim, size in enumerate(x.shape) if size - more < 2 and is_free(dim)]


def serves(program: ExportedProgram, args: Any, kwargs: Any, specs: Sequence[Any]) -> bool:
    """Whether a program that was traced with other sizes fulfils its own conditions for the sizes of these examples."""
    leaves = pytree.tree_leaves((args, kwargs))
    values: dict[sympy.Symbol, sympy.Integer] = {}
    for leaf, dim, size, _ in dims(program, specs):
        if dim is None:
            continue
        have = leaves[leaf].shape[dim]
        if not isinstance(size, torch.SymInt):
            if size != have:
                return False
        elif size.node.expr.is_Symbol and values.setdefault(size.node.expr, sympy.Integer(have)) != have:
            return False
    for _, dim, size, _ in dims(program, specs):
        known = program.range_constraints.get(size.node.expr) if isinstance(size, torch.SymInt) else None
        if dim is not None and known is not None and size.node.expr in values and values[size.node.expr] not in known:
            return False
    if not all(guard.condition.xreplace(values) == sympy.true for guard in entry_guards(program)):
        return False
    return differing(program, values) is None
