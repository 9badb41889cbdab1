"""AOTInductor: Inductor's code ahead of time, without Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import Context, Engine
from .exports import exported_program
from .inductor import hold


class Peer(Engine):
    """A package compiled for all shapes, called through PyTorch's loader."""

    title = "AOTInductor"
    packages = ("torch",)
    imports = ("torch._inductor",)

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """The package."""
        return context.cache / f"{context.stem}.pt2"

    @classmethod
    def prepare(cls, context: Context) -> None:
        """Compiles it, with frozen parameters where Inductor can (it says no to some), else without."""
        torch.set_num_threads(context.threads)
        hold(context)
        program = exported_program(context)
        path = str(cls.artifact(context))
        try:
            torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs={"freezing": True})
        except Exception:
            torch._inductor.aoti_compile_and_package(program, package_path=path)

    def compile(self) -> None:
        """Loads the package."""
        torch.set_num_threads(self.context.threads)
        self.model = torch._inductor.aoti_load_package(str(self.artifact(self.context)))

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call of the loader, without the Python wrapper that flattens arguments."""
        return partial(self.model, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
