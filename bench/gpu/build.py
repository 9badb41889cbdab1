"""Compiles what bench/gpu.sh runs: `python -m bench.gpu.build FOLDER [--target cuda]`, on any machine.

By default the kernels and small models; `--only` takes those of `networks.py` as well.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import torch

import disc

from . import models, networks, weights
from .models import Spec

SPECS = {**models.SPECS, **networks.SPECS}


def compiled(name: str, spec: Spec, folder: Path, target: str) -> str:
    """Writes a library, and says what it cost."""
    library = folder / f"lib{name}.so"
    module = spec.build()
    with torch.no_grad(), tempfile.TemporaryDirectory(dir=folder) as temporary:
        file = Path(temporary) / f"{name}.safetensors"
        made = disc.aot_compile(
            module,
            spec.example(),
            dynamic_shapes=spec.dynamic_shapes(),
            output=library,
            name=name,
            weights="embed" if spec.weights else file,
            packed=spec.weights,
            target=target,
            cpu="x86-64-v3",  # they are carried to another machine
        )
        if not spec.weights:
            weights.write_constants(file, module, weights.constants_file(folder, name))
    return f"{made.size / 2**20:6.1f} MiB  {sum(made.timings.values()):6.1f} s"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda", help="as disc.aot_compile takes it")
    parser.add_argument("--only", nargs="*", default=sorted(models.SPECS), choices=sorted(SPECS), help="these models")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    timer = Path(__file__).with_name("host_time.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", options.folder / "host_time.so", timer], check=True)
    for name in options.only:
        print(f"{name:20} {compiled(name, SPECS[name], options.folder, options.target)}", flush=True)


if __name__ == "__main__":
    main()
