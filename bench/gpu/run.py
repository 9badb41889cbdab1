"""Checks and measures carried libraries: `python -m bench.gpu.run FOLDER RESULTS.json`, on the machine with the GPU.

Every model is compared with eager PyTorch at every shape, and timed in turns with eager, `torch.compile(dynamic=True)`
and `torch.compile` of each shape alone. Times are those of a call in a stream that is never empty: what the GPU takes,
or the host where that is longer. The host's own time for a call is measured beside.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .carried import Carried
from .models import SPECS, Shape, Spec

Call = Callable[..., Any]


def leaves(result: Any) -> list[Tensor]:
    """The tensors of a result."""
    return [result] if isinstance(result, Tensor) else list(result)


def difference(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest, over the largest magnitude or 1."""
    worst = 0.0
    for ours, theirs in zip(got, wanted, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return math.inf
        if not theirs.numel():
            continue
        a, b = ours.double(), theirs.double()
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp(min=1)).item())
    return worst


def microseconds(call: Call, inputs: tuple[Tensor, ...], seconds: float) -> float:
    """Of one call, in a stream of many."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call(*inputs)
    torch.cuda.synchronize()
    count = max(3, min(1000, int(seconds / max(time.perf_counter() - begin, 1e-6))))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call(*inputs)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / count


def host_microseconds(call: Call, inputs: tuple[Tensor, ...]) -> float:
    """What a call keeps the host, while the GPU is busy with other calls."""
    torch.cuda.synchronize()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        call(*inputs)
        times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return sorted(times)[len(times) // 2] * 1e6


def copy_bandwidth() -> float:
    """Bytes per microsecond that a copy within the device reads and writes."""
    source = torch.empty(2**28, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(microseconds(lambda: target.copy_(source), (), 0.2) for _ in range(5))


def check(name: str, spec: Spec, model: Carried, device: str) -> dict[str, float]:
    """The difference from eager at each shape."""
    reference = spec.build().to(device)
    found = {}
    for shape in spec.shapes:
        inputs = tuple(t.to(device) for t in spec.tensors(shape))
        with torch.no_grad():
            wanted = leaves(reference(*inputs))
        got = model(*inputs)
        model.synchronize()
        found[str(shape)] = difference(got, wanted)
        print(f"{name:12} {shape!s:14} differs by {found[str(shape)]:.1e}", flush=True)
    return found


def measure(name: str, spec: Spec, model: Carried, bandwidth: float, seconds: float) -> dict[str, Any]:
    """Times at each shape, all engines in turns."""
    reference = spec.build().cuda()
    dynamic = torch.compile(reference, dynamic=True)
    found = {}
    for shape in spec.shapes:
        inputs = tuple(t.cuda() for t in spec.tensors(shape))
        torch._dynamo.reset()
        static = torch.compile(spec.build().cuda(), dynamic=False)
        engines: dict[str, Call] = {
            "disc": model,
            "eager": reference,
            "compile_dynamic": dynamic,
            "compile_static": static,
        }
        times: dict[str, list[float]] = {engine: [] for engine in engines}
        with torch.no_grad():
            for call in engines.values():
                for _ in range(3):
                    call(*inputs)
            for _ in range(5):
                for engine, call in engines.items():
                    times[engine].append(microseconds(call, inputs, seconds))
            entry: dict[str, Any] = {engine: min(values) for engine, values in times.items()}
            entry["host"] = {engine: host_microseconds(call, inputs) for engine, call in engines.items()}
            moved = sum(t.nbytes for t in (*inputs, *leaves(reference(*inputs))))
        entry["megabytes"] = moved / 1e6
        entry["of_copy_bandwidth"] = moved / entry["disc"] / bandwidth
        found[str(shape)] = entry
        line = "  ".join(f"{engine} {entry[engine]:.1f}" for engine in engines)
        share = f"  {entry['of_copy_bandwidth']:.0%} of a copy's bandwidth" if spec.memory_bound else ""
        print(f"{name:12} {shape!s:14} us: {line}{share}", flush=True)
    return found


def summary(times: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Geometric means of how many times faster DISC is."""
    result = {}
    for peer in ("eager", "compile_dynamic", "compile_static"):
        ratios = [entry[peer] / entry["disc"] for model in times.values() for entry in model.values()]
        if ratios:
            result[peer] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return result


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument(
        "--device", default="cuda", help="'cpu' runs libraries for an emulated GPU, and measures nothing"
    )
    parser.add_argument("--check-only", action="store_true", help="measure nothing")
    parser.add_argument("--tolerance", type=float, default=2e-5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each timing")
    parser.add_argument("--largest", type=int, default=1 << 62, help="leave out shapes with more elements")
    options = parser.parse_args()
    # Peers are to compute what is compared.
    torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {"torch": torch.__version__, "device": options.device}
    differences: dict[str, Any] = {}
    times: dict[str, Any] = {}
    bandwidth = 0.0
    timed = options.device == "cuda" and not options.check_only
    if timed:
        results["device"] = torch.cuda.get_device_name()
        bandwidth = copy_bandwidth()
        results["copy_gigabytes_per_second"] = bandwidth / 1e3
    for name, full in SPECS.items():
        path = options.folder / f"lib{name}.so"
        if not path.is_file():
            continue
        spec = _within(full, options.largest)
        model = Carried(path)
        differences[name] = check(name, spec, model, options.device)
        if timed:
            times[name] = measure(name, spec, model, bandwidth, options.seconds)
        model.close()
    results |= {"differences": differences, "microseconds": times, "times_faster": summary(times)}
    options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("times faster than:", results["times_faster"])
    wrong = [
        (name, shape, d) for name, found in differences.items() for shape, d in found.items() if d > options.tolerance
    ]
    if wrong or not differences:
        raise SystemExit(f"wrong: {wrong}" if wrong else f"no library in {options.folder}")


def _within(spec: Spec, largest: int) -> Spec:
    from dataclasses import replace

    def elements(shape: Shape) -> int:
        return math.prod(shape)

    return replace(spec, shapes=tuple(s for s in spec.shapes if elements(s) <= largest))


if __name__ == "__main__":
    main()
