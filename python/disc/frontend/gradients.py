"""Gradients of a module with recursion over trees, as a program: see :func:`disc.with_gradients`.

The code around the recursions is traced with its gradients, with the results of the recursions as inputs. The gradients
of a recursion are computed in the reverse order: a loop over the groups of nodes, from the root's on, computes the
gradients of the children's results (each group's values are computed again). After it, the gradients of the parameters
are computed for all nodes of a pattern at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from .. import errors
from ..torch_compat import pytree
from ..torch_compat.tracing import detect_fake_mode, disable_proxy_modes_tracing, make_fx
from ..trees import Placeholder, Table, placeholder
from .batching import decompositions, evaluate, needed_inputs, spread, summed
from .recursion import Function, Gradients, Recursion, isolated, kept_apart
from .tree_program import Program, loop, tree_rows


def value_and_gradients(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, dict[str, Tensor]]:
    """The results of :class:`WithGradients`; while it is traced, a program that computes them."""
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not torch.compiler.is_compiling():
        with torch.enable_grad():
            output = module(*args, **kwargs)
            found = torch.autograd.grad(_loss(output), parameters, allow_unused=True)
        output = pytree.tree_map_only(Tensor, Tensor.detach, output)
        return output, {n: _known(x, p) for n, x, p in zip(names, found, parameters, strict=True)}
    fakes: Any = detect_fake_mode((parameters, pytree.tree_leaves((args, kwargs))))
    recursions: list[tuple[Recursion, Function, list[Tensor]]] = []
    spec: list[pytree.TreeSpec] = []
    outputs: list[Any] = []
    wanted: list[int] = []

    def results(recursion: Recursion, function: Function) -> list[Tensor]:
        with disable_proxy_modes_tracing(), fakes:
            leaves = [torch.empty(shape, dtype=dtype) for dtype, shape, _ in recursion.signature(function).results]
        recursions.append((recursion, function, leaves))
        return [x.requires_grad_() if x.is_floating_point() else x for x in leaves]

    def joint() -> list[Tensor]:
        with torch.enable_grad():
            output = module(*args, **kwargs)
            leaves, found_spec = pytree.tree_flatten(output)
            loss = _loss(output)
        spec.append(found_spec)
        given = [*parameters, *(x for *_, leaves in recursions for x in leaves)]
        differing = [n for n, x in enumerate(given) if x.requires_grad]
        found = torch.autograd.grad(loss, [given[n] for n in differing], allow_unused=True)
        wanted.extend(n for n, x in zip(differing, found, strict=True) if x is not None)
        outputs.extend(x if not isinstance(x, Tensor) else None for x in leaves)
        return [*(x for x in leaves if isinstance(x, Tensor)), *(x for x in found if x is not None)]

    apart: list[_Apart] = []

    def root(value: Any) -> Any:
        if isinstance(value, Placeholder):
            apart.append(_Apart(value._disc_source, fakes))
            return placeholder(value._disc_type, apart[-1])
        return value

    args, kwargs = pytree.tree_map(root, (tuple(args), dict(kwargs)), is_leaf=lambda x: isinstance(x, Placeholder))
    try:
        with isolated(), fakes, kept_apart(results):
            graph = make_fx(
                joint, decomposition_table=decompositions(), tracing_mode="real", _allow_non_fake_inputs=True
            )()
    except (AssertionError, RuntimeError) as error:
        if "not tracked with proxy" not in str(error):
            raise
        raise errors.GradientError(
            "import", "with_gradients: of the module's inputs only trees can have dynamic dims; make the others static"
        ) from error
    programs = [Program(recursion, function) for recursion, function, _ in recursions]
    known = {
        id(x): y
        for p, (*_, leaves) in zip(programs, recursions, strict=True)
        for x, y in zip(leaves, p.run(), strict=True)
    }
    known.update((id(x), table.column(name)[0]) for table in apart for name, x in table.roots.items())
    values: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr" and id(getattr(graph, node.target)) in known:
            values[node] = known[id(getattr(graph, node.target))]
    nodes: list[Any] = list(graph.graph.output_node().args[0])  # type: ignore[arg-type]
    evaluate(graph, nodes, {}, None, values)
    given = iter([values[n] for n in nodes])
    leaves = [next(given) if x is None else x for x in outputs]
    gradients = dict(zip(wanted, given, strict=True))
    place = len(parameters)
    for program, (recursion, _, roots) in zip(programs, recursions, strict=True):
        own = [gradients.get(place + n) for n in range(len(roots))]
        place += len(roots)
        for number, x in _backward(recursion, program, own, parameters).items():
            gradients[number] = gradients[number] + x if number in gradients else x
    return pytree.tree_unflatten(leaves, spec[0]), {
        name: _known(gradients.get(number), parameters[number]) for number, name in enumerate(names)
    }


class _Apart(Table):
    """A tree of which the fields of the root are inputs of what is traced."""

    def __init__(self, table: Table, fakes: Any) -> None:
        super().__init__(table.kind, table.tensors)
        self._fakes = fakes
        self.roots: dict[str, Tensor] = {}

    def get(self, name: str) -> Any:
        """A field of the root."""
        known = self.known_field(name)
        if name not in self.roots:
            with disable_proxy_modes_tracing(), self._fakes:
                self.roots[name] = torch.empty(known.shape, dtype=known.dtype)
        return self.roots[name]


def _loss(output: Any) -> Tensor:
    loss = next(iter(pytree.tree_leaves(output)), None)
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        what = f"{loss.dtype} {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise errors.GradientError(
            "import", f"with_gradients: the (first) result of the module must be the loss, a number, and is {what}"
        )
    return loss


def _known(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    return torch.zeros(parameter.shape, dtype=parameter.dtype) if gradient is None else gradient


def _backward(
    recursion: Recursion, program: Program, roots: Sequence[Tensor | None], parameters: Sequence[Tensor]
) -> dict[int, Tensor]:
    """The gradients of parameters, by their places, from those of the root's results."""
    graphs = recursion.gradients(parameters)
    nodes = recursion.table.children.shape[0]
    numbers = [n for n, (_, _, dtype, _) in enumerate(program.slots) if dtype.is_floating_point]
    tables = {n: _zeros(program, n, nodes) for n in numbers}
    root = program.root.reshape(1)
    for number, gradient in enumerate(roots):
        if gradient is not None:
            slot = program.slot(program.function, number)
            tables[slot] = tables[slot].index_copy(0, root, gradient.unsqueeze(0))
    # What the nodes of some pattern give to the results of their children.
    given = sorted(
        {
            (program.slot(what[1], what[2]), what[3])
            for known in graphs.values()
            for pattern in program.inner
            for what in known[pattern].wanted
            if isinstance(what, tuple)
        }
    )

    def step(number: Any, now: list[Tensor]) -> list[Tensor]:
        first, extent = program.group_from_end(number)
        inside = dict(zip(numbers, now, strict=True))
        own = {n: tree_rows(x, first, extent) for n, x in inside.items()}
        _, rows = program.rows(first, extent)

        def contributions(pattern: int) -> list[Tensor]:
            total: dict[tuple[int, int], Tensor] = {}
            selected = program.rows(first, extent)
            for known in graphs.values():
                graph = known[pattern]
                outputs = {n: x for n, x in zip(graph.outputs, graph.wanted, strict=True) if isinstance(x, tuple)}
                values = _evaluated(program, graph, list(outputs), selected, own, extent)[1]
                for node, (_, function, result, child) in outputs.items():
                    key = program.slot(function, result), child
                    x = spread(values[node], extent)
                    total[key] = total[key] + x if key in total else x
            return [total[key] if key in total else _zeros(program, key[0], extent) for key in given]

        for (slot, child), x in zip(given, program.choose(program.inner, first, extent, contributions), strict=True):
            # Of a child that is not used the row is -1, and the gradient zero.
            inside[slot] = inside[slot].index_add(0, rows[:, child].clamp(min=0), x)
        return [inside[n] for n in numbers]

    if given:
        tables = dict(zip(numbers, loop(program.groups, nodes, list(tables.values()), step), strict=True))
    totals: dict[int, Tensor] = {}
    for pattern in recursion.patterns:
        if program.uses[pattern] < 0:
            continue
        places = (program.kinds == pattern).nonzero().squeeze(1)
        extent = places.shape[0]
        own = {n: x.index_select(0, places) for n, x in tables.items()}
        for known in graphs.values():
            graph = known[pattern]
            outputs = {n: x for n, x in zip(graph.outputs, graph.wanted, strict=True) if isinstance(x, int)}
            if not outputs:
                continue
            batches, values = _evaluated(program, graph, [], program.selected(places), own, extent, list(outputs))
            for node, number in outputs.items():
                x = summed(graph.module, node, batches, extent, values)
                totals[number] = totals[number] + x if number in totals else x
    return totals


def _zeros(program: Program, slot: int, extent: Any) -> Tensor:
    _, _, dtype, shape = program.slots[slot]
    return torch.zeros((extent, *shape), dtype=dtype)


def _evaluated(
    program: Program,
    graph: Gradients,
    outputs: Sequence[Node],
    selected: tuple[Tensor, Tensor],
    own: Mapping[int, Tensor],
    extent: Any,
    later: Sequence[Node] = (),
) -> tuple[dict[int, Tensor], dict[Node, Any]]:
    """What stands for the inputs of a graph, and the values of ``outputs``. ``later``: what else will be computed."""
    needed = needed_inputs(graph.module, [*outputs, *later], {id(x) for x in graph.inputs.values()}, ())
    gradients = {what: x for what, x in graph.inputs.items() if what[0] == "gradient"}
    others = {what: x for what, x in graph.inputs.items() if what not in gradients}
    batches = program.batches(others, needed, selected, program.states)
    for what, x in gradients.items():
        batches[id(x)] = own[program.slot(what[1], what[2])]
    return batches, evaluate(graph.module, outputs, batches, extent, {})
