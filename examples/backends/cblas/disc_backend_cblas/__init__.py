"""Products of float32 matrices by OpenBLAS: a back end that generates C."""

import functools
import os
import subprocess
from importlib.resources import files

from disc.backends import Backend, Condition, Match, Pattern, Region, SourceCode, anything, op, tensor


class Cblas(Backend):
    """Calls ``cblas_sgemm``; each product is a region of its own."""

    name = "cblas"
    merges = False

    def patterns(self) -> list[Pattern]:
        """Products with two dims or more."""
        linear = op("aten.linear", tensor("a"), tensor("b"), anything("bias"))
        product = op(("aten.mm", "aten.bmm", "aten.matmul"), tensor("a"), tensor("b"))
        return [Pattern("linear", linear, _check), Pattern("product", product, _check)]

    def accept(self, region: Region) -> str | None:
        """No without the library."""
        return None if _is_installed() else "libopenblas.so is missing: install libopenblas-dev"

    def prefer(self, region: Region) -> Condition | bool:
        """Products for which a call of the library pays off."""
        work = region.operations[0].inputs[0].dims[-1]
        for dim in region.results[0].dims:
            work = work * dim
        return int(work) >= 32**3 if work.is_static else work >= 32**3

    def compile(self, region: Region) -> SourceCode:
        """The template with definitions that say where its operands are."""
        places = {x: f"OPERAND({i})" for i, x in enumerate(x for x in region.inputs if not x.is_constant)}
        places |= {x: f"CONSTANT({i})" for i, x in enumerate(region.parameters)}
        product = region.operations[0]
        defines = {"BIAS": "NO_BIAS", "TRANSPOSED": int(product.name == "aten.linear")}
        defines |= {name: places[x] for name, x in zip(("LEFT", "RIGHT", "BIAS"), product.inputs, strict=False)}
        text = "".join(f"#define {name} {place}\n" for name, place in defines.items())
        text += files(__package__).joinpath("product.c").read_text()
        return SourceCode(text=text, constants=region.parameters, numbers=(), libraries=["openblas"])


def _check(match: Match) -> str | None:
    a, b = match.root.inputs[:2]
    if any(value.dtype != "float32" for value in match.root.inputs):
        return "an operand is not float32"
    return None if 2 <= min(a.rank, b.rank) <= max(a.rank, b.rank) <= 8 else "an operand does not have 2 to 8 dims"


@functools.cache
def _is_installed() -> bool:
    command = ["cc", "-print-file-name=libopenblas.so"]  # Prints the name alone if there is no such file.
    return os.sep in subprocess.run(command, capture_output=True, text=True).stdout
