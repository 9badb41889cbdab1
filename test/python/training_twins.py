"""A network trained twice from the same weights: by eager PyTorch and by a compiled step."""

import copy
import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

import disc
from bench.training.models.base import Shape, TrainingModel, eager_step

F64 = 1e-9
"""The bound of a run in f64, relative to the largest magnitude of each tensor."""
NOISE = 1e-12
"""Absolute, for parameters with gradients that are zero but for rounding, which Adam scales up."""


def compile_step(model: TrainingModel, module: nn.Module, optimizer: Any, dtype: torch.dtype, **options: Any) -> Any:
    """The compiled step of a network and its optimizer."""
    example = model.example(dtype)
    return disc.compile_training(
        module, optimizer, example, loss=model.loss, dynamic_shapes=model.dynamic_shapes(), **options
    )


class Twins:
    """Both runs, and their losses."""

    def __init__(self, model: TrainingModel, dtype: torch.dtype = torch.float64, **options: Any):
        self.model, self.dtype = model, dtype
        self.eager, self.module = model.build(dtype), model.build(dtype)
        self.eager_optimizer, self.optimizer = model.make_optimizer(self.eager), model.make_optimizer(self.module)
        self.step = compile_step(model, self.module, self.optimizer, dtype, **options)
        self.losses: list[tuple[float, float]] = []
        self._start = snapshot(self.module, self.optimizer), snapshot(self.eager, self.eager_optimizer)

    def restart(self) -> "Twins":
        """Both as they were at first, with the same compiled step."""
        self.losses.clear()
        ours, theirs = copy.deepcopy(self._start)
        self.module.load_state_dict(ours[0])
        self.optimizer.load_state_dict(ours[2])
        self.eager.load_state_dict(theirs[0])
        self.eager_optimizer.load_state_dict(theirs[2])
        self.eager_optimizer.zero_grad()
        return self

    def batch(self, shape: Shape, seed: int) -> tuple[Any, ...]:
        """The data of a step."""
        return self.model.data(shape, seed, self.dtype)

    def run(self, shapes: Iterable[Shape], seed: int = 0) -> None:
        """Steps of both on the same data."""
        for i, shape in enumerate(shapes):
            batch = self.batch(shape, seed + i)
            expected = eager_step(self.model, self.eager, self.eager_optimizer, *batch)
            self.losses.append((self.step(*batch).item(), expected.item()))

    def check(self, bound: float = F64, noise: float = NOISE, compilations: int = 1) -> None:
        """The same losses, parameters, buffers and optimizer state, from so many compilations."""
        for number, (actual, expected) in enumerate(self.losses):
            assert abs(actual - expected) <= bound * max(1.0, abs(expected)), (number, actual, expected)
        same_state(self.module.state_dict(), self.eager.state_dict(), bound, noise)
        same_state(dict(self.module.named_buffers()), dict(self.eager.named_buffers()), bound, noise)
        same_state(self.optimizer.state_dict(), self.eager_optimizer.state_dict(), bound, noise)
        assert self.step.compilations == compilations


def same_state(actual: Any, expected: Any, bound: float = 0.0, noise: float = 0.0, where: str = "state") -> None:
    """The same structure, types and dtypes; tensors as close as the bound says."""
    assert type(actual) is type(expected), (where, type(actual), type(expected))
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), (where, list(actual), list(expected))
        for key in expected:
            same_state(actual[key], expected[key], bound, noise, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            same_state(a, e, bound, noise, f"{where}[{i}]")
    elif isinstance(expected, Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), (where, actual, expected)
        if not expected.numel():
            return
        a, e = actual.detach().double(), expected.detach().double()
        gap, limit = (a - e).abs().max().item(), bound * e.abs().max().item() + noise
        assert gap <= limit, f"{where}: differs by {gap:.2e}, more than {limit:.2e}"
    else:
        assert actual == expected, (where, actual, expected)


def snapshot(module: nn.Module, optimizer: Any) -> Any:
    """A copy of everything that a step may change."""
    return copy.deepcopy((module.state_dict(), dict(module.named_buffers()), optimizer.state_dict()))


def cycle(model: TrainingModel, steps: int) -> list[Shape]:
    """The model's shapes in turn."""
    return [model.shapes[i % len(model.shapes)] for i in range(steps)]


def changing(model: TrainingModel, steps: int, seed: int = 0) -> list[Shape]:
    """Random sizes, another one at each step."""
    source = random.Random(seed)
    ranges = [(low, min(high, max(24, 2 * low))) for low, high in model.dims.values()]
    return [tuple(source.randint(low, high) for low, high in ranges) for _ in range(steps)]
