"""ONNX Runtime on the file that torch.onnx writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..workloads import Shape
from .exports import FromOnnx


class Peer(FromOnnx):
    """All optimisations on; inputs and outputs are bound, so that nothing is copied."""

    title = "ONNX Runtime"
    packages = ("onnxruntime",)
    imports = ("onnxruntime",)
    quick = True

    def compile(self) -> None:
        """Makes the session."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.context.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        path = self.file()
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call with everything bound; the runtime allocates outputs by itself, as it must for unknown extents."""
        import onnxruntime

        self.binding = self.session.io_binding()
        self.values = [onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy()) for x in inputs]
        for declared, value in zip(self.session.get_inputs(), self.values, strict=True):
            self.binding.bind_ortvalue_input(declared.name, value)
        for declared in self.session.get_outputs():
            self.binding.bind_output(declared.name, "cpu")
        return partial(self.session.run_with_iobinding, self.binding)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """Copies."""
        return tuple(torch.from_numpy(x.numpy().copy()) for x in self.binding.get_outputs())
