"""Quantising a model with torchao, to be compiled: ``disc.quantize``, and how much each layer loses by it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from . import tables
from .errors import ArgumentValueError
from .torch_compat import pytree
from .torch_compat.symbols import symbolic_config

PRESETS = ("int8-dynamic", "int8-static", "int8-weights", "int4-weights", "bf16")
"""What :func:`quantize` can do. ``int4-weights-64`` and ``-128`` set the number of weights that share a scale."""

_GROUPS = (32, 64, 128)


def quantize(
    module: nn.Module,
    batches: Sequence[tuple[Any, ...]],
    preset: str,
    *,
    dynamic_shapes: Any = None,
    exclude: Collection[str] = (),
) -> nn.Module:
    """A quantised copy of ``module``, for ``disc.compile``, ``disc.aot_compile`` and ``torch.export.export``.

    torchao (``pip install torchao``) quantises: its tensors replace the weights of ``nn.Linear`` layers, and its PT2E
    flow makes the static model.

    Args:
        module: the model in f32, which stays as it is.
        batches: arguments of calls, each a tuple. ``int8-static`` observes the ranges of activations with them; the
            others need none.
        preset: ``int8-weights``: weights of 8 bits with a scale for each row, products in f32.
            ``int4-weights``: weights of 4 bits with a scale for each 32 of a row (``int4-weights-64``,
            ``int4-weights-128``: so many).
            ``int8-dynamic``: weights of 8 bits, and each row of the activations is quantised to 8 bits in each call;
            products of integers.
            ``int8-static``: the same with one scale for each tensor of activations, observed with the batches.
            ``bf16``: weights and activations in bf16.
        dynamic_shapes: as ``disc.compile`` takes it; ``int8-static`` exports the model with it.
        exclude: names of layers to leave as they are, as in ``module.named_modules()``.

    Raises:
        ArgumentValueError: the preset is unknown; no layer has an excluded name; ``int8-static`` has no batches.
        ImportError: torchao is not installed.
    """
    names = {name for name, _ in module.named_modules()}
    unknown = sorted(set(exclude) - names)
    if unknown:
        raise ArgumentValueError(f"exclude: the module has no layer {unknown[0]!r}")
    quantized = copy.deepcopy(module)
    if preset == "bf16":
        if exclude:
            raise ArgumentValueError("exclude: 'bf16' converts the whole model")
        return quantized.to(torch.bfloat16)
    if preset == "int8-static":
        if not batches:
            raise ArgumentValueError("batches: 'int8-static' needs arguments to observe the ranges of activations with")
        return _static(quantized, batches, dynamic_shapes, exclude)
    config = _config(preset)
    _check_groups(quantized, preset, exclude)
    _torchao().quantize_(quantized, config, filter_fn=_filter(exclude))
    return quantized


def _torchao() -> Any:
    try:
        import torchao.quantization
    except ImportError as error:
        raise ImportError("disc.quantize needs torchao; run: pip install torchao", name="torchao") from error
    return torchao.quantization


def _config(preset: str) -> Any:
    ao = _torchao()
    if preset == "int8-dynamic":
        return ao.Int8DynamicActivationInt8WeightConfig()
    if preset == "int8-weights":
        return ao.Int8WeightOnlyConfig()
    base, _, group = preset.partition("int4-weights")
    if base == "" and group in ("", *(f"-{g}" for g in _GROUPS)):
        size = _group(preset)
        return ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(size))  # type: ignore[attr-defined]
    raise ArgumentValueError(f"preset: expected one of {', '.join(PRESETS)}, got {preset!r}")


def _group(preset: str) -> int:
    """How many weights share a scale, of a preset of 4 bits."""
    return int(preset.removeprefix("int4-weights")[1:] or _GROUPS[0])


def _is_quantised(layer: nn.Module) -> bool:
    # The layer inside of nn.MultiheadAttention is not called: its weight is an argument of a function.
    return isinstance(layer, nn.Linear) and not isinstance(layer, NonDynamicallyQuantizableLinear)


def _filter(exclude: Collection[str]) -> Callable[[nn.Module, str], bool]:
    return lambda layer, name: _is_quantised(layer) and name not in exclude


def _check_groups(module: nn.Module, preset: str, exclude: Collection[str]) -> None:
    """Raises ArgumentValueError if the weights of some layers have no whole number of groups."""
    if not preset.startswith("int4-weights"):
        return
    size, chosen = _group(preset), _filter(exclude)
    odd = {n: x.in_features for n, x in module.named_modules() if chosen(x, n) and x.in_features % size}  # type: ignore[operator]
    if odd:
        listed = ", ".join(f"{name!r} ({count} inputs)" for name, count in odd.items())
        raise ArgumentValueError(
            f"preset: {preset!r} has groups of {size} weights, and these layers have no multiple of that: {listed};"
            f" use a smaller group, or exclude={list(odd)}"
        )


def _exported(module: nn.Module, batches: Sequence[tuple[Any, ...]], shapes: Any) -> torch.export.ExportedProgram:
    """The program that torchao annotates. A dim that is 1 in an example would be 1 for ever, as PyTorch traces it."""

    def ones(batch: tuple[Any, ...]) -> int:
        leaves = pytree.tree_leaves(batch)
        return sum(size < 2 for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape)

    example = tuple(batches[min(range(len(batches)), key=lambda i: ones(batches[i]))])
    try:
        return torch.export.export(module, example, dynamic_shapes=shapes)
    except Exception:
        if not ones(example):
            raise
        with symbolic_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            return torch.export.export(module, example, dynamic_shapes=shapes)


def _static(module: nn.Module, batches: Sequence[tuple[Any, ...]], shapes: Any, exclude: Collection[str]) -> nn.Module:
    _torchao()
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    program = _exported(module, batches, shapes)
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    for name in exclude:
        quantizer.set_module_name_qconfig(name, None)
    exported = program.module()
    # torchao's quantiser fails on layers whose results are unused, such as the pooler of an encoder.
    exported.graph.eliminate_dead_code()
    exported.recompile()
    _name_sources(exported.graph)
    prepared = prepare_pt2e(exported, quantizer)
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
    converted: nn.Module = convert_pt2e(prepared)
    return converted


_SOURCES = {
    "conv1d": nn.Conv1d,
    "conv2d": nn.Conv2d,
    "linear": nn.Linear,
    "batch_norm": nn.BatchNorm2d,
    "add": operator.add,
    "relu": nn.ReLU,
    "hardtanh": nn.Hardtanh,
    "hardswish": nn.Hardswish,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "leaky_relu": nn.LeakyReLU,
    "max_pool2d": nn.MaxPool2d,
    "avg_pool2d": nn.AvgPool2d,
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
}


def _name_sources(graph: Graph) -> None:
    """Names the layer that each operation is, as torchao's quantiser looks for patterns of layers.

    Without names it takes modules from the stack of calls: it fails where one is used twice, as the ReLU of each block
    of a ResNet is, and does not see functions, so that fewer results are stored in 8 bits.
    """
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        packet = getattr(node.target, "overloadpacket", None)
        source = _SOURCES.get(str(packet).removeprefix("aten.").rstrip("_"), node.target)
        # It takes each sum for one of two tensors.
        if source is operator.add and (len({x for x in node.args if isinstance(x, Node)}) < 2 or node.kwargs):
            source = node.target
        node.meta["source_fn_stack"] = [(node.name, source)]


@dataclass(frozen=True)
class LayerSensitivity:
    """What the model loses if this layer alone is quantised."""

    name: str
    error: float
    """The norm of the difference of the results, over that of the results."""
    cosine: float
    """Of the results with and without."""
    parameters: int


@dataclass(frozen=True)
class Sensitivity:
    """All layers, the one that costs most first."""

    preset: str
    layers: tuple[LayerSensitivity, ...]

    _COLUMNS = ("layer", "weights", "relative error", "cosine")

    def _rows(self) -> list[tuple[str, int, str, str]]:
        return [(x.name, x.parameters, f"{x.error:.2e}", f"{x.cosine:.6f}") for x in self.layers]

    def __str__(self) -> str:
        return tables.text(self._COLUMNS, self._rows(), right=(1, 2, 3))

    def _repr_html_(self) -> str:
        return tables.html(f"Layers quantised alone: {self.preset}", self._COLUMNS, self._rows(), right=(1, 2, 3))


def sensitivity(module: nn.Module, batches: Sequence[tuple[Any, ...]], preset: str) -> Sensitivity:
    """How much the results of ``module`` change if one layer after the other is quantised alone.

    Layers at the top of the table are those to name in ``exclude``. ``int8-static`` is not offered: it exports the
    model.

    Raises:
        ArgumentValueError: no batches, or a preset that does not quantise layers one by one.
    """
    if not batches:
        raise ArgumentValueError("batches: sensitivity needs arguments to compare results with")
    if preset in ("int8-static", "bf16"):
        raise ArgumentValueError(f"preset: {preset!r} does not quantise layers one by one")
    _config(preset)
    layers = {name: layer for name, layer in module.named_modules() if _is_quantised(layer)}
    if preset.startswith("int4-weights"):
        # Those that the preset cannot quantise cost nothing.
        layers = {name: x for name, x in layers.items() if not x.in_features % _group(preset)}  # type: ignore[operator]
    left = [name for name, layer in module.named_modules() if _is_quantised(layer) and name not in layers]
    with torch.no_grad():
        expected = [_flat(module(*batch)) for batch in batches]
        found = []
        for name, layer in layers.items():
            others = [other for other in layers if other != name]
            trial = quantize(module, batches, preset, exclude=[*others, *left])
            results = [_flat(trial(*batch)) for batch in batches]
            exact, got = torch.cat(expected), torch.cat(results)
            error = float((got - exact).norm() / exact.norm().clamp(min=torch.finfo(torch.float32).tiny))
            cosine = float(torch.nn.functional.cosine_similarity(got, exact, dim=0))
            found.append(LayerSensitivity(name, error, cosine, layer.weight.numel()))
    return Sensitivity(preset, tuple(sorted(found, key=lambda x: -x.error)))


def _flat(result: Any) -> torch.Tensor:
    leaves = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    return torch.cat([x.float().flatten() for x in leaves if x.is_floating_point()])
