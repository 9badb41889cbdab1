"""The IR after a stage as a graph of Model Explorer.

A node is an operation. An operation that contains others, such as a kernel, is a group, whose name has the operation's
own: the operation's node is in the group, its operands are edges into that node, its block arguments edges out of it,
and what the group's terminator takes are the operation's results. Functions of the LLVM dialect are one node each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch_mlir import ir
from torch_mlir.dialects.llvm import PointerType

from .. import generic_ir, required

if TYPE_CHECKING:
    from model_explorer import graph_builder

_MOST_CHARACTERS = 400
"""An attribute of more is cut: the panel is narrow."""
_SHAPE = "tensor_shape"
"""The name by which Model Explorer shows a shape at an edge."""
_DIMS = "disc_shape.dims"


def builder() -> Any:
    """Model Explorer's classes of graphs.

    Raises:
        ImportError: the package is not installed.
    """
    return required("model_explorer.graph_builder", "a graph for Model Explorer")


class StageGraph:
    """The graph of one module.

    Attributes:
        graph: Model Explorer's graph.
        launches: the nodes of the kernels that ``main`` launches, in program order.
    """

    def __init__(self, name: str, text: str) -> None:
        """``text``: the module's generic form, with locations."""
        self._b = builder()
        self._module = generic_ir.parse(text)
        self._producers: dict[ir.Value, list[tuple[str, str]]] = {}
        self._shapes: dict[ir.Value, str] = {}
        self._writers: dict[ir.Value, tuple[str, str]] = {}
        self._symbols: dict[str, str] = {}
        self._references: list[tuple[Any, list[str]]] = []
        self._groups: dict[str, dict[str, str]] = {}
        self._results: dict[str, list[str]] = {}
        self._count = 0
        self._last: Any = None
        """The node that was made last: the terminator when a block ends."""
        self.launches: list[str] = []
        self.graph: graph_builder.Graph = self._b.Graph(id=name)
        for block in generic_ir.blocks(self._module.operation):
            for operation in block.operations:
                self._collect_results(operation.operation)
            for operation in block.operations:
                self._top(operation.operation)
        self._refer()
        self.graph.groupNodeAttributes = {"": self._about_module(), **self._groups}

    # -- Operations ----------------------------------------------------------------------------------------------------

    def _collect_results(self, operation: ir.Operation) -> None:
        """Notes the shapes of what a kernel's function yields: its launches have pointers only."""
        name = generic_ir.symbol(operation)
        if name is None or operation.name != "disc_plan.kernel_func":
            return
        for block in generic_ir.blocks(operation):
            last = list(block.operations)[-1].operation
            self._results[name] = [self._shape(value) for value in last.operands]

    def _top(self, operation: ir.Operation) -> None:
        name = generic_ir.symbol(operation)
        blocks = [block for block in generic_ir.blocks(operation) if len(list(block.operations))]
        if name is None or not blocks:
            node = self._node(operation, "symbols" if name else "", name)
            if name:
                self._symbols[name] = node.id
            return
        if operation.name.startswith("llvm.") or len(blocks) > 1:
            self._machine_function(operation, name, blocks)
            return
        node = self._node(operation, _clean(self._title(operation, name)), name)
        self._symbols[name] = node.id
        self._region(operation, node, blocks, node.namespace, arguments=True)

    def _machine_function(self, operation: ir.Operation, name: str, blocks: Sequence[ir.Block]) -> None:
        """A function of machine code: one node, with edges from the functions and globals that it uses."""
        count, used = 0, dict[str, None]()
        for inner in _inside(operation):
            count += 1
            for attribute in generic_ir.attributes(inner).values() if _may_refer(inner) else ():
                if isinstance(attribute, ir.FlatSymbolRefAttr):
                    used[attribute.value] = None
        node = self._node(operation, "functions", name)
        node.attrs.append(self._b.KeyValue("operations", str(count)))
        node.attrs.append(self._b.KeyValue("blocks", str(len(blocks))))
        self._symbols[name] = node.id
        self._references.append((node, list(used)))

    def _operation(self, operation: ir.Operation, namespace: str, function: str) -> None:
        blocks = [block for block in generic_ir.blocks(operation) if not _only_yields(block)]
        if not blocks:
            node = self._node(operation, namespace)
            for number, value in enumerate(operation.results):
                self._producers[value] = [(node.id, str(number))]
            if operation.name == "disc_rt.launch":
                self._launch(operation, node, function)
            return
        title = self._title(operation, f"{self._count}")
        node = self._node(operation, f"{namespace}/{_clean(title)}")
        if operation.name == "disc_plan.kernel" and function == "main":
            self.launches.append(node.id)
        self._region(operation, node, blocks, node.namespace, function=function)

    def _region(
        self,
        operation: ir.Operation,
        node: Any,
        blocks: Sequence[ir.Block],
        namespace: str,
        *,
        arguments: bool = False,
        function: str = "",
    ) -> None:
        """The operations inside an operation, whose node exists."""
        self._groups[namespace] = {item.key: item.value for item in node.attrs if isinstance(item.value, str)}
        results: dict[ir.Value, list[tuple[str, str]]] = {}
        outputs = len(operation.results)
        names = _argument_names(operation) if arguments else []
        for block in blocks:
            for number, value in enumerate(block.arguments):
                shape = self._argument_shape(operation, number, value)
                self._shapes[value] = shape
                if arguments:
                    label = names[number] if number < len(names) else f"argument {number}"
                    source = self._argument_node(label, namespace, shape), "0"
                else:
                    source = node.id, str(outputs)
                    self._output(node, outputs, shape)
                    outputs += 1
                self._producers[value] = [source]
            for inner in block.operations:
                self._operation(inner.operation, namespace, function or (generic_ir.symbol(operation) or ""))
            last = list(block.operations)[-1].operation
            yielded = list(last.operands)[: len(operation.results)]
            for number, value in enumerate(operation.results):
                if number < len(yielded):
                    results.setdefault(value, []).append((self._last.id, str(number)))
                    self._output(self._last, number, self._shape(value))
        for number, value in enumerate(operation.results):
            self._producers[value] = results.get(value) or [(node.id, str(number))]

    def _launch(self, operation: ir.Operation, node: Any, function: str) -> None:
        """The data flow between launches, which the IR has as pointers: who reads takes what was written last."""
        kernel = str(generic_ir.attribute(operation, "kernel"))
        if function == "main":
            self.launches.append(node.id)
        shapes = self._results.get(kernel, [])
        pointers = [value for value in operation.operands if isinstance(value.type, PointerType)]
        written = pointers[len(pointers) - len(shapes) :]
        for number, (value, shape) in enumerate(zip(written, shapes, strict=True)):
            self._output(node, number, shape)
            self._writers[value] = node.id, str(number)
        node.label = f"launch {kernel}"

    def _node(self, operation: ir.Operation, namespace: str, symbol: str | None = None) -> Any:
        b = self._b
        self._count += 1
        node = b.GraphNode(id=str(self._count), label=_label(operation, symbol), namespace=namespace)
        self._last = node
        node.attrs = [b.KeyValue(key, value) for key, value in self._facts(operation)]
        for number, value in enumerate(operation.operands):
            for source, output in [self._writers[value]] if value in self._writers else self._producers.get(value, []):
                node.incomingEdges.append(b.IncomingEdge(source, output, str(number)))
        for number, value in enumerate(operation.results):
            self._output(node, number, self._shape(value))
        self.graph.nodes.append(node)
        return node

    def _argument_node(self, label: str, namespace: str, shape: str) -> str:
        self._count += 1
        node = self._b.GraphNode(id=str(self._count), label=label, namespace=namespace)
        self._output(node, 0, shape)
        node.config = self._b.GraphNodeConfig(pinToGroupTop=True)
        self.graph.nodes.append(node)
        return str(node.id)

    def _output(self, node: Any, number: int, shape: str) -> None:
        b = self._b
        node.outputsMetadata.append(b.MetadataItem(id=str(number), attrs=[b.KeyValue(_SHAPE, shape)]))

    def _refer(self) -> None:
        """Edges between functions, which may be used before they are defined."""
        for node, names in self._references:
            for number, name in enumerate(names):
                if name in self._symbols:
                    node.incomingEdges.append(self._b.IncomingEdge(self._symbols[name], "0", str(number)))

    # -- Texts ---------------------------------------------------------------------------------------------------------

    def _facts(self, operation: ir.Operation) -> Iterator[tuple[str, str]]:
        yield "operation", operation.name
        sources = generic_ir.sources(operation.location)
        if sources:
            yield "source", ", ".join(sources)
        if isinstance(operation.location, ir.NameLoc):
            yield "torch operation", operation.location.name_str
        for name, attribute in generic_ir.attributes(operation).items():
            if name not in ("operandSegmentSizes", "resultSegmentSizes", "sym_name"):
                yield name, _text(attribute)

    def _title(self, operation: ir.Operation, otherwise: str) -> str:
        """The name of a group."""
        name = generic_ir.symbol(operation) or generic_ir.attribute(operation, "name")
        if not isinstance(name, str):
            name = operation.name
            if isinstance(operation.location, ir.NameLoc):
                name = f"{name}, {operation.location.name_str}"
        kind = generic_ir.attribute(operation, "kind")
        title = f"{name} ({_text(kind)})" if kind is not None else name
        return title if generic_ir.symbol(operation) else f"{title} {otherwise}"

    def _about_module(self) -> dict[str, str]:
        return {name: _text(value) for name, value in self._module.operation.attributes.items()}

    def _shape(self, value: ir.Value) -> str:
        """``f32[B, S, 64]``"""
        if value not in self._shapes:
            self._shapes[value] = self._find_shape(value)
        return self._shapes[value]

    def _find_shape(self, value: ir.Value) -> str:
        dims = None
        if isinstance(value, ir.OpResult):
            owner = value.owner
            attribute = generic_ir.attribute(owner, _DIMS)
            if isinstance(attribute, ir.ArrayAttr) and value.result_number < len(attribute):
                dims = attribute[value.result_number]
            elif owner.name == "disc_shape.dim":
                return f"index {_text(generic_ir.attribute(owner, 'expr'))}"
            elif dims is None:
                for block in generic_ir.blocks(owner):
                    operations = list(block.operations)
                    yielded = list(operations[-1].operands) if operations else []
                    number = value.result_number
                    if number < len(yielded) and yielded[number].type == value.type:
                        return self._shape(yielded[number])
        return _shape_text(value.type, dims)

    def _argument_shape(self, operation: ir.Operation, number: int, value: ir.Value) -> str:
        """That of a block's argument, as far as the operation says; else that of the operand in its place."""
        dims = None
        found = generic_ir.attribute(operation, "arg_dims")
        if isinstance(found, ir.ArrayAttr) and number < len(found):
            dims = found[number]
        found = generic_ir.attribute(operation, "arg_attrs")
        if isinstance(found, ir.ArrayAttr) and number < len(found) and _DIMS in found[number]:
            dims = found[number][_DIMS]
        if dims is None:
            alike = [operand for operand in operation.operands if operand.type == value.type]
            place = number - (len(operation.operands) - len(alike))
            operands = list(operation.operands)
            if number < len(operands) and operands[number].type == value.type:
                return self._shape(operands[number])
            if 0 <= place < len(alike):
                return self._shape(alike[place])
        return _shape_text(value.type, dims)


def _inside(operation: ir.Operation) -> Iterator[ir.Operation]:
    for block in generic_ir.blocks(operation):
        for inner in block.operations:
            yield inner.operation
            yield from _inside(inner.operation)


def _may_refer(operation: ir.Operation) -> bool:
    """Whether an operation of the LLVM dialect may name a function or a global: listing attributes takes long."""
    return operation.name in ("llvm.call", "llvm.mlir.addressof", "llvm.invoke") or not operation.name.startswith(
        "llvm."
    )


def _only_yields(block: ir.Block) -> bool:
    """Whether a block is empty or only passes values on, as that of ``linalg.fill``."""
    return len(list(block.operations)) < 2


def _argument_names(operation: ir.Operation) -> list[str]:
    attributes = generic_ir.attribute(operation, "arg_attrs")
    if not isinstance(attributes, ir.ArrayAttr):
        return []
    names: list[str] = []
    for number, entry in enumerate(attributes):
        named = "disc_shape.name" in entry
        names.append(entry["disc_shape.name"].value if named else f"argument {number}")
    return names


def _label(operation: ir.Operation, symbol: str | None) -> str:
    if symbol is not None:
        return symbol
    name = generic_ir.attribute(operation, "name")
    return f"{operation.name} {name}" if isinstance(name, str) else operation.name


def _clean(name: str) -> str:
    """A name as one part of a namespace."""
    return name.replace("/", "|").replace(";", ",")


def _text(attribute: Any) -> str:
    """An attribute without what its dialect adds, ``B*2`` of ``#disc_shape.expr<B*2>``."""
    if isinstance(attribute, ir.StringAttr):
        text = attribute.value
    elif isinstance(attribute, ir.ArrayAttr):
        text = f"[{', '.join(map(_text, attribute))}]"
    elif isinstance(attribute, ir.DictAttr):
        text = ", ".join(f"{entry.name} = {_text(entry.attr)}" for entry in attribute)
    elif isinstance(attribute, ir.OpaqueAttr):
        # What the dialect wrote: `word<...>`, of an enumeration `word value`, of a kind of kernel `word_kernel`.
        written = attribute.data.decode().removesuffix("_kernel")
        _, opened, inner = written.partition("<")
        text = inner.removesuffix(">") if opened else written.rpartition(" ")[2]
    else:
        text = str(attribute)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _shape_text(type: ir.Type, dims: ir.Attribute | None) -> str:
    if not isinstance(type, ir.RankedTensorType):
        return str(type)
    if dims is not None:
        return f"{type.element_type}{_text(dims)}"
    sizes = ["?" if type.is_dynamic_dim(d) else str(type.get_dim_size(d)) for d in range(type.rank)]
    return f"{type.element_type}[{', '.join(sizes)}]"
