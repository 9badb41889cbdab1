"""What programs contain: operators as PyTorch dispatches them, dtypes of their operands, ranks, kinds of kernels."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .inputs import make
from .program import EXAMPLE, Program, load

_LOCATION = re.compile(r'^#(loc\d*) = loc\("(?:aten|prims|torchvision)\.([\w]+)')
_KERNEL = re.compile(r"^(\s*)(?:%[\w:, %]+ = )?disc_plan\.kernel\s+(\w+) ")
_COMPUTATION = re.compile(r"tensor<(?:[\dx?]+x)?([a-z]\w*)>\)? loc\(#(loc\d*)\)$")

_UNCOUNTED = re.compile(r"disc_plan\.yield|tensor\.empty|linalg\.fill")


def kernels_of(text: str) -> Counter[tuple[str, str, str]]:
    """The computations in kernels, as (operator, element type, kind of kernel).

    Args:
        text: The IR after the schedule stage, with locations.
    """
    lines = text.splitlines()
    operators = {m[1]: m[2] for line in lines if (m := _LOCATION.match(line))}
    found: Counter[tuple[str, str, str]] = Counter()
    kind = end = None
    for line in lines:
        if match := _KERNEL.match(line):
            kind, end = match[2], match[1] + "}"
        elif end is not None and line.startswith(end):
            kind = end = None
        elif kind is not None and (match := _COMPUTATION.search(line)) and not _UNCOUNTED.search(line):
            found[operators.get(match[2], "?"), match[1], kind] += 1
    return found


class _Seen(TorchDispatchMode):
    def __init__(self, coverage: Coverage) -> None:
        super().__init__()
        self.coverage = coverage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self.coverage.pairs[func.name().partition("::")[2], str(leaf.dtype)[6:]] += 1
                self.coverage.ranks[leaf.dim()] += 1
        return func(*args, **(kwargs or {}))


class Coverage:
    """Counts of (operator, dtype), of ranks, and of (operator, dtype, kind of kernel)."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.ranks: Counter[int] = Counter()
        self.kernels: Counter[tuple[str, str, str]] = Counter()

    def add(self, program: Program) -> None:
        """Runs the program once."""
        sizes: Mapping[str, int] = {s: max(EXAMPLE[s], program.minimum[s]) for s in program.symbols}
        try:
            with tempfile.TemporaryDirectory() as folder, torch.no_grad(), _Seen(self):
                load([program], folder)[0](*make(program, sizes, "0", plain=True))
        except Exception:
            pass

    def update(self, other: Coverage) -> None:
        """Adds what another has seen."""
        self.pairs.update(other.pairs)
        self.ranks.update(other.ranks)
        self.kernels.update(other.kernels)

    def text(self) -> str:
        """The number of operators for each dtype and kind of kernel, and of tensors of each rank."""
        operators = {op.partition(".")[0] for op, _ in self.pairs}
        dtypes = Counter(dtype for _, dtype in self.pairs)
        lines = [f"{len(operators)} operators, {len(self.pairs)} pairs of overload and dtype"]
        lines.append("overloads by dtype: " + ", ".join(f"{d} {n}" for d, n in dtypes.most_common()))
        lines.append("operands by rank: " + ", ".join(f"{r}: {n}" for r, n in sorted(self.ranks.items())))
        kinds = Counter(kind for _, _, kind in self.kernels)
        lines.append(
            f"{len(self.kernels)} triples of operator, dtype and kind of kernel: "
            + ", ".join(f"{kind} {n}" for kind, n in kinds.most_common())
        )
        return "\n".join(lines)
