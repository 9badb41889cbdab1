"""Linear algebra of (batches of) matrices: Matrices.cpp, Orthogonal.cpp and Eigenvalues.cpp of the runtime."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Number, Tensor
from .common import loops
from .contraction import matmul
from .elementwise import convert
from .sorting import sort_rows

_SILENT, _SOLVE, _INVERSE, _FACTOR = range(4)


def _sizes(x: Tensor) -> tuple[list[Extent], Extent, Extent]:
    """Batch extents, rows and columns; raises for element types without functions."""
    if x.dtype not in (torch.float32, torch.float64):
        raise NotLowerable(f"linear algebra of {x.dtype}")
    return list(x.dims[:-2]), x.dims[-2], x.dims[-1]


def _scratch(b: Builder, *areas: Sequence[Extent]) -> Extent:
    """Bytes of doubles for areas of these extents."""
    total: Extent = 0
    for area in areas:
        total = b.add(total, b.product(list(area)))
    return b.mul(total, 8)


def _transposed(b: Builder, x: Tensor) -> Tensor:
    return b.permute(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _broadcast_batches(b: Builder, *xs: Tensor) -> list[Tensor]:
    batch = b.broadcast_dims([x.dims[:-2] for x in xs])
    return [b.broadcast(x, [*batch, *x.dims[-2:]]) for x in xs]


def _identity(b: Builder, x: Tensor, size: Extent) -> Tensor:
    """Identity matrices of the batch of ``x``."""
    dims = [*x.dims[:-2], size, size]
    row, col = len(dims) - 2, len(dims) - 1
    return b.generic([], [], dims, x.dtype, lambda: scalar.loop_index(row).eq(scalar.loop_index(col)).to(x.dtype))


def _triangle(b: Builder, x: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """One triangle, with its diagonal or with ones there."""
    row, col = x.rank - 2, x.rank - 1

    def body(x: Elem) -> Elem:
        i, j = scalar.loop_index(row), scalar.loop_index(col)
        kept = scalar.select(j >= i if upper else j <= i, x, 0)
        return scalar.select(i.eq(j), x.like(1), kept) if unit else kept

    return b.map(x.dtype, [x], body)


def _symmetric(b: Builder, x: Tensor) -> Tensor:
    """The symmetric matrices of which ``x`` has the lower triangles."""

    def body() -> Elem:
        *batch, row, col = loops(x.rank)
        return b.extract(x, [*batch, scalar.maximum(row, col), scalar.minimum(row, col)])

    return b.generic([], [], x.dims, x.dtype, body)


# -- Cholesky --------------------------------------------------------------------------------------


def _cholesky(b: Builder, x: Tensor, upper: bool, check: bool) -> tuple[Tensor, Tensor]:
    batch, n, _ = _sizes(x)
    factor, info = b.call(
        "cholesky",
        [x],
        [(x.dims, x.dtype), (batch, torch.int32)],
        config=[int(upper), int(check)],
        tasks=b.product(batch),
        scratch=_scratch(b, [n, n]),
    )
    return factor, info


@lowers("torch.aten.linalg_cholesky_ex")
def cholesky_ex(b: Builder, x: Tensor, upper: bool = False, check: bool = False) -> tuple[Tensor, Tensor]:
    """A = L L^T, and for each matrix the order of the minor that is not positive."""
    return _cholesky(b, x, upper, check)


@lowers("torch.aten.linalg_cholesky", "torch.aten.cholesky")
def cholesky(b: Builder, x: Tensor, upper: bool = False) -> Tensor:
    """A = L L^T."""
    return _cholesky(b, x, upper, True)[0]


@lowers("torch.aten.cholesky_solve")
def cholesky_solve(b: Builder, rhs: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, from the factor of A."""
    rhs, factor = _broadcast_batches(b, rhs, factor)
    lower = _transposed(b, factor) if upper else factor
    half = _triangular(b, lower, rhs, upper=False, unit=False)
    return _triangular(b, _transposed(b, lower), half, upper=True, unit=False)


@lowers("torch.aten.cholesky_inverse")
def cholesky_inverse(b: Builder, factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, from its factor."""
    return cholesky_solve(b, _identity(b, factor, factor.dims[-1]), factor, upper)


# -- LU --------------------------------------------------------------------------------------------


def _lu(b: Builder, x: Tensor, check: int) -> tuple[Tensor, Tensor, Tensor]:
    batch, m, n = _sizes(x)
    factor, pivots, info = b.call(
        "lu_factor",
        [x],
        [(x.dims, x.dtype), ([*batch, b.minimum(m, n)], torch.int32), (batch, torch.int32)],
        config=[check],
        tasks=b.product(batch),
        scratch=_scratch(b, [m, n], [m], [n]),
    )
    return factor, pivots, info


def _needs_pivots(pivot: bool) -> None:
    if not pivot:
        raise NotLowerable("LU decomposition without pivots")


@lowers("torch.aten.linalg_lu_factor_ex")
def lu_factor_ex(b: Builder, x: Tensor, pivot: bool = True, check: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one matrix, the exchanges of rows, and where U has a zero."""
    _needs_pivots(pivot)
    return _lu(b, x, _FACTOR if check else _SILENT)


@lowers("torch.aten.linalg_lu_factor")
def lu_factor(b: Builder, x: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """The same, of matrices that have an inverse."""
    _needs_pivots(pivot)
    return _lu(b, x, _FACTOR)[:2]


@lowers("torch.aten.lu_unpack")
def lu_unpack(
    b: Builder, factor: Tensor, pivots: Tensor, data: bool = True, exchanges: bool = True
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """P, L and U from the result of lu_factor."""
    _, m, _n = _sizes(factor)
    k, rank = pivots.dims[-1], factor.rank
    lower = upper = order = None
    if data:
        lower = _triangle(b, b.slice(factor, rank - 1, 0, k), upper=False, unit=True)
        upper = _triangle(b, b.slice(factor, rank - 2, 0, k), upper=True)
    if exchanges:
        batch = list(factor.dims[:-2])
        rows = b.call("permutation", [pivots], [([*batch, m], torch.int64)], tasks=b.product(batch))[0]
        dims = [*batch, m, m]
        by_column = b.broadcast(rows, dims, [*range(len(batch)), len(dims) - 1])
        order = b.map(factor.dtype, [by_column], lambda r: scalar.loop_index(len(dims) - 2).eq(r), dims=dims)
    return order, lower, upper


@lowers("torch.aten.linalg_lu")
def lu(b: Builder, x: Tensor, pivot: bool = True) -> tuple[Tensor | None, ...]:
    """A = P L U."""
    _needs_pivots(pivot)
    factor, pivots, _ = _lu(b, x, _SILENT)
    return lu_unpack(b, factor, pivots)


def _lu_solve(b: Builder, factor: Tensor, pivots: Tensor, rhs: Tensor, *, transposed: bool) -> Tensor:
    batch = b.broadcast_dims([factor.dims[:-2], rhs.dims[:-2]])
    factor = b.broadcast(factor, [*batch, *factor.dims[-2:]])
    pivots = b.broadcast(pivots, [*batch, pivots.dims[-1]])
    rhs = b.broadcast(rhs, [*batch, *rhs.dims[-2:]])
    n, k = rhs.dims[-2:]
    return b.call(
        "lu_solve",
        [factor, pivots, rhs],
        [(rhs.dims, rhs.dtype)],
        config=[int(transposed)],
        tasks=b.product(batch),
        scratch=_scratch(b, [n, n], [n, k]),
    )[0]


@lowers("torch.aten.linalg_lu_solve")
def lu_solve(
    b: Builder, factor: Tensor, pivots: Tensor, rhs: Tensor, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B (or X A = B), from the result of lu_factor for A."""
    if left:
        return _lu_solve(b, factor, pivots, rhs, transposed=adjoint)
    return _transposed(b, _lu_solve(b, factor, pivots, _transposed(b, rhs), transposed=not adjoint))


def _solve(b: Builder, x: Tensor, rhs: Tensor, left: bool, check: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _sizes(x)
    # A right-hand side is a batch of vectors when it has the extents of one, as PyTorch decides it.
    vector = rhs.rank == 1 or (rhs.rank == x.rank - 1 and list(rhs.dims) == list(x.dims[:-1]))
    factor, pivots, info = _lu(b, x, check)
    if vector:
        rhs = b.unsqueeze(rhs, rhs.rank)
    result = lu_solve(b, factor, pivots, rhs, left)
    if vector:
        result = b.reshape(result, result.dims[:-1])
    return result, factor, pivots, info


@lowers("torch.aten._linalg_solve_ex")
def solve_ex_all(
    b: Builder, x: Tensor, rhs: Tensor, left: bool = True, check: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X with A X = B, and the decomposition of A."""
    return _solve(b, x, rhs, left, _SOLVE if check else _SILENT)


@lowers("torch.aten.linalg_solve_ex")
def solve_ex(b: Builder, x: Tensor, rhs: Tensor, left: bool = True, check: bool = False) -> tuple[Tensor, Tensor]:
    """X with A X = B, and where A has no inverse."""
    result, _, _, info = _solve(b, x, rhs, left, _SOLVE if check else _SILENT)
    return result, info


@lowers("torch.aten.linalg_solve")
def solve(b: Builder, x: Tensor, rhs: Tensor, left: bool = True) -> Tensor:
    """X with A X = B."""
    return _solve(b, x, rhs, left, _SOLVE)[0]


def _inverse(b: Builder, x: Tensor, check: int) -> tuple[Tensor, Tensor]:
    factor, pivots, info = _lu(b, x, check)
    return _lu_solve(b, factor, pivots, _identity(b, x, x.dims[-1]), transposed=False), info


@lowers("torch.aten.linalg_inv_ex")
def inv_ex(b: Builder, x: Tensor, check: bool = False) -> tuple[Tensor, Tensor]:
    """The inverse, and which matrices have none."""
    return _inverse(b, x, _INVERSE if check else _SILENT)


@lowers("torch.aten.linalg_inv", "torch.aten.inverse")
def inv(b: Builder, x: Tensor) -> Tensor:
    """The inverse."""
    return _inverse(b, x, _INVERSE)[0]


@lowers("torch.aten._linalg_check_errors")
def check_errors(b: Builder, *_: Any) -> None:
    """Nothing: PyTorch's decompositions check here, but DISC keeps the ops that check themselves."""


def _over_diagonal(b: Builder, factor: Tensor, pivots: Tensor, neutral: Number, fn: Any) -> Tensor:
    """Folds ``fn(acc, element, exchanged)`` over the diagonal of U."""
    dims, last = pivots.dims, pivots.rank - 1

    def body(acc: Elem, pivot: Elem) -> Elem:
        at = [scalar.loop_index(d) for d in range(pivots.rank)]
        return fn(acc, b.extract(factor, [*at, at[last]]), pivot.to(torch.int64).ne(at[last] + 1))

    return b.generic(
        [pivots],
        [b.identity(pivots.rank)],
        dims[:-1],
        factor.dtype,
        body,
        domain=dims,
        out_map=b.loop_map(list(range(last)), pivots.rank),
        reduced=[last],
        init=neutral,
    )


def _det(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    factor, pivots, _ = _lu(b, x, _SILENT)
    product = _over_diagonal(b, factor, pivots, 1, lambda acc, u, swapped: acc * scalar.select(swapped, -u, u))
    return product, factor, pivots


@lowers("torch.aten._linalg_det")
def det_all(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Determinants, and the decomposition that they follow from."""
    return _det(b, _decomposed(b, x))


@lowers("torch.aten.linalg_det", "torch.aten.det")
def det(b: Builder, x: Tensor) -> Tensor:
    """Determinants."""
    return _det(b, x)[0]


def _sign(u: Elem) -> Elem:
    return scalar.select(u > 0, u.like(1), scalar.select(u < 0, u.like(-1), u * 0.0))


@lowers("torch.aten._linalg_slogdet")
def slogdet_all(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sign and logarithm of determinants, and the decomposition."""
    return _slogdet(b, _decomposed(b, x))


def _decomposed(b: Builder, x: Tensor) -> Tensor:
    """The matrices that PyTorch decomposes, as its gradients expect: transposed ones where x is row-major."""
    value = b.operand_value(0)
    if not isinstance(value, torch.Tensor) or not value.is_contiguous():
        return x
    return _transposed(b, x)


def _slogdet(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factor, pivots, _ = _lu(b, x, _SILENT)
    sign = _over_diagonal(b, factor, pivots, 1, lambda acc, u, s: acc * _sign(scalar.select(s, -u, u)))
    size = _over_diagonal(b, factor, pivots, 0, lambda acc, u, s: acc + scalar.log(scalar.absolute(u)))
    return sign, size, factor, pivots


@lowers("torch.aten.linalg_slogdet", "torch.aten.slogdet")
def slogdet(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Sign and logarithm of determinants."""
    return _slogdet(b, x)[:2]


@lowers("torch.aten.logdet")
def logdet(b: Builder, x: Tensor) -> Tensor:
    """Logarithms of determinants; NaN for negative ones."""
    sign, size = slogdet(b, x)
    return b.map(x.dtype, [sign, size], lambda s, d: scalar.select(s < 0, s.like(float("nan")), d))


# -- triangles -------------------------------------------------------------------------------------


def _triangular(b: Builder, x: Tensor, rhs: Tensor, *, upper: bool, unit: bool) -> Tensor:
    _sizes(x)
    x, rhs = _broadcast_batches(b, x, rhs)
    n, k = rhs.dims[-2:]
    return b.call(
        "solve_triangular",
        [x, rhs],
        [(rhs.dims, rhs.dtype)],
        config=[int(upper), int(unit)],
        tasks=b.product(rhs.dims[:-2]),
        scratch=_scratch(b, [n, n], [n, k]),
    )[0]


@lowers("torch.aten.linalg_solve_triangular")
def solve_triangular(b: Builder, x: Tensor, rhs: Tensor, upper: bool, left: bool = True, unit: bool = False) -> Tensor:
    """X with A X = B, or X A = B, for a triangle of A."""
    if left:
        return _triangular(b, x, rhs, upper=upper, unit=unit)
    result = _triangular(b, _transposed(b, x), _transposed(b, rhs), upper=not upper, unit=unit)
    return _transposed(b, result)


@lowers("torch.aten.triangular_solve")
def triangular_solve(
    b: Builder, rhs: Tensor, x: Tensor, upper: bool = True, transpose: bool = False, unit: bool = False
) -> tuple[Tensor, Tensor]:
    """X with A X = B for a triangle of A, and A."""
    rhs, x = _broadcast_batches(b, rhs, x)
    matrix = _transposed(b, x) if transpose else x
    return _triangular(b, matrix, rhs, upper=upper != transpose, unit=unit), x


# -- QR --------------------------------------------------------------------------------------------


@lowers("torch.aten.geqrf")
def geqrf(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """R with the reflections of Q below it, and their factors."""
    batch, m, n = _sizes(x)
    reflections, tau = b.call(
        "geqrf",
        [x],
        [(x.dims, x.dtype), ([*batch, b.minimum(m, n)], x.dtype)],
        tasks=b.product(batch),
        scratch=_scratch(b, [m, n], [m], [n]),
    )
    return reflections, tau


def _product(b: Builder, reflections: Tensor, tau: Tensor, columns: Extent) -> Tensor:
    batch, m, n = _sizes(reflections)
    return b.call(
        "householder_product",
        [reflections, b.unsqueeze(tau, tau.rank - 1)],
        [([*batch, m, columns], reflections.dtype)],
        tasks=b.product(batch),
        scratch=_scratch(b, [m, n], [m, columns], tau.dims[-1:]),
    )[0]


@lowers("torch.aten.linalg_householder_product", "torch.aten.orgqr")
def householder_product(b: Builder, reflections: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections."""
    return _product(b, reflections, tau, reflections.dims[-1])


@lowers("torch.aten.ormqr")
def ormqr(
    b: Builder, reflections: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q C, C Q, or those with the transpose of Q."""
    q = _product(b, reflections, tau, reflections.dims[-2])
    q = _transposed(b, q) if transpose else q
    return matmul(b, q, other) if left else matmul(b, other, q)


@lowers("torch.aten.linalg_qr")
def qr(b: Builder, x: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """A = Q R."""
    _, m, n = _sizes(x)
    reflections, tau = geqrf(b, x)
    columns = m if mode == "complete" else b.minimum(m, n)
    r = _triangle(b, b.slice(reflections, x.rank - 2, 0, columns), upper=True)
    if mode == "r":
        return b.full([0], 0, x.dtype), r
    return _product(b, reflections, tau, columns), r


# -- eigenvalues and singular values ---------------------------------------------------------------


@lowers("torch.aten._linalg_eigh")
def eigh(b: Builder, x: Tensor, triangle: str = "L", vectors: bool = True) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices."""
    if not vectors or _uses(b, 1):
        return _eigh(b, x, triangle, vectors)
    return _eigh(b, x, triangle, False)[0], b.full(x.dims, 0, x.dtype)


def _uses(b: Builder, *results: int) -> bool:
    """Whether the program uses one of these results of an op that has several."""
    users = () if b.node is None else b.node.users
    parts = [user.args[1] if user.target is operator.getitem else None for user in users]
    return b.node is None or any(part is None or part in results for part in parts)


def _eigh(b: Builder, x: Tensor, triangle: str = "L", vectors: bool = True) -> tuple[Tensor, Tensor]:
    batch, n, _ = _sizes(x)
    values, columns = b.call(
        "eigh",
        [x],
        [([*batch, n], x.dtype), ([*batch, n, n if vectors else 0], x.dtype)],
        config=[int(triangle.upper() == "U")],
        tasks=b.product(batch),
        scratch=_scratch(b, [n, n], [n]),
    )
    return values, columns if vectors else b.full([0], 0, x.dtype)


@lowers("torch.aten.linalg_eig")
def eig(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of any square matrices."""
    batch, n, _ = _sizes(x)
    values, columns = b.call(
        "eig",
        [x],
        [([*batch, n, 2], x.dtype), ([*batch, n, n, 2], x.dtype)],
        tasks=b.product(batch),
        scratch=_scratch(b, [4, n, n], [5, n]),
    )
    return b.as_complex(values), b.as_complex(columns)


@lowers("torch.aten.linalg_eigvals", "torch.aten._linalg_eigvals")
def eigvals(b: Builder, x: Tensor) -> Tensor:
    """Eigenvalues of any square matrices."""
    return eig(b, x)[0]


@lowers("torch.aten._linalg_svd")
def svd(b: Builder, x: Tensor, full: bool = False, vectors: bool = True, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A = U diag(S) V^T: U, S descending, and V^T."""
    if not vectors or _uses(b, 0, 2):
        return _svd(b, x, full, vectors)
    batch, m, n = _sizes(x)
    k = b.minimum(m, n)
    columns, rows = (m, n) if full else (k, k)
    unused = (b.full([*batch, *sizes], 0, x.dtype) for sizes in ((m, columns), (rows, n)))
    return next(unused), _svd(b, x, vectors=False)[1], next(unused)


def _svd(b: Builder, x: Tensor, full: bool = False, vectors: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    batch, m, n = _sizes(x)
    k = b.minimum(m, n)
    most = b.maximum(m, n)
    columns, rows = (0, 0) if not vectors else (m, n) if full else (k, k)
    u, values, vt = b.call(
        "svd",
        [x],
        [([*batch, m, columns], x.dtype), ([*batch, k], x.dtype), ([*batch, rows, n], x.dtype)],
        tasks=b.product(batch),
        scratch=_scratch(b, [2, most, most], [2, m, n], [2, m, m], [2, n, n], [3, k]),
    )
    if vectors:
        return u, values, vt
    nothing = b.full([0], 0, x.dtype)
    return nothing, values, nothing


def _inverted(b: Builder, x: Tensor, values: Tensor, atol: Any, rtol: Any) -> Tensor:
    """The inverses of the singular values of ``x`` that are above a tolerance, 0 for the others."""
    last = values.rank - 1
    epsilon = torch.finfo(x.dtype).eps
    absolute = isinstance(atol, Tensor) or (atol is not None and atol > 0)

    def of_matrix(number: Any) -> Tensor:
        """A number for all, or one for each matrix, as [.., 1]."""
        if not isinstance(number, Tensor):
            return b.full([1], 0.0 if number is None else number, x.dtype)
        wide = convert(b, number, x.dtype)
        return b.unsqueeze(wide, wide.rank)

    def invert(value: Elem, largest: Elem, atol: Elem, relative: Elem) -> Elem:
        if rtol is None and not absolute:
            most = scalar.from_extent(b.maximum(x.dims[-2], x.dims[-1]), torch.int64).to(x.dtype)
            relative = most * epsilon
        return scalar.select(value > scalar.maximum(atol, relative * largest), 1.0 / value, 0.0)

    largest = b.unsqueeze(b.reduce([values], [last], x.dtype, 0, scalar.maximum), last)
    return b.map(x.dtype, [values, largest, of_matrix(atol), of_matrix(rtol)], invert, dims=values.dims)


@lowers("torch.aten.linalg_pinv", "torch.aten.linalg_pinv.atol_rtol_float", "torch.aten.linalg_pinv.atol_rtol_tensor")
def pinv(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """The pseudo-inverse (Moore, Penrose)."""
    if b.op_name.endswith((".atol_rtol_float", ".atol_rtol_tensor")):
        atol, rtol, hermitian = args
    else:
        atol, rtol, hermitian = 0.0, args[0] if args else 1e-15, len(args) > 1 and args[1]
    if hermitian:
        x = _symmetric(b, x)
    u, values, vt = _svd(b, x)
    inverse = _inverted(b, x, values, atol, rtol)
    scaled = b.map(x.dtype, [_transposed(b, vt), b.unsqueeze(inverse, values.rank - 1)], lambda v, s: v * s)
    return matmul(b, scaled, _transposed(b, u))


@lowers("torch.aten.linalg_matrix_exp", "torch.aten.matrix_exp")
def matrix_exp(b: Builder, x: Tensor) -> Tensor:
    """The exponential of matrices."""
    wide = convert(b, x, dtypes.opmath(x.dtype))
    batch, n, _ = _sizes(wide)
    result = b.call(
        "matrix_exp",
        [wide],
        [(wide.dims, wide.dtype)],
        tasks=b.product(batch),
        scratch=_scratch(b, [6, n, n], [n]),
    )[0]
    return convert(b, result, x.dtype)


# -- distances -------------------------------------------------------------------------------------


@lowers("torch.aten._cdist_forward", "torch.aten.cdist")
def cdist(b: Builder, x: Tensor, y: Tensor, order: float = 2.0, *_: Any) -> Tensor:
    """The ``order``-norm of the difference of every row of x and every row of y."""
    batch = b.broadcast_dims([x.dims[:-2], y.dims[:-2]])
    b.require_equal(x.dims[-1], y.dims[-1], "cdist: rows of different lengths")
    width = x.dims[-1]
    domain = [*batch, x.dims[-2], y.dims[-2], width]
    rank = len(batch)
    dtype = b.out.dtype

    def places(t: Tensor, row: int) -> list[int | None]:
        offset = rank - (t.rank - 2)
        kept = [None if t.dims[i] == 1 and batch[offset + i] != 1 else offset + i for i in range(t.rank - 2)]
        return [*kept, row, rank + 2]

    most = order == float("inf")

    def fold(acc: Elem, x: Elem, y: Elem) -> Elem:
        size = scalar.absolute(x - y)
        if most:
            return scalar.maximum(acc, size)
        if order == 0:
            return acc + size.ne(0).to(dtype)
        return acc + scalar.power(size, float(order))

    total = b.generic(
        [x, y],
        [b.loop_map(places(x, rank), rank + 3), b.loop_map(places(y, rank + 1), rank + 3)],
        domain[:-1],
        dtype,
        fold,
        domain=domain,
        out_map=b.loop_map(list(range(rank + 2)), rank + 3),
        reduced=[rank + 2],
        init=0,
    )
    if most or order in (0, 1):
        return total
    return b.elementwise(dtype, [total], lambda s: scalar.power(s, 1.0 / order))


@lowers("torch.aten._pdist_forward", "torch.aten.pdist")
def pdist(b: Builder, x: Tensor, order: float = 2.0) -> Tensor:
    """The distances of all pairs of rows: the part of cdist above the diagonal, row by row."""
    square = cdist(b, x, x, order)
    n = x.dims[0]
    pairs = b.floordiv(b.mul(n, b.sub(n, 1)), 2)
    # Numbers of the elements above the diagonal in order: those below are sorted after them.
    size = b.mul(n, n)

    def key() -> Elem:
        place = scalar.loop_index(0)
        extent = scalar.from_extent(n, torch.int64)
        row = scalar.trunc_divide(place, extent)
        return scalar.select(scalar.fmod(place, extent) > row, place, place + scalar.from_extent(size, torch.int64))

    keys = b.generic([], [], [size], torch.int64, key)
    order_of = b.slice(sort_rows(b, keys, 0, size, descending=False)[1], 0, 0, pairs)
    flat = b.reshape(square, [size])

    def pick(at: Elem) -> Elem:
        return b.extract(flat, [b.checked_index(at, size, wrap=False)])

    return convert(b, b.generic([order_of], [b.identity(1)], [pairs], x.dtype, pick), b.out.dtype)
