"""A slow and simple interpreter of DISC input IR, to test the frontend without the compiler.

It shares nothing with the compiler but the text: torch-mlir's bindings parse it, torch computes the ops.
Parallel loops of a ``linalg.generic`` are evaluated all at once, reductions point by point in order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch_mlir import ir

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "i1": torch.bool,
    "index": torch.int64,
}


def run(text: str, parameters: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results of ``main`` for ``inputs``; fails if a ``disc_shape.require`` does not hold."""
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        main = next(v.operation for v in module.body.operations if v.operation.name == "func.func")
        block = main.regions[0].blocks[0]
        env: dict[ir.Value, Any] = dict(zip(block.arguments, map(_signless, inputs), strict=True))
        for view in block.operations:
            op = view.operation
            if op.name == "func.return":
                results = [env[v] for v in op.operands]
                for value, result in zip(op.operands, results, strict=True):
                    _check_type(value, result)
                return results
            _run_op(op, env, parameters)
    raise AssertionError("no return")


def _signless(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int8) if tensor.dtype == torch.uint8 else tensor


def _check_type(value: ir.Value, tensor: torch.Tensor) -> None:
    type_ = ir.RankedTensorType(value.type)
    assert _DTYPES[str(type_.element_type)] == tensor.dtype, (str(type_), tensor.dtype)
    assert type_.rank == tensor.dim(), (str(type_), tensor.shape)
    for d in range(type_.rank):
        assert type_.is_dynamic_dim(d) or type_.get_dim_size(d) == tensor.shape[d], (str(type_), tensor.shape)


def _run_op(op: ir.Operation, env: dict[ir.Value, Any], parameters: Mapping[str, torch.Tensor]) -> None:
    operands = [env[v] for v in op.operands]
    if op.name == "disc_shape.require":
        lhs, rhs = operands
        kind = str(op.attributes["predicate"])
        holds = {"eq": lhs == rhs, "le": lhs <= rhs}[re.findall(r"[a-z]+", kind)[-1]]
        assert holds, (ir.StringAttr(op.attributes["message"]).value, kind, lhs, rhs)
        return
    if op.name == "disc_tensor.parameter":
        result = _signless(parameters[ir.StringAttr(op.attributes["name"]).value].detach())
    elif op.name == "tensor.empty":
        type_ = op.result.type
        result = torch.zeros(_shape(type_, operands), dtype=_DTYPES[str(type_.element_type)])
    elif op.name == "tensor.dim":
        result = operands[0].shape[int(operands[1])]
    elif op.name == "linalg.fill":
        result = torch.full_like(operands[1], operands[0])
    elif op.name == "linalg.generic":
        result = _generic(op, operands, env)
    elif op.name.startswith("disc_tensor."):
        result = _TENSOR_OPS[op.name.removeprefix("disc_tensor.")](op, operands)
    else:
        result = _scalar_op(op, [torch.as_tensor(x) for x in operands])
        if str(op.result.type) == "index":
            result = int(result)
    env[op.result] = result
    if isinstance(result, torch.Tensor) and isinstance(op.result.type, ir.RankedTensorType):
        _check_type(op.result, result)


def _shape(type_: ir.Type, dynamic: Sequence[Any]) -> list[int]:
    given = iter(dynamic)
    return [int(next(given)) if type_.is_dynamic_dim(d) else type_.get_dim_size(d) for d in range(type_.rank)]


# -- disc_tensor -----------------------------------------------------------------------------------


def _int_array(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def _int(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


def _broadcast(op: ir.Operation, operands: list[Any]) -> torch.Tensor:
    x, shape, into = operands[0], _shape(op.result.type, operands[1:]), _int_array(op, "dims")
    view = [1] * len(shape)
    for j, place in enumerate(into):
        view[place] = x.shape[j]
    return x.reshape(view).expand(shape)


def _slice(op: ir.Operation, operands: list[Any]) -> torch.Tensor:
    x, offset, size = operands
    dim, step = _int(op, "dim"), _int(op, "step")
    indices = torch.arange(size) * step + offset
    return x.index_select(dim, indices)


def _attention(op: ir.Operation, operands: list[Any]) -> torch.Tensor:
    q, k, v, *mask = operands
    assert q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    assert not mask or mask[0].dim() == q.dim()
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask[0] if mask else None,
        is_causal=ir.BoolAttr(op.attributes["is_causal"]).value,
        scale=ir.FloatAttr(op.attributes["scale"]).value,
    )


def _reshape(op: ir.Operation, operands: list[Any]) -> torch.Tensor:
    return operands[0].reshape(_shape(op.result.type, operands[1:]))


_TENSOR_OPS: dict[str, Callable[[ir.Operation, list[Any]], torch.Tensor]] = {
    "permute": lambda op, operands: operands[0].permute(_int_array(op, "permutation")),
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": lambda op, operands: torch.cat(operands, _int(op, "dim")),
    "running_sum": lambda op, operands: operands[0].cumsum(_int(op, "dim")),
    "attention": _attention,
}


# -- linalg.generic --------------------------------------------------------------------------------


def _generic(op: ir.Operation, operands: list[torch.Tensor], env: dict[ir.Value, Any]) -> torch.Tensor:
    maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
    reduced = [i for i, kind in enumerate(op.attributes["iterator_types"]) if "reduction" in str(kind)]
    sizes = _loop_sizes(maps, operands)
    parallel = [i for i in range(len(sizes)) if i not in reduced]
    index: list[Any] = [None] * len(sizes)
    for place, loop in enumerate(parallel):
        view = [1] * len(parallel)
        view[place] = sizes[loop]
        index[loop] = torch.arange(sizes[loop]).view(view)
    out = operands[-1].clone()
    shape = [sizes[i] for i in parallel]
    block = op.regions[0].blocks[0]
    acc = out[_at(maps[-1], index)] if not reduced else out[_at(maps[-1], index)].expand(shape)
    for point in itertools.product(*(range(sizes[i]) for i in reduced)):
        for loop, value in zip(reduced, point, strict=True):
            index[loop] = torch.tensor(value)
        elements = [x[_at(m, index)] for x, m in zip(operands[:-1], maps[:-1], strict=True)]
        acc = _body(block, [*elements, acc], index, env)
    if not sizes or acc.dim() == 0:
        acc = torch.as_tensor(acc).expand(shape)
    out[_at(maps[-1], index)] = acc.to(out.dtype) if acc.dtype != out.dtype else acc
    assert acc.dtype == out.dtype
    return out


def _loop_sizes(maps: Sequence[ir.AffineMap], operands: Sequence[torch.Tensor]) -> list[int]:
    sizes: list[int | None] = [None] * maps[0].n_dims
    for map_, operand in zip(maps, operands, strict=True):
        assert len(map_.results) == operand.dim()
        for d, expr in enumerate(map_.results):
            if isinstance(expr, ir.AffineDimExpr):
                loop = expr.position
                assert sizes[loop] in (None, operand.shape[d]), "extents of one loop differ"
                sizes[loop] = operand.shape[d]
            else:
                assert operand.shape[d] == 1, "a constant map on a dim larger than 1"
    assert None not in sizes
    return [int(s) for s in sizes if s is not None]


def _at(map_: ir.AffineMap, index: Sequence[Any]) -> tuple[Any, ...]:
    result = []
    for expr in map_.results:
        if isinstance(expr, ir.AffineDimExpr):
            result.append(index[expr.position])
        else:
            result.append(torch.tensor(expr.value))
    return tuple(result)


def _body(block: ir.Block, args: Sequence[torch.Tensor], index: Sequence[Any], outer: Mapping[ir.Value, Any]) -> Any:
    env: dict[ir.Value, Any] = dict(zip(block.arguments, args, strict=True))

    def lookup(value: ir.Value) -> Any:
        found = env[value] if value in env else outer[value]
        return torch.as_tensor(found)

    for view in block.operations:
        op = view.operation
        operands = [lookup(v) for v in op.operands]
        if op.name == "linalg.yield":
            return operands[0]
        if op.name == "linalg.index":
            env[op.result] = index[_int(op, "dim")]
        elif op.name == "tensor.extract":
            for d, i in enumerate(operands[1:]):
                assert bool((i >= 0).all()) and bool((i < operands[0].shape[d]).all()), "index out of range"
            env[op.result] = operands[0][tuple(operands[1:])]
        elif op.name == "disc_tensor.check_index":
            at, extent = operands
            if "wrap" in op.attributes:
                at = torch.where(at < 0, at + extent, at)
            assert bool(((at >= 0) & (at < extent)).all()), "index out of range"
            env[op.result] = at
        else:
            env[op.result] = _scalar_op(op, operands)
    raise AssertionError("no yield")


# -- scalars ---------------------------------------------------------------------------------------

_CMP_INT = ("eq", "ne", "lt", "le", "gt", "ge", "ult", "ule", "ugt", "uge")
_CMP_FLOAT = {1: "eq", 2: "gt", 3: "ge", 4: "lt", 5: "le", 13: "ne"}
_BITS = {torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.bool: 1}


def _unsigned(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.bool or x.dtype == torch.int64:
        return x.to(torch.int64)
    return x.to(torch.int64) & ((1 << _BITS[x.dtype]) - 1)


def _compare(op: ir.Operation, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    code = ir.IntegerAttr(op.attributes["predicate"]).value
    if op.name == "arith.cmpf":
        return getattr(torch, _CMP_FLOAT[code])(x, y)
    name = _CMP_INT[code]
    if name.startswith("u"):
        return getattr(torch, name[1:])(_unsigned(x), _unsigned(y))
    return getattr(torch, name)(x, y)


def _constant(op: ir.Operation) -> torch.Tensor:
    attribute = op.attributes["value"]
    dtype = _DTYPES[str(op.result.type)]
    if dtype.is_floating_point:
        return torch.tensor(ir.FloatAttr(attribute).value, dtype=dtype)
    return torch.tensor(
        bool(ir.IntegerAttr(attribute).value) if dtype == torch.bool else ir.IntegerAttr(attribute).value, dtype=dtype
    )


def _scalar_op(op: ir.Operation, operands: list[torch.Tensor]) -> torch.Tensor:
    if op.name == "arith.constant":
        return _constant(op)
    dialect, _, name = op.name.partition(".")
    if name in ("cmpi", "cmpf"):
        return _compare(op, *operands)
    if name in ("sitofp", "fptosi", "extf", "truncf", "extsi", "trunci", "index_cast"):
        if name == "trunci" and str(op.result.type) == "i1":
            return (operands[0] & 1).to(torch.bool)
        return operands[0].to(_DTYPES[str(op.result.type)])
    if name in ("extui", "uitofp"):
        return _unsigned(operands[0]).to(_DTYPES[str(op.result.type)])
    for x in operands[1 if name == "select" else 0 :]:
        assert name in ("fpowi",) or x.dtype == operands[-1].dtype, f"{op.name} mixes dtypes"
    return (_ARITH if dialect == "arith" else _MATH)[name](*operands)


def _truncdiv(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="trunc")


_ARITH: dict[str, Callable[..., torch.Tensor]] = {
    "addf": torch.add,
    "addi": torch.add,
    "subf": torch.sub,
    "subi": torch.sub,
    "mulf": torch.mul,
    "muli": torch.mul,
    "divf": torch.div,
    "divsi": _truncdiv,
    "divui": lambda x, y: _truncdiv(_unsigned(x), _unsigned(y)).to(x.dtype),
    "floordivsi": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "remf": torch.fmod,
    "remsi": torch.fmod,
    "remui": lambda x, y: torch.fmod(_unsigned(x), _unsigned(y)).to(x.dtype),
    "negf": torch.neg,
    "andi": torch.bitwise_and,
    "ori": torch.bitwise_or,
    "xori": torch.bitwise_xor,
    "maximumf": torch.maximum,
    "minimumf": torch.minimum,
    "maxsi": torch.maximum,
    "minsi": torch.minimum,
    "maxui": lambda x, y: torch.maximum(_unsigned(x), _unsigned(y)).to(x.dtype),
    "minui": lambda x, y: torch.minimum(_unsigned(x), _unsigned(y)).to(x.dtype),
    "select": torch.where,
}

_MATH: dict[str, Callable[..., torch.Tensor]] = {
    "absf": torch.abs,
    "absi": torch.abs,
    "powf": torch.pow,
    "ipowi": torch.pow,
    "roundeven": torch.round,
    **{
        name: getattr(torch, name)
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt tanh sin cos tan asin acos atan sinh cosh asinh acosh "
            "atanh erf erfc floor ceil trunc atan2"
        ).split()
    },
}
