"""Where the time of a carried library goes on the GPU: `python -m bench.gpu.kernels FOLDER MODEL SHAPE...`.

A shape is its extents with an `x` between them: `python -m bench.gpu.kernels build/gpu minilm 1x128 64x512`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from .run import SPECS, loaded


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", choices=sorted(SPECS))
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20, help="of each table, the longest first")
    options = parser.parse_args()
    spec = SPECS[options.model]
    model = loaded(options.model, spec, spec.build("cuda"), options.folder)
    for text in options.shapes:
        inputs = tuple(t.cuda() for t in spec.tensors(tuple(int(n) for n in text.split("x"))))
        for _ in range(3):
            model(*inputs)
        model.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(options.calls):
                model(*inputs)
            model.synchronize()
        rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)
        total = sum(row.device_time_total for row in rows) / options.calls
        count = sum(row.count for row in rows) / options.calls
        print(f"{options.model} {text}: {total:.1f} us in {count:g} kernels and copies of each call")
        for row in rows[: options.rows]:
            each = row.device_time_total / options.calls
            print(f"  {each:9.2f} us {each / total:4.0%}  {row.count / options.calls:5.1f} x  {row.key[:100]}")
    model.close()


if __name__ == "__main__":
    main()
