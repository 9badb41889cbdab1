"""Functions and modules that TorchScript or torch.compile wraps: the model is traced through the Python inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import torchscript


def unwrapped(function: Any) -> Any:
    """The Python function that TorchScript or torch.compile made ``function`` of, or else ``function``."""
    while True:
        inner = _inside(function)
        if inner is None:
            return function
        function = inner


def _inside(function: Any) -> Any:
    if isinstance(function, torch.jit.ScriptFunction):
        return getattr(function, "_torchdynamo_inline", None)
    attributes = getattr(function, "__dict__", {})
    if attributes.get("__script_if_tracing_wrapper"):
        return attributes.get("__original_fn")
    # What torch.compile and torch.compiler.disable make; PyTorch's own functions are left as they are.
    return attributes.get("_torchdynamo_orig_callable")


def unwrapped_module(module: torch.nn.Module) -> torch.nn.Module:
    """The module that TorchScript or torch.compile made ``module`` of, or else ``module``."""
    if isinstance(module, torchscript.ScriptModule):
        return torchscript.mirror(module)
    while isinstance(inner := module._modules.get("_orig_mod"), torch.nn.Module):
        module = inner
    return module


@contextmanager
def traced_through() -> Iterator[None]:
    """While it is active, calls of compiled functions and modules run the Python that they were made of."""
    script: Any = torch.jit.ScriptFunction
    call = script.__call__

    def inline(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = unwrapped(self)
        return call(self, *args, **kwargs) if function is self else function(*args, **kwargs)

    script.__call__ = inline
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        script.__call__ = call
