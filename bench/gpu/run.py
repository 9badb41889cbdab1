"""Checks and measures carried libraries: `python -m bench.gpu.run FOLDER RESULTS.json`, on the machine with the GPU.

Every model, in a process of its own, is compared with eager PyTorch at every shape, and timed in turns with eager,
`torch.compile(dynamic=True)` and `torch.compile` of each shape alone. Times are those of a call in a stream that is
never empty: what the GPU takes, or the host where that is longer. The host's own time for a call is measured beside.
Results are written as they come.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .carried import Carried
from .models import SPECS, Shape, Spec

Call = Callable[..., Any]
PEERS = ("eager", "compile_dynamic", "compile_static")


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
        same = (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, 0.0, (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf))
        worst = max(worst, (gap.max() / torch.where(b.isfinite(), b.abs(), 0.0).max().clamp(min=1)).item())
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


def measure(
    name: str, spec: Spec, model: Carried, options: argparse.Namespace, found: dict[str, Any], save: Callable[[], None]
) -> None:
    """Times at each shape, all engines in turns. A peer that fails is told, and left out from there on."""
    reference = spec.build().cuda()
    timed: dict[str, Call] = {"disc": model}
    for engine in options.engines:
        if engine == "eager":
            timed[engine] = reference
            continue
        # As many shapes as there are.
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
        timed[engine] = torch.compile(spec.build().cuda(), dynamic=engine == "compile_dynamic")
    bandwidth = copy_bandwidth()
    found |= {"copy_gigabytes_per_second": bandwidth / 1e3, "failed": {}, "shapes": {}}
    for shape in spec.shapes:
        inputs = tuple(t.cuda() for t in spec.tensors(shape))
        times: dict[str, list[float]] = {engine: [] for engine in timed}
        with torch.no_grad():
            for engine, call in list(timed.items()):
                try:
                    for _ in range(3):
                        call(*inputs)
                    torch.cuda.synchronize()
                except Exception as error:  # a machine without a C compiler has no Triton, say
                    if engine == "disc":
                        raise
                    found["failed"][engine] = f"{type(error).__name__}: {error}"[:500]
                    print(f"{name:12} {shape!s:14} {engine} fails: {found['failed'][engine]}", flush=True)
                    del timed[engine], times[engine]
            for _ in range(5):
                for engine, call in timed.items():
                    times[engine].append(microseconds(call, inputs, options.seconds))
            entry: dict[str, Any] = {engine: min(values) for engine, values in times.items()}
            entry["host"] = {engine: host_microseconds(call, inputs) for engine, call in timed.items()}
            moved = sum(t.nbytes for t in (*inputs, *leaves(reference(*inputs))))
        entry["megabytes"] = moved / 1e6
        entry["of_copy_bandwidth"] = moved / entry["disc"] / bandwidth
        found["shapes"][str(shape)] = entry
        save()
        line = "  ".join(f"{engine} {entry[engine]:.1f}" for engine in timed)
        hosts = "  ".join(f"{entry['host'][engine]:.1f}" for engine in timed)
        share = f"  {entry['of_copy_bandwidth']:.0%} of a copy's bandwidth" if spec.memory_bound else ""
        print(f"{name:12} {shape!s:14} us: {line}  host: {hosts}{share}", flush=True)


def summary(models: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Geometric means of how many times faster DISC is."""
    result = {}
    for peer in PEERS:
        entries = [entry for model in models.values() for entry in model.get("shapes", {}).values() if peer in entry]
        if entries:
            result[peer] = math.exp(sum(math.log(entry[peer] / entry["disc"]) for entry in entries) / len(entries))
    return result


def one(name: str, spec: Spec, options: argparse.Namespace) -> None:
    """Checks and measures a model, and writes what there is after each."""
    # Peers are to compute what is compared.
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Carried(options.folder / f"lib{name}.so")
    found: dict[str, Any] = {"torch": torch.__version__, "device": options.device}
    if options.device == "cuda":
        found["device"] = torch.cuda.get_device_name()

    def save() -> None:
        write(options.results, {name: found})

    found["differences"] = check(name, spec, model, options.device)
    save()
    if options.device == "cuda" and not options.check_only:
        measure(name, spec, model, options, found, save)
        save()
    model.close()


def write(path: Path, models: dict[str, Any]) -> None:
    """The file of results."""
    text = json.dumps({"models": models, "times_faster": summary(models)}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def apart(names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Each model in a process of its own: one that loses the GPU's context takes no other along."""
    models: dict[str, Any] = {}
    end = time.monotonic() + 60 * options.minutes
    for name in names:
        part = options.results.with_suffix(f".{name}.json")
        flags = [
            "--shapes",
            *options.shapes,
            f"--device={options.device}",
            f"--seconds={options.seconds}",
            f"--largest={options.largest}",
        ]
        flags += ["--check-only"] * options.check_only + ["--engines", *options.engines, "--only", name]
        command = [sys.executable, "-m", "bench.gpu.run", str(options.folder), str(part), *flags]
        error = ""
        try:
            status = subprocess.run(command, check=False, timeout=max(1, end - time.monotonic())).returncode
            error = f"ended with status {status}" if status else ""
        except subprocess.TimeoutExpired:
            error = f"not done after {options.minutes:g} minutes in all"
        models |= json.loads(part.read_text(encoding="utf-8"))["models"] if part.is_file() else {name: {}}
        part.unlink(missing_ok=True)
        if error:
            models[name]["error"] = error
            print(f"{name:12} {error}", flush=True)
        write(options.results, models)
    return models


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument(
        "--device", default="cuda", help="'cpu' runs libraries for an emulated GPU, and measures nothing"
    )
    parser.add_argument("--only", nargs="*", default=list(reversed(SPECS)), help="some of the models")
    parser.add_argument("--engines", nargs="*", default=PEERS, choices=PEERS, help="what to compare times with")
    parser.add_argument("--minutes", type=float, default=9, help="for all of it")
    parser.add_argument("--check-only", action="store_true", help="measure nothing")
    parser.add_argument("--tolerance", type=float, help="in place of each model's own")
    parser.add_argument("--seconds", type=float, default=0.05, help="of each timing")
    parser.add_argument("--shapes", nargs="*", default=[], help="these alone, as 1x128")
    parser.add_argument("--largest", type=int, default=1 << 62, help="leave out shapes with more elements")
    options = parser.parse_args()
    names = [name for name in options.only if (options.folder / f"lib{name}.so").is_file()]
    if len(options.only) == 1 and names:
        one(names[0], _chosen(SPECS[names[0]], options), options)
        return
    models = apart(names, options)
    print("times faster than:", summary(models))
    wrong = [f"{name}: {found['error']}" for name, found in models.items() if "error" in found]
    for name, found in models.items():
        differences = found.get("differences", {})
        tolerance = options.tolerance or SPECS[name].tolerance
        wrong += [f"{name} {shape}: {d:.1e}" for shape, d in differences.items() if not d <= tolerance]
    if wrong or not models:
        raise SystemExit("wrong: " + "; ".join(wrong) if wrong else f"no library in {options.folder}")


def _chosen(spec: Spec, options: argparse.Namespace) -> Spec:
    """The model with the shapes that are asked for."""
    from dataclasses import replace

    wanted = [tuple(int(extent) for extent in text.split("x")) for text in options.shapes]
    shapes: tuple[Shape, ...] = tuple(wanted) or spec.shapes
    return replace(spec, shapes=tuple(shape for shape in shapes if math.prod(shape) <= options.largest))


if __name__ == "__main__":
    main()
