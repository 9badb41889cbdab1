"""OpenVINO on what torch.export or TorchScript makes of the model, in f32, in bf16, or in int8 by NNCF."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..workloads import Shape
from .base import Context, Engine
from .exports import exported_program


def quantised(model: Any, context: Context) -> Any:
    """The model in int8 by NNCF, OpenVINO's quantiser, with its preset for speed."""
    import nncf

    batches = [tuple(x.numpy() for x in batch) for batch in context.workload.calibration()]
    kind = nncf.ModelType.TRANSFORMER if context.workload.transformer else None
    return nncf.quantize(
        model,
        nncf.Dataset(batches),
        preset=nncf.QuantizationPreset.PERFORMANCE,
        model_type=kind,
        subset_size=len(batches),
    )


class Peer(Engine):
    """Settings for latency on one stream; f32, since its default would be bf16 on many processors."""

    title = "OpenVINO"
    packages = ("openvino",)
    imports = ("openvino",)
    tools: ClassVar[tuple[str, ...]] = ("torch", "openvino")
    quick = True
    precisions: ClassVar[tuple[str, ...]] = ("f32", "bf16", "int8")
    any_allocator = False  # with tcmalloc it dies of "free(): invalid pointer"; jemalloc was not tried

    @classmethod
    def variants(cls, context: Context) -> tuple[str, ...]:
        """From torch.export, or traced: then recurrent layers stay what they are."""
        return ("export", "traced")

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """OpenVINO's own file format."""
        return context.cache / f"{context.stem}.xml"

    @classmethod
    def prepare(cls, context: Context) -> float | None:
        """Converts the exported program; decomposed, if there is an operator that OpenVINO does not know."""
        import openvino

        if context.variant == "traced":
            model = openvino.convert_model(context.workload.exportable(), example_input=context.workload.example())
        else:
            program = exported_program(context)
            try:
                model = openvino.convert_model(program)
            except Exception:
                model = openvino.convert_model(program.run_decompositions())
        if context.workload.precision == "int8":
            model = quantised(model, context)
        openvino.save_model(model, str(cls.artifact(context)), compress_to_fp16=False)
        return None

    def compile(self) -> None:
        """Compiles for dynamic shapes."""
        import openvino

        core = openvino.Core()
        config = {
            "INFERENCE_PRECISION_HINT": "bf16" if self.context.workload.precision == "bf16" else "f32",
            "KV_CACHE_PRECISION": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": self.context.threads,
        }
        self.model = core.compile_model(core.read_model(self.file()), "CPU", config)
        self.request = self.model.create_infer_request()

    def file(self) -> str:
        """What OpenVINO reads."""
        return str(self.artifact(self.context))

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call on inputs that are shared, not copied; outputs stay in the request's memory."""
        import openvino

        self.inputs = [x.numpy() for x in inputs]
        for i, array in enumerate(self.inputs):
            self.request.set_input_tensor(i, openvino.Tensor(array, shared_memory=True))
        # Otherwise each call copies the outputs.
        return partial(self.request.infer, share_inputs=True, share_outputs=True)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """Copies."""
        tensors = [self.request.get_output_tensor(i) for i in range(len(self.model.outputs))]
        return tuple(torch.from_numpy(tensor.data.copy()) for tensor in tensors)
