"""What programs contain: operators as PyTorch dispatches them, dtypes of their operands, ranks."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .inputs import make
from .program import EXAMPLE, Program, load


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
    """Counts of (operator, dtype) and of ranks."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.ranks: Counter[int] = Counter()

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

    def text(self) -> str:
        """The number of operators for each dtype, and of tensors of each rank."""
        operators = {op.partition(".")[0] for op, _ in self.pairs}
        dtypes = Counter(dtype for _, dtype in self.pairs)
        lines = [f"{len(operators)} operators, {len(self.pairs)} pairs of overload and dtype"]
        lines.append("overloads by dtype: " + ", ".join(f"{d} {n}" for d, n in dtypes.most_common()))
        lines.append("operands by rank: " + ", ".join(f"{r}: {n}" for r, n in sorted(self.ranks.items())))
        return "\n".join(lines)
