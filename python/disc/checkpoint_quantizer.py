"""The part of ``disc.checkpoints`` that transformers calls while it loads a model."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D
from transformers.quantizers import HfQuantizer
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .checkpoints import Form
from .coded import CodedLinear
from .errors import ArgumentValueError

_METHOD = "disc-codes"

_DTYPES = {
    "I8": torch.int8,
    "U8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
}
"""Of the names that safetensors has for dtypes, those that layers are stored in."""


def from_stored(
    model_class: Any, name: str | Path, config: Any, form: Form, **options: Any
) -> tuple[nn.Module, dict[str, Any]]:
    """The model with its quantised layers, and what transformers says about the loading."""
    config.quantization_config = {"quant_method": _METHOD, "settings": form.settings}
    model, info = model_class.from_pretrained(name, config=config, output_loading_info=True, **options)
    model.hf_quantizer.remove_quantization_config(model)
    return model, info


@register_quantization_config(_METHOD)
class _Config(QuantizationConfigMixin):
    """What the files' ``quantization_config`` was."""

    def __init__(self, settings: dict[str, Any], quant_method: Any = _METHOD) -> None:
        super().__init__(quant_method=quant_method)
        self.settings = settings


class _Stored(nn.Module):
    """The tensors of a layer as the files have them, in place of a layer of this many columns."""

    def __init__(self, shapes: dict[str, tuple[list[int], torch.dtype]], columns: int) -> None:
        super().__init__()
        self.columns, self.names = columns, list(shapes)
        for name, (shape, dtype) in shapes.items():
            self.register_buffer(name, torch.empty(shape, dtype=dtype, device="meta"))
        if "weight" not in shapes:
            # Some models initialise the weights of their layers by name.
            self.register_buffer("weight", torch.empty(0, device="cpu"), persistent=False)


class _ScaledActivation(nn.Module):
    """An activation whose results AutoAWQ divides by a scale for each column."""

    scales: Tensor

    def __init__(self, activation: nn.Module, shape: list[int], dtype: torch.dtype) -> None:
        super().__init__()
        self.activation = activation
        self.register_buffer("scales", torch.empty(shape, dtype=dtype, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(x)
        return y / self.scales.to(y.dtype)


@register_quantizer(_METHOD)
class _Quantizer(HfQuantizer):
    """Puts modules in the model that transformers can fill, and makes coded layers of them afterwards."""

    requires_calibration = False
    quantization_config: _Config

    @property
    def is_trainable(self) -> bool:
        return False

    def is_serializable(self) -> bool:
        return False

    def _process_model_before_weight_loading(
        self, model: nn.Module, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        form = Form.of("", self.quantization_config.settings)
        found: dict[str, dict[str, tuple[list[int], torch.dtype]]] = defaultdict(dict)
        for key, tensor in _tensors(checkpoint_files or []).items():
            prefix, _dot, last = key.rpartition(".")
            found[prefix][last] = tensor
        layers = dict(model.named_modules())
        base = getattr(model, "base_model_prefix", "")
        for stored, shapes in found.items():
            # The files of a model without its head, or with another one, have names without the prefix.
            name = next((n for n in (stored, f"{base}.{stored}", stored.removeprefix(f"{base}.")) if n in layers), None)
            if name is None:
                continue
            layer = layers[name]
            if any(mark in shapes for mark in form.marks):
                if type(layer) not in (nn.Linear, Conv1D):
                    continue
                columns = int(layer.weight.shape[0 if isinstance(layer, Conv1D) else 1])  # type: ignore[index]
                if layer.bias is not None and "bias" not in shapes:
                    raise ArgumentValueError(f"name: the files lack {stored}.bias")
                model.set_submodule(name, _Stored(shapes, columns))
            elif set(shapes) == {"scales"} and not list(layer.parameters()):
                model.set_submodule(name, _ScaledActivation(layer, *shapes["scales"]))

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> None:
        form = Form.of("", self.quantization_config.settings)
        dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        orders: list[Tensor] = []
        for name, stored in list(model.named_modules()):
            if not isinstance(stored, _Stored):
                continue
            tensors = {key: stored.get_buffer(key) for key in stored.names}
            if any(value.is_meta for value in tensors.values()):
                continue  # Reported as missing.
            try:
                codes = form.codes(tensors, stored.columns, name)
            except (ArgumentValueError, KeyError) as error:
                raise ArgumentValueError(f"name: {name}: {error}") from error
            bias = tensors.get("bias")
            if bias is not None:
                # GPTQ's tools write a bias of zeros for layers without one.
                bias = bias.to(dtype) if bool(bias.any()) else None
            if codes.order is not None:
                # Layers of one input have the same order, which is taken once then.
                same = next((o for o in orders if torch.equal(o, codes.order)), None)
                orders += [codes.order] if same is None else []
                object.__setattr__(codes, "order", codes.order if same is None else same)
            model.set_submodule(name, CodedLinear(codes, bias, form.activations(name)))


def _tensors(files: list[str]) -> dict[str, tuple[list[int], torch.dtype]]:
    """Shapes and dtypes of the tensors in these files; those of other dtypes are left out."""
    result: dict[str, tuple[list[int], torch.dtype]] = {}
    for file in files:
        if not str(file).endswith(".safetensors"):
            for key, value in torch.load(file, map_location="meta", mmap=True, weights_only=True).items():
                result[key] = (list(value.shape), value.dtype)
            continue
        with safe_open(file, framework="pt") as data:
            for key in data.keys():  # noqa: SIM118
                part = data.get_slice(key)
                if part.get_dtype() in _DTYPES:
                    result[key] = (part.get_shape(), _DTYPES[part.get_dtype()])
    return result
