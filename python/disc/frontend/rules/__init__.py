"""The built-in lowering rules, by kind of op. Importing a module registers its rules."""

from . import (
    attention,
    batch_norm,
    compare,
    contraction,
    convolution,
    creation,
    data_dependent,
    elementwise,
    gather,
    masks,
    normalization,
    pooling,
    reduction,
    scalars,
    views,
)

__all__ = [
    "attention",
    "batch_norm",
    "compare",
    "contraction",
    "convolution",
    "creation",
    "data_dependent",
    "elementwise",
    "gather",
    "masks",
    "normalization",
    "pooling",
    "reduction",
    "scalars",
    "views",
]
