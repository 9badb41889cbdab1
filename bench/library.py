"""What a program pays for a compiled library: loading it, its memory, the cost of a call.

    python -m bench.library
    python -m bench.library bert --shape 1,128

Compiles the workload ahead of time, with packed weights in the library, and builds bench/library.c, which loads it as a
C program does. Loading includes the checksum of the whole file, whose pages are in the page cache after the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import disc
from bench import workloads
from bench.latency import parse_shape
from disc.testing import cpu_name

PACKAGE = Path(disc.__file__).parent


class _Trivial(torch.nn.Module):
    """One kernel, over before a clock ticks: a call of it is what a call costs."""

    def forward(self, x: Tensor) -> Tensor:
        """``x + 1``, f32[batch]."""
        return x + 1


def build_program(folder: Path) -> Path:
    """bench/library.c, with the C compiler."""
    program = folder / "library"
    subprocess.run(
        [
            *(os.environ.get("CC", "cc"), "-O2", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-o", str(program)),
            *(str(Path(__file__).with_suffix(".c")), f"-I{PACKAGE / 'include'}"),
            *(f"-L{PACKAGE / 'lib'}", "-ldisc", f"-Wl,-rpath,{PACKAGE / 'lib'}"),
        ],
        check=True,
    )
    return program


def _start(program: Path, library: Path, extents: list[str]) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    process = subprocess.Popen(
        [program, "load", library, *extents], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def _ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("?")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def report_load(program: Path, library: Path, extents: list[str], times: int) -> None:
    """Loads in processes of their own, then in two at the same time."""
    loads = []
    for _ in range(times + 1):
        process, told = _start(program, library, extents)
        process.communicate()
        loads.append(told["load_ms"])
    warm = loads[1:]
    print(f"load, warm     median {statistics.median(warm):.1f} ms, {min(warm):.1f} to {max(warm):.1f}")
    both = [_start(program, library, extents)[0] for _ in range(2)]
    for name, told in zip(("one process", "another"), [_ask(process) for process in both], strict=True):
        print(
            f"{name:<14} resident {told['rss_kib'] / 1024:.1f} MiB after one call, "
            f"of which {told['shared_kib'] / 1024:.1f} shared; its share {told['pss_kib'] / 1024:.1f}"
        )
    for process in both:
        process.communicate()


def report_call(program: Path, folder: Path) -> None:
    """A model of one tiny kernel."""
    library = folder / "libtrivial.so"
    batch = torch.export.Dim("batch", min=1, max=64)
    disc.aot_compile(_Trivial(), (torch.zeros(4),), dynamic_shapes=({0: batch},), output=library)
    output = subprocess.run(
        [program, "call", library, "200000", "1"], check=True, capture_output=True, text=True
    ).stdout
    told = json.loads(output)
    print(f"disc_run       {told['run_ns']:.0f} ns a call of one element, the caller's output")
    print(f"checks alone   {told['check_ns']:.0f} ns a call of disc_output_shapes")


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="minilm", choices=workloads.names())
    parser.add_argument("--shape", type=parse_shape, help="values of the symbols; default: the workload's first shape")
    parser.add_argument("--times", type=int, default=9, help="how often to load")
    args = parser.parse_args()
    workload = workloads.load(args.workload)
    extents = [str(extent) for extent in args.shape or workload.shapes[0]]
    print(cpu_name())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build_program(folder)
        artifact = disc.aot_compile(
            workload.build(),
            workload.example(),
            dynamic_shapes=workload.dynamic_shapes(),
            output=folder / f"lib{args.workload}.so",
        )
        seconds = sum(artifact.timings.values())
        print(f"{workload.title}: compiled in {seconds:.1f} s to {artifact.size / 2**20:.1f} MiB")
        report_load(program, artifact.path, extents, args.times)
        report_call(program, folder)


if __name__ == "__main__":
    main()
