"""Greedy generation by a small GPT-like decoder as one call, its cache of keys and values in the loop."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from .base import Shape, Workload

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from dynamic.generation import make_model


def workload(title: str, kind: str) -> tuple[Workload, Workload]:
    """The full workload and the small one."""

    def tensors(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randint(1, 300, shape, generator=generator),)

    def make(shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
        return Workload(
            title=title,
            dims={"batch": (1, 4), "length": (2, 32)},
            module=lambda: make_model(0, kind),
            tensors=tensors,
            axes=({0: "batch", 1: "length"},),
            shapes=shapes,
            quick=quick,
            tolerance=0.0,
        )

    shapes = (*((1, length) for length in (2, 7, 16, 31, 32)), *((2, 9), (3, 17), (4, 2), (4, 32)))
    return make(shapes, ((1, 7), (4, 32))), make(shapes[::2], ())


FULL, SMALL = workload("Generation", "growing")
