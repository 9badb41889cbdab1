"""Functions and modules that TorchScript or torch.compile wraps: the model is traced through the Python inside."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import patches
from ..torch_compat.patching import instead, replaced
from . import torchscript


def unwrapped(function: Any) -> Any:
    """The Python function that TorchScript or torch.compile made ``function`` of, or else ``function``."""
    if isinstance(function, types.MethodType):
        # It shows its function's attributes as its own.
        inner = unwrapped(function.__func__)
        return function if inner is function.__func__ else types.MethodType(inner, function.__self__)
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

    def inline(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        function = unwrapped(self)
        return original(self, *args, **kwargs) if function is self else function(*args, **kwargs)

    # PyTorch runs a frame as it is if there is no callback that compiles it.
    with replaced({patches.SCRIPT_CALL: inline, patches.COMPILE_CALLBACK: instead(lambda callback: None)}):
        yield
