"""The built-in lowering rules, by kind of op. Importing a module registers its rules."""

from . import (
    attention,
    compare,
    contraction,
    creation,
    data_dependent,
    elementwise,
    gather,
    normalization,
    reduction,
    scalars,
    views,
)

__all__ = [
    "attention",
    "compare",
    "contraction",
    "creation",
    "data_dependent",
    "elementwise",
    "gather",
    "normalization",
    "reduction",
    "scalars",
    "views",
]
