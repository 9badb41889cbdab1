"""Artifacts in PyTorch's structured trace, which ``TORCH_TRACE=folder`` writes and tlparse makes a report of.

Each compilation adds the IR after each stage, the symbols with their ranges, the guards, the operations that PyTorch
runs, errors and timings to the entry of the compilation that it belongs to. A compilation outside of ``torch.compile``
is an entry of its own. The stages are also in the report's timeline.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch._guards import CompileContext, compile_context
from torch._logging import trace_structured
from torch._logging._internal import LazyTraceHandler, trace_log
from torch._logging.structured import from_traceback
from torch.utils._traceback import CapturedTraceback

from ..errors import CompileError, UnsupportedOpError

_PREFIX = "disc_"
_graph: contextvars.ContextVar[str] = contextvars.ContextVar("disc graph", default="")
"""Of a compilation by ``torch.compile``, which may have several graphs, the beginning of its artifacts' names."""


def active() -> bool:
    """Whether PyTorch writes a structured trace to a file.

    Handlers of others do not count: pytest adds one that captures every record.
    """
    # PyTorch's own handler removes itself at the first record if TORCH_TRACE is not set.
    return any(
        isinstance(handler, LazyTraceHandler) and (handler.root_dir is not None or handler.stream is not None)
        for handler in trace_log.handlers
    )


def text(name: str, content: Callable[[], str]) -> None:
    """Adds a text; ``content`` is called only if there is a trace."""
    if active():
        _add(name, "string", content)


def data(name: str, content: Callable[[], Any]) -> None:
    """Adds data as JSON; ``content`` is called only if there is a trace."""
    if active():
        _add(name, "json", lambda: json.dumps(content(), indent=2))


def _add(name: str, encoding: str, content: Callable[[], str]) -> None:
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"{_PREFIX}{_graph.get()}{name}", "encoding": encoding},
        payload_fn=content,
    )


@contextlib.contextmanager
def compilation(name: str) -> Iterator[None]:
    """A compilation of the model ``name``, with its errors: an entry of its own outside of ``torch.compile``."""
    if not active():
        yield
        return
    with contextlib.ExitStack() as stack:
        if CompileContext.current_compile_id() is None:
            stack.enter_context(_entry(name))
        else:
            token = _graph.set("".join(c if c.isalnum() else "_" for c in name) + "_")
            stack.callback(_graph.reset, token)
        try:
            yield
        except Exception as error:
            description = describe(error)
            data("error", lambda: description)
            raise


@contextlib.contextmanager
def _entry(name: str) -> Iterator[None]:
    # Dynamo need not be imported before; where there is a trace, its time does not matter.
    from torch._dynamo.convert_frame import get_compile_id
    from torch._dynamo.utils import get_metrics_context

    with compile_context(CompileContext(get_compile_id({}))), get_metrics_context() as metrics:
        metrics.update({"co_name": f"disc.compile: {name}"}, overwrite=True)
        frames = CapturedTraceback.extract(skip=1).summary()
        trace_structured("dynamo_start", lambda: {"stack": from_traceback(_users(frames))})
        yield


def _users(frames: Any) -> Any:
    """The frames up to the one that calls DISC."""
    inner = [n for n, frame in enumerate(frames) if f"{_package()}/" in frame.filename]
    kept = frames[: inner[0]] if inner else frames
    return type(frames).from_list(list(kept or frames))


def _package() -> str:
    return __file__.rpartition("/viewers/")[0]


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """A part of a compilation, as a bar of the report's timeline."""
    if not active():
        yield
        return
    from torch._dynamo.utils import dynamo_timed

    with dynamo_timed(f"{_PREFIX}{name}"):
        yield


def finish(
    symbols: Sequence[Any],
    guards: Sequence[tuple[str, str, str, str, str]],
    timings: Mapping[str, float],
    more: Mapping[str, Any],
) -> None:
    """Adds the facts that are known at the end of a compilation.

    Args:
        symbols: those of the imported program.
        guards: left side, relation, right side, message and source line of each.
        timings: the seconds of each step.
        more: other facts, which go with the timings.
    """
    facts = ("name", "min", "max", "data_dependent")
    data("symbols", lambda: [{fact: getattr(symbol, fact) for fact in facts} for symbol in symbols])
    keys = ("left", "relation", "right", "message", "source")
    data("guards", lambda: [dict(zip(keys, guard, strict=True)) for guard in guards])
    data("timings", lambda: {"seconds": dict(timings), "total": sum(timings.values()), **more})


def describe(error: BaseException) -> dict[str, Any]:
    """What an error says, as data."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, CompileError):
        found |= {
            "code": error.code,
            "stage": error.stage,
            "message": error.diagnostic,
            "source": error.source,
            "help": error.help,
            "reproducer": error.reproducer,
        }
    if isinstance(error, UnsupportedOpError):
        found["operations"] = [{"op": op.name, "source": op.source, "reason": op.reason} for op in error.ops]
    return found
