"""Products with quantised weights: `python -m bench.gpu.quantised FOLDER RESULTS.json`, on the machine with the GPU.

Each of the `coded` models of models.py at each number of rows: microseconds of its kernels, by the profiler, when
neither weights nor activations are in the cache. Beside them those of a product in bf16 with what the codes stand for,
and of PyTorch's own product with weights of 4 bits (tinygemm).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from .models import SPECS, Coded
from .run import copy_bandwidth, difference, loaded


def kernel_microseconds(call: Callable[[Tensor], Any], x: Tensor, scratch: Tensor, count: int = 15) -> float:
    """Of a call's kernels, the median, each time after the caches were filled with something else."""
    call(x)
    times = []
    for _ in range(count):
        scratch.add_(1)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            call(x)
            torch.cuda.synchronize()
        times.append(sum(row.device_time_total for row in found.key_averages()))
    return statistics.median(times)


def tinygemm(layer: Coded) -> Callable[[Tensor], Tensor]:
    """PyTorch's product with the same codes."""
    unsigned = (layer.codes.int() - layer.low).to(torch.uint8)
    bytes_ = unsigned[:, ::2] << 4 | unsigned[:, 1::2]
    packed = torch._convert_weight_to_int4pack(bytes_, 8)
    zeros = torch.zeros_like(layer.scales) if layer.zeros is None else layer.zeros.float()
    # It subtracts 8 itself, and adds what follows.
    panes = torch.stack([layer.scales, -zeros * layer.scales], -1).transpose(0, 1).contiguous().bfloat16()
    return lambda x: torch._weight_int4pack_mm(x, packed, layer.group, panes)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "copy_bytes_per_us": copy_bandwidth()}
    scratch = torch.zeros(2**27, device="cuda")
    for name, spec in SPECS.items():
        if not name.startswith("coded") or not (options.folder / f"lib{name}.so").is_file():
            continue
        layer = spec.build("cuda")
        assert isinstance(layer, Coded)
        model, wide = loaded(name, spec, layer, options.folder), layer.weight(torch.bfloat16)
        peer = tinygemm(layer) if layer.high == 7 else None
        for shape in spec.shapes:
            (x,) = (t.cuda() for t in spec.tensors(shape))
            with torch.no_grad():
                exact = [(x.double() @ layer.weight(torch.float64).T)]
                entry = {
                    "difference": difference([model(x)[0].double()], exact),
                    "disc": kernel_microseconds(model, x, scratch),
                    "bf16": kernel_microseconds(partial(F.linear, weight=wide), x, scratch),
                }
                if peer:
                    entry["tinygemm_difference"] = difference([peer(x).double()], exact)
                    entry["tinygemm"] = kernel_microseconds(peer, x, scratch)
            found.setdefault(name, {})[str(shape)] = entry
            print(f"{name:14} {shape!s:8}", "  ".join(f"{k} {v:.3g}" for k, v in entry.items()), flush=True)
            options.results.write_text(json.dumps(found, indent=1), encoding="utf-8")
        model.close()


if __name__ == "__main__":
    main()
