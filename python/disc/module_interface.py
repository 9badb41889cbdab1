"""What programs expect of a ``torch.nn.Module`` beside calls, for compiled models that take a module's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .errors import ArgumentValueError, ProgramError

_BY_MODE = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
)
"""Layers that compute something else in training mode."""
_LEFT_TO_MODULE = "the compiled model has no methods of the module's own: call model.module.{name}, which PyTorch runs"


class ModuleInterface:
    """Parameters, modes and attributes of the module that was compiled."""

    @property
    def module(self) -> torch.nn.Module | None:
        """The module that was compiled, if it is still there."""
        raise NotImplementedError

    @property
    def device(self) -> str:
        """Where tensors must be."""
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled model."""
        return self(*args, **kwargs)  # type: ignore[operator]

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """The module's parameters. Raises ProgramError without a module: see :meth:`state_dict`."""
        return self._needed("parameters").parameters(recurse)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The module's parameters with their names. Raises ProgramError without a module."""
        return self._needed("named_parameters").named_parameters(*args, **kwargs)

    def buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        """The module's buffers. Raises ProgramError without a module."""
        return self._needed("buffers").buffers(recurse)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """The module's buffers with their names. Raises ProgramError without a module."""
        return self._needed("named_buffers").named_buffers(*args, **kwargs)

    def eval(self) -> Any:
        """The compiled model itself.

        Raises:
            ArgumentValueError: the module was compiled in training mode, which matters to one of its layers.
        """
        return self.train(False)

    def train(self, mode: bool = True) -> Any:
        """The compiled model itself.

        Raises:
            ArgumentValueError: the module was compiled in the other mode.
        """
        module = self.module
        trains = module is not None and module.training
        if mode and not trains:
            raise ArgumentValueError(
                "train(): the module was compiled in evaluation mode, which is a part of the code; for training see"
                " disc.compile_training"
            )
        layer = next((x for x in module.modules() if isinstance(x, _BY_MODE)), None) if module and trains else None
        if not mode and layer is not None:
            raise ArgumentValueError(
                f"eval(): the module was compiled in training mode, on which {type(layer).__name__} depends; call"
                " module.eval() and compile it again"
            )
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """The compiled model itself. Raises ArgumentValueError for True: its results have no gradients."""
        if requires_grad:
            raise ArgumentValueError(
                "requires_grad_(): results of a compiled model have no gradients; see disc.compile_training and"
                ' torch.compile(module, backend="disc")'
            )
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled model itself, if it is on the device and in the dtype.

        Raises:
            ArgumentValueError: another device or dtype, for which the module must be compiled again.
        """
        for value in (*args, *(kwargs[name] for name in ("device", "dtype") if name in kwargs)):
            if isinstance(value, torch.Tensor):
                self.to(value.device, value.dtype)
            elif isinstance(value, torch.dtype):
                self._check_dtype(value)
            elif isinstance(value, (str, torch.device)) or (isinstance(value, int) and not isinstance(value, bool)):
                device = torch.device("cuda", value) if isinstance(value, int) else torch.device(value)
                own = torch.device(self.device)
                if device.type != own.type or device.index not in (None, own.index):
                    raise ArgumentValueError(
                        f"to(): expected {self.device}, for which the model was compiled, got {device}; move the module"
                        " and compile it again"
                    )
        return self

    def cpu(self) -> Any:
        """As ``to("cpu")``."""
        return self.to("cpu")

    def cuda(self, device: int | str | torch.device | None = None) -> Any:
        """As ``to("cuda")``."""
        return self.to("cuda" if device is None else device)

    def float(self) -> Any:
        """As ``to(torch.float32)``."""
        return self.to(torch.float32)

    def double(self) -> Any:
        """As ``to(torch.float64)``."""
        return self.to(torch.float64)

    def half(self) -> Any:
        """As ``to(torch.float16)``."""
        return self.to(torch.float16)

    def bfloat16(self) -> Any:
        """As ``to(torch.bfloat16)``."""
        return self.to(torch.bfloat16)

    def __getattr__(self, name: str) -> Any:
        # While an object is made, the property `module` comes here, too.
        module = None if name.startswith("_") or "_module" not in vars(self) else self.module
        if module is None or not hasattr(module, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(module, name)
        if getattr(value, "__self__", None) is module:
            raise AttributeError(_LEFT_TO_MODULE.format(name=name))
        return value

    def _needed(self, name: str) -> torch.nn.Module:
        module = self.module
        if module is None:
            raise ProgramError(name, "the compiled model has no module: see state_dict()")
        return module

    def _check_dtype(self, dtype: torch.dtype) -> None:
        other = {p.dtype for p in self._needed("to").parameters() if p.is_floating_point()} - {dtype}
        if other:
            raise ArgumentValueError(
                f"to(): expected {', '.join(map(str, other))}, for which the model was compiled, got {dtype}; convert"
                " the module and compile it again"
            )
