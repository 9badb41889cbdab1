"""The gradients of a loss, as a graph: a program of ``torch.export`` traced again, with autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from ... import errors
from ...torch_compat.tracing import (
    FunctionalTensorMode,
    enable_python_dispatcher,
    from_functional,
    get_proxy_mode,
    make_fx,
    to_functional,
)
from ..decompositions import decomposition_table
from ..entry_guards import EntryGuard
from ..higher_order import flattened
from ..layout_questions import answered_by_the_example
from ..meta_kernels import sizes_of_windows
from ..settle import allowing_many, settle
from ..specialisation import unspecialised
from .differentiation import Evaluation, source_of

Transform = Callable[[Tensor, list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""What happens to the gradients: (loss, gradients) to (gradients, further results)."""


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
    backward: Node | None
    """The first node of the backward pass, if there is one."""


def trace_gradients(exported: ExportedProgram, parameters: Sequence[str], transform: Transform | None) -> Gradients:
    """The gradients of the first result of ``exported``, a 0-d floating-point tensor.

    Args:
        exported: the program; its operations may change tensors in place.
        parameters: names of the parameters, in the program's state dict, whose gradients are computed.
        transform: applied to the gradients before they are returned.

    Raises:
        GradientError: the first result is no floating-point number, does not depend on the parameters, or something
            has no gradient.
    """
    specs = exported.graph_signature.input_specs
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    values = [node.meta["val"] for node in placeholders]
    mode = next(x.fake_mode for x in values if isinstance(x, Tensor) and hasattr(x, "fake_mode"))
    wanted = {
        spec.target: number
        for number, spec in enumerate(specs)
        if spec.kind is InputKind.PARAMETER and spec.target in parameters
    }
    found: dict[str, Any] = {}

    def joint(*flat: Any) -> list[Any]:
        with FunctionalTensorMode(export=True):
            given = [to_functional(x.detach()) if isinstance(x, Tensor) else x for x in flat]
            for number in wanted.values():
                given[number].requires_grad_()
            with torch.enable_grad():
                results = Evaluation(exported.graph_module).run(given)
                loss = _loss(results, exported)
            mark = _last_node()
            gradients = torch.autograd.grad(loss, [given[n] for n in wanted.values()], allow_unused=True)
            found["backward"] = mark
            named = {name: g for name, g in zip(wanted, gradients, strict=True) if g is not None}
            further: list[Tensor] = []
            with torch.no_grad():
                if transform is not None:
                    after, further = transform(loss.detach(), list(named.values()))
                    named = dict(zip(named, after, strict=True))
            found["names"], found["counts"] = list(named), (len(results), len(further))
            outputs = [*results, *named.values(), *further, *given]
            return [from_functional(x).detach() if isinstance(x, Tensor) else x for x in outputs]

    with (
        flattened(),
        allowing_many(),
        unspecialised(exported) as guards,
        answered_by_the_example(),
        sizes_of_windows(),
        mode,
        mode.shape_env.ignore_fresh_unbacked_symbols(),
        enable_python_dispatcher(),
        fx_traceback.preserve_node_meta(),
        torch.autograd.detect_anomaly(check_nan=False),
    ):
        fakes = [_fresh(x) for x in values]
        module = make_fx(joint, decomposition_table=decomposition_table())(*fakes)  # type: ignore[arg-type]
    return _collected(module, found, guards)


def _fresh(value: Any) -> Any:
    """A tensor of the same sizes and layout, in memory of its own."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


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


def _collected(module: GraphModule, found: dict[str, Any], guards: list[EntryGuard]) -> Gradients:
    settle(module.graph)
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    nodes = [_without_detach(x) for x in output.args[0]]  # type: ignore[union-attr]
    results, further = found["counts"]
    count = len(found["names"])
    given = nodes[results + count + further :]
    return Gradients(
        module,
        results=nodes[:results],
        changed={old: new for old, new in zip(placeholders, given, strict=True) if new is not old},
        gradients=dict(zip(found["names"], nodes[results : results + count], strict=True)),
        further=nodes[results + count : results + count + further],
        guards=guards,
        backward=found["backward"],
    )


def _without_detach(value: Any) -> Any:
    while isinstance(value, Node) and value.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        value = value.args[0]
    return value


__all__ = ["Gradients", "Transform", "source_of", "trace_gradients"]
