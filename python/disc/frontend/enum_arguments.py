"""Members of an ``enum.Enum`` as arguments: constants of the compiled model, as strings are."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument

from ..torch_compat import patches
from ..torch_compat.patching import replaced


@contextmanager
def as_constants() -> Iterator[None]:
    """While it is active, ``torch.export`` takes them: it traces them, but has no range constraints for them."""

    def is_constant(original: Any, value: Any) -> bool:
        return isinstance(value, enum.Enum) or original(value)

    with replaced({patches.CONSTANT_ARGUMENT: is_constant}):
        yield


def settle(program: ExportedProgram) -> None:
    """Has strings in their places in the program's signature; the placeholders keep the members."""
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, CustomObjArgument) and isinstance(spec.arg.fake_val, enum.Enum):
            spec.arg = ConstantArgument(name=spec.arg.name, value=str(spec.arg.fake_val))
