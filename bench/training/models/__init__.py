"""The networks that are trained, one file each.

The name of a file is the model's name. It contains two `TrainingModel`s: `FULL`, which is measured, and `SMALL`, the
same program at sizes that a test can afford. To add a model, add a file.
"""

from __future__ import annotations

import importlib
import pkgutil

from .base import Shape, TrainingModel

__all__ = ["Shape", "TrainingModel", "load", "names"]


def names() -> list[str]:
    """All models, by the names of their files."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")


def load(name: str, *, small: bool = False) -> TrainingModel:
    """The model of that name; ValueError if there is no such model."""
    if name not in names():
        raise ValueError(f"unknown model {name!r}; the models are: {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    model: TrainingModel = module.SMALL if small else module.FULL
    return model
