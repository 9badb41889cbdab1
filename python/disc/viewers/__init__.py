"""DISC's information in viewers that users have: Perfetto, torch.profiler, tlparse, Model Explorer.

A module for each viewer, imported when it is used. How to use them: docs/howto/viewers.md.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model import Model

EXTRA = "viewers"
"""The optional dependencies of the distribution that the viewers' packages are in."""


def model_of(compiled: Any) -> Model:
    """A compiled model, or that of a compiled training step.

    Raises:
        ArgumentTypeError: it is neither.
    """
    from ..errors import ArgumentTypeError
    from ..model import Model
    from ..training import TrainingStep

    if isinstance(compiled, TrainingStep):
        return compiled.model
    if not isinstance(compiled, Model):
        raise ArgumentTypeError(
            f"model: expected what disc.compile or disc.compile_training returned, got {type(compiled).__name__}"
        )
    return compiled


def required(module: str, what: str) -> ModuleType:
    """A module of an optional package.

    Args:
        module: the module's name.
        what: the feature that needs it, for the message.

    Raises:
        ImportError: the package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise ImportError(
            f"{what} needs the Python package of {missing!r}, which is not installed; run:"
            f" pip install 'disc-compiler[{EXTRA}]'",
            name=missing,
        ) from error
