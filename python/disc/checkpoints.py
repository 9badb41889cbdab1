"""Quantised models as the Hugging Face Hub has them, GPTQ, AWQ and compressed-tensors: ``disc.checkpoints.load(name)``.

transformers loads the files, with its own names, shards and downloads; for each quantised layer it fills a module that
has the tensors as they are stored. Then these become layers of codes. The packages that made the files are not needed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import checkpoint_layouts as layouts
from .coded import Codes
from .errors import ArgumentValueError

_HALVES = (torch.float16, torch.bfloat16, torch.float32)


def load(name: str | Path, *, model_class: Any = None, dtype: torch.dtype = torch.float32, **options: Any) -> nn.Module:
    """A model of transformers with quantised weights, which stay codes, for ``disc.hf.compile_causal_lm``.

    >>> model = disc.checkpoints.load("Qwen/Qwen2.5-0.5B-Instruct-GPTQ-Int4")
    >>> lm = disc.hf.compile_causal_lm(model)

    These are read, as the model's ``quantization_config`` says: GPTQ (AutoGPTQ, GPTQModel and AutoRound; 2 to 8 bits,
    all group sizes, with and without an order by activations), AWQ (AutoAWQ's version "gemm", and AutoRound's), and
    compressed-tensors with integers ("pack-quantized", "int-quantized" and "naive-quantized"; activations in floats,
    or in 8 bits with a scale for each token). Codes of up to 4 bits take 4, others 8.

    Args:
        name: a folder, or the name of a model on the Hub.
        model_class: the class to load. None means ``transformers.AutoModelForCausalLM``.
        dtype: that of the activations and of weights that are not quantised: f32, f16 or bf16.
        options: other arguments of ``from_pretrained``, such as ``revision`` or ``token``.

    Returns:
        The model in evaluation mode; its quantised layers are :class:`disc.coded.CodedLinear`.

    Raises:
        ArgumentValueError: the model is not quantised, or in a way that is not read here; ``dtype`` is another one; the
            files lack a weight, or have tensors that belong to no layer of the model, as those of experts.
        ImportError: ``transformers`` is not installed.
        OSError: transformers finds no such model.
    """
    try:
        import transformers

        from .checkpoint_quantizer import from_stored
    except ImportError as error:
        raise ImportError("disc.checkpoints needs transformers; run: pip install transformers") from error
    if dtype not in _HALVES:
        raise ArgumentValueError(f"dtype: expected torch.float32, float16 or bfloat16, got {dtype}")
    hub = {key: options[key] for key in ("revision", "token", "cache_dir", "trust_remote_code") if key in options}
    config = transformers.AutoConfig.from_pretrained(name, **hub)
    form = Form.of(name, getattr(config, "quantization_config", None))
    model, info = from_stored(
        model_class or transformers.AutoModelForCausalLM, name, config, form, dtype=dtype, **options
    )
    form.check(name, info)
    return model.eval()


class Form:
    """How the files store layers.

    Attributes:
        marks: the last parts of tensors' names by which a quantised layer is known.
    """

    marks: tuple[str, ...] = ("qweight", "qzeros")

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    @staticmethod
    def of(name: str | Path, settings: Any) -> Form:
        """The form that ``quantization_config`` describes."""
        if settings is None:
            raise ArgumentValueError(f"name: {name} is not quantised; load it with transformers")
        settings = settings if isinstance(settings, dict) else settings.to_dict()
        method = str(settings.get("quant_method", ""))
        packing = str(settings.get("packing_format", ""))
        form: Form | None = None
        if method == "gptq" or (method in ("auto-round", "intel/auto-round") and "gptq" in packing):
            form = _Gptq(settings)
        elif method == "awq" or (method in ("auto-round", "intel/auto-round") and "awq" in packing):
            form = _Awq(settings)
        elif method == "compressed-tensors":
            form = _Compressed(settings)
        reason = f"{method!r} is not read" if form is None else form.unreadable()
        if form is None or reason:
            raise ArgumentValueError(f"name: {name}: {reason}; GPTQ, AWQ and compressed-tensors with integers are")
        return form

    def unreadable(self) -> str | None:
        """Why files with these settings are not read; None if they are."""
        return None

    def codes(self, tensors: layouts.Tensors, columns: int, layer: str) -> Codes:
        """The codes of a layer of this name."""
        raise NotImplementedError

    def activations(self, layer: str) -> int | None:
        """The bits of the layer's input; None if it stays floats."""
        return None

    def check(self, name: str | Path, info: dict[str, Any]) -> None:
        """Raises an error if transformers could not place a tensor of a quantised layer, or lacked a weight."""
        lost = [key for key in info["unexpected_keys"] if key.rpartition(".")[2] in self.marks]
        if lost:
            raise ArgumentValueError(
                f"name: {name}: the model has no linear layer for {_some(lost)}; experts of mixtures are not read"
            )
        if missing := sorted(info["missing_keys"]):
            raise ArgumentValueError(f"name: {name} lacks {_some(missing)}")
        if wrong := list(info["mismatched_keys"]):
            key, found, expected = wrong[0]
            raise ArgumentValueError(f"name: {name}: {key} is {list(found)}, and the model's is {list(expected)}")


class _Gptq(Form):
    def unreadable(self) -> str | None:
        written = self.settings.get("checkpoint_format", "gptq")
        return None if written in ("gptq", "gptq_v2") else f"the format {written!r} of GPTQ is not read"

    def codes(self, tensors: layouts.Tensors, columns: int, layer: str) -> Codes:
        first = self.settings.get("checkpoint_format", "gptq") == "gptq"
        return layouts.gptq(tensors, columns, first)


class _Awq(Form):
    def unreadable(self) -> str | None:
        version = str(self.settings.get("version") or self.settings.get("format") or "gemm").lower()
        bits = self.settings.get("bits", self.settings.get("w_bit", 4))
        return None if version == "gemm" and bits == 4 else f"version {version!r} of AWQ with {bits} bits is not read"

    def codes(self, tensors: layouts.Tensors, columns: int, layer: str) -> Codes:
        return layouts.awq(tensors, columns)


class _Compressed(Form):
    marks = ("weight_packed", "weight_scale")

    def unreadable(self) -> str | None:
        for group in self.settings.get("config_groups", {}).values():
            weights, inputs = group.get("weights") or {}, group.get("input_activations")
            written = group.get("format") or self.settings.get("format")
            if written not in ("pack-quantized", "int-quantized", "naive-quantized"):
                return f"the format {written!r} of compressed-tensors is not read"
            if weights.get("type") != "int" or not 2 <= weights.get("num_bits", 0) <= 8:
                return "weights other than integers of 2 to 8 bits are not read"
            if weights.get("strategy") not in ("tensor", "channel", "group"):
                return f"the strategy {weights.get('strategy')!r} of weights is not read"
            if inputs is not None and not (
                inputs.get("type") == "int"
                and inputs.get("num_bits") == 8
                and inputs.get("dynamic") is True
                and inputs.get("strategy") == "token"
                and inputs.get("symmetric", True)
            ):
                return "quantised activations are not read, except of 8 bits with a scale for each token"
            if group.get("output_activations") is not None:
                return "quantised results of layers are not read"
        if self.settings.get("kv_cache_scheme") is not None:
            return "a quantised cache is not read"
        if self.settings.get("transform_config"):
            return "transforms of weights are not read"
        return None

    def _group(self, layer: str) -> dict[str, Any]:
        """The settings of a layer: those of the group that names it, else that of its class."""
        groups = list(self.settings["config_groups"].values())

        def named(target: str) -> bool:
            return re.match(target[3:], layer) is not None if target.startswith("re:") else target == layer

        for group in groups:
            if any(named(target) for target in group.get("targets", [])):
                return group  # type: ignore[no-any-return]
        for group in groups:
            if "Linear" in group.get("targets", []):
                return group  # type: ignore[no-any-return]
        raise ArgumentValueError(f"no group of quantization_config has the layer {layer}")

    def codes(self, tensors: layouts.Tensors, columns: int, layer: str) -> Codes:
        return layouts.compressed(tensors, columns, self._group(layer)["weights"]["num_bits"])

    def activations(self, layer: str) -> int | None:
        return None if self._group(layer).get("input_activations") is None else 8


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
