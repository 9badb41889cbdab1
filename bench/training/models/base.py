"""The description of a network, its loss, its data and its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
Batch = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class TrainingModel:
    """A network with everything a training run needs."""

    title: str
    dims: Mapping[str, tuple[int, int]]
    """The dynamic sizes in the order of a shape, with their limits."""
    module: Callable[[], nn.Module]
    """Creates the network. The global generator is seeded before."""
    loss: Callable[..., Tensor]
    """The scalar loss of `loss(module, *batch)`."""
    batch: Callable[[Shape, torch.Generator], Batch]
    """The data of one step."""
    axes: tuple[Mapping[int, str] | None, ...]
    """For each argument of a batch, the sizes among its dimensions; None for a tree, whose size is always dynamic."""
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the optimizer."""
    groups: Callable[[nn.Module], Iterable[Any]] = lambda module: module.parameters()
    """The parameters that the optimizer updates, or groups of them."""
    branches: bool = False
    """Whether a step may leave parameters out that another one uses. Their gradients are zero then, as after
    `zero_grad(set_to_none=False)`."""
    example_at: Shape | None = None
    """The shape to compile with, if small sizes are special: a feature map of size 1, for example."""
    random: bool = False
    """Whether a step uses random numbers, such as dropout's: runs are then equal only in distribution."""
    shapes: tuple[Shape, ...]
    quick: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        for shape in (*self.shapes, *self.quick):
            limits = zip(shape, self.dims.values(), strict=True)
            if not all(low <= size <= high for size, (low, high) in limits):
                raise ValueError(f"{self.title}: {shape} is not within {dict(self.dims)}")

    def build(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The network in training mode, with the same weights each time."""
        torch.manual_seed(0)
        return self.module().to(dtype).train()

    def make_optimizer(self, module: nn.Module, **choice: Any) -> torch.optim.Optimizer:
        """The optimizer of a network; `choice` is an implementation, such as `fused=True`."""
        make: Any = self.optimizer
        result: torch.optim.Optimizer = make(self.groups(module), **self.options, **choice)
        return result

    def data(self, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32) -> Batch:
        """A batch of a shape, the same each time for a seed."""
        for size in shape:
            seed = seed * 1_009 + size
        return tuple(cast(value, dtype) for value in self.batch(shape, torch.Generator().manual_seed(seed)))

    def example_shape(self) -> Shape:
        """The shape to compile with. Its sizes differ from each other."""
        return self.example_at or tuple(
            min(high, max(low, 3 + 2 * i)) for i, (low, high) in enumerate(self.dims.values())
        )

    def example(self, dtype: torch.dtype = torch.float32) -> Batch:
        """A batch of that shape."""
        return self.data(self.example_shape(), dtype=dtype)

    def dynamic_shapes(self) -> tuple[Any, ...] | None:
        """The dynamic dimensions as `torch.export` and `disc.compile_training` expect them; None if there are none."""
        if not any(self.axes):
            return None
        dims = {name: torch.export.Dim(name, min=low, max=high) for name, (low, high) in self.dims.items()}
        return tuple(axes and {axis: dims[name] for axis, name in axes.items()} for axes in self.axes)


def cast(value: Any, dtype: torch.dtype) -> Any:
    """A value of a batch with floating-point tensors in another dtype, those of trees included."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{name: cast(getattr(value, name), dtype) for name in value.__dataclass_fields__})
    return value


def eager_step(model: TrainingModel, module: nn.Module, optimizer: torch.optim.Optimizer, *batch: Any) -> Tensor:
    """One step of ordinary PyTorch; the loss before the update."""
    if model.branches:
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
    else:
        optimizer.zero_grad()
    loss = model.loss(module, *batch)
    loss.backward()
    optimizer.step()
    return loss.detach()
