"""Iterative refinement: sparse codes by proximal gradient steps of a length found by trying, until they settle."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({0: Dim("batch", min=1, max=16)},)


class Refinement(nn.Module):
    """An encoder guesses the codes of signals, and refinement improves them."""

    def __init__(self, features: int = 96, codes: int = 64, most: int = 16):
        super().__init__()
        self.guess = nn.Linear(features, codes)
        self.dictionary = nn.Parameter(F.normalize(torch.randn(codes, features), dim=-1))
        self.sparsity = 0.1
        self.tolerance = 1e-2
        self.most = most

    def improve(self, codes: Tensor, gradient: Tensor, step: float) -> Tensor:
        """A step against the gradient, and the proximal map of the codes' absolute values."""
        codes = codes - step * gradient
        return codes.sign() * F.relu(codes.abs() - step * self.sparsity)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """Codes of [batch, features], what they reconstruct, and the number of steps."""
        codes = self.guess(x)
        step = 0.5
        change = float("inf")
        steps = 0
        while change > self.tolerance and steps < self.most:
            gradient = (codes @ self.dictionary - x) @ self.dictionary.t()
            step = step * 1.5
            new = self.improve(codes, gradient, step)
            while step * ((new - codes) @ self.dictionary).square().sum() > (new - codes).square().sum():
                step = step * 0.5
                new = self.improve(codes, gradient, step)
            change = (new - codes).abs().max().item()
            codes = new
            steps += 1
        return codes, codes @ self.dictionary, steps


def make_model(seed: int = 0) -> Refinement:
    """Random weights; half of the batches get below the tolerance before the limit."""
    torch.manual_seed(seed)
    model = Refinement().eval().requires_grad_(False)
    batches = [x for (x,) in inputs(40, seed + 1)]
    low, high = 1e-5, 1.0
    for _ in range(8):
        model.tolerance = (low * high) ** 0.5
        late = sum(model(x)[2] == model.most for x in batches)
        low, high = (model.tolerance, high) if late > len(batches) / 2 else (low, model.tolerance)
    model.tolerance = high
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Batches of signals, some weak and some strong."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 17, (), generator=generator))
        strength = 0.2 + 2.0 * torch.rand((), generator=generator)
        yield (strength * torch.randn(batch, 96, generator=generator),)
