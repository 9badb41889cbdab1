"""The peers: eager PyTorch, checkpoints around blocks, and `torch.compile` with a memory budget."""

from __future__ import annotations

import signal
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .allocations import peak_of
from .models import MemoryModel

BUDGETS = (1.0, 0.5, 0.25, 0.1)
"""`torch._functorch.config.activation_memory_budget`."""
COMPILE_LIMIT = 240
"""Seconds. Twice what one would wait for, since other programs use this machine too."""


class TooLong(Exception):
    """A compilation took longer than the limit."""


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raises TooLong after so many seconds."""

    def stop(*_: Any) -> None:
        raise TooLong(f"compilation takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Eager:
    """Ordinary PyTorch with the optimizer's fused kernels, which need no memory."""

    name = "eager"
    title = "eager"

    def __init__(self, model: MemoryModel):
        self.model = model
        self.module = model.training.build()
        self.optimizer = model.training.make_optimizer(self.module, fused=True)
        self.start = [t.detach().clone() for t in self._tensors()]
        self.compile_seconds: float | None = None

    def prepare(self, batch: tuple[Any, ...]) -> None:
        """Whatever comes before the first step at a shape."""

    def loss(self, *batch: Any) -> Tensor:
        """The loss with its graph."""
        return self.model.training.loss(self.module, *batch)

    def step(self, *batch: Any) -> Tensor:
        """One step; the loss before the update. Gradients are freed at its start, so that a step allocates them."""
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def peaks(self, batch: tuple[Any, ...]) -> tuple[int, int]:
        """The peak of a step with its gradients, and the peak if they are allocated before."""
        self.step(*batch)
        self.optimizer.zero_grad()
        whole = peak_of(lambda: self.step(*batch))

        def kept() -> None:
            self.optimizer.zero_grad(set_to_none=False)
            self.loss(*batch).backward()
            self.optimizer.step()

        return whole, peak_of(kept)

    def reset(self) -> None:
        """The weights and buffers of the start."""
        with torch.no_grad():
            for tensor, value in zip(self._tensors(), self.start, strict=True):
                tensor.copy_(value)
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()

    def _tensors(self) -> list[Tensor]:
        return [*self.module.parameters(), *self.module.buffers()]


class Checkpointed(Eager):
    """`torch.utils.checkpoint` around each block."""

    name = "checkpoint"
    title = "eager, checkpoints"

    def __init__(self, model: MemoryModel):
        super().__init__(model)
        for block in model.blocks(self.module):
            block.forward = _again(block.forward)  # type: ignore[method-assign]


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False)

    return call


class Compiled(Eager):
    """`torch.compile` of the loss at static shapes; its backward recomputes what the budget asks for."""

    def __init__(self, model: MemoryModel, budget: float):
        super().__init__(model)
        self.budget = budget
        self.name, self.title = f"compile_{budget:g}", f"torch.compile, budget {budget:g}"
        self._loss: Callable[..., Tensor] | None = None

    def prepare(self, batch: tuple[Any, ...]) -> None:
        """Compiles for the shape."""
        import torch._functorch.config as functorch
        import torch._inductor.config as inductor

        loss = self.model.training.loss
        assert isinstance(loss, types.FunctionType)
        # Dynamo caches what it compiled by the code object: each budget needs one of its own.
        code = loss.__code__.replace(co_name=f"{loss.__name__}_{self.name.replace('.', '_')}")
        own = types.FunctionType(code, loss.__globals__, code.co_name, loss.__defaults__, loss.__closure__)
        self._loss = torch.compile(own, dynamic=False)
        start = time.perf_counter()
        caches = {"fx_graph_cache": False, "compile_threads": 1}
        with (
            limit(COMPILE_LIMIT),
            functorch.patch(activation_memory_budget=self.budget, enable_autograd_cache=False),
            inductor.patch(caches),
        ):
            self.step(*batch)
        self.compile_seconds = time.perf_counter() - start
        self.reset()

    def loss(self, *batch: Any) -> Tensor:
        """The compiled loss."""
        assert self._loss is not None
        return self._loss(self.module, *batch)


def peers(model: MemoryModel) -> list[Callable[[], Eager]]:
    """What creates each peer that does not compile."""
    found: list[Callable[[], Eager]] = [lambda: Eager(model)]
    if list(model.blocks(model.training.build())):
        found.append(lambda: Checkpointed(model))
    return found


def compiled(model: MemoryModel) -> list[Callable[[], Eager]]:
    """What creates `torch.compile` with each budget."""
    return [lambda budget=budget: Compiled(model, budget) for budget in BUDGETS]  # type: ignore[misc]
