"""When a result counts as PyTorch's."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo

from .samples import Sample

# Their values are random (or uninitialised): what can be compared is the shape, the dtype and the distribution.
UNINITIALISED = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
RANDOM = (
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu",
    "normal",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "svd_lowrank",
    "pca_lowrank",
    "uniform",
)
# PyTorch's own f64 is wrong by up to this much (against mpmath: bessel_y1(5.0003), airy_ai(-2.0997)).
INEXACT = {f"special.{name}": 1e-5 for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")}
# Vectors that are unique up to their signs.
SIGNLESS = ("linalg.svd", "svd", "linalg.eigh", "linalg.eig", "pca_lowrank", "svd_lowrank")
# Values that come in no particular order, and vectors in that of the values.
UNORDERED = ("linalg.eig", "linalg.eigvals")
# Which of several equal elements they choose is not said.
TIES = ("topk", "kthvalue", "sort", "argsort")


def tolerances(op: OpInfo, dtype: torch.dtype) -> tuple[float, float]:
    """(rtol, atol): those of torch.testing, or what the OpInfo allows on a CPU if that is more."""
    rtol, atol = {
        torch.bfloat16: (1.6e-2, 1e-5),
        torch.float16: (1e-3, 1e-5),
        torch.float32: (1.3e-6, 1e-5),
        torch.complex64: (1.3e-6, 1e-5),
        torch.float64: (1e-7, 1e-7),
        torch.complex128: (1e-7, 1e-7),
    }.get(dtype, (0.0, 0.0))
    rtol = max(rtol, INEXACT.get(op.name, 0.0))
    for decorator in op.decorators or ():
        if not isinstance(decorator, DecorateInfo) or decorator.device_type not in (None, "cpu"):
            continue
        for inner in decorator.decorators:
            if isinstance(inner, toleranceOverride) and dtype in inner.d:
                rtol, atol = max(rtol, inner.d[dtype].rtol), max(atol, inner.d[dtype].atol)
    return rtol, atol


def difference(op: OpInfo, call: Sample, tensors: Any, got: Any, want: Any) -> str | None:
    """What is wrong with ``got``, or None: it must be as close to eager's ``want`` as PyTorch asks of its devices.

    Where it is not, it may still be no further than eager from what f64 arithmetic gives: half types round after
    every op, and sums depend on their order.
    """
    try:
        got_leaves, got_spec = pytree.tree_flatten(got)
        want_leaves, want_spec = pytree.tree_flatten(want)
        if len(got_leaves) != len(want_leaves) or got_spec.num_leaves != want_spec.num_leaves:
            return f"structure {got_spec} instead of {want_spec}"
        if op.name in UNORDERED:
            got_leaves = _in_order_of(want_leaves[0], got_leaves)
        exact = None
        for i, (g, w) in enumerate(zip(got_leaves, want_leaves, strict=True)):
            why = _leaf_difference(op, g, w, op.name in RANDOM or call.drops)
            if why is None or (op.name in TIES and _same_choice(tensors[0], g, w)):
                continue
            if exact is None:
                exact = _exact(call, tensors)
            if i < len(exact) and _no_further(op, g, w, exact[i]):
                continue
            return why
    except Exception as error:
        return f"comparing: {error}".splitlines()[0]
    return None


def _in_order_of(want: torch.Tensor, got: list[Any]) -> list[Any]:
    """Eigenvalues [.., n], and vectors if there are any, with each value in the place of the one it is nearest to."""
    values = got[0]
    if values.shape != want.shape or not values.numel():
        return got
    nearest = (want.unsqueeze(-1) - values.unsqueeze(-2)).abs().argmin(-1)
    if not torch.equal(nearest.sort().values, torch.arange(values.shape[-1]).expand_as(nearest)):
        return got
    vectors = [t.gather(-1, nearest.unsqueeze(-2).expand_as(t)) for t in got[1:]]
    return [values.gather(-1, nearest), *vectors]


def _same_choice(x: torch.Tensor, got: Any, want: Any) -> bool:
    """Whether different indices along some dim of ``x`` name equal elements, and none twice."""
    if got.dtype != torch.int64 or got.shape != want.shape:
        return False
    for dim in range(x.dim()):
        g, w = (t if t.dim() == x.dim() else t.unsqueeze(dim) for t in (got, want))
        if any(g.shape[d] != x.shape[d] for d in range(x.dim()) if d != dim) or bool((g >= x.shape[dim]).any()):
            continue
        ours, theirs = x.gather(dim, g), x.gather(dim, w)
        equal = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        if bool(equal.all()) and bool(g.sort(dim).values.diff(dim=dim).all()):
            return True
    return False


def _leaf_difference(op: OpInfo, got: Any, want: Any, random: bool) -> str | None:
    if not isinstance(want, torch.Tensor):
        same = got == want or (got != got and want != want)
        return None if same else f"{got!r} instead of {want!r}"
    if not isinstance(got, torch.Tensor):
        return f"{type(got).__name__} instead of a tensor"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {list(got.shape)} instead of {want.dtype} {list(want.shape)}"
    if op.name in UNINITIALISED:
        return None
    if random:
        return _distribution_difference(got, want)
    if op.name in SIGNLESS:
        got, want = got.abs(), want.abs()
    rtol, atol = tolerances(op, want.dtype)
    try:
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "values: " + "; ".join(lines[1:3])
    return None


def _distribution_difference(got: torch.Tensor, want: torch.Tensor) -> str | None:
    if got.numel() == 0 or not got.is_floating_point():
        return None
    if bool(torch.isfinite(got).all()) != bool(torch.isfinite(want).all()):
        return "distribution: infinities or NaN"
    g, w = got.double(), want.double()
    if got.numel() >= 64 and bool(torch.isfinite(w).all()):
        spread = float(w.std()) + 1e-6
        if abs(float(g.mean() - w.mean())) > 8 * spread / got.numel() ** 0.5 or not 0.3 < float(g.std()) / spread < 3:
            return f"distribution: mean {g.mean():.3} and deviation {g.std():.3}, not {w.mean():.3} and {w.std():.3}"
    return None


def _exact(call: Sample, tensors: Any) -> list[Any]:
    """The op's results in f64, or none if it cannot compute so."""

    def wide(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        return t.double() if t.is_floating_point() else t.to(torch.complex128) if t.is_complex() else t

    try:
        return list(pytree.tree_leaves(call.call([wide(t) for t in tensors])))
    except Exception:
        return []


def _no_further(op: OpInfo, got: Any, want: Any, exact: Any) -> bool:
    if not all(isinstance(t, torch.Tensor) and t.shape == want.shape for t in (got, want, exact)):
        return False
    rtol, atol = tolerances(op, want.dtype)
    if op.name in SIGNLESS:
        got, want, exact = got.abs(), want.abs(), exact.abs()
    elif got.is_complex() and exact.is_complex():
        got, want, exact = (torch.view_as_real(t.resolve_conj()) for t in (got, want, exact))
    if not got.is_floating_point() or not exact.is_floating_point() or got.dtype == torch.float64:
        return False
    g, w, e = got.double(), want.double(), exact.double()
    finite = torch.isfinite(e) & torch.isfinite(w)
    if not torch.equal(torch.isnan(g), torch.isnan(w)) or not torch.equal(
        g[~finite & ~w.isnan()], w[~finite & ~w.isnan()]
    ):
        return False
    ours, theirs = (g - e)[finite].abs(), (w - e)[finite].abs()
    worst = float(theirs.max()) if theirs.numel() else 0.0
    return bool((ours <= worst + atol + rtol * e[finite].abs()).all())
