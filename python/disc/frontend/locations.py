"""From FX nodes to the user's Python lines."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch.fx import Node
from torch_mlir import ir

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)


def source_of(node: Node | None) -> tuple[str, int] | None:
    """The innermost line of Python outside PyTorch that made ``node``, or None."""
    trace = node.meta.get("stack_trace") if node is not None else None
    if not trace:
        return None
    frames = [(file, int(line)) for file, line in _FRAME.findall(trace)]
    # "<eval_with_key>" is code that PyTorch generated.
    users = [f for f in frames if not f[0].startswith((_TORCH, "torch/", "<"))]
    if users:
        return users[-1]
    # Traced from inside PyTorch only: an absolute path still says something.
    return next((f for f in reversed(frames) if Path(f[0]).is_absolute()), None)


def location(name: str, source: tuple[str, int] | None) -> ir.Location:
    """``loc("aten.gelu"("model.py":12:0))``: the op's name wraps the user's line."""
    if source is None:
        return ir.Location.name(name)
    return ir.Location.name(name, ir.Location.file(source[0], source[1], 0))


def describe(source: tuple[str, int] | None) -> str:
    """``model.py:12``, or ``unknown``."""
    return f"{source[0]}:{source[1]}" if source else "unknown"


_LOCATION = re.compile(r'loc\("([^"]+)"(?:\("([^"]+)":(\d+))?')


def operation() -> str:
    """The operation being lowered, for messages at run time: ``aten.gelu at model.py:12``."""
    match = _LOCATION.match(str(ir.Location.current))
    if match is None:
        return "an operation"
    name, file, line = match.groups()
    return f"{name} at {Path(file).name}:{line}" if file else name
