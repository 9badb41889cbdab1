"""A made-up accelerator: a template for back ends that run regions by their description."""

import math
from importlib.resources import files

from disc.backends import Backend, Condition, Dim, Match, Pattern, Region, SourceCode, Value, anything, op, tensor


class Accelerator(Backend):
    """Takes layers of float32 tensors, as many in one region as possible."""

    name = "accelerator"

    def patterns(self) -> list[Pattern]:
        """Layers with their activations before single operations."""
        linear = op("aten.linear", tensor("x"), tensor("weight"), anything("bias"))
        both = ("aten.add.Tensor", "aten.add.Scalar", "aten.mul.Tensor", "aten.mul.Scalar")
        return [
            Pattern("linear_gelu", op("aten.gelu", linear, approximate="none"), check_linear),
            Pattern("linear_relu", op("aten.relu", linear), check_linear),
            Pattern("linear", linear, check_linear),
            Pattern("layer_norm", op("aten.layer_norm", tensor(), anything("shape")), check_layer_norm),
            Pattern("elementwise", op(both, tensor(), anything("other")), check_elements),
        ]

    def accept(self, region: Region) -> str | None:
        """Only regions that compute enough."""
        if all(op.name.startswith(("aten.add", "aten.mul")) for op in region.operations):
            return "it contains element-wise operations only, which the host fuses with others"
        return None

    def prefer(self, region: Region) -> Condition | bool:
        """Where computing takes longer than moving the tensors."""
        elements = math.prod(region.results[0].dims, start=Dim("1", 1, 1))
        return int(elements) >= 256 if elements.is_static else elements >= 256

    def compile(self, region: Region) -> SourceCode:
        """The interpreter; it reads the region's description."""
        sizes = [dim for op in region.operations for dim in op.result.dims if not dim.is_static]
        return SourceCode(
            text=files(__package__).joinpath("interpreter.c").read_text(encoding="utf-8"),
            constants=region.parameters,
            numbers=list({dim.text: dim for dim in sizes}.values()),
            libraries=["m"],
        )


def check(match: Match) -> str | None:
    """What holds for all patterns."""
    values = [value for member in match.members for value in (*member.inputs, *member.results)]
    other = next((value.dtype for value in values if value.dtype != "float32"), None)
    if other is not None:
        return f"the dtype is {other}, expected float32"
    return "it has more than 8 dims" if any(value.rank > 8 for value in values) else None


def check_linear(match: Match) -> str | None:
    """The units of the accelerator compute 4 features at a time."""
    weight: Value = match.values["weight"]
    if weight.rank != 2 or not weight.dims[0].is_multiple_of(4):
        return f"the number of features, {weight.dims[0]}, is not a multiple of 4"
    return check(match)


def check_layer_norm(match: Match) -> str | None:
    """Over one dim."""
    if len(match.values["shape"]) != 1:
        return f"it is over {len(match.values['shape'])} dims, expected 1"
    return check(match)


def check_elements(match: Match) -> str | None:
    """The second operand may be a number."""
    if not isinstance(match.values["other"], (Value, int, float)) or match.root.args[2:] not in ((), (1,)):
        return "it contains the size of a tensor, or a factor"
    return check(match)
