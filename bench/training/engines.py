"""The engines that take training steps, each as its users would set it up."""

from __future__ import annotations

import gc
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from .models import TrainingModel

OURS = "disc"
REFERENCE = "eager_foreach"
"""The engine whose losses the others must have."""


class NotSupported(Exception):
    """The engine cannot train this model; the message is the reason."""


class Engine(ABC):
    """A network, its optimizer, and a step. Lives in a process that runs nothing else."""

    title: ClassVar[str]
    choice: ClassVar[dict[str, Any]] = {}
    """The optimizer's implementation."""
    recompiles: ClassVar[bool] = False
    """Whether a first step at a shape may compile."""

    def __init__(self, model: TrainingModel, threads: int):
        torch.set_num_threads(threads)
        for name in self.choice:
            if name not in inspect.signature(model.optimizer).parameters:
                raise NotSupported(f"{model.optimizer.__name__} has no implementation {name}=True")
        self.model, self.threads = model, threads
        self.module = model.build()
        self.optimizer = model.make_optimizer(self.module, **self.choice)
        self.weights = [t.detach().clone() for t in self._tensors()]

    @abstractmethod
    def compile(self) -> None:
        """Prepares the step, and takes one so that the optimizer has its state. Timed."""

    @abstractmethod
    def step(self, *batch: Any) -> Tensor:
        """One step; the loss before the update."""

    def recompilations(self) -> int | None:
        """Compilations after the first step; None if the engine does not compile."""
        return None

    def reset(self) -> None:
        """The weights, buffers and optimizer state of the start, written into the tensors of the engine."""
        with torch.no_grad():
            for tensor, value in zip(self._tensors(), self.weights, strict=True):
                tensor.copy_(value)
            for state in self.optimizer.state.values():
                for value in state.values():
                    if isinstance(value, Tensor):
                        value.zero_()

    def idle(self) -> None:
        """Frees what an engine does not need between two steps."""
        self.optimizer.zero_grad()
        gc.collect()

    def kept(self, sizes: dict[str, int]) -> int:
        """Bytes of temporaries that the engine keeps from one step to the next, at these dynamic sizes."""
        return 0

    def state_bytes(self) -> int:
        """The size of weights, buffers and the optimizer's state."""
        state = [v for s in self.optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
        return sum({t.data_ptr(): t.nbytes for t in (*self._tensors(), *state)}.values())

    def _tensors(self) -> list[Tensor]:
        return [*self.module.parameters(), *self.module.buffers()]


class Foreach(Engine):
    """Ordinary PyTorch, with the optimizer's operations over lists of tensors."""

    title = "eager, foreach"
    choice: ClassVar[dict[str, Any]] = {"foreach": True}

    def compile(self) -> None:
        """A step."""
        self.step(*self.model.example())

    def step(self, *batch: Any) -> Tensor:
        """Forward, backward, update."""
        # Parameters that a branch leaves out have no gradient then, and less work: to the advantage of eager PyTorch.
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.update()
        return loss.detach()

    def loss(self, *batch: Any) -> Tensor:
        """The loss with its graph."""
        return self.model.loss(self.module, *batch)

    def update(self) -> None:
        """The optimizer's step."""
        self.optimizer.step()


class Fused(Foreach):
    """Ordinary PyTorch, with the optimizer's fused kernels."""

    title = "eager, fused"
    choice: ClassVar[dict[str, Any]] = {"fused": True}


class Compile(Foreach):
    """`torch.compile` of the loss, whose backward it compiles too, and of the optimizer's step."""

    title = "torch.compile"
    choice: ClassVar[dict[str, Any]] = {}
    recompiles = True
    compile_update: ClassVar[bool] = True

    def compile(self) -> None:
        """The step of the example."""
        import torch._dynamo.config

        # The default stops compiling after 8, and runs eagerly from then on.
        torch._dynamo.config.recompile_limit = 64
        self._loss: Callable[..., Tensor] = torch.compile(super().loss, dynamic=True)
        self._update: Callable[[], Any] = self.optimizer.step
        if self.compile_update:
            self._update = torch.compile(self.optimizer.step)
        # Twice: the first step creates the optimizer's state, so that the second one compiles its update again.
        for _ in range(2):
            self.step(*self.model.example())
        self.first = self._graphs()

    def loss(self, *batch: Any) -> Tensor:
        """The compiled loss."""
        return self._loss(*batch)

    def update(self) -> None:
        """The compiled update."""
        self._update()

    def recompilations(self) -> int | None:
        """Graphs that were compiled after the example's."""
        return self._graphs() - self.first

    def _graphs(self) -> int:
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])


class CompileFused(Compile):
    """`torch.compile` of the loss, and the optimizer's fused kernels."""

    title = "torch.compile, fused optimizer"
    choice: ClassVar[dict[str, Any]] = {"fused": True}
    compile_update = False


class Disc(Engine):
    """One native call for the whole step, compiled once."""

    title = "DISC"

    def compile(self) -> None:
        """The step for all shapes."""
        import disc

        self._step = disc.compile_training(
            self.module,
            self.optimizer,
            self.model.example(),
            loss=self.model.loss,
            dynamic_shapes=self.model.dynamic_shapes(),
            options=disc.Options(threads=self.threads),
        )
        self.step(*self.model.example())

    def step(self, *batch: Any) -> Tensor:
        """The call."""
        loss: Tensor = self._step(*batch)
        return loss

    def kept(self, sizes: dict[str, int]) -> int:
        """The arena: it is allocated in the first step at a size."""
        arena: int = self._step.model.memory(**sizes).arena
        return arena

    def recompilations(self) -> int | None:
        """Compilations after the first."""
        return int(self._step.compilations) - 1


ENGINES: dict[str, type[Engine]] = {
    "eager": Fused,
    "eager_foreach": Foreach,
    "compile": Compile,
    "compile_fused": CompileFused,
    OURS: Disc,
}
