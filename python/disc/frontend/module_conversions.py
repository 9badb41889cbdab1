"""Modules that a model converts while it runs, as ``self.router.to(x.dtype)``: nothing happens if they are so already.

``Module.to`` assigns each parameter anew, which fails for the tensors that stand for parameters in a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import patches
from ..torch_compat.patching import replaced


@contextmanager
def only_if_needed() -> Iterator[None]:
    """While it is active, a module is left as it is if its conversion would give the same parameters and buffers."""

    def apply(original: Any, module: torch.nn.Module, fn: Any, recurse: bool = True) -> Any:
        tensors = [*module.parameters(recurse), *module.buffers(recurse)]
        with torch.no_grad():
            same = all(fn(x) is x for x in tensors)
        return module if same else original(module, fn, recurse)

    with replaced({patches.CONVERTED_MODULE: apply}):
        yield
