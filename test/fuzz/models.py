"""Compiles the models of FuzzGuards: models.py FOLDER. One object each, with checks of all memory accesses.

Their inputs have the relations that guards are for: equal extents, multiples, ranges, sums, rows beside repeated rows,
several ranks and dtypes, and an input and a buffer that runs update.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

import disc


class Cache(torch.nn.Module):
    """Writes rows to a cache that the caller has, and counts them in a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def forward(self, cache: torch.Tensor, at: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, row)
        self.rows += at.shape[0]
        return cache.sum(0) + self.rows


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def models() -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...], Any]]:
    """Name, module, example, dynamic shapes."""
    b, s, n, m = Dim("b", min=1, max=40), Dim("s", max=200), Dim("n", max=100), Dim("m", min=2, max=64)
    quarter, rows, k = Dim("quarter", min=1, max=30), Dim("rows", max=50), Dim("k", max=20)
    half, r = torch.float16, torch.randn
    return {
        "equal": (Function(lambda x, y: (x + y).softmax(-1)), (r(3, 5), r(3, 5)), ({0: b, 1: s}, {0: b, 1: s})),
        "multiple": (Function(lambda x: x.reshape(x.shape[0], -1, 4).sum(1)), (r(3, 8),), ({0: b, 1: 4 * quarter},)),
        "concatenated": (
            Function(lambda x, y: (torch.cat([x, y]).sort()[0], x.cumsum(0))),
            (torch.arange(5), torch.arange(7)),
            ({0: n}, {0: m}),
        ),
        "repeated": (
            Function(lambda x, bias, mask: torch.where(mask, x.transpose(1, 2) * bias, -1).contiguous()),
            (r(2, 3, 4, 6, dtype=half), r(6, dtype=half), torch.rand(2, 1, 1, 6) > 0.5),
            ({0: b, 1: k}, None, {0: b}),
        ),
        "selected": (
            Function(lambda x, i: (x[i], x[x > 0], (x != 0).nonzero())),
            (r(4, 3, dtype=torch.float64), torch.tensor([1, 3])),
            ({0: rows}, {0: k}),
        ),
        "product": (
            Function(lambda x, y, scale: (x.transpose(0, 1).bfloat16() @ y).float() * scale),
            (r(5, 3), r(5, 7).bfloat16(), torch.tensor(2, dtype=torch.uint8)),
            ({0: rows, 1: b}, {0: rows, 1: n}, None),
        ),
        "cache": (
            Cache(),
            (r(6, 4), torch.tensor([1, 4]), r(2, 4)),
            ({0: rows}, {0: k}, {0: k}),
        ),
    }


def main() -> None:
    """Writes FOLDER/NAME.o and models.def, which names them."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, (module, example, shapes) in models().items():
        disc.aot_compile(
            module,
            example,
            dynamic_shapes=(shapes,) if isinstance(module, Function) else shapes,
            output=folder / f"{name}.o",
            name=name,
            emit="obj",
            options=disc.Options(sanitize=True),
        )
    (folder / "models.def").write_text("".join(f"MODEL({name})\n" for name in models()))


if __name__ == "__main__":
    main()
