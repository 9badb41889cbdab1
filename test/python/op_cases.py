"""One small program per op (and per way to use it), run by the frontend's tests and by the compiler's.

A tensor is written ``"B S 8"`` (letters are dynamic extents) with an optional dtype: ``"B S 8:bf16"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}

EXPORT_SIZES = {"B": 3, "S": 5, "T": 6, "N": 4}
OTHER_SIZES = ({"B": 2, "S": 9, "T": 3, "N": 7}, {"B": 5, "S": 3, "T": 2, "N": 2})
# torch.export refuses an extent of x[:, 1:] that could be 1, so that S starts at 3.
SMALLEST = {"B": 2, "S": 3, "T": 2, "N": 2}


@dataclass(frozen=True)
class Case:
    """A function of tensors, and the tensors it takes."""

    name: str
    fn: Callable[..., Any]
    args: tuple[str, ...]
    low: float = -2.0
    """Values lie in [low, high); integers likewise."""
    high: float = 2.0

    def inputs(self, sizes: Mapping[str, int], seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Tensors of the extents in ``sizes``."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(self._input(spec, sizes, generator) for spec in self.args)

    def _input(self, spec: str, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
        dims, _, dtype_name = spec.partition(":")
        dtype = _DTYPES[dtype_name or "f32"]
        shape = [sizes[d] if d in sizes else int(d) for d in dims.split()]
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.6
        if dtype.is_floating_point:
            values = torch.rand(shape, generator=generator, dtype=torch.float64)
            return (values * (self.high - self.low) + self.low).to(dtype)
        low = 0 if dtype == torch.uint8 else int(self.low)
        return torch.randint(low, max(int(self.high), low + 1), shape, generator=generator, dtype=dtype)

    def dynamic_shapes(self, letters: Mapping[str, Any]) -> tuple[dict[int, Any], ...]:
        """torch.export's, with the Dims in ``letters``."""
        shapes = [spec.partition(":")[0].split() for spec in self.args]
        return tuple({i: letters[d] for i, d in enumerate(dims) if not d.isdigit()} for dims in shapes)


class Batch(nn.Module):
    """Many cases as one program: exporting and compiling cost the most, and not much more for twenty."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.cases = {name: CASES[name] for name in names}

    def forward(self, *inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
        return {name: case.fn(*xs) for (name, case), xs in zip(self.cases.items(), inputs, strict=True)}

    def inputs(self, sizes: Mapping[str, int], seed: int = 0) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Tensors for every case."""
        return tuple(case.inputs(sizes, seed) for case in self.cases.values())

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """torch.export's."""
        letters = {d: torch.export.Dim(d, min=low, max=64) for d, low in SMALLEST.items()}
        return (tuple(case.dynamic_shapes(letters) for case in self.cases.values()),)


def _unary() -> list[Case]:
    simple = {
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "relu": F.relu,
        "silu": F.silu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "erf": torch.erf,
        "exp": torch.exp,
        "abs": torch.abs,
        "neg": torch.neg,
        "sin": torch.sin,
        "cos": torch.cos,
        "floor": torch.floor,
        "ceil": torch.ceil,
        "trunc": torch.trunc,
        "round": torch.round,
        "square": torch.square,
        "sign": torch.sign,
        "expm1": torch.expm1,
        "leaky_relu": F.leaky_relu,
        "elu": F.elu,
        "softplus": F.softplus,
        "hardswish": F.hardswish,
        "hardtanh": F.hardtanh,
        "relu6": F.relu6,
        "mish": F.mish,
        "clamp": lambda x: x.clamp(-0.5, 0.7),
        "clamp_min": lambda x: x.clamp(min=-0.5),
        "pow2": lambda x: x**2,
        "pow3": lambda x: x.pow(3.0),
        "isnan": torch.isnan,
        "isinf": lambda x: torch.isinf(1.0 / x.floor()),
        "logical_not": torch.logical_not,
    }
    positive = {
        "log": torch.log,
        "log1p": torch.log1p,
        "log2": torch.log2,
        "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt,
        "reciprocal": torch.reciprocal,
        "pow_half": lambda x: x**0.5,
        "pow_real": lambda x: x**1.7,
        "scalar_pow": lambda x: 2.0**x,
    }
    cases = [Case(name, fn, ("B S 8",)) for name, fn in simple.items()]
    cases += [Case(name, fn, ("B S 8",), 0.1, 3.0) for name, fn in positive.items()]
    for dtype in ("f64", "f16", "bf16"):
        cases += [Case(f"{n}_{dtype}", simple[n], (f"B 7:{dtype}",)) for n in ("gelu", "tanh", "exp", "silu", "clamp")]
    for dtype in ("i64", "i32", "i8", "bool"):
        cases += [Case(f"{n}_{dtype}", simple[n], (f"B 7:{dtype}",), -9, 9) for n in ("tanh", "sigmoid")]
    for dtype in ("i64", "i32", "i16", "i8"):
        cases += [Case(f"{n}_{dtype}", simple[n], (f"B 7:{dtype}",), -9, 9) for n in ("abs", "neg", "sign", "relu")]
    return cases


def _binary() -> list[Case]:
    fns = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "pow": lambda x, y: x.abs() ** y,
        "eq": lambda x, y: x.round() == y.round(),
        "ne": lambda x, y: x.round() != y.round(),
        "lt": torch.lt,
        "le": torch.le,
        "gt": torch.gt,
        "ge": torch.ge,
        "add_alpha": lambda x, y: torch.add(x, y, alpha=0.3),
        "sub_alpha": lambda x, y: torch.sub(x, y, alpha=2),
        "rsub": lambda x, y: 1.0 - x * y,
        "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        "remainder": torch.remainder,
        "fmod": torch.fmod,
        "atan2": torch.atan2,
        "lerp": lambda x, y: torch.lerp(x, y, 0.3),
        "where": lambda x, y: torch.where(x > y, x, y * 2),
    }
    cases = [Case(name, fn, ("B S 8", "B S 8")) for name, fn in fns.items()]
    for name in ("add", "mul", "where"):
        for k, shapes in enumerate(
            (("B S 8", "8"), ("B S 8", "1 S 1"), ("B 1 8", "S 1"), ("B S", "B 1"), ("B S 8", "1"), ("1 8", "S 8"))
        ):
            cases.append(Case(f"{name}_broadcast{k}", fns[name], shapes))
    mixed = (
        "f32 f64",
        "f16 f32",
        "bf16 f16",
        "i64 f32",
        "i32 i64",
        "i8 u8",
        "bool i64",
        "bool f16",
        "u8 i16",
        "i32 i32",
    )
    for pair in mixed:
        x, y = pair.split()
        for name in ("add", "mul", "div", "lt"):
            cases.append(Case(f"{name}_{x}_{y}", fns[name], (f"B 5:{x}", f"B 5:{y}"), 1, 9))
        cases.append(Case(f"scalar_{x}", lambda x: (x * 3 + 2.5, x + 2, x * 2 > 4), (f"B 5:{x}",), 0, 9))
    ints = {
        "floordiv_int": lambda x, y: x // (y.abs() + 1),
        "div_trunc_int": lambda x, y: torch.div(x, y.abs() + 1, rounding_mode="trunc"),
        "remainder_int": lambda x, y: x % (y.abs() + 1),
        "divide_by_two": lambda x, y: x // 2 + x % 2 + torch.div(y, -1, rounding_mode="trunc"),
        "divide_by_minus": lambda x, y: x // -(y.abs() + 1) + x % -(y.abs() + 1) + torch.fmod(x, y.abs() + 1),
        "power": lambda x, y: x**3 + y**7 + x**0,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "not": lambda x, y: ~x + y,
        "logical": lambda x, y: torch.logical_and(x, y) | torch.logical_xor(x, y),
    }
    cases += [Case(f"{name}_{t}", fn, (f"B S:{t}",) * 2, -9, 9) for name, fn in ints.items() for t in ("i64", "i32")]
    cases += [
        Case("bool_logic", lambda x, y: (x & y) | (~x ^ y), ("B S:bool", "1 S:bool")),
        Case("bool_add_mul", lambda x, y: (x + y, x * y), ("B S:bool", "B S:bool")),
        Case("where_scalar", lambda x: torch.where(x > 0, x, 0.0), ("B S",)),
        Case("where_promotes", lambda c, x: torch.where(c, x, torch.tensor(1.5)), ("B S:bool", "B S:i64")),
        Case("masked_fill", lambda x, m: x.masked_fill(m, float("-inf")), ("B S 4", "S 4:bool")),
        Case("masked_fill_f16", lambda x, m: x.masked_fill(m, -1e4), ("B S:f16", "B S:bool")),
        Case("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), ("B S", "S", "B 1")),
        Case("addcdiv", lambda x, y: torch.addcdiv(x, y, y + 5.0, value=2.0), ("B S", "S")),
        Case("clamp_tensor", lambda x, y: x.clamp(min=y - 1, max=y + 1), ("B S", "S")),
        Case("sqrt_of_extent", lambda x: x / (x.shape[1] ** 0.5), ("B S",)),
        Case("scale_by_extent", lambda x: x * x.shape[0] + x.shape[1], ("B S",)),
    ]
    return cases


def _casts() -> list[Case]:
    names = ("f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8", "bool")
    return [
        Case(f"to_{x}_{y}", lambda t, d=_DTYPES[y]: t.to(d), (f"B 6:{x}",), 0, 9)
        for x in names
        for y in names
        if x != y
    ]


def _contractions() -> list[Case]:
    cases = [
        Case("linear", F.linear, ("B S 16", "12 16", "12")),
        Case("linear_nobias", F.linear, ("B 16", "12 16")),
        Case("linear_vector", F.linear, ("16", "12 16", "12")),
        Case("mm", torch.mm, ("B 16", "16 N")),
        Case("bmm", torch.bmm, ("B S 8", "B 8 T")),
        Case("matmul_broadcast", torch.matmul, ("B 1 S 8", "3 8 T")),
        Case("matmul_batch_rhs", torch.matmul, ("B S 8", "8 4")),
        Case("matmul_vector_rhs", torch.matmul, ("B S 8", "8")),
        Case("matmul_vector_lhs", torch.matmul, ("S", "B S 8")),
        Case("dot", torch.matmul, ("S", "S")),
        Case("matmul_transposed", lambda x, y: x @ y.transpose(-1, -2), ("B 2 S 8", "B 2 T 8")),
        Case("addmm", lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2.0), ("N", "B 8", "8 N")),
        Case("addbmm_i32", torch.addbmm, ("S T:i32", "B S 6:i32", "B 6 T:i32"), -9, 9),
        Case("baddbmm", torch.baddbmm, ("B S T", "B S 8", "B 8 T")),
        Case("einsum", lambda x, y: torch.einsum("bsh,bth->bst", x, y), ("B S 8", "B T 8")),
        Case("einsum_heads", lambda x, w: torch.einsum("bsd,dhk->bhsk", x, w), ("B S 8", "8 2 4")),
        Case("einsum_dots", lambda x, y: torch.einsum("bsd,sd->bs", x, y), ("B S 8", "S 8")),
        Case("einsum_dots_reversed", lambda x, y: torch.einsum("sbd,d->bs", x, y), ("S B 8", "8")),
        Case("outer", torch.outer, ("S", "T")),
        Case("matmul_int", torch.matmul, ("B 6:i64", "6 4:i64"), -9, 9),
    ]
    for dtype in ("f64", "f16", "bf16"):
        cases.append(Case(f"linear_{dtype}", F.linear, (f"B S 16:{dtype}", f"12 16:{dtype}", f"12:{dtype}")))
        cases.append(Case(f"matmul_{dtype}", torch.matmul, (f"B S 16:{dtype}", f"B 16 T:{dtype}")))
    return cases


def _normalizations() -> list[Case]:
    cases = []
    for dim in (0, 1, 2, -1):
        cases.append(Case(f"softmax{dim}", lambda x, d=dim: torch.softmax(x, d), ("B S 7",)))
        cases.append(Case(f"log_softmax{dim}", lambda x, d=dim: torch.log_softmax(x, d), ("B S 7",)))
    for dtype in ("f64", "f16", "bf16"):
        cases.append(Case(f"softmax_{dtype}", lambda x: torch.softmax(x, -1), (f"B S:{dtype}",)))
        cases.append(
            Case(f"layer_norm_{dtype}", lambda x, w: F.layer_norm(x, (8,), w, w), (f"B S 8:{dtype}", f"8:{dtype}"))
        )
    return [
        *cases,
        Case("softmax_dtype", lambda x: torch.softmax(x, -1, dtype=torch.float32), ("B S:bf16",)),
        Case(
            "softmax_masked", lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1), ("B S 9", "B 1 9:bool")
        ),
        Case("layer_norm", lambda x, w, b: F.layer_norm(x, (8,), w, b), ("B S 8", "8", "8")),
        Case("layer_norm_plain", lambda x: F.layer_norm(x, (8,)), ("B S 8",)),
        Case("layer_norm_two", lambda x, w: F.layer_norm(x, (4, 6), w, eps=1e-3), ("B S 4 6", "4 6")),
        Case("rms_norm", lambda x, w: F.rms_norm(x, (8,), w, eps=1e-6), ("B S 8", "8")),
        Case("group_of_norms", lambda x: F.normalize(F.layer_norm(x, (8,)), dim=1), ("B S 8",)),
        Case("normalize", lambda x: F.normalize(x, dim=-1), ("B S 8",)),
        Case("batch_norm", lambda x, m, v: F.batch_norm(x, m, v), ("B 4 S", "4", "4"), 0.5, 2.0),
        Case("batch_norm_affine", lambda x, m: F.batch_norm(x, m, m, m, m), ("B 4 S", "4"), 0.5, 2.0),
    ]


def _reductions() -> list[Case]:
    fns = {
        "sum": lambda x, d, k: x.sum(d, keepdim=k),
        "mean": lambda x, d, k: x.mean(d, keepdim=k),
        "amax": lambda x, d, k: x.amax(d, keepdim=k),
        "amin": lambda x, d, k: x.amin(d, keepdim=k),
        "var": lambda x, d, k: x.var(d, keepdim=k),
        "std": lambda x, d, k: x.std(d, correction=0, keepdim=k),
        "norm": lambda x, d, k: torch.linalg.vector_norm(x, 2, d, keepdim=k),
    }
    dims = {"0": 0, "1": 1, "last": -1, "02": (0, 2), "12": (-2, -1), "all": (0, 1, 2)}
    cases = [
        Case(f"{name}_{tag}{'_keep' if keep else ''}", lambda x, f=fn, d=dim, k=keep: f(x, d, k), ("B S 7",))
        for name, fn in fns.items()
        for tag, dim in dims.items()
        for keep in (False, True)
    ]
    cases += [
        Case("sum_everything", torch.sum, ("B S",)),
        Case("mean_everything", torch.mean, ("B S",)),
        Case("max_everything", torch.max, ("B S",)),
        Case("var_everything", torch.var, ("B S",)),
        Case("max_dim", lambda x: tuple(x.max(1)), ("B S 4",)),
        Case("min_dim_keep", lambda x: tuple(x.min(-1, keepdim=True)), ("B S 4",)),
        Case("argmax", lambda x: (x.argmax(-1), x.argmin(0), x.argmax()), ("B S 4",)),
        Case("any_all", lambda x: (x.any(-1), x.all(0, keepdim=True), x.any()), ("B S 4:bool",)),
        Case("any_of_floats", lambda x: (x > 1).any(1), ("B S",)),
        Case("sum_bool", lambda x: x.sum(-1), ("B S:bool",)),
        Case("sum_i32", lambda x: (x.sum(-1), x.sum(0, dtype=torch.int32)), ("B S:i32",), -9, 9),
        Case("amax_i64", lambda x: (x.amax(-1), x.amin(0)), ("B S:i64",), -9, 9),
        Case("prod", lambda x: x.prod(1), ("B S",)),
        Case("norm1", lambda x: torch.linalg.vector_norm(x, 1, -1), ("B S",)),
        Case("norm_inf", lambda x: torch.linalg.vector_norm(x, float("inf"), -1), ("B S",)),
        Case("norm3", lambda x: torch.linalg.vector_norm(x, 3, -1), ("B S",)),
        Case("logsumexp", lambda x: torch.logsumexp(x, -1), ("B S",)),
        Case("cumsum", lambda x: (x.cumsum(0), x.cumsum(-1)), ("B S 3",)),
        Case("cumsum_int", lambda x: x.cumsum(1), ("B S:i32",), -9, 9),
        Case("var_mean", lambda x: torch.var_mean(x, -1), ("B S",)),
    ]
    for dtype in ("f64", "f16", "bf16"):
        cases += [
            Case(f"{n}_{dtype}", lambda x, f=fns[n]: f(x, -1, False), (f"B S:{dtype}",))
            for n in ("sum", "mean", "amax")
        ]
    return cases


def _views() -> list[Case]:
    return [
        Case("view", lambda x: x.view(x.shape[0], x.shape[1], 2, 4), ("B S 8",)),
        Case("view_merge", lambda x: x.view(-1, 8) + 1, ("B S 8",)),
        Case("view_infer", lambda x: x.view(x.shape[0], -1), ("B S 8",)),
        Case("flatten", lambda x: torch.flatten(x, 1), ("B S 8",)),
        Case("unflatten", lambda x: x.unflatten(-1, (2, -1)), ("B S 8",)),
        Case("squeeze", lambda x: (x.squeeze(1) + 1, x.squeeze(), x.squeeze((1, 3))), ("B 1 S 1",)),
        Case("unsqueeze", lambda x: x.unsqueeze(0) + x.unsqueeze(-2), ("B S",)),
        Case("permute", lambda x: x.permute(2, 0, 1) * 2, ("B S 8",)),
        Case("transpose_view", lambda x: x.transpose(0, 1).reshape(x.shape[1], -1), ("B S 8",)),
        Case("t", lambda x: x.t() + 1, ("B S",)),
        Case("expand", lambda x: x.expand(-1, 6, -1) * 2, ("B 1 8",)),
        Case("expand_to_extent", lambda x, y: x.expand(y.shape[0], y.shape[1], 8) + 0.5, ("1 8", "B S")),
        Case("expand_as", lambda x, y: x.expand_as(y) + y, ("S 1", "B S 8")),
        Case("repeat", lambda x: x.repeat(2, 1, 3), ("B S 4",)),
        Case("repeat_rank", lambda x: x.repeat(2, 3, 1), ("B S",)),
        Case("repeat_interleave", lambda x: x.repeat_interleave(3, dim=1), ("B S",)),
        Case("contiguous", lambda x: x.permute(1, 0).contiguous().view(-1), ("B S",)),
        Case("slice", lambda x: (x[:, 1:], x[:, :-1], x[:, ::2], x[:, -1:]), ("B S 8",)),
        Case("slice_static", lambda x: (x[..., 2:6], x[..., ::3], x[..., -3:], x[..., 1:100]), ("B S 8",)),
        Case("slice_by_extent", lambda x, y: x[:, : y.shape[0]] * 2, ("1 64", "S")),
        Case("select", lambda x: (x[:, 0], x[:, -1], x[1]), ("B S 8",)),
        Case("narrow", lambda x: x.narrow(2, 3, 4), ("B S 8",)),
        Case("split", lambda x: x.split(3, dim=-1), ("B S 8",)),
        Case("split_sizes", lambda x: x.split([2, 5, 1], dim=2), ("B S 8",)),
        Case("chunk", lambda x: [t * 2 for t in x.chunk(3, dim=-1)], ("B S 8",)),
        Case("unbind", lambda x: x.unbind(1), ("B 3 S",)),
        Case("cat", lambda x, y: torch.cat([x, y, x], dim=1), ("B S 4", "B T 4")),
        Case("cat_last", lambda x, y: torch.cat([x, y], -1) + 1, ("B S 4", "B S 3")),
        Case("cat_promotes", lambda x, y: torch.cat([x, y]), ("B 4", "S 4:i64")),
        Case("stack", lambda x, y: (torch.stack([x, y]), torch.stack([x, y], -1)), ("B S", "B S")),
        Case("movedim", lambda x: x.movedim(0, -1) + 1, ("B S 4",)),
        Case("rotate_half", lambda x: torch.cat((-x[..., 4:], x[..., :4]), -1), ("B S 8",)),
        Case("roll", lambda x: (x.roll(3, 1), x.roll((1, -2), (0, 1)), x.roll(5)), ("B S",)),
        Case("roll_by_cat", lambda x: torch.cat((x[:, 1:], x[:, :1]), 1), ("B S",)),
    ]


def _creation() -> list[Case]:
    return [
        Case("arange", lambda x: x + torch.arange(x.shape[1]), ("B S",)),
        Case("arange_start", lambda x: torch.arange(2, x.shape[1] + 2) * x, ("B S",)),
        Case("arange_step", lambda x: torch.arange(0, 2 * x.shape[0], 2), ("B S",)),
        Case("arange_float", lambda x: torch.arange(x.shape[1], dtype=torch.float32) * 0.5 + x, ("B S",)),
        Case("zeros_ones", lambda x: torch.zeros(x.shape[0], 3) + torch.ones(3), ("B S",)),
        Case("full", lambda x: torch.full((x.shape[0], 2), 1.5), ("B S",)),
        Case("likes", lambda x: torch.zeros_like(x) + torch.full_like(x, 3.0) * torch.ones_like(x), ("B S",)),
        Case("new", lambda x: x.new_zeros(x.shape[1]) + x.new_full((2, 1), 7), ("B S:i32",), 0, 9),
        Case("scalar_tensor", lambda x: x * torch.tensor(2.5) + torch.tensor(3), ("B S",)),
        Case("tril_triu", lambda x: (x.tril(), x.triu(1), x.tril(-1)), ("B S T",)),
        Case("causal_mask", lambda x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(), ("B S",)),
        Case(
            "additive_mask",
            lambda m: torch.zeros(m.shape, dtype=torch.float32).masked_fill(~m, torch.finfo(torch.float32).min),
            ("B S:bool",),
        ),
    ]


def _gathers() -> list[Case]:
    return [
        Case("embedding", lambda i, w: F.embedding(i, w), ("B S:i64", "11 8"), 0, 11),
        Case("embedding_i32", lambda i, w: F.embedding(i, w), ("B:i32", "11 8:f16"), 0, 11),
        Case("bag_sum", lambda i, w: F.embedding_bag(i, w, mode="sum"), ("B 3:i64", "11 8"), 0, 11),
        Case("bag_of_one", lambda i, w: F.embedding_bag(i, w, mode="sum"), ("B 1:i64", "11 8:f16"), 0, 11),
        Case("bag_mean", lambda i, w: F.embedding_bag(i, w, mode="mean"), ("B 3:i64", "11 8:bf16"), 0, 11),
        Case("bag_max", lambda i, w: F.embedding_bag(i, w, mode="max"), ("B 4:i32", "11 8"), 0, 11),
        *(
            Case(f"bag_{m}_padding", partial(F.embedding_bag, mode=m, padding_idx=1), ("B 2:i64", "3 8"), 0, 3)
            for m in ("sum", "mean", "max")
        ),
        Case(
            "bag_weights",
            lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s, padding_idx=-1),
            ("B 3:i64", "11 8", "B 3"),
            0,
            11,
        ),
        Case("index_select", lambda x, i: x.index_select(1, i), ("B 11 4", "S:i64"), 0, 11),
        Case("gather", lambda x, i: x.gather(1, i), ("B 11", "B S:i64"), 0, 11),
        Case("gather_3d", lambda x, i: x.gather(-1, i), ("B S 11", "B S 4:i64"), 0, 11),
        Case("index", lambda x, i: x[i], ("11 4", "B S:i64"), -11, 11),
        Case("index_middle", lambda x, i: x[:, i], ("B 11 4", "S:i64"), -11, 11),
        Case("index_two", lambda x, i, j: x[i, j], ("7 7 4", "B:i64", "B:i64"), -7, 7),
        Case("index_apart", lambda x, i, j: x[i, :, j], ("7 S 7", "B:i64", "B:i64"), -7, 7),
        Case("index_broadcast", lambda x, i, j: x[i[:, None], j], ("7 7", "B:i64", "S:i64"), -7, 7),
        Case("index_rows", lambda x: x[torch.arange(x.shape[0]), x.argmax(-1)], ("B S",)),
        Case("index_iotas", lambda x: x[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])] * 2, ("B S",)),
    ]


def _attention() -> list[Case]:
    q, k, v = "B 2 S 8", "B 2 T 8", "B 2 T 8"
    sdpa = F.scaled_dot_product_attention
    cases = [
        Case("sdpa", sdpa, (q, k, v)),
        Case("sdpa_3d", sdpa, ("B S 8", "B T 8", "B T 6")),
        Case("sdpa_2d", sdpa, ("S 8", "T 8", "T 8")),
        Case("sdpa_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), ("B 2 S 8",) * 3),
        Case("sdpa_scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), (q, k, v)),
        Case("sdpa_bool", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), (q, k, v, "B 1 S T:bool")),
        Case("sdpa_padding", lambda q, k, v, m: sdpa(q, k, v, m[:, None, None, :]), (q, k, v, "B T:bool")),
        Case("sdpa_float", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), (q, k, v, "S T")),
        Case(
            "sdpa_expanded",
            lambda q, k, v, m: sdpa(q, k, v, m.expand(-1, 2, q.shape[2], -1)),
            (q, k, v, "B 1 1 T:bool"),
        ),
        Case("sdpa_gqa", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), ("B 4 S 8", k, v)),
        Case("sdpa_broadcast_batch", sdpa, ("B 2 S 8", "1 2 T 8", "1 2 T 8")),
        Case(
            "attention_by_hand",
            lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v,
            (q, k, v),
        ),
    ]
    cases += [Case(f"sdpa_{t}", sdpa, (f"B 2 S 8:{t}", f"B 2 T 8:{t}", f"B 2 T 8:{t}")) for t in ("f64", "f16", "bf16")]
    return cases


CASES: dict[str, Case] = {
    f"{group}-{case.name}": case
    for group, cases in {
        "unary": _unary(),
        "binary": _binary(),
        "cast": _casts(),
        "contraction": _contractions(),
        "norm": _normalizations(),
        "reduction": _reductions(),
        "view": _views(),
        "creation": _creation(),
        "gather": _gathers(),
        "attention": _attention(),
    }.items()
    for case in cases
}


def batches(size: int = 24) -> list[tuple[str, ...]]:
    """All cases, in groups of one kind."""
    groups: dict[str, list[str]] = {}
    for name in CASES:
        groups.setdefault(name.partition("-")[0], []).append(name)
    return [tuple(names[i : i + size]) for names in groups.values() for i in range(0, len(names), size)]


def tolerance(*tensors: torch.Tensor) -> dict[str, float]:
    """Tolerances for results of these dtypes: half types round after every op, in both."""
    if any(t.dtype == torch.bfloat16 for t in tensors):
        return {"rtol": 2e-2, "atol": 2e-2}
    if any(t.dtype == torch.float16 for t in tensors):
        return {"rtol": 3e-3, "atol": 3e-3}
    if any(t.dtype == torch.float32 for t in tensors):
        return {"rtol": 2e-5, "atol": 2e-5}
    return {"rtol": 1e-10, "atol": 1e-10}


def assert_same(got: Any, want: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """Compares outputs (any pytree): structure, dtypes, shapes and values."""
    got_leaves, got_spec = torch.utils._pytree.tree_flatten(got)
    want_leaves, want_spec = torch.utils._pytree.tree_flatten(want)
    assert got_spec == want_spec
    for g, w in zip(got_leaves, want_leaves, strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, equal_nan=True, **tolerance(w, *inputs))
        else:
            assert g == w
