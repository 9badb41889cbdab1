"""Small networks for tests of training, each with one thing that a compiled step must handle."""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn import functional as F

from bench.training.models.base import TrainingModel

SHAPES = ((1, 5), (4, 2), (7, 3), (2, 16), (5, 9))


def regression(
    title: str, module: Callable[[], nn.Module], features: int = 6, outputs: int = 3, **options: Any
) -> TrainingModel:
    """Mean squared error of rows [batch, length, features]."""

    def batch(shape, generator):
        x = torch.randn(*shape, features, generator=generator)
        return x, torch.sin(2 * x[..., :outputs])

    settings: dict[str, Any] = {"options": {"lr": 3e-3}, "loss": lambda module, x, y: F.mse_loss(module(x), y)}
    return TrainingModel(
        title=title,
        dims={"batch": (1, 64), "length": (1, 64)},
        module=module,
        batch=batch,
        axes=({0: "batch", 1: "length"},) * 2,
        shapes=SHAPES,
        **settings | options,
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 3))


class Tied(nn.Module):
    """One matrix used twice, once transposed, and a layer that is used at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.first = nn.Linear(6, 8, bias=False)
        self.again = self.inner
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.again(torch.tanh(self.inner(self.first(x)))))
        return self.last(y @ self.first.weight)


def frozen() -> nn.Module:
    """The first layer has no gradients; the optimizer has its parameters all the same."""
    module = mlp()
    module.get_submodule("0").requires_grad_(False)
    return module


class Unused(nn.Module):
    """A parameter that the loss does not depend on: eager leaves it, and its optimizer state, alone."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.unused = mlp(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def in_groups(module: nn.Module) -> list[dict[str, Any]]:
    first, *_, last = module.children()
    return [
        {"params": first.parameters(), "lr": 1e-2, "weight_decay": 0.3},
        {"params": last.parameters(), "lr": 1e-3, "betas": (0.5, 0.7)},
    ]


class Counting(nn.Module):
    """Buffers that a step updates: a running mean, an integer count, and one that state_dict does not contain."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("largest", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.lerp_(x.mean(dim=(0, 1)), 0.1)
            self.steps += 1
            self.largest.copy_(torch.maximum(self.largest, x.abs().max()))
        return self.body(x - self.mean) + self.steps * 0.01


class Straight(torch.autograd.Function):
    """Rounds; the gradient passes as if it had not."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class Rounding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Straight.apply(torch.tanh(self.first(x))))


class Checkpointed(nn.Module):
    """Activations of the middle part are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = (
            nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.GELU()),
            nn.Linear(10, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False))


class Convolutions(nn.Module):
    """Convolution, batch norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.second, self.head = nn.Conv2d(6, 8, 3, stride=2), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(F.relu(self.second(x)).mean(dim=(2, 3)))


def _images(shape, generator):
    count, size = shape
    labels = torch.randint(4, (count,), generator=generator)
    return torch.randn(count, 2, size, size, generator=generator) + labels[:, None, None, None], labels


def _autocast_loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = module(x)
    return F.mse_loss(result.float(), y)


CASES = {
    "regression": regression("regression", mlp),
    "loss_of_module": regression(
        "the module returns its loss",
        lambda: WithLoss(mlp()),
        loss=lambda module, x, y: module(x, y),
    ),
    "tied": regression("tied weights", Tied),
    "frozen": regression("a frozen layer", frozen),
    "unused": regression("an unused layer", Unused),
    "groups": regression("parameter groups", mlp, groups=in_groups),
    "buffers": regression("buffers", Counting),
    "custom_function": regression("a function with its own gradient", Rounding),
    "checkpoint": regression("activation checkpointing", Checkpointed),
    "convolutions": TrainingModel(
        title="convolutions",
        dims={"batch": (2, 32), "size": (8, 40)},
        module=Convolutions,
        loss=lambda module, x, y: F.cross_entropy(module(x), y),
        batch=_images,
        axes=({0: "batch", 2: "size", 3: "size"}, {0: "batch"}),
        optimizer=torch.optim.SGD,
        options={"lr": 0.05, "momentum": 0.9},
        example_at=(3, 21),
        shapes=((2, 9), (3, 16), (5, 12), (4, 25)),
    ),
}
AUTOCAST = regression("bf16 autocast", mlp, loss=_autocast_loss)


class WithLoss(nn.Module):
    """A network whose result is the loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.body(x), y)
