"""``torch.compile(model, backend="disc", dynamic=True)``.

AOTAutograd turns Dynamo's graphs into graphs of aten ops without side effects: one for inference, or a forward and a
backward one. Each is compiled once for all sizes; ops without a rule
run in PyTorch between compiled parts. PyTorch draws random numbers before the compiled code runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx
import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import ArgumentValueError
from ..frontend import device_of
from ..options import Options
from ..torch_compat.compiling import (
    RestartAnalysis,
    TracingContext,
    aot_autograd,
    inductor_config,
    list_backends,
    make_boxed_func,
    register_backend,
)
from ..torch_compat.effects import checks_kept
from ..torch_compat.tracing import FakeTensor, unset_fake_temporarily
from ..viewers import torch_trace
from .compiled import log
from .decompositions import decompositions
from .draws import take_draws, with_draws
from .partition import Fallback, GraphReport, _fallback, _reason, compile_graph
from .result_function import results_in_inputs, with_offsets

__all__ = ["Explanation", "Fallback", "GraphReport", "backend", "explain"]

_listeners: list[list[GraphReport]] = []


def backend(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | Options | None = None
) -> Callable[..., Any]:
    """Dynamo's back end ``"disc"``. ``torch.compile``'s ``options`` are those of :class:`disc.Options`.

    PyTorch runs what cannot be compiled, and one warning says so; ``options={"fallback": "error"}`` makes it an error.

    Without gradients, parameters and buffers are packed once; a change to them in place is noticed at the next call.
    """
    given = dict(options) if isinstance(options, Mapping) else {}
    fallback = given.pop("fallback", "pytorch")
    if fallback not in ("pytorch", "error"):
        raise ArgumentValueError(f"fallback: expected 'pytorch' or 'error', got {fallback!r}")
    chosen = options if isinstance(options, Options) else Options(**{"progress": False, **given})
    try:
        return _compiled(module, inputs, chosen, fallback == "error")
    except RestartAnalysis:
        raise
    except Exception as error:
        if fallback == "error":
            raise
        log.debug("AOTAutograd cannot trace a graph", exc_info=error)
        return _left_to_pytorch(module, error)


def _compiled(module: GraphModule, inputs: Sequence[Any], options: Options, strict: bool) -> Callable[..., Any]:
    values = [*module.parameters(), *module.buffers(), *inputs]
    trains = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)

    def compiler(kind: str) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile(graph: GraphModule, arguments: Sequence[Any]) -> Callable[..., Any]:
            # AOTAutograd is tracing; parameters are real.
            with unset_fake_temporarily():
                fixed = _fixed(values, graph) if kind == "inference" else {}
                draw = take_draws(graph)
                compiled, report = compile_graph(graph, kind, options, fixed, strict)
                if draw is not None:
                    compiled = with_draws(compiled, draw)
                if kind == "forward":
                    _donate_nothing()
                if kind != "backward" and (shared := results_in_inputs()):
                    compiled = with_offsets(compiled, shared)
            _note(report)
            return make_boxed_func(compiled)

        return compile

    # Attention has gradients as ordinary ops only; what is fused again is found in the graph.
    attention = sdpa_kernel(SDPBackend.MATH) if trains else contextlib.nullcontext()
    # Inductor's option says here, too, that a draw whose value nobody needs counts.
    with attention, inductor_config.patch(fallback_random=True), checks_kept():
        return aot_autograd(  # type: ignore[no-any-return]
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            partition_fn=_partition_joint,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )(module, inputs)


def _donate_nothing() -> None:
    """Lets the backward pass that AOTAutograd is compiling run several times (``retain_graph``).

    No native code of it writes to the tensors that were saved for it.
    """
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def _partition_joint(joint: GraphModule, inputs: Sequence[Any], **kwargs: Any) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph, with as few saved values as possible."""
    try:
        return min_cut_rematerialization_partition(joint, inputs, **kwargs)
    except networkx.exception.NetworkXUnbounded:
        # Some value must be both saved and computed again.
        return default_partition(joint, inputs, **kwargs)


def _left_to_pytorch(module: GraphModule, error: Exception) -> Callable[..., Any]:
    """The graph as Dynamo made it, for PyTorch to run."""
    ops = [node for node in module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    reason = _reason(error)
    report = GraphReport("dynamo", len(ops), fallbacks=[_fallback(node, reason) for node in ops])
    log.warning("disc: %s", report.warning())
    _note(report)
    return module.forward


def _note(report: GraphReport) -> None:
    log.info("%s", report)
    torch_trace.data(f"{report.kind}_graph_report", lambda: dataclasses.asdict(report))
    for reports in _listeners:
        reports.append(report)


def _fixed(values: Sequence[Any], graph: GraphModule) -> dict[int, torch.Tensor]:
    """The arguments of an inference graph that are parameters or buffers, with their tensors."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(values):
        return {}
    device = device_of(graph.graph)
    updated = {n.args[0] for n in graph.graph.nodes if n.target is torch.ops.aten.copy_.default}
    fixed = {}
    for i, (node, value) in enumerate(zip(placeholders, values, strict=True)):
        static = isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")
        if not static or isinstance(value, FakeTensor) or node in updated or not node.users:
            continue
        fake = node.meta["val"]
        if value.is_contiguous() and value.device == device and tuple(fake.shape) == tuple(value.shape):
            fixed[i] = value
    return fixed


@dataclass
class Explanation:
    """What ``torch.compile(..., backend="disc")`` does with a function."""

    graphs: list[GraphReport] = field(default_factory=list)
    """Of each graph that was compiled, in order; those of backward passes come when they are first needed."""

    @property
    def fallbacks(self) -> list[Fallback]:
        """All that runs in PyTorch."""
        return [fallback for graph in self.graphs for fallback in graph.fallbacks]

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "nothing was compiled"


@contextlib.contextmanager
def _listening() -> Iterator[list[GraphReport]]:
    reports: list[GraphReport] = []
    _listeners.append(reports)
    try:
        yield reports
    finally:
        # By identity: what another one has heard may be equal.
        del _listeners[next(i for i, listener in enumerate(_listeners) if listener is reports)]


def explain(
    function: Callable[..., Any], *args: Any, backends: Sequence[Any] | None = None, **kwargs: Any
) -> Explanation:
    """Compiles ``function``, a module or a callable, by calling it with these arguments, and says what became of it.

    >>> print(disc.explain(model, x))

    ``backends`` are back ends of others, as for :func:`disc.compile`; all other arguments are the function's.
    """
    options = {} if backends is None else {"backends": tuple(backends)}
    with _listening() as reports:
        # A back end of its own: Dynamo would take what it compiled before.
        torch.compile(function, backend=functools.partial(backend, options=options), dynamic=True)(*args, **kwargs)
    return Explanation(reports)


# Of an installed package Dynamo knows the entry point, and registers what that names under the same name.
if "disc" not in list_backends(exclude_tags=()):
    register_backend(name="disc", compiler_fn=backend)
