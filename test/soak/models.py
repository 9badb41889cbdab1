"""Compiles the models of the soak test and draws their inputs: models.py FOLDER.

For each model NAME.o, a file NAME.cases with calls of random shapes, NAME.0 and NAME.1 with two sets of weights, and a
line in models.def. Results are not compared with PyTorch here: the test is about their being the same every time.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim
from torch.nn import functional

import disc

CASES = 40
CODES = {torch.float32: (2, 32), torch.int64: (0, 64), torch.bool: (6, 8)}
"""What DLPack calls these: code and bits."""


class Attention(nn.Module):
    """Products and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return functional.layer_norm(x + self.out(y), (64,))


class Convolution(nn.Module):
    """Convolutions and a reduction over lines."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean((2, 3))).softmax(-1)


class Loop(nn.Module):
    """Steps until the data says so; the last case takes some milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        steps = torch.zeros((), dtype=torch.int64)
        while steps < limit:
            x = torch.tanh(self.layer(x))
            if x.sum() > 0:
                x = -x
            steps = steps + 1
        return x


class Selected(nn.Module):
    """Extents that data decides, in host functions with scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x[i] * self.scale
        return y[y > 0], (y.abs() > 1).nonzero(), y.flatten().sort()[0]


class State(nn.Module):
    """A cache of the caller's and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.register_buffer("total", torch.zeros(16))

    def forward(self, cache: torch.Tensor, at: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, self.layer(row))
        self.total += cache.sum(0)
        return cache.cumsum(0) + self.total


class Recursion(nn.Module):
    """A function that calls itself as often as data says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def descend(self, x: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        if depth <= 0:
            return x
        left = self.descend(torch.tanh(self.layer(x)), depth - 1)
        if left.sum() > 0:
            return left + self.descend(left * 0.5, depth - 2)
        return left - x

    def forward(self, x: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        return self.descend(x, depth)


Case = tuple[torch.Tensor, ...]


def models(rng: random.Random) -> dict[str, tuple[Callable[[], nn.Module], Any, Callable[[int], Case]]]:
    """Name, how to make the module, dynamic shapes, and the inputs of a case of a number."""
    b, s, h, w = Dim("b", max=8), Dim("s", max=100), Dim("h", min=4, max=40), Dim("w", min=4, max=40)
    n, k, r = Dim("n", max=400), Dim("k", max=60), torch.randn

    def selected(_: int) -> Case:
        rows = rng.randint(1, 400)
        return r(rows, 8), torch.randint(0, rows, (rng.randint(1, 60),))

    def state(_: int) -> Case:
        rows = rng.randint(60, 100)
        count = rng.randint(1, 60)
        return r(rows, 16), torch.randperm(rows)[:count], r(count, 16)

    def loop(number: int) -> Case:
        limit = 3000 if number == CASES - 1 else rng.randint(0, 12)
        return r(rng.randint(1, 8), 32), torch.tensor(limit)

    return {
        "attention": (Attention, ({0: b, 1: s},), lambda _: (r(rng.randint(1, 8), rng.randint(1, 100), 64),)),
        "convolution": (
            Convolution,
            ({0: b, 2: h, 3: w},),
            lambda _: (r(rng.randint(1, 4), 3, rng.randint(4, 40), rng.randint(4, 40)),),
        ),
        "loop": (Loop, ({0: b}, None), loop),
        "selected": (Selected, ({0: n}, {0: k}), selected),
        "state": (State, ({0: Dim("rows", min=60, max=100)}, {0: k}, {0: k}), state),
        "recursion": (
            Recursion,
            ({0: n}, None),
            lambda _: (r(rng.randint(1, 50), 8), torch.tensor(rng.randint(0, 6))),
        ),
    }


@dataclass
class Writer:
    """Cases as the test reads them: numbers of 8 bytes, then the elements of each tensor."""

    path: Path

    def write(self, cases: list[Case]) -> None:
        data = struct.pack("<qq", len(cases), len(cases[0]))
        for case in cases:
            for tensor in case:
                code, bits = CODES[tensor.dtype]
                data += struct.pack(f"<qqq{tensor.dim()}q", code, bits, tensor.dim(), *tensor.shape)
                data += tensor.contiguous().numpy().tobytes()
        self.path.write_bytes(data)


def main() -> None:
    """Writes what the test needs."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    torch.manual_seed(1)
    lines = []
    for name, (make, shapes, draw) in models(rng).items():
        cases = [draw(number) for number in range(CASES)]
        module = make().eval()
        disc.aot_compile(
            module,
            tuple(t.clone() for t in cases[0]),
            dynamic_shapes=shapes,
            output=folder / f"{name}.o",
            name=name,
            weights=str(folder / f"{name}.weights"),
            emit="obj",
        )
        for version in range(2):
            save_file({k: v.contiguous() for k, v in make().state_dict().items()}, folder / f"{name}.{version}")
        Writer(folder / f"{name}.cases").write(cases)
        lines.append(f"MODEL({name}, {int(bool(list(module.buffers())))})\n")
    (folder / "models.def").write_text("".join(lines))


if __name__ == "__main__":
    main()
