"""When a result counts as PyTorch's: per element (``closeness``), by what it must satisfy, or by its distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import torch
import torch.utils._pytree as pytree
from torch.testing._internal.opinfo.core import OpInfo

from closeness import described, disagreements, wrong_elements

from .samples import Sample

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
    "uniform",
)
DRAWS = 48
"""How often a random op runs; its results are compared with as many of eager's."""
# The probability that a right op is called wrong: some thousand comparisons of distributions in one run of all ops.
_MISTAKE = 1e-9
# PyTorch's own f64 is off by up to 1e-5 (bessel_y1(5.0003), airy_ai(-2.0997)): the exact values are mpmath's.
_ELSEWHERE: dict[str, Callable[[Any], Any]] = {
    "special.airy_ai": mpmath.airyai,
    "special.bessel_j0": lambda x: mpmath.besselj(0, x),
    "special.bessel_j1": lambda x: mpmath.besselj(1, x),
    "special.bessel_y0": lambda x: mpmath.bessely(0, x),
    "special.bessel_y1": lambda x: mpmath.bessely(1, x),
}
# Which of several equal elements they choose is not said.
TIES = ("topk", "kthvalue", "sort", "argsort")


def difference(op: OpInfo, call: Sample, tensors: Any, got: Any, want: Any) -> str | None:
    """What is wrong with ``got``, the op's result for ``tensors``, beside eager's ``want``; None if nothing is."""
    try:
        got_leaves, got_spec = pytree.tree_flatten(got)
        want_leaves, want_spec = pytree.tree_flatten(want)
        if len(got_leaves) != len(want_leaves) or got_spec.num_leaves != want_spec.num_leaves:
            return f"structure {got_spec} instead of {want_spec}"
        if op.name in UNINITIALISED or is_random(call):
            return _form_difference(got_leaves, want_leaves)
        if op.name in _DEFINED:
            why = _form_difference(got_leaves, want_leaves)
            return why or _DEFINED[op.name](tensors, got_leaves, want_leaves)
        if op.name in _ELSEWHERE:
            return _against(_ELSEWHERE[op.name], tensors[0], got_leaves[0], want_leaves[0])
        reasons = disagreements(lambda *own: call.call(own), tensors, got, want)
        if reasons and op.name in TIES and not call.stable:
            reasons = _beside_ties(call, tensors, got_leaves, want_leaves)
        return reasons[0] if reasons else None
    except Exception as error:
        return f"comparing: {type(error).__name__}: {error}".splitlines()[0]


def is_random(call: Sample) -> bool:
    """Whether what the call gives is drawn at random."""
    return call.op_name in RANDOM or call.drops


def _form_difference(got: Sequence[Any], want: Sequence[Any]) -> str | None:
    for g, w in zip(got, want, strict=True):
        if not isinstance(w, torch.Tensor):
            continue
        if not isinstance(g, torch.Tensor):
            return f"{type(g).__name__} instead of a tensor"
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{g.dtype} {list(g.shape)} instead of {w.dtype} {list(w.shape)}"
    return None


def _against(function: Callable[[Any], Any], x: torch.Tensor, got: torch.Tensor, want: torch.Tensor) -> str | None:
    if why := _form_difference([got], [want]):
        return why
    values = [
        float(mpmath.re(function(mpmath.mpf(v)))) if math.isfinite(v) else v for v in x.double().flatten().tolist()
    ]
    exact = torch.tensor(values, dtype=torch.float64).reshape(x.shape)
    exact = torch.where(x.double().isfinite(), exact, want.double())
    wrong = wrong_elements(got, want, exact)
    return "values: " + described(got, want, exact, wrong) if bool(wrong.any()) else None


# -- ties ------------------------------------------------------------------------------------------


def _beside_ties(call: Sample, tensors: Any, got: Sequence[Any], want: Sequence[Any]) -> list[str]:
    """What is wrong besides other indices of equal elements."""
    for place, (g, w) in enumerate(zip(got, want, strict=True)):
        if place == 1 or call.op_name == "argsort":
            if not _same_choice(tensors[0], g, w):
                return ["values: indices of other elements"]
        elif bool(wrong_elements(g, w).any()):
            return ["values: " + described(g, w, None, wrong_elements(g, w))]
    return []


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


# -- results that are unique up to signs or order: by what they must satisfy -----------------------


def _bound(matrix: torch.Tensor) -> torch.Tensor:
    """What rounding may change of a matrix's entries, for each matrix [...]: ``n * eps`` of its norm."""
    eps = torch.finfo(matrix.dtype).eps
    size = max(matrix.shape[-1], matrix.shape[-2], 1)
    norm = (
        matrix.to(torch.complex128).abs().square().sum((-1, -2)).sqrt()
        if matrix.numel()
        else matrix.new_zeros(matrix.shape[:-2])
    )
    return (4 * size * eps * norm.double()).unsqueeze(-1).unsqueeze(-1)


def _unequal(ours: torch.Tensor, theirs: torch.Tensor, bound: torch.Tensor, what: str) -> str | None:
    off = (ours - theirs).abs()
    return f"values: {what} is off by {float(off.max()):.3g}" if bool((off > bound).any()) else None


def _c(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex128)


def _orthonormal(vectors: torch.Tensor, what: str) -> str | None:
    """Whether the columns of [..., m, k] are orthonormal."""
    gram = _c(vectors).mH @ _c(vectors)
    one = torch.eye(gram.shape[-1], dtype=gram.dtype)
    bound = 4 * max(vectors.shape[-2], 1) * torch.finfo(vectors.dtype).eps
    return _unequal(gram, one, torch.tensor(bound), f"{what}: orthonormality")


def _is_svd(a: torch.Tensor, got: Sequence[Any], want: Sequence[Any], right: Callable[[Any], Any]) -> str | None:
    if len(got) == 1:
        return _unequal(_c(got[0]), _c(want[0]), _bound(a).squeeze(-1), "a singular value")
    (u, s, v), theirs = got, want
    if u.numel() == 0 and theirs[0].numel() == 0 and s.numel():
        return _unequal(_c(s), _c(theirs[1]), _bound(a).squeeze(-1), "a singular value")
    k = s.shape[-1]
    vh = right(v)
    product = (_c(u)[..., :, :k] * _c(s).unsqueeze(-2)) @ _c(vh)[..., :k, :]
    return (
        _unequal(_c(s), _c(theirs[1]), _bound(a).squeeze(-1), "a singular value")
        or _unequal(product, _c(a), _bound(a), "U S V^H")
        or _orthonormal(u, "U")
        or _orthonormal(vh.mH, "V")
    )


def _is_low_rank(a: torch.Tensor, got: Sequence[Any], want: Sequence[Any], centred: bool) -> str | None:
    """Random projections find a matrix of low rank; of others no two runs give the same."""
    if centred:
        a = a - a.mean(-2, keepdim=True)
    (u, s, v), (u0, s0, v0) = got, want
    ours, theirs = ((_c(x) * _c(y).unsqueeze(-2)) @ _c(z).mH for x, y, z in ((u, s, v), (u0, s0, v0)))
    bound = 16 * _bound(a)
    if bool(((theirs - _c(a)).abs() <= bound).all()):
        return _unequal(ours, _c(a), bound, "U S V^H")
    return _orthonormal(u, "U")


def _is_eigh(a: torch.Tensor, got: Sequence[Any], want: Sequence[Any]) -> str | None:
    values, vectors = got
    low = a.tril()
    whole = _c(low) + _c(low.tril(-1)).mH
    upper = _c(a.triu()) + _c(a.triu(1)).mH
    product = (_c(vectors) * _c(values).unsqueeze(-2)) @ _c(vectors).mH
    why = _unequal(_c(values), _c(want[0]), _bound(a).squeeze(-1), "an eigenvalue") or _orthonormal(vectors, "Q")
    # Which triangle counts is an argument.
    return why or (_unequal(product, whole, _bound(a), "Q L Q^H") and _unequal(product, upper, _bound(a), "Q L Q^H"))


def _is_eig(a: torch.Tensor, got: Sequence[Any], want: Sequence[Any]) -> str | None:
    values = got[0]
    if not values.numel():
        return None
    nearest = (want[0].unsqueeze(-1) - values.unsqueeze(-2)).abs().argmin(-1)
    if not torch.equal(nearest.sort().values, torch.arange(values.shape[-1]).expand_as(nearest)):
        return "values: eigenvalues"
    ordered = values.gather(-1, nearest)
    # Of defective matrices they are only half as exact.
    rtol = math.sqrt(torch.finfo(a.dtype).eps)
    bound = rtol * want[0].abs().amax(-1, keepdim=True).double()
    why = _unequal(_c(ordered), _c(want[0]), bound, "an eigenvalue")
    if why or len(got) == 1:
        return why
    vectors = _c(got[1])
    why = _unequal(_c(a) @ vectors, vectors * _c(values).unsqueeze(-2), 4 * _bound(a), "A V - V L")
    length = torch.tensor(16 * a.shape[-1] * torch.finfo(a.dtype).eps)
    return why or _unequal(vectors.abs().square().sum(-2), torch.ones_like(values.real).double(), length, "|v|")


_DEFINED: dict[str, Callable[[Any, Sequence[Any], Sequence[Any]], str | None]] = {
    "linalg.svd": lambda ts, g, w: _is_svd(ts[0], g, w, lambda v: v),
    "svd": lambda ts, g, w: _is_svd(ts[0], g, w, lambda v: v.mH),
    "linalg.eigh": lambda ts, g, w: _is_eigh(ts[0], g, w),
    "linalg.eig": lambda ts, g, w: _is_eig(ts[0], g, w),
    "linalg.eigvals": lambda ts, g, w: _is_eig(ts[0], g, w),
    # Their samples are the factors of the matrix.
    "svd_lowrank": lambda ts, g, w: _is_low_rank(ts[0] @ ts[1].mT, g, w, centred=False),
    "pca_lowrank": lambda ts, g, w: _is_low_rank(ts[0] @ ts[1].mT, g, w, centred=True),
}

# -- distributions ---------------------------------------------------------------------------------


def distribution_difference(got: Sequence[Any], want: Sequence[Any]) -> str | None:
    """What tells the draws ``got`` (one tree for each) from eager's ``want``.

    All elements together by the two-sample test of Kolmogorov and Smirnov, with the bound of Hodges (Arkiv för
    Matematik 3, 1958), and each element by its mean.
    """
    draws = [[pytree.tree_leaves(tree) for tree in trees] for trees in (got, want)]
    for place, first in enumerate(draws[1][0]):
        if not isinstance(first, torch.Tensor) or not first.numel():
            continue
        g, w = (torch.stack([leaves[place] for leaves in side]) for side in draws)
        if g.is_complex():
            g, w = torch.view_as_real(g), torch.view_as_real(w)
        g, w = (t.double().reshape(DRAWS, -1) for t in (g, w))
        if why := _kolmogorov_smirnov(g.flatten(), w.flatten()) or _means(g, w):
            return f"distribution: {why}"
    return None


def _kolmogorov_smirnov(g: torch.Tensor, w: torch.Tensor) -> str | None:
    limit = torch.finfo(torch.float64).max
    g, w = (t.nan_to_num(nan=limit).sort().values for t in (g, w))
    places = torch.cat([g, w])
    ours, theirs = (torch.searchsorted(t, places, right=True) / len(t) for t in (g, w))
    apart = float((ours - theirs).abs().max())
    bound = math.sqrt(-math.log(_MISTAKE / 2) / 2 * (len(g) + len(w)) / (len(g) * len(w)))
    if apart <= bound:
        return None
    return f"mean {g.mean():.3}, deviation {g.std():.3}, not {w.mean():.3}, {w.std():.3} (KS {apart:.2} > {bound:.2})"


def _means(g: torch.Tensor, w: torch.Tensor) -> str | None:
    if not bool(g.isfinite().all() & w.isfinite().all()):
        return None
    error = ((g.var(0) + w.var(0)) / len(g)).sqrt()
    # With few draws a mean's error is itself an estimate: at least what the widest element's is.
    off = (g.mean(0) - w.mean(0)).abs() > 8 * error.max() + 1e-6 * w.abs().amax()
    return f"the means of {int(off.sum())} elements" if bool(off.any()) else None
