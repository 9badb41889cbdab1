"""Checks and measures carried libraries: `python -m bench.gpu.run FOLDER RESULTS.json`, on the machine with the GPU.

Every model, in a process of its own, is compared with eager PyTorch at every shape, and timed in turns with eager,
`torch.compile(dynamic=True)` and `torch.compile` of each shape alone; with `--engines` also with its modes
"reduce-overhead" (CUDA graphs) and "max-autotune". Times are those of a call in a stream that is never empty: what the
GPU takes, or the host where that is longer. The host's own time for a call is measured beside, for DISC also without
Python, and beside it what the driver needs to launch graphs. Results are written as they come.

Peers that compile for long are measured last. `--warm SECONDS` compiles for all models at the same time beforehand,
into caches that the measurements then use; choices among kernels by "max-autotune" are not kept, as they were timed on
a busy GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from . import models, networks, weights
from .carried import Carried
from .models import Shape, Spec

Call = Callable[..., Any]
SPECS = {**models.SPECS, **networks.SPECS}
AUTOTUNE = "compile_autotune"
MODES = {"compile_dynamic": None, "compile_static": None, "compile_graphs": "reduce-overhead", AUTOTUNE: "max-autotune"}
"""`torch.compile`'s, of the engines that are that."""
PEERS = ("eager", *MODES)
STATIC = PEERS[2:]
USUAL = PEERS[:3]
STAGES = (("disc", "eager"), PEERS[1:4], (AUTOTUNE,))
"""What is measured one after the other: each takes much longer than the one before, whose engines it measures again."""
BEGAN = time.monotonic()


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


def check(name: str, spec: Spec, model: Carried, reference: nn.Module, device: str) -> dict[str, float]:
    """The difference from eager at each shape."""
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


def compiled(reference: nn.Module, engine: str) -> Call:
    """The module as an engine runs it."""
    if engine == "eager":
        return reference
    # As many shapes as there are.
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    return torch.compile(reference, dynamic=engine == "compile_dynamic", mode=MODES[engine])


def engines_at(number: int, options: argparse.Namespace) -> list[str]:
    """Those that are to be measured at a model's shape of this number."""
    limits = dict.fromkeys(STATIC, options.static_shapes) | {AUTOTUNE: options.autotune_shapes}
    return [engine for engine in options.engines if engine not in limits or number < limits[engine]]


def prepared(engine: str, call: Call, inputs: tuple[Tensor, ...]) -> str:
    """Calls it until it has compiled what it needs; what it says if it fails."""
    try:
        for _ in range(3):
            call(*inputs)
        torch.cuda.synchronize()
    except Exception as error:  # a machine without a C compiler has no Triton, say
        if engine == "disc":
            raise
        return f"{type(error).__name__}: {error}"[:500]
    return ""


def measure(
    name: str,
    spec: Spec,
    model: Carried,
    reference: nn.Module,
    options: argparse.Namespace,
    found: dict[str, Any],
    save: Callable[[], None],
) -> None:
    """Times at each shape, all engines in turns. A peer that fails is told, and left out from there on.

    A shape is measured again once a peer of a later stage has compiled for it, which replaces what was measured before.
    """
    calls: dict[str, Call] = {"disc": model, **{engine: compiled(reference, engine) for engine in options.engines}}
    bandwidth = copy_bandwidth()
    found |= {"copy_gigabytes_per_second": bandwidth / 1e3, "failed": {}, "shapes": {}, "compile_seconds": {}}
    library = (options.folder / "host_time.so").resolve()
    timer = ctypes.CDLL(str(library)) if library.is_file() else None
    found["graph_launch"] = graph_launches(timer) if timer else {}
    ready: set[tuple[str, Shape | None]] = set()
    for stage in STAGES:
        for number, shape in enumerate(spec.shapes):
            engines = ["disc", *engines_at(number, options)]
            if not set(engines) & set(stage):
                continue
            inputs = tuple(t.cuda() for t in spec.tensors(shape))
            timed: dict[str, Call] = {}
            with torch.no_grad():
                for engine in engines:
                    # One compilation is for all shapes, by and large.
                    key = (engine, shape if engine in STATIC else None)
                    late = engine in MODES and time.monotonic() - BEGAN > options.budget
                    if engine in found["failed"] or (key not in ready and (engine not in stage or late)):
                        continue
                    begin = time.perf_counter()
                    if why := prepared(engine, calls[engine], inputs):
                        found["failed"][engine] = why
                        print(f"{name:12} {shape!s:14} {engine} fails: {why}", flush=True)
                        continue
                    timed[engine] = calls[engine]
                    ready.add(key)
                    if engine in stage:
                        found["compile_seconds"].setdefault(str(shape), {})[engine] = time.perf_counter() - begin
                if not set(timed) & set(stage):
                    continue
                entry = times_at(timed, inputs, options.seconds)
                entry["host_without_python"] = median(model.host_times(timer, inputs, 20) if timer else [])
                torch.cuda.synchronize()
                moved = sum(t.nbytes for t in (*inputs, *leaves(reference(*inputs))))
            entry["megabytes"] = moved / 1e6
            entry["of_copy_bandwidth"] = moved / entry["disc"] / bandwidth
            found["shapes"][str(shape)] = entry
            save()
            print(f"{name:12} {shape!s:14} {line(spec, entry)}", flush=True)
    # Last: calls cost the host more once a profiler has been there.
    for shape in spec.shapes:
        inputs = tuple(t.cuda() for t in spec.tensors(shape))
        found["shapes"][str(shape)]["kernels"] = kernels(model, inputs)
    save()


def line(spec: Spec, entry: dict[str, Any]) -> str:
    """What is printed of a shape."""
    times = "  ".join(f"{engine} {entry[engine]:.1f}" for engine in entry["host"])
    hosts = "  ".join(f"{value:.1f}" for value in entry["host"].values())
    bare = f" (without Python {entry['host_without_python'] or math.nan:.1f})"
    share = f"  {entry['of_copy_bandwidth']:.0%} of a copy's bandwidth" if spec.memory_bound else ""
    return f"us: {times}  host: {hosts}{bare}{share}"


def times_at(timed: dict[str, Call], inputs: tuple[Tensor, ...], seconds: float) -> dict[str, Any]:
    """Microseconds of each engine, measured in turns."""
    times: dict[str, list[float]] = {engine: [] for engine in timed}
    for _ in range(5):
        for engine, call in timed.items():
            times[engine].append(microseconds(call, inputs, seconds))
    entry: dict[str, Any] = {engine: min(values) for engine, values in times.items()}
    entry["host"] = {engine: host_microseconds(call, inputs) for engine, call in timed.items()}
    return entry


def median(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return statistics.median(values) if values else None


def graph_launches(timer: ctypes.CDLL) -> dict[int, float]:
    """What launching a graph of so many small kernels keeps the host: the driver's part of a call alone."""
    found: dict[int, float] = {}
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
        return found  # of a version of PyTorch that keeps it to itself
    x = torch.zeros(1, device="cuda")
    for count in (1, 10, 100, 300):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        times = (ctypes.c_double * 20)()
        launch = ctypes.CDLL("libcuda.so.1").cuGraphLaunch
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        handle = ctypes.c_void_p(graph.raw_cuda_graph_exec())
        if timer.time_launches(ctypes.cast(launch, ctypes.c_void_p), handle, stream, times, 20):
            raise RuntimeError("cuGraphLaunch failed")
        torch.cuda.synchronize()
        found[count] = statistics.median(times)
    return found


def kernels(model: Carried, inputs: tuple[Tensor, ...]) -> float:
    """Kernels and copies of a call."""
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(5):
            model(*inputs)
        model.synchronize()
    return sum(row.count for row in traced.key_averages() if row.device_time_total) / 5


def compile_only(spec: Spec, reference: nn.Module, options: argparse.Namespace) -> None:
    """Fills the caches of the peers' compilers."""
    for engine in options.engines:
        call = compiled(reference, engine)
        for number, shape in enumerate(spec.shapes):
            if engine in MODES and engine in engines_at(number, options):
                inputs = tuple(t.cuda() for t in spec.tensors(shape))
                with torch.no_grad():
                    prepared(engine, call, inputs)


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
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    reference = spec.build(options.device)
    if options.compile_only:
        compile_only(spec, reference, options)
        return
    model = loaded(name, spec, reference, options.folder)
    found: dict[str, Any] = {"torch": torch.__version__, "device": options.device}
    if options.device == "cuda":
        found["device"] = torch.cuda.get_device_name()

    def save() -> None:
        write(options.results, {name: found})

    found["differences"] = check(name, spec, model, reference, options.device)
    save()
    if options.device == "cuda" and not options.check_only:
        measure(name, spec, model, reference, options, found, save)
        save()
    model.close()


def loaded(name: str, spec: Spec, reference: nn.Module, folder: Path) -> Carried:
    """The library, with the weights of the module."""
    library = folder / f"lib{name}.so"
    if spec.weights:
        return Carried(library)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "weights"
        weights.write(folder, name, reference, file)
        return Carried(library, file)


def write(path: Path, models: dict[str, Any]) -> None:
    """The file of results."""
    text = json.dumps({"models": models, "times_faster": summary(models)}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def command(
    name: str, results: Path, options: argparse.Namespace, engines: Sequence[str], shapes: Sequence[str], *more: str
) -> list[str]:
    """What measures one model."""
    flags = ["--shapes", *shapes, "--engines", *engines, "--only", name, *more]
    for flag in ("device", "seconds", "largest", "static_shapes", "autotune_shapes"):
        flags.append(f"--{flag.replace('_', '-')}={getattr(options, flag)}")
    flags += ["--check-only"] * options.check_only
    return [sys.executable, "-m", "bench.gpu.run", str(options.folder), str(results), *flags]


def warm(names: Sequence[str], options: argparse.Namespace, caches: Path) -> None:
    """Compiles for all models and shapes at once. Of "max-autotune" only Triton's kernels are kept."""
    running = []
    for name in names:
        shapes = ["x".join(map(str, shape)) for shape in _chosen(SPECS[name], options).shapes]
        jobs = [("compile_dynamic", shapes)] if "compile_dynamic" in options.engines else []
        for number, shape in enumerate(shapes):
            jobs += [(engine, [shape]) for engine in engines_at(number, options) if engine in STATIC]
        for engine, chosen in jobs:
            threads = {"TORCHINDUCTOR_COMPILE_THREADS": "2"}
            places = environment(caches, "discarded" if engine == AUTOTUNE else "kept") | threads
            words = command(name, options.results, options, [engine], chosen, "--compile-only")
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(words, env=places, process_group=0, stdout=quiet, stderr=quiet)
            running.append((f"{name:12} {engine} {' '.join(chosen)}", process))
    begin = time.monotonic()
    for what, process in running:
        status = ended(process, begin + options.warm - time.monotonic())
        if status is None:
            print(f"{what}: not compiled beforehand in {options.warm:g} s", flush=True)
        elif status:
            print(f"{what}: compiling beforehand ended with status {status}", flush=True)
    print(f"compiled beforehand for {time.monotonic() - begin:.0f} s", flush=True)


def ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The status of a process that leads its group, or None if it takes longer; then the group is ended."""
    try:
        return process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def environment(caches: Path, name: str) -> dict[str, str]:
    """That of a process whose compilers are to keep their results in a folder; Triton's are always in the same one."""
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches / name), "TRITON_CACHE_DIR": str(caches / "triton")}


def apart(names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Each model in a process of its own: one that loses the GPU's context takes no other along."""
    models: dict[str, Any] = {}
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        if options.warm and not options.check_only:
            warm(names, options, Path(folder))
        for number, name in enumerate(names):
            part = options.results.with_suffix(f".{name}.json")
            # What a model leaves of its share is for those after it.
            left = max(1.0, end - time.monotonic())
            limit = min(left, options.model_seconds, options.shares * left / (len(names) - number))
            # Peers that would begin to compile too late are left out; what hangs ends with the process.
            words = command(name, part, options, options.engines, options.shapes, f"--budget={0.7 * limit}")
            status = ended(subprocess.Popen(words, env=environment(Path(folder), "kept"), process_group=0), limit)
            models |= json.loads(part.read_text(encoding="utf-8"))["models"] if part.is_file() else {name: {}}
            part.unlink(missing_ok=True)
            if status:
                models[name]["error"] = f"ended with status {status}"
            elif status is None:
                # Without a difference there is no verdict. Peers may have been too slow.
                key = "stopped" if "differences" in models[name] else "error"
                models[name][key] = f"not done after {limit:.0f} seconds"
            for key in ("stopped", "error"):
                if key in models[name]:
                    print(f"{name:12} {models[name][key]}", flush=True)
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
    parser.add_argument("--engines", nargs="*", default=USUAL, choices=PEERS, help="what to compare times with")
    parser.add_argument("--static-shapes", type=int, default=1000, help="compile no more than these of a model alone")
    parser.add_argument("--autotune-shapes", type=int, default=1, help='and no more than these with "max-autotune"')
    parser.add_argument("--minutes", type=float, default=9, help="for all of it")
    parser.add_argument("--model-seconds", type=float, default=1e9, help="for each model")
    parser.add_argument("--shares", type=float, default=1e9, help="of the time that is left, for each model")
    parser.add_argument("--warm", type=float, default=0, help="seconds for compiling all models at once beforehand")
    parser.add_argument("--compile-only", action="store_true", help="of one model: fill the caches of the peers")
    parser.add_argument("--budget", type=float, default=1e9, help="of one model: seconds after which no peer compiles")
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
