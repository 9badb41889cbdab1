"""What PyTorch asks of sizes to decide how tensors lie in memory is no condition on the model's inputs.

While it traces, PyTorch notes whether each result is dense, and chooses the memory format of convolutions: for symbolic
sizes both install guards, that a batch is not 1 for one. The compiled program has layouts of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch._subclasses import fake_impls
from torch.fx.experimental import proxy_tensor
from torch.fx.passes import shape_prop

_CONVOLUTIONS = (
    torch.ops.aten.convolution.default,
    torch.ops.aten._convolution.default,
    torch.ops.aten.convolution_backward.default,
)


@contextmanager
def answered_by_the_example() -> Iterator[None]:
    """While it is active, questions about layouts are answered by the example's sizes, and install no guards."""
    described = _unguarded(shape_prop._extract_tensor_metadata)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(shape_prop, "_extract_tensor_metadata", described))
        stack.enter_context(mock.patch.object(proxy_tensor, "_extract_tensor_metadata", described))
        for module in (torch._prims_common, torch._meta_registrations):
            asked = getattr(module, "suggest_memory_format", None)
            if asked is not None:
                stack.enter_context(mock.patch.object(module, "suggest_memory_format", _unguarded(asked)))
        kernels: Any = fake_impls.op_implementations_dict
        stack.enter_context(
            mock.patch.dict(kernels, {op: _plain(kernels[op]) for op in _CONVOLUTIONS if op in kernels})
        )
        yield


def _unguarded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` of a tensor, without guards on its sizes."""

    @functools.wraps(fn)
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        with unguarded(x):
            return fn(x, *args, **kwargs)

    return call


def unguarded(x: Any) -> Any:
    """While it is active, what is asked of the sizes of a tensor is answered by the example, and installs no guards."""
    env = next((size.node.shape_env for size in x.shape if isinstance(size, torch.SymInt)), None)
    return nullcontext() if env is None else env.suppress_guards()


def _plain(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The fake kernel of a convolution: the memory format that it asks for is chosen, and made, without guards."""

    @functools.wraps(kernel)
    def call(*args: Any, **kwargs: Any) -> Any:
        choose: Any = torch._C._conv_determine_backend_memory_format
        convert: Any = torch.Tensor.to
        with (
            mock.patch.object(torch._C, "_conv_determine_backend_memory_format", _unguarded(choose)),
            mock.patch.object(torch.Tensor, "to", _unguarded(convert)),
        ):
            return kernel(*args, **kwargs)

    return call
