"""ONNX Runtime on the file that torch.onnx writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..workloads import Shape
from .base import Context, NotSupported
from .exports import FromOnnx, export_onnx

FUSED = "-fused"


def fuse(source: Path, target: Path) -> None:
    """Runs ONNX Runtime's optimizer for transformers, which finds the layers of other models than BERT too."""
    from onnxruntime.transformers import optimizer

    model = optimizer.optimize_model(str(source), model_type="bert", num_heads=0, hidden_size=0, opt_level=0)
    if not any(node.domain == "com.microsoft" for node in model.model.graph.node):
        raise NotSupported("ONNX Runtime's optimizer for transformers finds nothing to fuse")
    model.save_model_to_file(str(target), use_external_data_format=True)


QUANTISED = ("-qdq", "-operators", "-dynamic")
"""The ways of ONNX Runtime's quantiser: activations with observed ranges, as pairs of operators or as operators of
integers; or with ranges of their own in each call."""


def quantise(source: Path, target: Path, way: str, context: Context) -> None:
    """Runs ONNX Runtime's quantiser, with a scale for each filter or column of a weight."""
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = target.with_suffix(".ready.onnx")
    quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
    if way == "dynamic":
        quantization.quantize_dynamic(ready, target, per_channel=True, weight_type=quantization.QuantType.QInt8)
        return
    names = [x.name for x in onnxruntime.InferenceSession(str(ready)).get_inputs()]
    batches = [
        {name: x.numpy() for name, x in zip(names, batch, strict=True)} for batch in context.workload.calibration()
    ]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        left = iter(batches)

        def get_next(self) -> Any:
            return next(self.left, None)

    form = quantization.QuantFormat.QDQ if way == "qdq" else quantization.QuantFormat.QOperator
    quantization.quantize_static(
        str(ready),
        str(target),
        Reader(),
        quant_format=form,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


class Peer(FromOnnx):
    """All optimisations on; inputs and outputs are bound, so that nothing is copied or allocated."""

    title = "ONNX Runtime"
    packages = ("onnxruntime",)
    imports = ("onnxruntime",)
    quick = True
    precisions: ClassVar[tuple[str, ...]] = ("f32", "int8")

    @classmethod
    def variants(cls, context: Context) -> tuple[str, ...]:
        """The exporters, and with ONNX Runtime's optimizer for transformers for those whose graphs it knows."""
        if context.workload.precision == "int8":
            # ONNX Runtime's preparation fails on weights in files of their own, as the other exporter writes them.
            return tuple(f"script-20{way}" for way in QUANTISED)
        return (*super().variants(context), *(f"{exporter}{FUSED}" for exporter in ("dynamo-18", "script-20")))

    @classmethod
    def prepare(cls, context: Context) -> float | None:
        """Writes the ONNX file, and fuses what the optimizer for transformers finds."""
        if context.workload.precision == "int8":
            exporter, _, way = context.variant.rpartition("-")
            path, reused = export_onnx(context, exporter)
            result = path.with_name(f"{path.stem}-{way}.onnx")
            quantise(path, result, way, context)
            cls.artifact(context).write_text(result.name, encoding="utf-8")
            return reused
        if not context.variant.endswith(FUSED):
            return super().prepare(context)
        path, reused = export_onnx(context, context.variant.removesuffix(FUSED))
        fused = path.with_name(f"{path.stem}{FUSED}.onnx")
        fuse(path, fused)
        cls.artifact(context).write_text(fused.name, encoding="utf-8")
        return reused

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
        """A call with everything bound; a first one says how large the outputs are."""
        import onnxruntime

        self.binding = self.session.io_binding()
        self.values = [onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy()) for x in inputs]
        for declared, value in zip(self.session.get_inputs(), self.values, strict=True):
            self.binding.bind_ortvalue_input(declared.name, value)
        names = [declared.name for declared in self.session.get_outputs()]
        for name in names:
            self.binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(self.binding)
        # Buffers of our own: what the runtime returned may be a buffer that it shares between outputs.
        outputs = [x.numpy().copy() for x in self.binding.get_outputs()]
        self.binding.clear_binding_outputs()
        for name, array in zip(names, outputs, strict=True):
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            self.values.append(value)
            self.binding.bind_ortvalue_output(name, value)
        return partial(self.session.run_with_iobinding, self.binding)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """Copies."""
        return tuple(torch.from_numpy(x.numpy().copy()) for x in self.binding.get_outputs())
