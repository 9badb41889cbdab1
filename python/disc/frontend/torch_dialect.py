"""torch.export's graph to the torch dialect, by torch-mlir's importer.

Three things differ from the importer as it comes: parameters, buffers and constants become references by
name instead of literals; every op is tagged with its FX node, which knows the Python line and the symbolic
extents; and what the importer cannot represent becomes a ``torch.operator``, so that all of a model's
unsupported operations reach the lowering and are reported together.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_d
from torch_mlir.extras import fx_importer

from ..errors import UnsupportedTypeError
from ..torch_compat import pytree
from ..torch_compat.operators import HigherOrderOperator, OpOverload
from ..torch_compat.tracing import tensor_metadata
from .higher_order import reason_against_higher_order
from .locations import describe, source_of

if TYPE_CHECKING:
    from .updates import Program

# The importer's messages go to a logger of its own: logging.debug, which it calls, would give the root logger of the
# user's program a handler.
fx_importer.logging = logging.getLogger("torch_mlir.fx_importer")  # type: ignore[attr-defined]

# The importer's tables lack these. The numbers are arguments of ops, which rules do not look at: they see results.
for _dtype, _name, _number in (
    (torch.complex128, "complex<f64>", 11),
    (torch.uint16, "ui16", 27),
    (torch.uint64, "ui64", 29),
):
    fx_importer.TORCH_DTYPE_TO_INT.setdefault(_dtype, _number)
    fx_importer.TORCH_DTYPE_TO_MLIR_TYPE_ASM.setdefault(_dtype, _name)
    fx_importer.TORCH_DTYPE_TO_MLIR_TYPE.setdefault(_dtype, lambda name=_name: ir.Type.parse(name))

NODE_ATTR = "disc.node"
PARAMETER_OP = "disc.parameter"
PARAMETER_ATTR = "disc.parameter"
COMPLEX_OP = "disc.complex"
"""A complex number of the model's code, of which the torch dialect has no constants."""

_INDEXED = {
    torch.ops.aten._unsafe_index_put.default: "torch.aten._unsafe_index_put",
    torch.ops.aten._unsafe_index_put.hacked_twin: "torch.aten._unsafe_index_put",
    torch.ops.aten.index_put.hacked_twin: "torch.aten.index_put",
    torch.ops.aten.index.Tensor_hacked_twin: "torch.aten.index.Tensor",
}
"""Operations whose index may be None, which the importer's classes for them do not allow."""


def single_threaded_context() -> ir.Context:
    """A context for importing one function. MLIR's own threads end the process where the system refuses them."""
    context = ir.Context()
    context.enable_multithreading(False)
    return context


_ORDERINGS = (operator.le, operator.lt, operator.ge, operator.gt)
_INT64 = torch.iinfo(torch.int64)


def _clamp_bounds(node: Node) -> None:
    """Makes 64-bit integers of the bounds in a comparison of sizes.

    torch.export records how large a size may become, as a product of the largest extents: more than a size can be.
    """
    for i, bound in enumerate(node.args):
        if type(bound) is int and not _INT64.min <= bound <= _INT64.max:
            node.update_arg(i, max(_INT64.min, min(bound, _INT64.max)))


class _Hooks(fx_importer.FxImporterHooks):
    """Collects the tensors the program refers to."""

    def __init__(self, program: Program, fallbacks: Collection[str]) -> None:
        self.fallbacks = fallbacks
        self.parameters: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {
            id(tensor): name for name, tensor in program.constants.items() if isinstance(tensor, torch.Tensor)
        }

    def name_of(self, tensor: torch.Tensor, info: Any) -> str:
        """The name of ``tensor``; tensors used under several names (tied weights) have the first."""
        for name, known in self.parameters.items():
            if known is tensor:
                return name
        own = info.input_spec.target if info is not None else self._names.get(id(tensor))
        name = own or f"constant_{len(self.parameters)}"
        self.parameters[name] = tensor
        return name


class _NodeImporter(fx_importer.GraphNodeImporter):
    """Imports one graph; see the module's docstring for what it changes."""

    __slots__ = ()

    def import_nodes(
        self,
        nodes: Any,
        *,
        skip_placeholders_outputs: bool = False,
        import_symbolic_shape_expressions: bool = False,
    ) -> None:
        with ir.InsertionPoint(self._b):
            for node in nodes:
                if node.op != "call_function":
                    continue
                loc = ir.Location.name(node.name)
                try:
                    self._import_call(loc, node)
                except (NotImplementedError, AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
                    self._import_as_operator(loc, node, str(error))
                self._tag(node)

    def _import_call(self, loc: ir.Location, node: Node) -> None:
        target: Any = node.target
        if target in _ORDERINGS:
            _clamp_bounds(node)
        if node.name in self.fx_importer._hooks.fallbacks:
            self._emit_operator(loc, node, "torch.disc.fallback", leaves=True)
        elif target is operator.getitem:
            self._import_getitem(loc, node)
        elif target in fx_importer.SYMBOLIC_TORCH_OPS:
            self._import_symbolic_torch_op(loc, node, target)
        elif target is torch.ops.aten.as_strided.default:
            self._emit_operator(loc, node, "torch.aten.as_strided")
        elif target in _INDEXED:
            self._emit_operator(loc, node, _INDEXED[target])
        elif target is torch.ops.aten._assert_async.msg:
            # The importer would drop it.
            self._emit_operator(loc, node, "torch.aten._assert_async.msg")
        elif isinstance(target, OpOverload):
            if target is torch.ops.aten._local_scalar_dense.default:
                # The importer asks for its dtype there, which nodes of a joined program may lack.
                (source,) = node.args
                source.meta.setdefault("tensor_meta", tensor_metadata(source.meta["val"]))  # type: ignore[union-attr]
            self._import_torch_op_overload(loc, node)
        elif isinstance(target, HigherOrderOperator):
            raise NotImplementedError(reason_against_higher_order(node))
        else:
            # Python's arithmetic on extents: operator.add, torch.sym_max, ...
            self._import_python_function(loc, node)

    def _import_python_function(self, loc: ir.Location, node: Node) -> None:
        name = getattr(node.target, "__name__", str(node.target))
        self._emit_operator(loc, node, f"torch.python.{name}")

    def _import_as_operator(self, loc: ir.Location, node: Node, why: str) -> None:
        name = str(node.target)
        if isinstance(node.target, OpOverload):
            name = fx_importer._get_mlir_op_name_for_schema(node.target._schema)
        op = self._emit_operator(loc, node, name, operands=False)
        op.attributes["disc.unsupported"] = ir.StringAttr.get(why)

    def _emit_operator(
        self, loc: ir.Location, node: Node, name: str, *, operands: bool = True, leaves: bool = False
    ) -> ir.Operation:
        """An operation of any name. With ``leaves`` its operands are the nodes that it uses, wherever they are."""
        target: Any = node.target
        schema = target._schema.arguments if isinstance(target, OpOverload) else ()
        # The one function of Python's that may take a list: its terms are operands.
        args: Any = node.args
        if target is torch.sym_sum and isinstance(args[0], (list, tuple)):
            args = args[0]
        if leaves:
            schema, args = (), [x for x in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(x, Node)]
        kinds = [*(argument.type for argument in schema), *[None] * len(args)]
        values = [self._import_argument(loc, a, t) for a, t in zip(args, kinds, strict=False)] if operands else []
        val = node.meta.get("val")
        vals = list(val) if isinstance(val, (tuple, list)) else [val]
        types = [self._result_type(v) for v in vals]
        op = ir.Operation.create(
            "torch.operator",
            results=types,
            operands=values,
            attributes={"name": ir.StringAttr.get(name)},
            loc=loc,
        )
        for i, result in enumerate(op.results):
            if (node, i) not in self._v:
                self.bind_node_value(node, result, i)
        if isinstance(val, (tuple, list)):
            self._multi_result_nodes.add(node)
        return op

    def _result_type(self, val: Any) -> ir.Type:
        try:
            return self._cc.value_info_to_type(val)
        except (NotImplementedError, KeyError):
            return self._cc.torch_none_type

    def _tag(self, node: Node) -> None:
        value = self._v.get((node, 0))
        if isinstance(value, ir.Value) and not isinstance(value.owner, ir.Block):
            attributes = value.owner.operation.attributes
            if NODE_ATTR not in attributes:
                attributes[NODE_ATTR] = ir.StringAttr.get(node.name, self._c)

    def import_constant(self, loc: ir.Location, node: Node, constant: Any) -> ir.Value:
        with loc, ir.InsertionPoint(self._b):
            value = self._import_literal(constant)
            self.bind_node_value(node, value)
        return value

    def _import_argument(self, loc: ir.Location, arg: Any, expected_jit_type: Any = None) -> ir.Value:
        if isinstance(arg, complex):
            with loc:
                return self._import_literal(arg)
        return super()._import_argument(loc, arg, expected_jit_type)

    def _import_literal(self, py_value: Any, info: Any = None) -> ir.Value:
        if isinstance(py_value, complex):
            parts = {"real": py_value.real, "imag": py_value.imag}
            number = ir.F64Type.get()
            return ir.Operation.create(
                "torch.operator",
                results=[self._cc.torch_float_type],
                attributes={
                    "name": ir.StringAttr.get(COMPLEX_OP),
                    **{name: ir.FloatAttr.get(number, value) for name, value in parts.items()},
                },
            ).result
        if not isinstance(py_value, torch.Tensor):
            return super()._import_literal(py_value, info)
        name = self.fx_importer._hooks.name_of(py_value, info)
        return ir.Operation.create(
            "torch.operator",
            results=[self._cc.get_vtensor_type(py_value.shape, py_value.dtype)],
            attributes={
                "name": ir.StringAttr.get(PARAMETER_OP),
                PARAMETER_ATTR: ir.StringAttr.get(name),
            },
        ).result


@contextmanager
def _as_strided_kept() -> Iterator[None]:
    """Without the importer's own rewriting of as_strided, which is for static shapes; we have a rule."""
    rewrite = fx_importer.rewrite_as_strided
    fx_importer.rewrite_as_strided = lambda graph: None
    try:
        yield
    finally:
        fx_importer.rewrite_as_strided = rewrite


def _check_dtypes(program: Program) -> None:
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and value.dtype not in fx_importer.TORCH_DTYPE_TO_MLIR_TYPE_ASM:
                name = f"input {node.name!r}" if node.op == "placeholder" else str(node.target)
                source = describe(source_of(node)) if source_of(node) else None
                raise UnsupportedTypeError("import", f"{name}: element type {value.dtype} is not supported", source)


def import_torch_dialect(
    program: Program, context: ir.Context, fallbacks: Collection[str] = ()
) -> tuple[ir.Module, dict[str, torch.Tensor]]:
    """The program as a torch dialect module, and the tensors it refers to by name.

    ``fallbacks``: the nodes that PyTorch does while the model runs.
    """
    _check_dtypes(program)
    torch_d.register_dialect(context)
    context.allow_unregistered_dialects = True
    hooks = _Hooks(program, fallbacks)
    importer = fx_importer.FxImporter(context=context, hooks=hooks, graph_node_importer_cls=_NodeImporter)
    with _as_strided_kept():
        try:
            importer.import_program(program, func_name="main")
        except NotImplementedError as error:
            raise UnsupportedTypeError(
                "import", f"the importer knows no input or output of this kind: {error}"
            ) from error
    return importer.module, hooks.parameters
