"""Models as files for engines that do not read PyTorch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import torch

from .base import Context, Engine, NotSupported

# 23 is the first with an attention operator, with which ONNX Runtime and OpenVINO are faster than with attention
# spelled out; but they do not take every such operator.
OPSETS = (23, 18)


def exported_program(context: Context) -> torch.export.ExportedProgram:
    """The model as torch.export gives it, for all shapes."""
    workload = context.workload
    return torch.export.export(workload.exportable(), workload.example(), dynamic_shapes=workload.dynamic_shapes())


class FromOnnx(Engine):
    """An engine that reads the file that torch.onnx writes; those who do share it.

    The artifact is the name of the file with the newest operators that the engine can run.
    """

    tools: ClassVar[tuple[str, ...]] = ("torch", "onnx", "onnxscript")

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """The file's name in a file."""
        return context.cache / f"{context.name}.{cls.__module__.rpartition('.')[2]}.txt"

    @classmethod
    def prepare(cls, context: Context) -> float | None:
        """Writes ONNX files until there is one that runs."""
        example, problem = context.workload.example(), ""
        for opset in OPSETS:
            path, reused = export_onnx(context, opset)
            cls.artifact(context).write_text(path.name, encoding="utf-8")
            engine = cls(context)
            try:
                engine.compile()
                engine.bind(context.workload.example_shape(), example)()
            except Exception as error:
                problem = problem or str(error)
            else:
                return reused
        cls.artifact(context).unlink()
        raise NotSupported(problem)

    def file(self) -> str:
        """The ONNX file."""
        return str(self.context.cache / self.artifact(self.context).read_text(encoding="utf-8"))


def export_onnx(context: Context, opset: int) -> tuple[Path, float]:
    """Writes an ONNX file unless it is there, and says how long that once took."""
    path = context.cache / f"{context.name}.{context.fingerprint}.opset{opset}.onnx"
    took = path.with_suffix(".seconds")
    if took.exists():
        return path, float(took.read_text(encoding="ascii"))
    for old in context.cache.glob(f"{context.name}.*.opset{opset}.*"):
        old.unlink()
    options: dict[str, Any] = {"dynamo": True, "opset_version": opset, "external_data": True, "verbose": False}
    workload, start = context.workload, time.perf_counter()
    module, example, shapes = workload.exportable(), workload.example(), workload.dynamic_shapes()
    torch.onnx.export(module, example, str(path), dynamic_shapes=shapes, **options)
    took.write_text(f"{time.perf_counter() - start}", encoding="ascii")
    return path, 0.0
