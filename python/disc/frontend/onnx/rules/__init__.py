"""Rules for ONNX operators, by kind. Importing a module registers its rules."""

from . import (
    convolution,
    detection,
    elementwise,
    indexing,
    integers,
    layers,
    optimizers,
    padding,
    pooling,
    recurrent,
    reductions,
    resizing,
    shapes,
    signals,
    unsupported,
)

__all__ = [
    "convolution",
    "detection",
    "elementwise",
    "indexing",
    "integers",
    "layers",
    "optimizers",
    "padding",
    "pooling",
    "recurrent",
    "reductions",
    "resizing",
    "shapes",
    "signals",
    "unsupported",
]
