"""Models that are made or compiled under ``torch.inference_mode()``.

Tensors that are made there do not count their changes, and may not require gradients outside. While a model is traced,
inference mode is off, and such parameters and buffers have ordinary tensors with the same memory in their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def outside_inference_mode(model: nn.Module) -> Iterator[None]:
    """Inference mode is off within, and no parameter or buffer of ``model`` is an inference tensor."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        twins: dict[int, Tensor] = {}
        for module in model.modules():
            tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for table in tables:
                own = {name: value for name, value in table.items() if _has_twin(value)}
                if own:
                    stack.callback(table.update, own)
                    table.update({name: twins.setdefault(id(value), _ordinary(value)) for name, value in own.items()})
        yield


def _has_twin(value: Tensor | None) -> bool:
    # Tensors of a class of their own keep what they have elsewhere.
    if value is None or type(value) not in (Tensor, nn.Parameter):
        return False
    return value.is_inference() and value.layout == torch.strided


def _ordinary(tensor: Tensor) -> Tensor:
    """A tensor that is no inference tensor, with the same memory."""
    twin = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    twin.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    return nn.Parameter(twin, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else twin
