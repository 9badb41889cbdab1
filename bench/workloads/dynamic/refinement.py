"""Iterative refinement as a `while_loop` in a `while_loop`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from .network import workloads


class Written(nn.Module):
    """The step's length is a tensor."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, what they reconstruct, and the number of steps."""
        model = self.model
        dictionary = model.dictionary

        def unfinished(steps: Tensor, codes: Tensor, step: Tensor, change: Tensor) -> Tensor:
            return (change > model.tolerance) & (steps < model.most)

        def refine(steps: Tensor, codes: Tensor, step: Tensor, change: Tensor) -> tuple[Tensor, ...]:
            gradient = (codes @ dictionary - x) @ dictionary.t()

            def too_long(step: Tensor, new: Tensor) -> Tensor:
                return step * ((new - codes) @ dictionary).square().sum() > (new - codes).square().sum()

            def halve(step: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
                step = step * 0.5
                return step, model.improve(codes, gradient, step)

            step = step * 1.5
            step, new = while_loop(too_long, halve, (step, model.improve(codes, gradient, step)))
            return steps + 1, new.clone(), step.clone(), (new - codes).abs().max()

        zero = torch.zeros((), dtype=torch.int64)
        carried = (zero, model.guess(x), torch.tensor(0.5), torch.tensor(float("inf")))
        steps, codes, _, _ = while_loop(unfinished, refine, carried)
        return codes, codes @ dictionary, steps


FULL, SMALL = workloads("refinement", "Refinement", Written)
