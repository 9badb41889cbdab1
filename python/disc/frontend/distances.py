"""Decompositions of distances between the rows of matrices, and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _pairs(count: Any) -> tuple[Tensor, Tensor]:
    """The first and second row of each pair of ``count`` rows, in the order of the upper triangle."""
    pairs = torch.arange(count * (count - 1) // 2)
    # Row i begins at i (2 n - i - 1) / 2: the root of that, put right where it is rounded up.
    twice = 2 * count - 1
    first = torch.floor((twice - torch.sqrt((twice * twice - 8 * pairs).to(torch.float64))) / 2).to(torch.int64)
    first = torch.where(first * (twice - first) // 2 > pairs, first - 1, first)
    return first, pairs - first * (twice - first) // 2 + first + 1


def _pdist(x: Tensor, p: float = 2) -> Tensor:
    """The distances of all pairs of rows, in the order of the upper triangle."""
    first, second = _pairs(x.shape[0])
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)


def _slope(grad: Tensor, difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """The gradient of a p-norm, a distance, by the elements of the difference; equal rows have none."""
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return grad * torch.sign(difference)
    if p == math.inf:
        return grad * torch.sign(difference) * (difference.abs() == distance)
    if p == 2:
        slope = grad * difference / distance
    else:
        slope = torch.sign(difference) * difference.abs() ** (p - 1) * grad / distance ** (p - 1)
    equal = distance == 0
    if p < 1:
        equal = equal | (difference == 0)
    return torch.where(equal, 0.0, slope)


def _pdist_backward(grad: Tensor, x: Tensor, p: float, distances: Tensor) -> Tensor:
    first, second = _pairs(x.shape[0])
    slope = _slope(grad.unsqueeze(1), x[first] - x[second], distances.unsqueeze(1), p)
    return torch.zeros_like(x).index_add(0, first, slope).index_add(0, second, -slope)


def _cdist_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, distances: Tensor) -> Tensor:
    """The gradient of x [..., n, m] of its distances [..., n, r] to y [..., r, m]."""
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    return _slope(grad.unsqueeze(-1), difference, distances.unsqueeze(-1), p).sum(-2)


DISTANCES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._pdist_forward.default: _pdist,
    torch.ops.aten._pdist_backward.default: _pdist_backward,
    torch.ops.aten._cdist_backward.default: _cdist_backward,
}
