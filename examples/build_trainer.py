#!/usr/bin/env python3
"""Compiles a training step to a library and installs it to a folder, for c/train.c, which trains without Python.

The folder then holds, beside the library and its headers (lib/, include/)::

    share/trainer/batches.bin   the batches to train on: of each the number of rows (int64), x (float32[rows, 6]) and
                                y (float32[rows, 3])
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import disc


def network(seed: int = 0) -> nn.Module:
    """A network from rows of 6 numbers to rows of 3."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))


def make_optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """AdamW."""
    return torch.optim.AdamW(module.parameters(), lr=1e-2)


def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean squared error of rows x [rows, 6] and y [rows, 3]."""
    return F.mse_loss(module(x), y)


def batches(count: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Batches of changing size."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        x = torch.randn(int(torch.randint(1, 65, (), generator=generator)), 6, generator=generator)
        found.append((x, torch.sin(2 * x[:, :3])))
    return found


def install(prefix: Path) -> disc.Artifact:
    """Compiles the step and installs it to a folder."""
    library = prefix / "lib" / "libtrainer.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    module = network()
    return disc.aot_compile_training(
        module,
        make_optimizer(module),
        batches(1)[0],
        loss=loss,
        dynamic_shapes=({0: "rows"}, {0: "rows"}),
        clip_norm=1.0,
        output=library,
        prefix=prefix,
    )


def write_batches(path: Path, given: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Writes batches as c/train.c reads them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        for x, y in given:
            file.write(np.int64(len(x)).tobytes() + x.numpy().tobytes() + y.numpy().tobytes())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", type=Path, help="the folder to install to")
    prefix = parser.parse_args().prefix
    install(prefix)
    write_batches(prefix / "share" / "trainer" / "batches.bin", batches(200))
    print(f"{prefix / 'lib' / 'libtrainer.so'}: train with examples/c/train.c (see examples/c/Makefile)")


if __name__ == "__main__":
    main()
