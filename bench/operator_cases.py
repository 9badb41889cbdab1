"""Operators of PyTorch's OpInfo database at two sizes, as calls that engines can compile.

Elementwise operators and reductions get inputs of `SHAPES`. Of the others the database says what valid inputs are; the
constants that it makes shapes of are set to larger ones for the large size.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.testing import make_tensor
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, ReductionOpInfo, UnaryUfuncInfo

SHAPES = {"small": (8, 16), "large": (512, 1000)}
_CONSTANTS = {
    "small": {"XS": 3, "S": 5, "M": 10, "L": 20},
    # Four dims of S have a million elements, and some operators get more dims.
    "large": {"XS": 16, "S": 32, "M": 128, "L": 256},
}
_MOST_ELEMENTS = 4 << 20
_CONSIDERED = 48
DTYPES = {
    "f32": torch.float32,
    "i64": torch.int64,
    "bool": torch.bool,
    "c64": torch.complex64,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
}
_BF16 = ("matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "nn.functional.linear", "nn.functional.conv2d", "softmax")
_C64 = ("mul", "add", "div", "abs", "angle", "exp", "conj_physical", "matmul", "mm", "fft.fft", "fft.ifft", "polar")
_I64 = ("add", "mul", "sum", "cumsum", "sort", "isin", "unique", "bincount", "gather", "scatter_add", "remainder")
_BOOL = ("all", "any", "logical_and", "masked_select", "nonzero", "argwhere", "count_nonzero", "where")
_RANDOM = (
    "rand",
    "normal",
    "bernoulli",
    "dropout",
    "multinomial",
    "uniform",
    "cauchy",
    "exponential",
    "geometric",
    "rrelu",
)
_NOT_UNIQUE = ("svd", "svd_lowrank", "pca_lowrank", "linalg.svd", "linalg.eig", "linalg.eigh")


def name_of(op: OpInfo) -> str:
    """The op's name, and that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


OPERATORS: dict[str, OpInfo] = {name_of(op): op for op in database.op_db}


def selection() -> list[tuple[str, str]]:
    """Every operator in f32, or what it has instead, and in the dtypes that it is for besides."""
    found = []
    for name, op in OPERATORS.items():
        if name.startswith("jiterator"):
            continue  # of CUDA alone
        has = [dtype for dtype, kind in DTYPES.items() if kind in op.supported_dtypes("cpu")]
        more = [d for d, names in (("bf16", _BF16), ("c64", _C64), ("i64", _I64), ("bool", _BOOL)) if name in names]
        found += [(name, dtype) for dtype in dict.fromkeys([*has[:1], *more]) if dtype in has]
    return found


def values_matter(name: str) -> bool:
    """Whether all right results have the same values: of other operators only shapes and dtypes are compared."""
    return name not in _NOT_UNIQUE and not any(word in name for word in (*_RANDOM, "empty"))


class _Hole:
    """Where a tensor belongs among a call's leaves."""


_HOLE = _Hole()


@dataclass
class Call:
    """One call of an operator."""

    op: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    leaves: list[Any]
    spec: pytree.TreeSpec

    def __call__(self, *tensors: Tensor) -> Any:
        """The operator of other tensors in the places of the call's own."""
        args, kwargs = self.arguments(tensors)
        return self.op(*args, **kwargs)

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """As the operator takes them."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, _Hole) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    def label(self) -> str:
        """The shapes of its tensors."""
        return ", ".join("×".join(map(str, t.shape)) or "scalar" for t in self.tensors)

    def like(self, other: Call) -> bool:
        """Whether one compilation for all shapes serves both."""
        same = self.spec == other.spec and len(self.leaves) == len(other.leaves)
        constants = zip(self.leaves, other.leaves, strict=False)
        return (
            same
            and all(type(a) is type(b) and (isinstance(a, _Hole) or a == b) for a, b in constants)
            and all(
                a.dim() == b.dim()
                and a.dtype == b.dtype
                # Compilers take sizes of 0 and 1 for constants.
                and all((m < 2) == (n < 2) for m, n in zip(a.shape, b.shape, strict=True))
                for a, b in zip(self.tensors, other.tensors, strict=True)
            )
        )


class Program(nn.Module):
    """A call as a module."""

    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def forward(self, *tensors: Tensor) -> Any:
        """The call of other tensors."""
        return self.call(*tensors)


def _call(op: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, Tensor))
    return Call(op.op, tensors, [_HOLE if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)


def calls(name: str, dtype: str) -> dict[str, Call]:
    """The call that is measured at each size; a size is missing if it would be the same as a smaller one."""
    op, kind = OPERATORS[name], DTYPES[dtype]
    if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)):
        return {size: _regular(op, kind, shape) for size, shape in SHAPES.items()}
    # One after the other: all at once may be gigabytes.
    place, large = 0, None
    # Some shapes are only right with the database's constants, and some are too large with ours.
    with contextlib.suppress(RuntimeError, IndexError, ValueError):
        for i, call in enumerate(_generated(op, kind, "large")):
            if large is None or _elements(call) > _elements(large):
                place, large = i, call
    few = list(_generated(op, kind, "small"))
    small = few[place] if place < len(few) else max(few, key=_elements)
    return (
        {"small": small} if large is None or _elements(large) <= _elements(small) else {"small": small, "large": large}
    )


def _elements(call: Call) -> int:
    """What there is to do: elements of inputs, as far as they are not too many."""
    count = sum(t.numel() for t in call.tensors)
    return count if count <= _MOST_ELEMENTS else 0


def _regular(op: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Call:
    torch.manual_seed(0)

    def tensor(**options: Any) -> Tensor:
        return make_tensor(shape, dtype=dtype, device="cpu", **options)

    if isinstance(op, UnaryUfuncInfo):
        low, high = op.domain
        # Beyond these the functions of a bounded range are constants.
        own = tensor(low=low, high=high) if dtype.is_floating_point else tensor()
        return _call(op, (own,), dict(op.sample_kwargs("cpu", dtype, own)[0]))
    if isinstance(op, BinaryUfuncInfo):
        kwargs = dict(next(iter(op.sample_inputs("cpu", dtype))).kwargs)
        return _call(op, (tensor(**op.lhs_make_tensor_kwargs), tensor(**op.rhs_make_tensor_kwargs)), kwargs)
    # What it takes besides the dim, such as a correction, is constant.
    first: tuple[Any, dict[str, Any]] = next(iter(op.generate_args_kwargs(tensor(), dim=-1)), ((), {}))
    return _call(op, (tensor(), *first[0]), {**first[1], "dim": -1})


@contextlib.contextmanager
def _constants(size: str) -> Iterator[None]:
    modules = [m for name, m in sys.modules.items() if name.startswith("torch.testing._internal.opinfo")]
    old = [
        (module, name, vars(module)[name])
        for module in (database, *modules)
        for name in _CONSTANTS[size]
        if isinstance(vars(module).get(name), int)
    ]
    try:
        for module, name, _ in old:
            setattr(module, name, _CONSTANTS[size][name])
        yield
    finally:
        for module, name, value in old:
            setattr(module, name, value)


def _generated(op: OpInfo, dtype: torch.dtype, size: str) -> Iterator[Call]:
    torch.manual_seed(0)
    with _constants(size):
        infos = itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), _CONSIDERED)
        for info in infos:
            yield _call(op, (info.input, *info.args), dict(info.kwargs))
