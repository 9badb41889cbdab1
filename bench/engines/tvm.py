"""TVM's Relax, without tuning: a schedule per operator from its default rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..workloads import Shape
from .base import NATIVE, Context, Engine
from .exports import exported_program


class Peer(Engine):
    """Relax's pipeline for the CPU and its virtual machine."""

    title = "TVM Relax"
    packages = ("apache-tvm",)
    imports = ("tvm",)
    tools = ("torch", *packages)

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """A shared object; the parameters are constants in it."""
        return context.cache / f"{context.stem}.tvm.so"

    @classmethod
    def prepare(cls, context: Context) -> None:
        """Imports and compiles."""
        from tvm import relax
        from tvm.relax.frontend.torch import from_exported_program

        module = from_exported_program(exported_program(context))
        relax.build(module, target=cls.target(context)).export_library(str(cls.artifact(context)))

    @staticmethod
    def target(context: Context) -> Any:
        """This machine."""
        import tvm

        cpu = tvm.target.codegen.llvm_get_system_cpu() if context.isa == NATIVE else context.cpu
        return tvm.target.Target({"kind": "llvm", "mcpu": cpu})

    def compile(self) -> None:
        """Loads the shared object."""
        os.environ["TVM_NUM_THREADS"] = str(self.context.threads)
        import tvm
        from tvm import relax

        library = tvm.runtime.load_module(str(self.artifact(self.context)))
        self.machine = relax.VirtualMachine(library, tvm.cpu())

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call on TVM's tensors."""
        import tvm

        return partial(self.machine["main"], *(tvm.runtime.tensor(x.numpy()) for x in inputs))

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """Copies."""
        try:
            return (torch.from_numpy(result.numpy().copy()),)
        except AttributeError:
            return tuple(torch.from_numpy(x.numpy().copy()) for x in result)
