"""oneDNN as a back end of DISC: products and convolutions, with what follows them as post-ops."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
from pathlib import Path
from typing import Any

from disc.backends import Backend, Condition, Match, Operation, Pattern, Region, SourceCode, op, parameter, tensor

_HEADERS = [*os.environ.get("CPATH", "").split(os.pathsep), "/usr/include", "/usr/local/include"]
_ADD = "aten.add.Tensor"


@functools.cache
def _missing() -> str | None:
    """Why oneDNN cannot be used here."""
    if not any(os.path.isfile(os.path.join(folder, "dnnl.hpp")) for folder in _HEADERS if folder):
        return "oneDNN's header dnnl.hpp is missing: install libdnnl-dev"
    return None if ctypes.util.find_library("dnnl") else "the library libdnnl is missing: install libdnnl-dev"


@functools.cache
def _dtypes() -> tuple[str, ...]:
    """oneDNN computes bfloat16 with AVX-512."""
    library = ctypes.util.find_library("dnnl")
    isa = ctypes.CDLL(library).dnnl_get_effective_cpu_isa() if library else 0
    return ("float32", "bfloat16") if isa & 0x20 else ("float32",)


def _check(match: Match) -> str | None:
    values = [value for member in match.members for value in (*member.inputs, *member.results)]
    if {value.dtype for value in values} - set(_dtypes()) or len({value.dtype for value in values}) > 1:
        return f"oneDNN computes {' or '.join(_dtypes())} here, got {', '.join(sorted({v.dtype for v in values}))}"
    for member in match.members:
        if member.name == _ADD:
            dims = {tuple(dim.text for dim in value.dims) for value in (*member.inputs, member.result)}
            if member.args[2] != 1 or len(dims) > 1 or member.inputs[0] is member.inputs[1]:
                return "only tensors of equal extents are added in a post-op"
        elif member.name == "aten.batch_norm":
            constant = all(value is None or value.is_constant for value in member.args[1:5])
            if member.args[5] or not constant or values[0].dtype != "float32":
                return "batch norm is folded into weights, in float32 and without training"
        elif member.name.startswith("aten.conv2d"):
            numbers = [n for arg in member.args[3:] for n in (arg if isinstance(arg, list) else [arg])]
            if member.inputs[0].rank != 4 or not all(type(n) is int for n in numbers):
                return "a convolution needs a batch and constant padding"
        elif member.name == "aten.addmm" and (member.args[3:] != (1, 1) or member.args[0].rank != 1):
            return "only a row of constants is added to a product"
        elif member.name in ("aten.matmul", "aten.linear") and any(v.rank < 2 for v in member.inputs[:2]):
            return "vectors are left to the host"
    return None


class OneDNN(Backend):
    """``disc.compile(..., backends=["onednn"])``."""

    name = "onednn"

    def patterns(self) -> list[Pattern]:
        linear = op("aten.linear", tensor(), parameter())
        product = op(["aten.linear", "aten.addmm", "aten.mm", "aten.bmm", "aten.matmul"])
        convolution = op("aten.conv2d", tensor(), parameter())
        norm = op("aten.batch_norm", convolution)
        found = []
        for kind, root in (("linear", linear), ("product", product), ("conv_norm", norm), ("conv", convolution)):
            added = op(_ADD, root, tensor(), commutative=True)
            for after, what in (("_add", added), ("", root)):
                for last in ("relu", "gelu", "silu"):
                    found.append(Pattern(f"{kind}{after}_{last}", op(f"aten.{last}", what), _check))
                found.append(Pattern(kind + after, what, _check))
        return found

    def accept(self, region: Region) -> str | None:
        return _missing()

    def prefer(self, region: Region) -> Condition | bool:
        """Measured on an AMD EPYC with AVX2 and 2 cores: DISC was faster at products of the sizes tried, and at
        convolutions of small images; oneDNN takes half the time for pointwise ones from about 800 points on.
        In a ResNet, regions with others cost up to a fifth more at large images."""
        convolutions = [operation for operation in region.operations if operation.name == "aten.conv2d"]
        if not convolutions or any(int(d) > 1 for op in convolutions for d in op.inputs[1].dims[2:]):
            return False
        batch, _, height, width = convolutions[0].result.dims
        return batch * height * width >= 800

    def compile(self, region: Region) -> SourceCode:
        source = (Path(__file__).parent / "region.cpp").read_text(encoding="utf-8")
        return SourceCode(
            text=source,
            language="c++",
            flags=("-std=c++17", "-O1"),
            libraries=("dnnl",),
            constants=region.parameters,
            numbers=(),
            description=_steps(region),
        )


def _steps(region: Region) -> str:
    """The steps as region.cpp reads them: a product or a convolution each, and what follows it."""
    places: dict[Any, str] = {None: "- 0"}
    given = [value for value in region.inputs if not value.is_constant]
    places |= {value: f"i {i}" for i, value in enumerate(given)}
    places |= {value: f"c {i}" for i, value in enumerate(region.parameters)}
    matches: dict[int, list[Operation]] = {}
    for member in region.operations:
        matches.setdefault(region.patterns[member.id][1], []).append(member)
    steps = sorted(matches.values(), key=lambda members: members[-1].id)
    places |= {members[-1].result: f"r {i}" for i, members in enumerate(steps)}
    lines = [region.results[0].dtype]
    for first, *rest in steps:
        args, window, last = list(first.args), [1, 1, 1, 0, 0, 1, 1], first.result
        if first.name == "aten.addmm":
            args = [args[1], args[2], args[0]]
        kind = {"aten.linear": "linear", "aten.conv2d": "conv"}.get(first.name, "matmul")
        if kind == "conv":
            window = [args[6], *args[3], *args[4], *args[5]]
        posts = []
        for after in rest:
            if after.name == "aten.batch_norm":
                posts += ["norm", *(places[value] for value in after.args[1:5]), after.args[7]]
            elif after.name == _ADD:
                posts += ["add", places[next(value for value in after.inputs if value is not last)]]
            else:
                tanh = after.name == "aten.gelu" and after.args[1] == "tanh"
                posts += [after.name.removeprefix("aten.") + "_tanh" * tanh, "- 0"]
            last = after.result
        result = region.results.index(last) if last in region.results else -1
        operands = [places[value] for value in [*args[:2], args[2] if len(args) > 2 else None]]
        lines.append(" ".join(map(str, [kind, result, *operands, *window, *posts, ";"])))
    return "\n".join(lines)
