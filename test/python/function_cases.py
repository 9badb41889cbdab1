"""One small program per op that a function of the runtime computes; see op_cases for the notation.

The extent E may be 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from op_cases import SMALLEST, Batch, Case

SIZES = (
    {"B": 3, "S": 5, "T": 6, "N": 4, "E": 7},
    {"B": 2, "S": 9, "T": 3, "N": 17, "E": 0},
    {"B": 5, "S": 3, "T": 2, "N": 2, "E": 1},
    {"B": 33, "S": 40, "T": 31, "N": 64, "E": 100},
)


def _scatters() -> list[Case]:
    cases = []
    for name in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            cases.append(
                Case(
                    f"scatter_reduce_{name}_{own}",
                    lambda x, i, s, name=name, own=own: x.scatter_reduce(1, i, s, name, include_self=own),
                    ("B 3 4", "B S 4:i64", "B S 4"),
                    0,
                    3,
                )
            )
            if name != "sum":
                cases.append(
                    Case(
                        f"index_reduce_{name}_{own}",
                        lambda x, i, s, name=name, own=own: x.index_reduce(1, i, s, name, include_self=own),
                        ("B 3 4", "S:i64", "B S 4"),
                        0,
                        3,
                    )
                )
    for dtype in ("i64", "i32", "u8", "f64", "f16", "bf16"):
        cases.append(
            Case(
                f"scatter_add_{dtype}",
                lambda x, i, s: x.scatter_add(0, i, s),
                (f"3 B:{dtype}", "S B:i64", f"S B:{dtype}"),
                0,
                3,
            )
        )
        cases.append(
            Case(
                f"scatter_amax_{dtype}",
                lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
                (f"3 B:{dtype}", "S B:i64", f"S B:{dtype}"),
                0,
                3,
            )
        )
    distinct = lambda i: i.cumsum(-1) - i + torch.arange(i.shape[-1])  # noqa: E731
    return [
        *cases,
        Case(
            "scatter",
            lambda x, s: x.scatter(1, (torch.arange(s.shape[1]) * 2 + 1).expand(s.shape[0], -1), s),
            ("B 128", "B S"),
        ),
        Case("scatter_value", lambda x, i: x.scatter(1, i, 2.5), ("B 3", "B S:i64"), 0, 3),
        Case("scatter_multiply", lambda x, i: x.scatter(1, i, 2.5, reduce="multiply"), ("B 3", "B S:i64"), 0, 3),
        Case("scatter_smaller_index", lambda x, i: x.scatter_add(0, i, x), ("N 8", "2 3:i64"), 0, 2),
        Case("one_hot", lambda i: torch.zeros(i.shape[0], 7).scatter(1, i[:, None], 1.0), ("B:i64",), 0, 7),
        Case("messages", lambda x, i, m: x.scatter_add(0, i[:, None].expand_as(m), m), ("3 8", "E:i64", "E 8"), 0, 3),
        Case(
            "messages_to_zeros", lambda x, i, m: torch.zeros_like(x).index_add(0, i, m), ("3 8", "E:i64", "E 8"), 0, 3
        ),
        Case(
            "mean_of_messages",
            lambda x, i, m: torch.zeros_like(x).scatter_reduce(
                0, i[:, None].expand_as(m), m, "mean", include_self=False
            ),
            ("3 8", "E:i64", "E 8"),
            0,
            3,
        ),
        Case("index_add", lambda x, i, s: x.index_add(-1, i, s, alpha=2), ("B 3", "S:i64", "B S"), 0, 3),
        Case("index_add_i32", lambda x, i, s: x.index_add(1, i, s), ("B 3 4", "S:i32", "B S 4"), 0, 3),
        Case("index_copy", lambda x, s: x.index_copy(1, torch.arange(s.shape[1]) + 1, s), ("B 128 4", "B S 4")),
        Case("index_fill", lambda x, i: x.index_fill(1, i, -1.0), ("B 3 4", "S:i64"), -3, 3),
        Case("index_put", lambda x, i, v: x.index_put((i,), v), ("9 4", "1:i64", "1 4"), -9, 9),
        Case("index_put_broadcast", lambda x, i, v: x.index_put((i,), v), ("9 4", "S:i64", "4"), -9, 9),
        Case(
            "index_put_sum",
            lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
            ("3 3", "B S:i64", "S:i64", "B S"),
            -3,
            3,
        ),
        Case(
            "index_put_slices",
            lambda x, i, j, v: torch.ops.aten.index_put(x, [None, i, j], v, True),
            ("B 3 3 4", "S:i64", "S:i64", "4"),
            -3,
            3,
        ),
        Case(
            "index_put_apart",
            lambda x, i, j, v: torch.ops.aten.index_put(x, [i, None, j], v, True),
            ("3 B 3 4", "S:i64", "S:i64", "S B 4"),
            -3,
            3,
        ),
        Case("index_put_mask", lambda x, m: x.index_put((m,), torch.tensor(3.0)), ("B S", "B S:bool")),
        Case("put", lambda x, i, v: x.put(i, v, accumulate=True), ("3 4", "S:i64", "S"), -12, 12),
        Case("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), ("B S", "B S:bool", "64 64")),
        Case("scatter_distinct", lambda x, i, s: x.scatter(1, distinct(i), s), ("B 200", "B S:i64", "B S"), 0, 3),
    ]


def _sorts() -> list[Case]:
    cases = []
    for dtype in ("f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"):
        cases.append(Case(f"sort_{dtype}", lambda x: x.sort(dim=-1, stable=True), (f"B S:{dtype}",), -100, 100))
        cases.append(
            Case(
                f"sort_down_{dtype}", lambda x: x.sort(dim=0, descending=True, stable=True), (f"B S 3:{dtype}",), -9, 9
            )
        )
    first = lambda r: r[0]  # noqa: E731
    nans = lambda x: torch.where(x > 1, torch.nan, x)  # noqa: E731
    return [
        *cases,
        Case("sort_nan", lambda x: (nans(x).sort(dim=-1, stable=True), nans(x).sort(-1, descending=True)[0]), ("B N",)),
        Case("sort_long", lambda x: x.sort(stable=True), ("3 1500",)),
        Case("sort_long_ints", lambda x: x.sort(stable=True), ("3 1500:i64",), -300, 300),
        Case("sort_empty", lambda x: x.sort(), ("3 E",)),
        Case("argsort", lambda x: (x.argsort(), x.argsort(descending=True, stable=True)), ("B S",)),
        Case("msort", torch.msort, ("B S",)),
        Case("topk", lambda x: (x.topk(3), x.topk(2, largest=False), x.topk(1, dim=1)), ("B S 8",)),
        Case("topk_few", lambda x: x.topk(3), ("B 200",)),
        Case("topk_nan", lambda x: (nans(x).topk(3)[0], nans(x).topk(3, largest=False)[0]), ("B 50",)),
        Case("histc", lambda x: (torch.histc(x, 10), torch.histc(x, 8, -1, 1), torch.histc(x.round(), 5)), ("B S",)),
        Case("kthvalue", lambda x: (x.kthvalue(2), x.kthvalue(3, dim=1, keepdim=True)), ("B S 8",)),
        Case("median", lambda x: (x.median(), x.median(1), first(nans(x).median(-1, keepdim=True))), ("B S 8",)),
        Case("nanmedian", lambda x: (nans(x).nanmedian(), first(nans(x).nanmedian(1))), ("B S 8",)),
        Case("mode", lambda x: (first(x.mode(1)), first(x.mode(0, keepdim=True))), ("B S 3:i64",), 0, 4),
        Case(
            "searchsorted",
            lambda x, v: (torch.searchsorted(x.sort()[0], v), torch.searchsorted(x.sort()[0], v, right=True)),
            ("B S", "B T"),
        ),
        Case(
            "searchsorted_one_row",
            lambda x, v: torch.searchsorted(x.sort()[0], v, side="right", out_int32=True),
            ("S", "B T"),
        ),
        Case("searchsorted_sorter", lambda x, v: torch.searchsorted(x, v, sorter=x.argsort()), ("B S", "B T")),
        Case("searchsorted_scalar", lambda x: torch.searchsorted(x.sort()[0], 0.5), ("S",)),
        Case(
            "bucketize",
            lambda x, v: (torch.bucketize(v, x.sort()[0]), torch.bucketize(v, x.sort()[0], right=True)),
            ("S", "B T"),
        ),
    ]


def _cumulative() -> list[Case]:
    cases = [
        Case("cumprod", lambda x: (x.cumprod(0), x.cumprod(-1)), ("B S 4",)),
        Case("cumprod_i32", lambda x: x.cumprod(1), ("B S:i32",), -3, 3),
        Case("cumprod_bf16", lambda x: x.cumprod(1), ("B 3:bf16",)),
        Case("logcumsumexp", lambda x: (x.logcumsumexp(1), (x * 60).logcumsumexp(0)), ("B S 4",)),
        Case("cummax", lambda x: (x.cummax(0), x.cummax(-1)), ("B S 4",)),
        Case("cummin", lambda x: (x.cummin(0), x.cummin(-1)), ("B S 4",)),
        Case("cummax_ints", lambda x: (x.cummax(0), x.cummin(0)), ("S B:u8",), 0, 4),
        Case("cummax_nan", lambda x: torch.where(x > 1.5, torch.nan, x).cummax(1), ("B S",)),
        Case("cumprod_empty", lambda x: x.cumprod(1), ("2 E",)),
    ]
    for dtype in ("bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f64"):
        cases.append(Case(f"cumsum_{dtype}", lambda x: (x.cumsum(0), x.cumsum(1)), (f"B S:{dtype}",), -3, 3))
    return cases


def _eigen(x: torch.Tensor) -> list[torch.Tensor]:
    """What eigenvalues and vectors have in common whatever their order, and a vector its factor."""
    values, vectors = torch.linalg.eig(x)
    rest = torch.matmul(x.to(vectors.dtype), vectors) - vectors * values.unsqueeze(-2)
    sizes = torch.linalg.eigvals(x).abs().sort().values
    return [rest.abs(), sizes, torch.linalg.vector_norm(vectors.abs(), dim=-2), values.real.sum(-1)]


def _linalg() -> list[Case]:
    inv, solve = torch.linalg.inv, torch.linalg.solve
    sound = lambda x: x @ x.mT + 3 * torch.eye(x.shape[-1], dtype=x.dtype)  # noqa: E731
    absolute = torch.abs
    cases = []
    for dtype in ("f32", "f64"):
        square = f"B 5 5:{dtype}"
        cases += [
            Case(f"cholesky_{dtype}", lambda x: torch.linalg.cholesky(sound(x)), (square,)),
            Case(f"inv_{dtype}", lambda x: inv(sound(x)), (square,)),
            Case(f"solve_{dtype}", lambda x, y: solve(sound(x), y), (square, f"B 5 3:{dtype}")),
            Case(f"det_{dtype}", lambda x: (torch.det(x), torch.slogdet(x)), (square,)),
            Case(f"eigvalsh_{dtype}", lambda x: torch.linalg.eigvalsh(x), (square,)),
            Case(f"svdvals_{dtype}", lambda x: torch.linalg.svdvals(x), (f"B 4 6:{dtype}",)),
            Case(f"pinv_{dtype}", lambda x: torch.linalg.pinv(x), (f"B 4 6:{dtype}",)),
            Case(f"matrix_exp_{dtype}", lambda x: torch.matrix_exp(x), (square,)),
            Case(
                f"qr_{dtype}",
                lambda x: (torch.linalg.qr(x), torch.linalg.qr(x.mT), torch.linalg.qr(x, "r")),
                (f"B 6 4:{dtype}",),
            ),
        ]
    return [
        *cases,
        Case("cholesky_upper", lambda x: torch.linalg.cholesky(sound(x), upper=True), ("B 3 4 4",)),
        Case("cholesky_ex", lambda x: torch.linalg.cholesky_ex(sound(x)), ("B 3 4 4",)),
        Case(
            "cholesky_solve", lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(sound(x))), ("B 4 4", "B 4 2")
        ),
        Case("cholesky_inverse", lambda x: torch.cholesky_inverse(torch.linalg.cholesky(sound(x))), ("B 4 4",)),
        Case("inverse_by_size", lambda x: inv(sound(x)), ("N N",)),
        Case("inv_ex", lambda x: torch.linalg.inv_ex(sound(x)), ("B 4 4",)),
        Case("solve_vector", lambda x, y: solve(sound(x), y), ("5 5", "5")),
        Case("solve_right", lambda x, y: solve(sound(x), y, left=False), ("B 5 5", "B 3 5")),
        Case("solve_broadcast", lambda x, y: solve(sound(x), y), ("5 5", "B 5 3")),
        Case("lu", lambda x: torch.linalg.lu(x), ("B 5 4",)),
        Case("lu_factor", lambda x: torch.linalg.lu_factor(x), ("B 5 5",)),
        Case("lu_solve", lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(sound(x)), y), ("B 5 5", "B 5 2")),
        Case(
            "lu_solve_adjoint",
            lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(sound(x)), y, adjoint=True),
            ("B 5 5", "B 5 2"),
        ),
        Case(
            "solve_triangular", lambda x, y: torch.linalg.solve_triangular(sound(x), y, upper=True), ("B 5 5", "B 5 2")
        ),
        Case(
            "solve_triangular_right",
            lambda x, y: torch.linalg.solve_triangular(sound(x), y, upper=False, left=False, unitriangular=True),
            ("B 5 5", "B 2 5"),
        ),
        Case("qr_complete", lambda x: torch.linalg.qr(x, "complete"), ("B 6 4",)),
        Case("householder_product", torch.linalg.householder_product, ("B 6 4", "B 3")),
        Case("eigh", lambda x: absolute(torch.linalg.eigh(x)[1]), ("B 4 4",)),
        Case("eigh_upper", lambda x: torch.linalg.eigvalsh(x, UPLO="U"), ("B 4 4",)),
        Case("eig", _eigen, ("B 5 5",)),
        Case("eig_f64", _eigen, ("B N N:f64",)),
        Case("pinv_hermitian", lambda x: torch.linalg.pinv(x, hermitian=True), ("B 4 4",)),
        Case("svd", lambda x: [absolute(t) for t in torch.linalg.svd(x, full_matrices=False)], ("B 5 3",)),
        Case("svd_full", lambda x: absolute(torch.linalg.svd(x)[0])[..., :3], ("B 5 3",)),
        Case("svd_product", _svd_product, ("B 3 6",)),
        Case("matrix_power", lambda x: torch.linalg.matrix_power(x, 3), ("B 4 4",)),
        Case("matrix_rank", lambda x: torch.linalg.matrix_rank(x), ("B 4 5",)),
        Case(
            "cdist",
            lambda x, y: (torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"), torch.cdist(x, y, p=1.0)),
            ("B S 8", "B T 8"),
        ),
        Case("pdist", torch.pdist, ("9 4",)),
    ]


def _svd_product(x: torch.Tensor) -> torch.Tensor:
    u, s, vt = torch.linalg.svd(x, full_matrices=True)
    return (u * s[:, None]) @ vt[:, : s.shape[-1]]


def _ffts() -> list[Case]:
    fft = torch.fft
    cases = []
    for n in (1, 2, 3, 8, 15, 77, 97, 128, 400):
        cases.append(
            Case(f"fft_{n}", lambda x: (fft.rfft(x), fft.irfft(fft.rfft(x), x.shape[-1]), fft.fft(x)), (f"B {n}",))
        )
    return [
        *cases,
        Case("fft_f64", lambda x: fft.ifft(fft.fft(x)), ("B 34:f64",)),
        Case("rfft_dynamic", lambda x: fft.rfft(x), ("B N",)),
        Case("fft_dynamic", lambda x: fft.fft(x, norm="ortho"), ("B N",)),
        Case("fft_dim", lambda x: fft.fft(x, dim=0, norm="forward"), ("N 200",)),
        Case("fft2", lambda x: fft.ifft2(fft.fft2(x, norm="ortho")), ("B 6 8",)),
        Case("rfft2", lambda x: (fft.rfft2(x), fft.irfft2(fft.rfft2(x), s=(6, 8))), ("B 6 8",)),
        Case("fftn", lambda x: fft.fftn(x), ("4 6 8",)),
        Case("hfft", lambda x: fft.ihfft(x), ("B 8",)),
        Case("fft_middle", lambda x: fft.ifft(fft.fft(x, dim=1), dim=1, norm="ortho"), ("3 N 19",)),
        Case("rfft_middle", lambda x: fft.irfft(fft.rfft(x, dim=1), x.shape[1], dim=1), ("B 30 19",)),
        Case("fft_permuted", lambda x: fft.fft(fft.rfft(x.permute(2, 0, 1)[..., ::2]), dim=0), ("5 48 N",)),
        Case("fft_conjugated", lambda x: fft.fft(fft.rfft(x).conj().mT), ("B 2048:f64",)),
        Case("rfft_twosided", lambda x: fft.fft(x).imag, ("B 257",)),
        Case("rfft2_dynamic", lambda x: fft.irfft2(fft.rfft2(x), s=x.shape[-2:]), ("2 S N",)),
    ]


def _complex() -> list[Case]:
    pair = lambda f: lambda x, y: f(torch.complex(x, y))  # noqa: E731
    simple: dict[str, Any] = {
        "view_as_real": lambda z: torch.view_as_real(z * 2),
        "abs": lambda z: z.abs(),
        "angle": lambda z: z.angle(),
        "exp": lambda z: z.exp(),
        "log": lambda z: z.log(),
        "sqrt": lambda z: z.sqrt(),
        "sin": lambda z: (z.sin(), z.cos(), z.tanh()),
        "pow": lambda z: (z**2, z**1.5),
        "conj": lambda z: z.conj() * z,
        "parts": lambda z: z.real + z.imag,
        "div": lambda z: (z / (z + 3), z / 2, 1 / z),
        "mean": lambda z: (z.mean(), z.sum(1), z.sum(0, keepdim=True)),
        "views": lambda z: (z.transpose(0, 1) + 1).reshape(-1)[1:],
        "expand": lambda z: z[:, None].expand(-1, 3, -1) * 2,
        "cat": lambda z: torch.cat([z, z * 2], 1),
        "matmul": lambda z: z @ z.transpose(0, 1),
        "where": lambda z: torch.where(z.real > 0, z, z.conj()),
        "eq": lambda z: (z == z, z != z * 2),
        "add_real": lambda z: z + torch.ones(z.shape[1]),
    }
    return [
        *(Case(name, pair(fn), ("B S", "B S")) for name, fn in simple.items()),
        Case("polar", lambda r, a: torch.polar(r, a), ("B S", "B S"), 0.1, 3),
        Case("rotary", _rotary, ("B S 2 8", "S 4")),
        Case("view_as_complex", lambda x: torch.view_as_complex(x) * 2, ("B S 2",)),
    ]


def _rotary(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None]).flatten(3)


CASES: dict[str, Case] = {
    f"{group}-{case.name}": case
    for group, cases in {
        "scatter": _scatters(),
        "sorting": _sorts(),
        "cumulative": _cumulative(),
        "linalg": _linalg(),
        "fft": _ffts(),
        "complex": _complex(),
    }.items()
    for case in cases
}


class FunctionBatch(Batch):
    """Cases of one group as one program."""

    def __init__(self, names: tuple[str, ...]) -> None:
        nn.Module.__init__(self)
        self.cases = {name: CASES[name] for name in names}

    def dynamic_shapes(self) -> tuple[Any, ...]:
        lowest: Mapping[str, int] = {**SMALLEST, "E": 0}
        letters = {d: torch.export.Dim(d, min=low, max=128) for d, low in lowest.items()}
        return (tuple(case.dynamic_shapes(letters) for case in self.cases.values()),)


def batches() -> list[tuple[str, ...]]:
    """All cases, by group."""
    groups: dict[str, list[str]] = {}
    for name in CASES:
        groups.setdefault(name.partition("-")[0], []).append(name)
    return [tuple(names) for names in groups.values()]
