"""Models as files for engines that do not read PyTorch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import torch

from .base import Context, Engine

EXPORTERS = {
    # Its first opset with an attention operator, with which ONNX Runtime and OpenVINO are faster than with attention
    # spelled out; but they do not take every such operator.
    "dynamo-23": (True, 23),
    "dynamo-18": (True, 18),
    # Has LSTM and GRU as operators, where the other writes loops or nothing.
    "script-20": (False, 20),
}
"""By name: whether the exporter is the one on torch.export or the one on TorchScript, and the opset."""


def exported_program(context: Context) -> torch.export.ExportedProgram:
    """The model as torch.export gives it, for all shapes."""
    workload = context.workload
    return torch.export.export(workload.exportable(), workload.example(), dynamic_shapes=workload.dynamic_shapes())


class FromOnnx(Engine):
    """An engine that reads the file that torch.onnx writes; those who do share it. A variant for each exporter."""

    tools: ClassVar[tuple[str, ...]] = ("torch", "onnx", "onnxscript")

    @classmethod
    def variants(cls, context: Context) -> tuple[str, ...]:
        """The exporters."""
        return tuple(EXPORTERS)

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """The file's name in a file: the ONNX file is not the engine's alone."""
        return context.cache / f"{context.stem}.{cls.__module__.rpartition('.')[2]}.txt"

    @classmethod
    def prepare(cls, context: Context) -> float | None:
        """Writes the ONNX file, unless another engine did."""
        path, reused = export_onnx(context, context.variant)
        cls.artifact(context).write_text(path.name, encoding="utf-8")
        return reused

    def file(self) -> str:
        """The ONNX file."""
        return str(self.context.cache / self.artifact(self.context).read_text(encoding="utf-8"))


def export_onnx(context: Context, exporter: str) -> tuple[Path, float]:
    """Writes an ONNX file unless it is there, and says how long that once took."""
    path = context.cache / f"{context.name}.{context.fingerprint}.{exporter}.onnx"
    took = path.with_suffix(".seconds")
    if took.exists():
        return path, float(took.read_text(encoding="ascii"))
    for old in context.cache.glob(f"{context.name}.*.{exporter}[.-]*"):
        old.unlink()
    dynamo, opset = EXPORTERS[exporter]
    workload, start = context.workload, time.perf_counter()
    options: dict[str, Any] = {"dynamo": dynamo, "opset_version": opset}
    if dynamo:
        options |= {"dynamic_shapes": workload.dynamic_shapes(), "external_data": True, "verbose": False}
    else:
        names = [f"input{i}" for i in range(len(workload.axes))]
        axes = {name: dict(named) for name, named in zip(names, workload.axes, strict=True)}
        options |= {"input_names": names, "dynamic_axes": axes}
    torch.onnx.export(workload.exportable(), workload.example(), str(path), **options)
    took.write_text(f"{time.perf_counter() - start}", encoding="ascii")
    return path, 0.0
