"""PyTorch's cache of the shapes of results, filled without making each result a second time.

While it traces, PyTorch remembers the shape that an operator's fake kernel computed, for later calls with such
operands. Before it does, it makes a tensor of what it is about to remember, to see whether it would be like the result.
With symbolic sizes that takes longer than the fake kernel. Here results that are alike in all that decides are made
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import free_unbacked_symbols
from ..torch_compat.tracing import FakeTensor


@contextmanager
def made_once() -> Iterator[None]:
    """While it is active, a result is made a second time only if none like it was."""
    known: set[Any] = set()
    remembered: list[Any] = []

    def remember(original: Callable[..., Any], *args: Any) -> Any:
        """``original`` raises an error if the result cannot be remembered."""
        output = args[-1]
        kind = _kind(output)
        if kind not in known:
            info = original(*args)
            if kind is not None:
                known.add(kind)
            return info
        remembered.append(output)
        try:
            return original(*args)
        finally:
            remembered.pop()

    def made(original: Callable[..., Any], *args: Any) -> Any:
        return remembered[-1] if remembered else original(*args)

    with replaced({patches.REMEMBERED_RESULT: remember, patches.MADE_RESULT: made}):
        yield


def _kind(x: Any) -> Any:
    """All that PyTorch compares, and what it depends on; None for a tensor whose sizes depend on data."""
    if not isinstance(x, FakeTensor) or x.layout is not torch.strided or free_unbacked_symbols(x):
        return None
    flags = x.requires_grad, x.is_conj(), x.is_neg(), x.is_inference(), torch.is_inference_mode_enabled()
    return torch._C._dispatch_key_set(x), x.device, x.dtype, x._is_view(), *flags
