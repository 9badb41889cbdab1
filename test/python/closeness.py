"""When a float counts as right: per element, with the dtype's tolerance, against eager PyTorch and against f64.

An element is right if it is close to what eager gives or to what the same program gives in f64: half types round after
every operation, and sums depend on their order. Where it is close to neither, the program may amplify rounding: the
f64 program runs some times more with each operation's results changed by up to an ulp of the dtype that they have in
the program, at random, and in half of these runs rounded to it (Monte Carlo arithmetic: D. S. Parker, "Monte Carlo
Arithmetic", UCLA CSD-970002, 1997), and the element may be as far from the exact value as those runs are. No element
borrows the tolerance of another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

RUNS = 8
"""How often a program runs with random roundings."""
MORE_RUNS = 40
"""How often before an element counts as wrong: two half-precision numbers may be equal in some runs only."""
AMPLIFIED = 6.0
"""How many times the largest deviation of these runs a result may be off: the runs are few."""
# (rtol, atol): what torch.testing.assert_close takes.
TOLERANCES = {
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex32: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}
_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def _inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _widened(value: Any) -> Any:
    """A tensor in f64 that knows the dtype it stands for."""
    if not isinstance(value, torch.Tensor):
        return value
    result = value.to(_WIDE.get(value.dtype, value.dtype)).clone()
    result.nominal = value.dtype  # type: ignore[attr-defined]
    return result


class _InWide(TorchDispatchMode):
    """Runs every operation in f64; with ``noise``, results are off by up to an ulp of the dtype they stand for."""

    def __init__(self, noise: torch.Generator | None, rounded: bool = False) -> None:
        """``rounded``: disturbed results are numbers of their dtype, so that they can be equal as in the program."""
        super().__init__()
        self.noise, self.rounded = noise, rounded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        wide_args, wide_kwargs = pytree.tree_unflatten([self._operand(leaf) for leaf in leaves], spec)
        if func is torch.ops.aten.view.dtype:
            raise NotImplementedError("bits of another dtype mean nothing in f64")
        result = func(*wide_args, **wide_kwargs)
        nominal = self._nominal(func, leaves, spec, result)
        schema = func._schema
        for place, (out, dtype) in enumerate(zip(_results(result), nominal, strict=True)):
            if not isinstance(out, torch.Tensor):
                continue
            alias = schema.returns[min(place, len(schema.returns) - 1)].alias_info if schema.returns else None
            is_view = alias is not None and not alias.is_write
            if out.dtype in _WIDE and not is_view:
                raise NotImplementedError(f"{func} computes in {out.dtype}")
            if self.noise is not None and _inexact(out.dtype) and not is_view and func not in _EXACT:
                self._disturb(out, dtype)
            out.nominal = dtype  # type: ignore[attr-defined]
        return result

    def _operand(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return _WIDE.get(leaf, leaf)
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDE:
            # A constant that the program holds.
            return _widened(leaf)
        return leaf

    def _nominal(self, func: Any, leaves: Sequence[Any], spec: Any, result: Any) -> list[torch.dtype | None]:
        """The dtypes that ``func`` gives in the program itself, found with tensors without values."""
        outs = _results(result)
        if not any(isinstance(out, torch.Tensor) and _inexact(out.dtype) for out in outs):
            return [out.dtype if isinstance(out, torch.Tensor) else None for out in outs]
        own = [getattr(leaf, "nominal", leaf.dtype) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        try:
            empty = [
                torch.empty_like(leaf, dtype=getattr(leaf, "nominal", leaf.dtype), device="meta")
                if isinstance(leaf, torch.Tensor)
                else torch.device("meta")
                if isinstance(leaf, torch.device)
                else leaf
                for leaf in leaves
            ]
            args, kwargs = pytree.tree_unflatten(empty, spec)
            found = [out.dtype if isinstance(out, torch.Tensor) else None for out in _results(func(*args, **kwargs))]
            if len(found) == len(outs):
                return found
        except Exception:
            pass
        floats = [dtype for dtype in own if dtype is not None and _inexact(dtype)] or [torch.float32]
        coarsest = max(floats, key=lambda dtype: torch.finfo(dtype).eps)
        return [coarsest if isinstance(out, torch.Tensor) and _inexact(out.dtype) else None for out in outs]

    def _disturb(self, out: torch.Tensor, dtype: torch.dtype | None) -> None:
        assert self.noise is not None
        if dtype is None or not _inexact(dtype) or not out.numel():
            return
        eps = torch.finfo(dtype).eps
        real = torch.view_as_real(out) if out.is_complex() else out
        try:
            change = torch.rand(real.shape, dtype=real.dtype, generator=self.noise).mul_(2 * eps).sub_(eps)
            real.mul_(change.add_(1.0))
            if self.rounded:
                real.copy_(real.to(dtype.to_real()))
        except RuntimeError:
            # Elements that share memory: an expanded tensor that was changed in place, say.
            pass


# Operations that only move values.
_EXACT = {
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overload in (
        ("clone", "default"),
        ("cat", "default"),
        ("stack", "default"),
        ("index_select", "default"),
        ("gather", "default"),
        ("index", "Tensor"),
        ("where", "self"),
        ("neg", "default"),
        ("abs", "default"),
        ("flip", "default"),
        ("roll", "default"),
        ("constant_pad_nd", "default"),
        ("masked_fill", "Scalar"),
        ("repeat", "default"),
        ("copy_", "default"),
        ("sort", "default"),
        ("topk", "default"),
        ("amax", "default"),
        ("amin", "default"),
    )
}


def _results(result: Any) -> list[Any]:
    flat: list[Any] = []
    for part in result if isinstance(result, tuple | list) else [result]:
        flat += part if isinstance(part, tuple | list) else [part]
    return flat


def _in_wide(call: Callable[..., Any], args: Any, noise: torch.Generator | None, rounded: bool = False) -> list[Any]:
    wide = pytree.tree_map(_widened, args)
    if noise is not None:
        # What comes in is exact, but a kernel may as well be right for inputs that differ by a rounding.
        mode = _InWide(noise)
        for leaf in pytree.tree_leaves(wide):
            if isinstance(leaf, torch.Tensor) and getattr(leaf, "nominal", None) in _WIDE:
                mode._disturb(leaf, leaf.nominal)  # type: ignore[attr-defined]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), _InWide(noise, rounded):
            return list(pytree.tree_leaves(call(*wide)))
    finally:
        torch.set_default_dtype(before)


def wide_module(module: torch.nn.Module) -> torch.nn.Module:
    """A copy with parameters, buffers and constants in f64 that know the dtypes they stand for, for :func:`exact`."""
    result = copy.deepcopy(module)
    held = [*result.parameters(), *result.buffers()]
    dtypes = [t.dtype for t in held]
    result.double()
    for tensor, dtype in zip([*result.parameters(), *result.buffers()], dtypes, strict=True):
        tensor.nominal = dtype  # type: ignore[attr-defined]
    for part in result.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                setattr(part, name, _widened(value))
    return result


def exact(call: Callable[..., Any], args: Any) -> list[Any] | None:
    """The leaves of ``call(*args)`` in f64, or None if something in it has no f64 form."""
    try:
        return _in_wide(call, args, None)
    except Exception:
        return None


def spread(
    call: Callable[..., Any], args: Any, exact_leaves: Sequence[Any], first: int = 0, last: int = RUNS
) -> list[torch.Tensor | None]:
    """For each leaf the elementwise distance of runs with random roundings from the exact result.

    It is inf where they disagree on an integer, an infinity or a shape.
    """
    found: list[torch.Tensor | None] = [
        torch.zeros(e.shape, dtype=torch.float64) if isinstance(e, torch.Tensor) else None for e in exact_leaves
    ]
    for seed in range(first, last):
        try:
            leaves = _in_wide(call, args, torch.Generator().manual_seed(seed), rounded=seed % 2 == 1)
        except Exception:
            continue
        for place, (e, leaf) in enumerate(zip(exact_leaves, leaves, strict=False)):
            if (most := found[place]) is None or not isinstance(leaf, torch.Tensor):
                continue
            if leaf.shape != e.shape:
                most.fill_(torch.inf)
                continue
            off = _distance(leaf, e)
            torch.maximum(most, off, out=most)
    return found


def _widen(known: Sequence[torch.Tensor | None], more: Sequence[torch.Tensor | None]) -> bool:
    """Makes the distances those of more runs, too."""
    for a, b in zip(known, more, strict=True):
        if a is not None and b is not None:
            torch.maximum(a, b, out=a)
    return True


def _amplified(most: torch.Tensor | None) -> Any:
    return 0 if most is None else 2 * AMPLIFIED * most


def _distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b| elementwise in f64; 0 for two equal infinities or NaN, inf for only one and for unequal integers."""
    if not _inexact(b.dtype):
        return torch.where(a == b, 0.0, torch.inf).double()
    if a.is_complex() or b.is_complex():
        a, b = (torch.view_as_real(t.to(torch.complex128).resolve_conj()) for t in (a, b))
        return _distance(a, b).amax(-1)
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    return torch.where(same, 0.0, torch.where(finite, (a - b).abs(), torch.inf))


def _magnitude(t: torch.Tensor) -> torch.Tensor:
    size = (t.to(torch.complex128) if t.is_complex() else t.double()).abs()
    return torch.where(size.isfinite(), size, 0.0)


def wrong_elements(
    got: torch.Tensor,
    want: torch.Tensor,
    exact_leaf: Any = None,
    spread_leaf: torch.Tensor | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> torch.Tensor:
    """Which elements of ``got`` (a mask of its shape) are close neither to eager's ``want`` nor to the exact value."""
    default_rtol, default_atol = TOLERANCES.get(want.dtype, (0.0, 0.0))
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    right = _distance(got, want) <= atol + rtol * _magnitude(want)
    if isinstance(exact_leaf, torch.Tensor) and exact_leaf.shape == got.shape:
        allowed = atol + rtol * _magnitude(exact_leaf)
        # What is too large for the dtype is infinite.
        rounded = exact_leaf.to(got.dtype) if _inexact(got.dtype) and _inexact(exact_leaf.dtype) else exact_leaf
        right |= _distance(got, exact_leaf) <= allowed
        right |= _distance(got, rounded) == 0
        if spread_leaf is not None and spread_leaf.shape == got.shape:
            right |= _distance(got, exact_leaf) <= allowed + AMPLIFIED * spread_leaf
            # Eager's own choice where roundings decide: on it the rest of the program follows.
            right |= spread_leaf.isinf()
    return ~right


def described(got: torch.Tensor, want: torch.Tensor, exact_leaf: Any, wrong: torch.Tensor) -> str:
    """How many elements are wrong, and the first of the worst."""
    reference = exact_leaf if isinstance(exact_leaf, torch.Tensor) and exact_leaf.shape == got.shape else want
    off = torch.where(wrong, _distance(got, reference), -1.0)
    place = int(off.flatten().argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(place), got.shape)] if got.dim() else []
    values = [t.flatten()[place].item() for t in (got, want)] + (
        [exact_leaf.flatten()[place].item()] if reference is exact_leaf else []
    )
    text = f"{int(wrong.sum())} of {wrong.numel()} elements; at {index} {values[0]!r}, eager {values[1]!r}"
    return text + (f", exact {values[2]!r}" if len(values) > 2 else "")


def disagreements(
    call: Callable[..., Any],
    args: Any,
    got: Any,
    want: Any,
    *,
    tolerance: Callable[[torch.dtype], tuple[float, float]] = lambda dtype: TOLERANCES.get(dtype, (0.0, 0.0)),
    prepare: Callable[[torch.Tensor], torch.Tensor] = lambda t: t,
) -> list[str]:
    """Says of each wrong leaf of ``got``, a compiled program's result for ``args``, what is wrong.

    Args:
        call: The program in eager PyTorch.
        args: Its arguments.
        got: The result, a tree of tensors and numbers.
        want: Eager's result.
        tolerance: The (rtol, atol) of a dtype.
        prepare: Removes from a leaf what does not count, such as signs.
    """
    got_leaves, want_leaves = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(got_leaves) != len(want_leaves):
        return [f"{len(got_leaves)} results instead of {len(want_leaves)}"]
    reasons, exact_leaves, spread_leaves, thorough = [], None, None, False
    for place, (g, w) in enumerate(zip(got_leaves, want_leaves, strict=True)):
        if not isinstance(w, torch.Tensor):
            if not (g == w or (g != g and w != w)):
                reasons.append(f"{g!r} instead of {w!r}")
            continue
        if not isinstance(g, torch.Tensor) or g.dtype != w.dtype or g.shape != w.shape:
            what = f"{g.dtype} {list(g.shape)}" if isinstance(g, torch.Tensor) else type(g).__name__
            reasons.append(f"{what} instead of {w.dtype} {list(w.shape)}")
            continue
        g, w = prepare(g), prepare(w)
        rtol, atol = tolerance(w.dtype)
        if not bool(wrong_elements(g, w, rtol=rtol, atol=atol).any()):
            continue
        if exact_leaves is None:
            exact_leaves = exact(call, args) or []
        e = exact_leaves[place] if place < len(exact_leaves) else None
        e = prepare(e) if isinstance(e, torch.Tensor) else None
        wrong = wrong_elements(g, w, e, rtol=rtol, atol=atol)
        if bool(wrong.any()) and e is not None:
            if spread_leaves is None:
                spread_leaves = spread(call, args, exact_leaves)
            wrong = wrong_elements(g, w, e, spread_leaves[place], rtol=rtol, atol=atol)
            if bool(wrong.any()) and not thorough:
                thorough = _widen(spread_leaves, spread(call, args, exact_leaves, RUNS, MORE_RUNS))
                wrong = wrong_elements(g, w, e, spread_leaves[place], rtol=rtol, atol=atol)
        if bool(wrong.any()):
            reasons.append("values: " + described(g, w, e, wrong))
    return reasons


def differences(call: Callable[..., Any], args: Any, first: Any, second: Any, want: Any) -> list[str]:
    """Says where two compiled results of one program differ by more than both may be wrong together.

    The bound of an element is that of :func:`wrong_elements`, twice, and the distance between the two values that a
    result may be close to: eager's and the exact one. Where no rounding is involved, it is 0.

    Args:
        call: The program in eager PyTorch.
        args: Its arguments.
        first: One result, a tree of tensors and numbers.
        second: The other one.
        want: Eager's result.
    """
    leaves = [pytree.tree_leaves(tree) for tree in (first, second, want)]
    if len({len(each) for each in leaves}) != 1:
        return [f"{len(leaves[0])} and {len(leaves[1])} results instead of {len(leaves[2])}"]
    reasons, exact_leaves, spread_leaves, thorough = [], None, None, False
    for place, (a, b, w) in enumerate(zip(*leaves, strict=True)):
        if not isinstance(w, torch.Tensor):
            if not (a == b or (a != a and b != b)):
                reasons.append(f"{a!r} and {b!r}")
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            reasons.append(f"{a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}")
            continue
        rtol, atol = TOLERANCES.get(w.dtype, (0.0, 0.0))
        off, allowed = _distance(a, b), 2 * (atol + rtol * _magnitude(w))
        if bool((off <= allowed).all()):
            continue
        if exact_leaves is None:
            exact_leaves = exact(call, args) or []
            spread_leaves = spread(call, args, exact_leaves)
        e = exact_leaves[place] if place < len(exact_leaves) else None
        wrong = ~(off <= allowed)
        if isinstance(e, torch.Tensor) and e.shape == a.shape:
            allowed = torch.maximum(allowed, 2 * (atol + rtol * _magnitude(e))) + _distance(w, e)
            wrong = ~(off <= allowed + _amplified((spread_leaves or [])[place]))
            if bool(wrong.any()) and not thorough:
                thorough = _widen(spread_leaves or [], spread(call, args, exact_leaves, RUNS, MORE_RUNS))
                wrong = ~(off <= allowed + _amplified((spread_leaves or [])[place]))
        if bool(wrong.any()):
            reasons.append("values: " + described(a, b, None, wrong).replace("eager", "rewritten"))
    return reasons


def check(call: Callable[..., Any], args: Sequence[Any], got: Any) -> None:
    """Asserts that ``got`` is ``call(*args)``, per element."""
    with torch.no_grad():
        want = call(*pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, tuple(args)))
    reasons = disagreements(call, args, got, want)
    assert not reasons, "; ".join(reasons)
