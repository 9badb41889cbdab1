"""Graphs with higher-order operators as flat graphs: branches and loops between markers, other subgraphs in place."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..torch_compat import pytree
from ..torch_compat.operators import HigherOrderOperator
from ..torch_compat.tracing import FakeTensor, FakeTensorMode, enable_python_dispatcher, make_fx
from .decompositions import decomposition_table
from .higher_order import FLATTENED, flattened
from .settle import allowing_many, settle


def is_flattened(target: Any) -> bool:
    """Whether an operator of a graph is a higher-order one that :func:`flat_graph` replaces."""
    return isinstance(target, HigherOrderOperator) and target.name() in FLATTENED


def subgraphs(node: Node) -> Iterator[GraphModule]:
    """The graphs that a higher-order operator takes, also those inside of them."""
    root = node.graph.owning_module
    for argument in node.all_input_nodes:
        if argument.op == "get_attr" and root is not None:
            module = operator.attrgetter(str(argument.target))(root)
            if isinstance(module, torch.nn.Module):
                yield from (inner for inner in module.modules() if isinstance(inner, GraphModule))


def flat_graph(
    module: GraphModule, updates: Sequence[tuple[Node, Node]]
) -> tuple[GraphModule, Sequence[tuple[Node, Node]]]:
    """The graph without higher-order operators, and the updates in terms of it: pairs (placeholder, new value)."""
    if not any(is_flattened(node.target) for node in module.graph.nodes):
        return module, updates
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    constants = [node for node in module.graph.nodes if node.op == "get_attr" and _is_tensor(module, node)]
    mode = next(v.fake_mode for v in _values(module.graph.nodes) if isinstance(v, FakeTensor))
    values = _distinct([node.meta.get("val") for node in placeholders], mode)
    fakes = [mode.from_tensor(operator.attrgetter(str(node.target))(module), static_shapes=True) for node in constants]
    tracer = _Values(module, [node for _, node in updates], [str(node.target) for node in constants], len(values))
    with (
        torch.no_grad(),
        _numbers_of_data(mode),
        mode.shape_env.ignore_fresh_unbacked_symbols(),  # type: ignore[union-attr]
        enable_python_dispatcher(),
        flattened(subgraphs=True),
        allowing_many(),
    ):
        flat = make_fx(tracer.traced, decomposition_table())(*values, *fakes)  # type: ignore[arg-type]
    settle(flat.graph)
    new = [node for node in flat.graph.nodes if node.op == "placeholder"]
    for node, old in zip(new, placeholders, strict=False):
        node.meta.setdefault("val", old.meta.get("val"))
    for node, constant in zip(new[len(values) :], constants, strict=True):
        name = f"constant_{node.name}"
        flat.register_buffer(name, operator.attrgetter(str(constant.target))(module))
        with flat.graph.inserting_before(node):
            got = flat.graph.get_attr(name)
        got.meta = dict(node.meta)
        node.replace_all_uses_with(got)
        flat.graph.erase_node(node)
    output = next(node for node in flat.graph.nodes if node.op == "output")
    results = list(output.args[0])  # type: ignore[arg-type]
    count = len(results) - len(updates)
    output.args = (tuple(results[:count]),)
    places = [placeholders.index(old) for old, _ in updates]
    flat.recompile()
    return flat, [(new[place], value) for place, value in zip(places, results[count:], strict=True)]


def _distinct(values: Sequence[Any], mode: FakeTensorMode) -> list[Any]:
    """The values, no two of which are one tensor: what calls of one subgraph save has one fake tensor."""
    seen = set()
    distinct = []
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            key = value.untyped_storage()._cdata
            if key in seen:
                with mode:
                    value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            seen.add(key)
        distinct.append(value)
    return distinct


@contextmanager
def _numbers_of_data(mode: FakeTensorMode) -> Iterator[None]:
    """The mode, which traces ``.item()`` of the markers whatever Dynamo's configuration says."""
    allowed = mode.allow_scalar_outputs
    mode.allow_scalar_outputs = True
    try:
        with mode:
            yield
    finally:
        mode.allow_scalar_outputs = allowed


def _is_tensor(module: GraphModule, node: Node) -> bool:
    return isinstance(operator.attrgetter(str(node.target))(module), torch.Tensor)


def _values(nodes: Iterable[Node]) -> Iterable[Any]:
    return (value for node in nodes for value in pytree.tree_leaves(node.meta.get("val")))


class _Values(Interpreter):
    """Runs a graph for its results and further nodes, with its constants as arguments."""

    def __init__(self, module: GraphModule, further: Sequence[Node], names: Sequence[str], count: int) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._further = further
        self._names = names
        self._count = count
        self._given: dict[str, Any] = {}

    def traced(self, *args: Any) -> list[Any]:
        """The results, then the values of the further nodes."""
        self._given = dict(zip(self._names, args[self._count :], strict=True))
        results = self.run(*args[: self._count], enable_io_processing=False)
        if not isinstance(results, (tuple, list)):
            results = [results]
        return [*results, *(self.env[node] for node in self._further)]

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A constant as it is traced, or a subgraph."""
        return self._given[target] if target in self._given else super().get_attr(target, args, kwargs)
