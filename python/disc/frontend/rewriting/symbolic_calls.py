"""Functions of PyTorch that take Python ints alone, in terms of others that take symbolic ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ... import errors
from ...torch_compat import pytree
from ...torch_compat.operators import istft, pad_sequence
from ...torch_compat.symbols import free_unbacked_symbols
from . import spaced_calls
from .pool_calls import ADAPTIVE_POOLS, WHOLE_POOLS, is_whole, max_pool1d


def _linspace(start: Any, end: Any, steps: Any, **options: Any) -> Tensor:
    # From both ends to the middle, as PyTorch does: the last element is exactly `end`, and a single one `start`.
    dtype = options.pop("dtype", None) or torch.get_default_dtype()
    index = torch.arange(steps, dtype=dtype if dtype.is_floating_point else torch.float64, **_kept(options))
    # A number divided by a tensor is rounded twice; a step that is an integer must remain one.
    step = index.new_full((), end - start) / torch.clamp(index.new_full((), steps - 1), min=1)
    values = torch.where(index < torch.sym_max(steps // 2, 1), start + step * index, end - step * (steps - 1 - index))
    return values.to(dtype)


def _logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> Tensor:
    return torch.pow(base, _linspace(start, end, steps, **options))


def _one_hot(tensor: Tensor, num_classes: Any = -1) -> Tensor:
    classes = torch.arange(num_classes, device=tensor.device)
    inside = ((tensor >= 0) & (tensor < num_classes)).all()
    torch._assert_async(inside, "one_hot: an element is negative or not less than num_classes")
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def _istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Tensor:
    hop = n_fft // 4 if hop_length is None else hop_length
    given = n_fft + hop * (input.shape[-1] - 1) - (n_fft // 2 if center else 0)
    options = (center, normalized, onesided, given, return_complex)
    signal = istft(input, n_fft, hop, win_length, window, *options)
    return torch.nn.functional.pad(signal[..., :length], (0, torch.sym_max(length - given, 0)))


def _complex_mean(input: Tensor, *args: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    # PyTorch divides by the number of elements as a complex number of Python, which fixes it.
    parts = torch.view_as_real(input if dtype is None else input.to(dtype))
    real, imag = (torch.mean(parts[..., part], *args, **options) for part in (0, 1))
    return torch.complex(real, imag)


def _kron(input: Tensor, other: Tensor) -> Tensor:
    rank = max(input.dim(), other.dim())
    first, second = ([*[1] * (rank - x.dim()), *x.shape] for x in (input, other))
    blocks = input.reshape([n for size in first for n in (size, 1)])
    product = blocks * other.reshape([n for size in second for n in (1, size)])
    return product.reshape([m * n for m, n in zip(first, second, strict=True)])


def _vander(x: Tensor, N: Any = None, increasing: bool = False) -> Tensor:
    powers = torch.arange(x.shape[0] if N is None else N, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))


def _linalg_vander(x: Tensor, *, N: Any = None) -> Tensor:
    return x.unsqueeze(-1) ** torch.arange(x.shape[-1] if N is None else N, device=x.device)


def _take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return torch.gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.dim() != indices.dim():
        raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions")
    dim = dim % input.dim()
    others = [[1 if d == dim else size for d, size in enumerate(x.shape)] for x in (input, indices)]
    shape = list(torch.broadcast_shapes(*others))
    input, indices = (x.expand([*shape[:dim], x.shape[dim], *shape[dim + 1 :]]) for x in (input, indices))
    return torch.gather(input, dim, indices)


def _tensor_split(input: Tensor, sections: int, dim: int = 0) -> tuple[Tensor, ...]:
    size = input.shape[dim]
    least, longer = size // sections, size % sections
    starts = [i * least + torch.sym_min(i, longer) for i in range(sections)]
    return tuple(input.narrow(dim, start, (size + sections - 1 - i) // sections) for i, start in enumerate(starts))


def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    places = input.shape[0]
    pairs = torch.ones(places, places, dtype=torch.bool, device=input.device).triu(0 if with_replacement else 1)
    return input[pairs.nonzero()]


def _cov(input: Tensor, *, correction: int = 1, **_: Any) -> Tensor:
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    rows = rows if rows.is_floating_point() or rows.is_complex() else rows.to(torch.get_default_dtype())
    rows = rows - rows.mean(1, keepdim=True)
    count = torch.scalar_tensor(rows.shape[1] - correction, dtype=rows.real.dtype).clamp(min=0)
    # PyTorch drops the dims of a matrix of one element.
    torch._check(input.dim() < 2 or rows.shape[0] != 1)
    product = (rows @ rows.conj().transpose(0, 1)) / count
    return product.reshape([]) if input.dim() < 2 else product


def _corrcoef(input: Tensor) -> Tensor:
    product = _cov(input)
    if input.dim() < 2:
        return product / product
    spread = product.diagonal().real.sqrt()
    scaled = product / spread.unsqueeze(1) / spread.unsqueeze(0)
    return scaled if scaled.is_complex() else scaled.clamp(-1, 1)


def _matrix_norm(
    A: Tensor, ord: Any, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The largest or smallest singular value, of which PyTorch asks how many there are."""
    dim = (-2, -1) if dim is None else tuple(dim)
    matrix = (A if dtype is None else A.to(dtype)).movedim(dim, (-2, -1))
    values = torch.linalg.svdvals(matrix)
    result = values.amax(-1) if ord > 0 else values.amin(-1)
    if keepdim:
        for d in sorted(d % A.dim() for d in dim):
            result = result.unsqueeze(d)
    return result


def _is_spectral(func: Any, x: Tensor, ord: Any = None, dim: Any = None, *_: Any, **options: Any) -> bool:
    """Whether a norm of matrices is that by their singular values."""
    of_matrices = func is torch.linalg.matrix_norm or (x.dim() == 2 if dim is None else isinstance(dim, (tuple, list)))
    return ord in (2, -2) and of_matrices and "out" not in options


def _of_something(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A quantile, which there is none of no elements, not even no quantiles."""

    def call(input: Tensor, *args: Any, **options: Any) -> Tensor:
        there = torch.scalar_tensor(input.numel(), dtype=torch.int64) > 0
        torch._assert_async(there, f"{func.__name__}(): the input has no elements")
        return func(input, *args, **options)

    return call


def _diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    parts = [part for part in (prepend, input, append) if part is not None]
    input = torch.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        later, earlier = (torch.ops.aten.slice(input, dim, *bounds) for bounds in ((1, None), (0, -1)))
        input = later ^ earlier if input.dtype == torch.bool else later - earlier
    return input


def _trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    return _trapezoids(y, x, dx, dim).sum(dim)


def _cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    return _trapezoids(y, x, dx, dim).cumsum(dim)


def _trapezoids(y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    later, earlier = (torch.ops.aten.slice(y, dim, *bounds) for bounds in ((1, None), (0, -1)))
    if x is None:
        return (later + earlier) * dx / 2
    width = _diff(x, 1, dim if x.dim() == y.dim() else -1)
    if x.dim() == 1 and y.dim() > 1:
        width = width.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return (later + earlier) * width / 2


def _tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    if isinstance(dims, int):
        first, second = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    first, second = [d % a.dim() for d in first], [d % b.dim() for d in second]
    rows, columns = ([d for d in range(x.dim()) if d not in own] for x, own in ((a, first), (b, second)))
    left = a.permute([*rows, *first]).reshape(_count(a, rows), _count(a, first))
    product = left @ b.permute([*second, *columns]).reshape(_count(b, second), _count(b, columns))
    result = product.reshape([*(a.shape[d] for d in rows), *(b.shape[d] for d in columns)])
    return result if out is None else out.copy_(result)


def _count(x: Tensor, dims: Sequence[int]) -> Any:
    """The number of elements of these dims."""
    return math.prod(x.shape[d] for d in dims)


def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    rank = max(x1.dim(), x2.dim())
    dim = dim % rank
    first, second = (x.reshape([*[1] * (rank - x.dim()), *x.shape]) for x in (x1, x2))
    first, second = (x / torch.linalg.vector_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (first, second))
    return (first * second).sum(dim)


def _pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    longest = sequences[0].shape[0]
    for sequence in sequences[1:]:
        longest = torch.sym_max(longest, sequence.shape[0])
    rows = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        sides = [0, missing] if padding_side == "right" else [missing, 0]
        rows.append(functional.pad(sequence, [*[0] * (2 * sequence.dim() - 2), *sides], value=padding_value))
    return torch.stack(rows, 0 if batch_first else 1)


class _NotComputed:
    """Stands for a result whose size depends on data; whatever asks something of it is an error."""

    def __init__(self, name: str) -> None:
        self.__dict__["_disc_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        text = self.__dict__["_disc_name"]
        raise errors.UnsupportedTypeError(
            "import", f"{text}: their number depends on the rank, which a compiled model does not compute"
        )


def _lstsq(input: Tensor, b: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    # PyTorch has no fake kernel: how many residuals there are depends on the rank.
    u, values, vh = torch.linalg.svd(input, full_matrices=False)
    if rcond is None:
        rcond = torch.finfo(values.dtype).eps * torch.sym_max(input.shape[-2], input.shape[-1])
    large = values > rcond * values[..., :1]
    inverse = torch.where(large, 1 / values, 0)
    single = b.dim() == 1 or (b.dim() == input.dim() - 1 and b.shape == input.shape[:-1])
    columns = b.unsqueeze(-1) if single else b
    solution = vh.mH @ (inverse.unsqueeze(-1) * (u.mH @ columns))
    rank, count = large.sum(-1), (input.shape[-2], input.shape[-1])
    residuals: Any = values.new_empty(0)
    if driver not in (None, "gelsy") and not all(type(size) is int for size in count):
        residuals = _NotComputed("the residuals of linalg.lstsq")
    elif driver not in (None, "gelsy") and count[0] > count[1]:
        if driver != "gels":
            torch._assert_async((rank == count[1]).all(), "linalg.lstsq: residuals of a matrix without full rank")
        residuals = (input @ solution - columns).abs().square().sum(-2)
        residuals = residuals.squeeze(-1) if single else residuals
    rank = torch.empty(0, dtype=torch.int64) if driver == "gels" else rank
    values = values if driver in ("gelsd", "gelss") else values.new_empty(0)
    return _LeastSquares(solution.squeeze(-1) if single else solution, residuals, rank, values)


class _LeastSquares(NamedTuple):
    solution: Tensor
    residuals: Any
    rank: Tensor
    singular_values: Tensor


def _fill_diagonal(x: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    if x.dim() != 2 or wrap:
        return x.fill_diagonal_(fill_value, wrap)
    # PyTorch compares the extents.
    x.diagonal().fill_(fill_value)
    return x


def _triangle(kept: Callable[[Tensor, Any], Tensor]) -> Callable[..., Tensor]:
    """The places of a triangle's elements, row by row, as torch.tril_indices has them."""

    def indices(row: Any, col: Any, offset: Any = 0, *, dtype: torch.dtype = torch.int64, **options: Any) -> Tensor:
        whole = torch.ones(row, col, dtype=torch.bool, **_kept(options))
        return kept(whole, offset).nonzero().t().to(dtype)

    return indices


def _window(shape: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.hann_window and its like: ``shape`` of places from 0 to 1, and 1 for a single place."""

    def window(window_length: Any, periodic: bool = True, *numbers: float, **options: Any) -> Tensor:
        dtype = options.pop("dtype", None) or torch.get_default_dtype()
        names = [name for name in ("alpha", "beta") if name in options]
        numbers = (*numbers, *(options[name] for name in names))
        steps = torch.sym_max(window_length if periodic else window_length - 1, 1)
        places = torch.arange(window_length, dtype=torch.float64, **_kept(options)) / steps
        values = shape(places, *numbers)
        single = torch.scalar_tensor(window_length, dtype=torch.int64) == 1
        return torch.where(single, torch.ones_like(values), values).to(dtype)

    return window


def _written(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that makes a tensor of numbers alone, and here writes it into another one."""

    def write(*args: Any, out: Tensor, **options: Any) -> Tensor:
        kind = options.pop("dtype", None) or out.dtype
        if kind != out.dtype:
            raise RuntimeError(f"{func.__name__}(): expected an out tensor of dtype {kind}, got {out.dtype}")
        values = func(*args, dtype=kind, **options)
        # Other sizes would replace the tensor's memory: no operation of a graph does that.
        return out.copy_(values.reshape(out.shape))

    return write


def _hamming(x: Tensor, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    return alpha - beta * torch.cos(2 * math.pi * x)


def _kaiser(x: Tensor, beta: float = 12.0) -> Tensor:
    inside = torch.clamp(1 - (2 * x - 1) ** 2, min=0)
    return torch.i0(beta * torch.sqrt(inside)) / torch.i0(torch.scalar_tensor(beta, dtype=x.dtype))


def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    # PyTorch makes constants of the numbers.
    whole = all(isinstance(x, (int, torch.SymInt)) for x in pytree.tree_leaves(data))
    kind = dtype or (torch.int64 if whole else torch.get_default_dtype())

    def made(part: Any) -> Tensor:
        if isinstance(part, (list, tuple)):
            return torch.stack([made(x) for x in part])
        return part.to(kind) if isinstance(part, Tensor) else torch.scalar_tensor(part, dtype=kind)

    return made(data) if device is None else made(data).to(device)


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key in ("device",)}


_REPLACEMENTS: dict[Any, tuple[Callable[..., Tensor], tuple[tuple[int, str], ...]]] = {
    torch.linspace: (_linspace, ((2, "steps"),)),
    torch.logspace: (_logspace, ((2, "steps"),)),
    torch.fft.fftfreq: (spaced_calls.fft_frequencies, ((0, "n"),)),
    torch.fft.rfftfreq: (spaced_calls.real_fft_frequencies, ((0, "n"),)),
    torch.istft: (_istft, ((8, "length"),)),
    torch.Tensor.istft: (_istft, ((8, "length"),)),
    torch.nn.functional.one_hot: (_one_hot, ((1, "num_classes"),)),
    torch.hann_window: (_window(lambda x: 0.5 - 0.5 * torch.cos(2 * math.pi * x)), ((0, "window_length"),)),
    torch.hamming_window: (_window(_hamming), ((0, "window_length"),)),
    torch.blackman_window: (
        _window(lambda x: 0.42 - 0.5 * torch.cos(2 * math.pi * x) + 0.08 * torch.cos(4 * math.pi * x)),
        ((0, "window_length"),),
    ),
    torch.bartlett_window: (_window(lambda x: 1 - torch.abs(2 * x - 1)), ((0, "window_length"),)),
    torch.kaiser_window: (_window(_kaiser), ((0, "window_length"),)),
    torch.tril_indices: (_triangle(torch.tril), ((0, "row"), (1, "col"), (2, "offset"))),
    torch.triu_indices: (_triangle(torch.triu), ((0, "row"), (1, "col"), (2, "offset"))),
}
# These ask for sizes of their tensors.
_OF_SIZES: dict[Any, Callable[..., Any]] = {
    torch.kron: _kron,
    Tensor.kron: _kron,
    torch.vander: _vander,
    torch.linalg.vander: _linalg_vander,
    torch.take_along_dim: _take_along_dim,
    Tensor.take_along_dim: _take_along_dim,
    torch.tensor_split: _tensor_split,
    Tensor.tensor_split: _tensor_split,
    torch.combinations: _combinations,
    torch.cov: _cov,
    Tensor.cov: _cov,
    torch.max_pool1d: max_pool1d,
    functional.max_pool1d: max_pool1d,
    **ADAPTIVE_POOLS,
    **{f: _of_something(f) for f in (torch.quantile, Tensor.quantile, torch.nanquantile, Tensor.nanquantile)},
    torch.gradient: spaced_calls.gradient,
    torch.linalg.matrix_norm: _matrix_norm,
    torch.linalg.norm: _matrix_norm,
    torch.corrcoef: _corrcoef,
    Tensor.corrcoef: _corrcoef,
    Tensor.fill_diagonal_: _fill_diagonal,
}
# These have no fake kernel.
_WITHOUT_SHAPES: dict[Any, Callable[..., Any]] = {torch.linalg.lstsq: _lstsq}
# These ask for sizes that depend on data.
_OF_DATA: dict[Any, Callable[..., Any]] = {
    torch.diff: _diff,
    Tensor.diff: _diff,
    torch.trapz: _trapezoid,
    torch.trapezoid: _trapezoid,
    torch.cumulative_trapezoid: _cumulative_trapezoid,
    torch.tensordot: _tensordot,
    torch.cosine_similarity: _cosine_similarity,
    functional.cosine_similarity: _cosine_similarity,
}
_MEANS = (torch.mean, Tensor.mean)
# PyTorch cannot trace these into a tensor that is given.
_MAKING = (torch.arange, torch.linspace, torch.logspace, torch.zeros, torch.ones, torch.full, torch.eye)


def symbolic_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor] | None:
    """What to call in the place of ``func``, if it would make an int of a number that is symbolic."""
    if func in _MEANS and args and (kwargs.get("dtype") or args[0].dtype).is_complex:
        return _complex_mean
    if func in _MAKING and kwargs.get("out") is not None:
        return _written(func)
    if func is torch.arange:
        return spaced_calls.arange(args, kwargs)
    if func in _WITHOUT_SHAPES:
        return _WITHOUT_SHAPES[func]
    if func in WHOLE_POOLS and is_whole(func, *args, **kwargs):
        return WHOLE_POOLS[func]
    if func in _OF_SIZES:
        return _OF_SIZES[func] if _asks_for_sizes(func, args, kwargs) else None
    if func is pad_sequence:
        # Its decomposition takes that for the longest which is the longest in the example.
        return _pad_sequence if _has_dynamic_sizes(args[0]) else None
    if func in _OF_DATA:
        return _OF_DATA[func] if _depends_on_data((*args, *kwargs.values())) else None
    if func is torch.as_tensor and args and (isinstance(args[0], _NUMBERS) or _has_numbers(args[0])):
        return _as_tensor
    replacement = _REPLACEMENTS.get(func)
    if replacement is None:
        return None
    function, numbers = replacement
    given = (args[place] if place < len(args) else kwargs.get(name) for place, name in numbers)
    return function if any(isinstance(value, torch.SymInt) for value in given) else None


_NUMBERS = (torch.SymInt, torch.SymFloat)


def _has_numbers(values: Any) -> bool:
    """Whether a list of numbers, or of such lists, has one that is known at run time only."""
    return isinstance(values, (list, tuple)) and any(isinstance(x, _NUMBERS) or _has_numbers(x) for x in values)


def _has_dynamic_sizes(tensors: Any) -> bool:
    """Whether a tensor among these has a size that is known at run time only."""
    return isinstance(tensors, (list, tuple)) and any(
        isinstance(size, torch.SymInt) for x in tensors if isinstance(x, Tensor) for size in x.shape
    )


def _depends_on_data(values: Any) -> bool:
    """Whether a tensor among these has a size that depends on data."""
    for value in values:
        if isinstance(value, (list, tuple)) and _depends_on_data(value):
            return True
        if isinstance(value, Tensor):
            numbers = (size for size in value.shape if isinstance(size, torch.SymInt))
            if any(free_unbacked_symbols(size) for size in numbers):
                return True
    return False


def _asks_for_sizes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if func in (torch.tensor_split, Tensor.tensor_split):
        sections = args[1] if len(args) > 1 else kwargs.get("sections", kwargs.get("indices_or_sections"))
        dim = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        return type(sections) is int and len(args) > 1 and isinstance(args[0].shape[dim], torch.SymInt)
    if func in (torch.cov, Tensor.cov) and not kwargs.keys() <= {"correction"}:
        return False
    if func is functional.max_pool1d and kwargs.get("return_indices"):
        return False
    if func in (torch.linalg.matrix_norm, torch.linalg.norm) and not (args and _is_spectral(func, *args, **kwargs)):
        return False
    if func is torch.combinations and (args[1] if len(args) > 1 else kwargs.get("r", 2)) != 2:
        return False
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    return any(isinstance(size, torch.SymInt) for x in tensors for size in x.shape)
