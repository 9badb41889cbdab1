"""Times DISC alone on a workload: quick to run while working on the compiler.

    python -m bench.latency minilm --shapes 1,8 8,64
    python -m bench.latency ctr_ranker --threads 1

Figures of different runs differ with the machine's mood; `make bench` compares engines in one run.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import torch

import disc
from bench import workloads
from bench.workloads.base import flat
from disc.testing import cpu_name, interleaved


def parse_shape(text: str) -> tuple[int, ...]:
    """A shape as it is written on the command line: extents with commas or x between them."""
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="+", choices=workloads.names())
    parser.add_argument("--shapes", nargs="+", type=parse_shape, help="instead of the workload's own")
    parser.add_argument("--quick", action="store_true", help="the workload's few shapes")
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--seconds", type=float, default=0.5, help="per shape")
    parser.add_argument("--check", action="store_true", help="compare with eager first")
    args = parser.parse_args()
    print(cpu_name())
    for name in args.workload:
        workload = workloads.load(name)
        module = workload.build()
        start = time.perf_counter()
        options = disc.Options(threads=args.threads)
        model = disc.compile(module, workload.example(), dynamic_shapes=workload.dynamic_shapes(), options=options)
        print(f"{workload.title}: compiled in {time.perf_counter() - start:.1f} s, {model.threads} threads")
        for shape in args.shapes or (workload.quick if args.quick else workload.shapes):
            inputs = workload.inputs(shape)
            error = ""
            if args.check:
                with torch.inference_mode():
                    expected = flat(module(*inputs))
                error = f"   error {workload.largest_difference(flat(model(*inputs)), expected):.1e}"
            timing = interleaved({"disc": partial(model, *inputs)}, seconds=args.seconds)["disc"]
            label = " x ".join(map(str, shape))
            print(
                f"{label:>12}  median {timing.median * 1e3:9.3f} ms   best {timing.best * 1e3:9.3f}{error}", flush=True
            )


if __name__ == "__main__":
    main()
