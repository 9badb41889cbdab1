"""IREE's CPU backend, by way of iree-turbine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..workloads import Shape
from .base import NATIVE, Context, Engine, NotSupported
from .exports import exported_program

LIMIT = 300.0


class Peer(Engine):
    """Compiled for this machine, with one executor per thread."""

    title = "IREE"
    packages = ("iree-base-compiler", "iree-base-runtime", "iree-turbine")
    imports = ("iree.runtime",)
    tools = ("torch", *packages)

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """IREE's module."""
        return context.cache / f"{context.stem}.vmfb"

    @classmethod
    def prepare(cls, context: Context) -> None:
        """Imports and compiles; what torch.export gives first, and decomposed if IREE cannot take that."""
        program = exported_program(context)
        problem = cls._build(context, program)
        if problem and cls._build(context, program.run_decompositions()):
            raise NotSupported(problem)

    @classmethod
    def _build(cls, context: Context, program: torch.export.ExportedProgram) -> str:
        """Why it did not work, or nothing."""
        from iree.turbine import aot

        text = cls.artifact(context).with_suffix(".mlir")
        command = [str(Path(sys.executable).with_name("iree-compile")), str(text), "-o", str(cls.artifact(context))]
        command += ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
        cpu = "host" if context.isa == NATIVE else context.cpu
        command += [f"--iree-llvmcpu-target-cpu={cpu}", "--iree-opt-level=O3"]
        # Otherwise rows of some hundred elements are an error.
        command += ["--iree-llvmcpu-fail-on-large-vector=false"]
        try:
            aot.export(program).save_mlir(str(text))
            result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return f"compiling takes more than {LIMIT:.0f} s"
        except Exception as error:
            return str(error)
        finally:
            text.unlink(missing_ok=True)
        lines = [line.split("error:", 1)[1].strip() for line in result.stderr.splitlines() if "error:" in line]
        return (lines or [result.stderr[-300:]])[0] if result.returncode else ""

    def compile(self) -> None:
        """Loads the module."""
        import iree.runtime as rt

        rt.flags.parse_flags(f"--task_topology_group_count={self.context.threads}")
        config = rt.Config("local-task")
        self.device = config.device
        module = rt.VmModule.mmap(config.vm_instance, str(self.artifact(self.context)))
        self.function = rt.load_vm_module(module, config)["main"]

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call on arrays of the device."""
        import iree.runtime as rt

        return partial(self.function, *(rt.asdevicearray(self.device, x.numpy()) for x in inputs))

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """Copies."""
        results = result if isinstance(result, (tuple, list)) else (result,)
        return tuple(torch.from_numpy(x.to_host().copy()) for x in results)
