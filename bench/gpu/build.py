"""Compiles what bench/gpu.sh runs: `python -m bench.gpu.build FOLDER [--target cuda]`, on any machine."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import disc

from .models import SPECS


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda", help="as disc.aot_compile takes it")
    parser.add_argument("--only", nargs="*", default=sorted(SPECS), help="some of the models")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        spec = SPECS[name]
        with torch.no_grad():
            made = disc.aot_compile(
                spec.build(),
                spec.example(),
                dynamic_shapes=spec.dynamic_shapes(),
                output=options.folder / f"lib{name}.so",
                name=name,
                target=options.target,
                cpu="x86-64-v3",  # they are carried to another machine
            )
        print(f"{name:12} {made.size / 2**20:6.1f} MiB  {sum(made.timings.values()):6.1f} s", flush=True)


if __name__ == "__main__":
    main()
