"""Networks whose course depends on what they see, each as one writes it in PyTorch.

A file of `NETWORKS` has `make_model(seed)`, whose random weights are calibrated so that its inputs go all ways;
`inputs(n, seed)`, which yields the arguments of `n` calls; and `dynamic_shapes`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

NETWORKS = (
    "early_exit",
    "skipnet",
    "block_drop",
    "layer_drop",
    "slimmable",
    "adaptive_time",
    "greedy",
    "beam_search",
    "captioning",
    "refinement",
    "mixture_of_depths",
    "speculative",
)


def path_of(name: str) -> Path:
    """A network's source."""
    return Path(__file__).with_name(f"{name}.py")


def load(name: str) -> ModuleType:
    """A network's module."""
    return importlib.import_module(f"{__name__}.{name}")
