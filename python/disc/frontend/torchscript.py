"""Modules of TorchScript as Python: results of ``torch.jit.script`` and ``torch.jit.trace``, or modules from a file.

TorchScript prints a module's graph, with all calls inlined, as code that is almost Python. The code becomes the
``forward`` of an ordinary module with the same parameters. That module is traced like any other: sizes stay dynamic
and control flow on data is compiled.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .. import errors
from ..torch_compat import pytree
from ..torch_compat.scripts import function_from_graph, inline_calls, layer_functions, resolve_overload

_MIRROR = "_disc_mirror"
_numbers = itertools.count()

# ScriptModule of torch.jit.script, and what torch.jit.trace and torch.jit.load give.
ScriptModule: Any = torch.jit.ScriptModule

_DTYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    8: torch.complex32,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_MEMORY_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}

_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "lt": ast.Lt,
    "le": ast.LtE,
    "gt": ast.Gt,
    "ge": ast.GtE,
    "__is__": ast.Is,
    "__isnot__": ast.IsNot,
}
_BINARY: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "floordiv": ast.FloorDiv,
}
# Names of types that the code mentions, none of which matters here.
_TYPED = {"annotate", "unchecked_cast"}


class _ToPython(ast.NodeTransformer):
    """What TorchScript writes as calls of operators, as Python writes it: that is what control flow on data needs."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name in _TYPED:
            return node.args[1]
        if name == "uninitialized":
            return ast.Constant(None)
        if name in ("int", "float"):
            return ast.Call(ast.Name(f"_{name}", ast.Load()), node.args, [])
        if not name.startswith("torch.") or node.keywords:
            return node
        short, args = name.removeprefix("torch."), node.args
        if short in _COMPARISONS and len(args) == 2:
            return ast.Compare(args[0], [_COMPARISONS[short]()], [args[1]])
        if short in _BINARY and len(args) == 2:
            return ast.BinOp(args[0], _BINARY[short](), args[1])
        if short == "__not__":
            return ast.UnaryOp(ast.Not(), args[0])
        if short == "append":
            return ast.Call(ast.Attribute(args[0], "append", ast.Load()), args[1:], [])
        if short == "len" and len(args) == 1:
            return ast.Call(ast.Name("len", ast.Load()), args, [])
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "ops.prim.RaiseException":
            self.generic_visit(call)
            kind = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else ""
            known = str(kind).startswith("builtins.")
            error = str(kind).removeprefix("builtins.") if known else "RuntimeError"
            return ast.Raise(ast.Call(ast.Name(error, ast.Load()), call.args[:1], []), None)
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value) if node.value is not None else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
        return node


# -- operators -------------------------------------------------------------------------------------


def _int(x: Any) -> Any:
    value = x.item() if isinstance(x, torch.Tensor) else x
    return torch.sym_int(value) if isinstance(value, (float, torch.SymFloat, bool)) else value


def _float(x: Any) -> Any:
    value = x.item() if isinstance(x, torch.Tensor) else x
    return torch.sym_float(value) if not isinstance(value, str) else float(value)


def _size(x: torch.Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _range_length(low: Any, high: Any, step: int) -> Any:
    return (
        torch.sym_max(0, (high - low + step - 1) // step)
        if step > 0
        else torch.sym_max(0, (low - high - step - 1) // -step)
    )


def _round_to_zero(x: Any, y: Any) -> Any:
    return x // y if x >= 0 and y > 0 else int(x / y)


def _contains(items: Any, item: Any) -> bool:
    return item in items


def _format(text: str, *values: Any) -> str:
    return text.format(*values)


def _slice(x: Any, *args: Any) -> Any:
    if isinstance(x, list):
        start, end, step = (*args, None, None, None)[:3]
        return x[start:end:step]
    return _aten("slice")(x, *args)


def _division(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return x / y
    return x // y if rounding_mode == "floor" else _round_to_zero(x, y)


def _native_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    # 0 is a mask of scores, 1 one of keys.
    masks = {} if mask is None else {"key_padding_mask" if mask_type == 1 else "attn_mask": mask}
    result, weights = torch.nn.functional.multi_head_attention_forward(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        embed_dim,
        num_heads,
        qkv_weight,
        qkv_bias,
        None,
        None,
        False,
        0.0,
        proj_weight,
        proj_bias,
        training=False,
        need_weights=need_weights,
        average_attn_weights=average_attn_weights,
        **masks,
    )
    return result.transpose(0, 1), weights


def _encoder_layer(
    x: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    functional = torch.nn.functional

    def first(y: Any) -> Any:
        return functional.layer_norm(y, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(y: Any) -> Any:
        return functional.layer_norm(y, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(y: Any) -> Any:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _native_attention(y, y, y, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def fed(y: Any) -> Any:
        hidden = functional.linear(y, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attended(first(x))
        return x + fed(second(x))
    x = first(x + attended(x))
    return second(x + fed(x))


_PLAIN: dict[str, Callable[..., Any]] = {
    # Lists whose length depends on data know these functions.
    "stack": torch.stack,
    "cat": torch.cat,
    # Behind the first nine arguments are choices of a library.
    "_convolution": lambda *args: torch.ops.aten.convolution.default(*args[:9]),
    # What nn.TransformerEncoderLayer calls where no gradient is needed.
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_native_multi_head_attention": _native_attention,
    "size": _size,
    "dim": lambda x: x.dim(),
    "len": len,
    "numel": lambda x: x.numel(),
    "slice": _slice,
    "list": list,
    "keys": lambda x: list(x.keys()),
    "values": lambda x: list(x.values()),
    "items": lambda x: list(x.items()),
    "extend": lambda x, y: x.extend(y),
    "pop": lambda x, *i: x.pop(*i),
    "insert": lambda x, i, y: x.insert(i, y),
    "format": _format,
    "warn": lambda *_: None,
    "__contains__": _contains,
    "__derive_index": lambda i, start, step: start + i * step,
    "__range_length": _range_length,
    "__round_to_zero_floordiv": _round_to_zero,
    "__interpolate": torch.nn.functional.interpolate,
    "device": torch.device,
    "IntImplicit": _int,
    "FloatImplicit": _float,
    "ScalarImplicit": lambda x: x.item() if isinstance(x, torch.Tensor) else x,
    "Int": _int,
    "Float": _float,
    "Bool": bool,
}
# For numbers; of tensors they are operators like others.
_NUMERIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": lambda x, y: y - x,
    "mul": operator.mul,
    "div": _division,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "neg": operator.neg,
    "pow": lambda x, y: float(x) ** y if isinstance(x, int) and isinstance(y, int) else x**y,
    "sqrt": math.sqrt,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "abs": abs,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "min": min,
    "max": max,
    "mod": operator.mod,
    "sum": sum,
}

_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}


def _number_like(value: Any) -> bool:
    return isinstance(value, (int, float, complex, bool, str, torch.SymInt, torch.SymFloat, torch.SymBool))


def _has_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(x) for x in value)
    return isinstance(value, torch.Tensor)


def _converted(value: Any, argument: Any) -> Any:
    """A value as the Python of PyTorch writes it: TorchScript has numbers for dtypes and memory formats."""
    kind = str(argument.real_type)
    if isinstance(value, int) and not isinstance(value, bool):
        if "ScalarType" in kind:
            return _DTYPES.get(value, value)
        if "MemoryFormat" in kind:
            return _MEMORY_FORMATS.get(value, value)
        if "Layout" in kind:
            return torch.strided
    if kind == "Tensor" and _number_like(value):
        return torch.tensor(value) if isinstance(value, (int, float, bool, complex)) else torch.scalar_tensor(value)
    return value


def _plain_number(value: Any) -> Any:
    """A number for a symbolic one: PyTorch 2.12 asks for its value where it chooses an overload."""
    kinds: dict[type, Any] = {torch.SymInt: 2, torch.SymFloat: 2.0, torch.SymBool: True}
    return kinds.get(type(value), value)


def _aten(name: str) -> Callable[..., Any]:
    packet = getattr(torch.ops.aten, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            plain = pytree.tree_map(_plain_number, (args, kwargs))
            overload = getattr(packet, resolve_overload(f"aten::{name}", *plain[0], **plain[1]))
        except RuntimeError:
            # A number where the operator has a tensor.
            overload = getattr(packet, packet.overloads()[0])
        expected = overload._schema.arguments
        given = [_converted(x, a) for x, a in zip(args, expected, strict=False)]
        named = {a.name: a for a in expected}
        return overload(*given, **{k: _converted(v, named[k]) for k, v in kwargs.items()})

    return call


class _Torch:
    """``torch`` as the printed code has it: operators of aten."""

    def __getattr__(self, name: str) -> Any:
        if name in _PLAIN:
            return _PLAIN[name]
        if name in _RECURRENT:
            # Whole layers are replaced there while a module is traced.
            return getattr(layer_functions, name)
        numeric = _NUMERIC.get(name)
        if numeric is None:
            return _aten(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return _aten(name)(*args, **kwargs) if any(map(_has_tensor, args)) else numeric(*args, **kwargs)

        return call


class _Prim:
    """Operators that are not functions of tensors."""

    NumToTensor = staticmethod(lambda x: x)
    dtype = staticmethod(lambda x: _CODES[x.dtype])
    data = staticmethod(lambda x: x.detach())
    min = staticmethod(lambda *x: torch.sym_min(*x) if len(x) == 2 else min(*x))
    max = staticmethod(lambda *x: torch.sym_max(*x) if len(x) == 2 else max(*x))
    abs = staticmethod(abs)
    tolist = staticmethod(lambda x, *_: x.tolist())
    unchecked_cast = staticmethod(lambda _, x: x)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Such as is_cuda and device: attributes of tensors.
        return lambda x: getattr(x, name)


class _Ops:
    """Operators by their libraries."""

    prim = _Prim()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops, name)


# -- modules ---------------------------------------------------------------------------------------


class _Mirror(torch.nn.Module):
    """A module of TorchScript as an ordinary one, with the same parameters, buffers and parts."""

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.__dict__["_script"] = script
        for name, parameter in script.named_parameters(recurse=False):
            # Those of a module from a file are plain tensors.
            own = isinstance(parameter, torch.nn.Parameter)
            self._parameters[name] = parameter if own else torch.nn.Parameter(parameter, parameter.requires_grad)
        for name, buffer in script.named_buffers(recurse=False):
            self._buffers[name] = buffer
        for name, part in script.named_children():
            self._modules[name] = mirror(part) if isinstance(part, ScriptModule) else part

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_script"], name)


def mirror(script: Any) -> torch.nn.Module:
    """The ordinary module that does what a module of TorchScript does."""
    found = script.__dict__.get(_MIRROR)
    if found is None:
        kind = script.original_name if hasattr(script, "original_name") else type(script).__name__
        method = getattr(script, "forward", None)
        members: dict[str, Any] = {}
        if method is not None and hasattr(method, "graph"):
            members["forward"] = _translated(script, str(kind))
        found = type(str(kind), (_Mirror,), members)(script)
        script.__dict__[_MIRROR] = found
    for mine, other in zip(found.modules(), script.modules(), strict=True):
        # A frozen module has no such attribute.
        mine.training = getattr(other, "training", False)
    return found  # type: ignore[no-any-return]


def _translated(script: Any, kind: str) -> Any:
    """``forward`` of a module of TorchScript as a function of Python."""
    graph = script.forward.graph.copy()
    inline_calls(graph)
    constants = _take_constants(graph)
    made: Any = function_from_graph("forward", graph)
    text: str = made.code
    try:
        tree = _ToPython().visit(ast.parse(text))
    except SyntaxError as error:
        raise errors.TorchScriptError(
            "import",
            f"the TorchScript module {kind} cannot be read as Python: {error}. Compile the module that it was made of",
        ) from error
    function = tree.body[0]
    names = [argument.arg for argument in function.args.args]
    # Tensors of the graph are arguments with defaults, behind the module's own.
    source = ast.unparse(ast.fix_missing_locations(tree))
    file = f"TorchScript {kind} {next(_numbers)}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    known: dict[str, Any] = {"torch": _Torch(), "ops": _Ops(), "_int": _int, "_float": _float, "inf": math.inf}
    exec(compile(source, file, "exec"), known)
    forward = known["forward"]
    count = len(names) - len(constants)
    given = [a.default_value for a in script.forward.schema.arguments[1:] if a.has_default_value()]
    forward.__defaults__ = (*given, *constants) if len(given) <= count - 1 else tuple(constants)
    return forward


def _take_constants(graph: Any) -> list[Any]:
    """Makes inputs of the tensors in a graph, and returns their values: numbers, if they are whole and without dims."""
    found = []

    def visit(block: Any) -> None:
        for node in block.nodes():
            if node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "t":
                value = node.t("value")
                whole = value.dim() == 0 and not value.is_floating_point() and not value.is_complex()
                found.append(value.item() if whole else value)
                node.output().replaceAllUsesWith(graph.addInput(f"constant{len(found)}"))
            for part in node.blocks():
                visit(part)

    visit(graph)
    return found


@contextmanager
def without_scripts(module: torch.nn.Module) -> Iterator[None]:
    """While it is active, ordinary modules are in the places of those of TorchScript inside ``module``."""
    replaced: list[tuple[Any, str, Any]] = []
    for part in list(module.modules()):
        if isinstance(part, ScriptModule):
            continue
        for name, child in list(part._modules.items()):
            if isinstance(child, ScriptModule):
                replaced.append((part, name, child))
    try:
        for part, name, child in replaced:
            part._modules[name] = mirror(child)
        yield
    finally:
        for part, name, child in replaced:
            part._modules[name] = child
