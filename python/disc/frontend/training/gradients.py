"""The gradients of a loss, as a graph: a program of ``torch.export`` traced again, with autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from ... import errors
from ...torch_compat import pytree, quiet
from ...torch_compat.effects import checks_kept
from ...torch_compat.tracing import (
    EffectType,
    FakeTensor,
    FunctionalTensorMode,
    enable_python_dispatcher,
    from_functional,
    get_proxy_mode,
    make_fx,
    to_functional,
)
from ..decompositions import decomposition_table
from ..effects import take_tokens
from ..entry_guards import EntryGuard
from ..higher_order import flattened
from ..layout_questions import answered_by_the_example
from ..meta_kernels import sizes_of_windows
from ..multiples import as_products
from ..settle import allowing_many, settle
from ..specialisation import unspecialised
from .differentiation import Evaluation, fresh
from .differentiation import gradients as gradients_of
from .transforms import Transform

Source = Literal["autograd", "results", "buffers"]


@dataclass
class Gradients:
    """A graph that computes a program's results and the gradients of the first of them."""

    module: GraphModule
    """Its placeholders are those of the program; without changes in place."""
    results: list[Any]
    """The nodes of the program's results, or their values."""
    changed: dict[Node, Node]
    """The new values of placeholders that the program changes in place."""
    gradients: dict[str, Node]
    """The gradients of the parameters that the loss depends on, by the parameters' names."""
    further: list[Node]
    """What else the transform returned."""
    guards: list[EntryGuard]
    """Conditions on sizes that tracing asked for."""
    forward: Node | None
    """The last node of the forward pass, if there is one."""
    out_spec: pytree.TreeSpec
    """The structure of what the program returns."""
    carrier: Node | None = None
    """The placeholder of the transform's numbers, which is the last one."""

    def replace(self, replaced: Mapping[Node, Node]) -> None:
        """Has other nodes of the graph stand for some."""

        def now(value: Any) -> Any:
            while value in replaced:
                value = _without_detach(replaced[value])
            return value

        self.results = [now(x) if isinstance(x, Node) else x for x in self.results]
        self.changed = {old: now(new) for old, new in self.changed.items()}
        self.gradients = {name: now(node) for name, node in self.gradients.items()}
        self.further = [now(node) for node in self.further]


def trace_gradients(
    exported: ExportedProgram, parameters: Mapping[str, Tensor], transform: Transform, source: Source = "autograd"
) -> Gradients:
    """The gradients of the first result of ``exported``, a 0-d floating-point tensor.

    Args:
        exported: the program; its operations may change tensors in place.
        parameters: the parameters, among those of the program, whose gradients are computed.
        transform: applied to the gradients before they are returned.
        source: where the gradients come from. ``"autograd"`` computes them; ``"results"``: the program returns (output,
            {name: gradient}); ``"buffers"``: the tensors in ``parameters`` are the gradients themselves.

    Raises:
        GradientError: the first result is not a floating-point number, does not depend on the parameters, or something
            has no gradient.
    """
    specs = exported.graph_signature.input_specs
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    values = [node.meta["val"] for node in placeholders]
    mode = next(x.fake_mode for x in values if isinstance(x, FakeTensor))
    # A parameter that is used under several names is one.
    places: dict[str, list[int]] = {}
    for number, spec in enumerate(specs):
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            tensor = exported.state_dict.get(spec.target)
            name = next((name for name, p in parameters.items() if p is tensor), None)
            if name is not None:
                places.setdefault(name, []).append(number)
    found: dict[str, Any] = {}

    def joint(token: Tensor, *flat: Any) -> list[Any]:
        with FunctionalTensorMode(export=True) as functional:
            # Orders the checks of linear algebra.
            functional._tokens[EffectType.ORDERED] = to_functional(token)
            tensors = [to_functional(x.detach()) if isinstance(x, Tensor) else x for x in flat]
            inputs = tensors[: len(values)]
            numbers = tensors[len(values)] if transform.numbers else None
            for same in places.values():
                for number in same:
                    inputs[number] = inputs[same[0]]
                if source == "autograd":
                    inputs[same[0]].requires_grad_()
            wanted = {name: inputs[same[0]] for name, same in places.items()}
            with torch.set_grad_enabled(source == "autograd"):
                results = Evaluation(exported.graph_module).run(inputs)
                found["forward"] = _last_node()
                gradients: dict[str, Tensor] = wanted
                if source == "autograd":
                    loss = transform.scale(_loss(results, exported), numbers)
                    listed = gradients_of([loss], list(wanted.values()))
                    gradients = {name: g for name, g in zip(wanted, listed, strict=True) if g is not None}
                elif source == "results":
                    results, gradients = _returned(results, exported)
            with torch.no_grad():
                after, further = transform(list(gradients.values()), numbers)
            found["names"], found["counts"] = list(gradients), (len(results), len(further))
            outputs: list[Any] = [*results, *after, *further, *inputs]
            return [_unwrapped(x) if isinstance(x, Tensor) else x for x in outputs]

    with (
        flattened(),
        allowing_many(),
        unspecialised(exported) as guards,
        answered_by_the_example(),
        as_products(),
        sizes_of_windows(),
        checks_kept(),
        mode,
        mode.shape_env.ignore_fresh_unbacked_symbols(),  # type: ignore[union-attr]
        enable_python_dispatcher(),
        fx_traceback.preserve_node_meta(),
        quiet.ANOMALY_MODE.silenced(),
        # Operations of the backward pass then have the lines of those of the forward pass.
        torch.autograd.detect_anomaly(check_nan=False),
    ):
        fakes = [fresh(x) for x in values]
        if transform.numbers:
            fakes.append(torch.empty(len(transform.numbers), dtype=torch.float64))
        token = torch.empty(0)
        module = make_fx(joint, decomposition_table=decomposition_table())(token, *fakes)  # type: ignore[arg-type]
        take_tokens(module)
        module.graph.erase_node(next(iter(module.graph.nodes)))
    return _collected(module, found, guards, len(values), _output_spec(exported, source))


def _unwrapped(value: Tensor) -> Tensor:
    plain: Any = from_functional(value)
    return plain.detach()  # type: ignore[no-any-return]


def _last_node() -> Node | None:
    mode = get_proxy_mode()
    return None if mode is None else next(iter(reversed(mode.tracer.graph.nodes)), None)


def _loss(results: Sequence[Any], exported: ExportedProgram) -> Tensor:
    updates = len(exported.graph_signature.output_specs) - len(exported.graph_signature.user_outputs)
    loss = results[updates] if len(results) > updates else None
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        what = f"a {loss.dtype} tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise errors.GradientError("import", f"the loss must be a floating-point tensor without dims, got {what}")
    if not loss.requires_grad:
        raise errors.GradientError("import", "the loss does not depend on a parameter that requires a gradient")
    return loss


def _returned(results: Sequence[Any], exported: ExportedProgram) -> tuple[list[Any], dict[str, Tensor]]:
    """Of a program that returns (output, {name: gradient}) the results without gradients, and these."""
    spec = exported.call_spec.out_spec
    assert spec is not None
    updates = len(results) - spec.num_leaves
    _, gradients = pytree.tree_unflatten(list(results[updates:]), spec)
    count = len(results) - len(gradients)
    return list(results[:count]), gradients


def _output_spec(exported: ExportedProgram, source: Source) -> pytree.TreeSpec:
    spec = exported.call_spec.out_spec
    assert spec is not None
    return spec.child(0) if source == "results" else spec


def _collected(
    module: GraphModule, found: dict[str, Any], guards: list[EntryGuard], inputs: int, spec: Any
) -> Gradients:
    settle(module.graph)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    output = next(node for node in module.graph.nodes if node.op == "output")
    nodes = [_without_detach(x) for x in output.args[0]]  # type: ignore[union-attr]
    results, further = found["counts"]
    count = len(found["names"])
    given = nodes[results + count + further :]
    return Gradients(
        module,
        results=nodes[:results],
        changed={
            old: new for old, new in zip(placeholders, given, strict=False) if isinstance(new, Node) and new is not old
        },
        gradients=dict(zip(found["names"], nodes[results : results + count], strict=True)),
        further=nodes[results + count : results + count + further],
        guards=guards,
        forward=found["forward"],
        out_spec=spec,
        carrier=placeholders[inputs] if len(placeholders) > inputs else None,
    )


def _without_detach(value: Any) -> Any:
    while isinstance(value, Node) and value.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        value = value.args[0]
    return value
