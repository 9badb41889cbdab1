"""Measures quantised models: DISC in f32 and with each preset, eager PyTorch in f32, and torchao's own ways.

python -m bench.quantised                       # all models, presets and shapes; results in bench/results/quantised
python -m bench.quantised --models decoder      # one model
python -m bench.quantised --no-compile          # without torch.compile

All engines run in one process, in turns: each is called for a while at a shape before the next one is, several times
round, and the lowest time of each counts. Needs the extra `quantize`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

import disc

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "quantised"
PRESETS = ("int8-weights", "int4-weights", "int8-dynamic", "int8-static")
COMPILED = ("int8-weights", "int8-dynamic")
"""Presets that torch.compile is measured with, too; f32 always is."""
ROUNDS = 5


class Decoder(nn.Module):
    """The products of two layers of a decoder of 1.1 billion parameters: memory is what a token of one row costs."""

    def __init__(self, width: int = 2048, inner: int = 5632, keys: int = 256) -> None:
        super().__init__()
        linear = lambda n, k: nn.Linear(n, k, bias=False)  # noqa: E731
        self.qkv = nn.ModuleList(linear(width, width + 2 * keys) for _ in range(2))
        self.out = nn.ModuleList(linear(width, width) for _ in range(2))
        self.gate = nn.ModuleList(linear(width, inner) for _ in range(2))
        self.up = nn.ModuleList(linear(width, inner) for _ in range(2))
        self.down = nn.ModuleList(linear(inner, width) for _ in range(2))
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """x: [rows, width] f32; the result too. Attention is left out: of queries alone something remains."""
        for qkv, out, gate, up, down in zip(self.qkv, self.out, self.gate, self.up, self.down, strict=True):
            x = x + out(qkv(x)[:, : self.width])
            x = x + down(torch.nn.functional.silu(gate(x)) * up(x))
        return x


def _minilm() -> tuple[nn.Module, Any, list[tuple[int, ...]], Callable[..., tuple[Tensor, ...]]]:
    sys.path.append(str(ROOT / "examples"))
    from sentence_embedder import MAX_BATCH, MAX_LENGTH, load_model, random_inputs

    dims = {0: Dim("batch", max=MAX_BATCH), 1: Dim("length", min=2, max=MAX_LENGTH)}
    return load_model(), (dims, dims), [(1, 8), (1, 32), (1, 128), (8, 64), (32, 32)], random_inputs


def _decoder() -> tuple[nn.Module, Any, list[tuple[int, ...]], Callable[..., tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    rows = ({0: Dim("rows", max=2048)},)
    return Decoder().eval(), rows, [(1,), (2,), (4,), (16,), (64,), (256,)], lambda n: (torch.randn(n, 2048) * 0.1,)


MODELS = {"minilm": _minilm, "decoder": _decoder}


def engines(
    name: str, compile_peers: bool, threads: int
) -> tuple[dict[str, Callable[..., Any]], list[tuple[int, ...]], Any]:
    """What is measured of a model, by name; its shapes; what makes inputs of a shape."""
    module, dynamic, shapes, inputs = MODELS[name]()
    # torchao's code asks whether a size is 1, and takes the example's answer for all: no batch of one comes first.
    batches = [inputs(*shape) for shape in reversed(shapes[2:4])]
    found: dict[str, Callable[..., Any]] = {"eager f32": module}
    options = disc.Options(threads=threads)
    found["DISC f32"] = disc.compile(module, batches[0], dynamic_shapes=dynamic, options=options)
    if compile_peers:
        found["torch.compile f32"] = torch.compile(module, dynamic=True)
    for preset in PRESETS:
        quantized = disc.quantize(module, batches, preset, dynamic_shapes=dynamic)
        found[f"DISC {preset}"] = disc.compile(quantized, batches[0], dynamic_shapes=dynamic, options=options)
        found[f"eager {preset}"] = quantized
        if compile_peers and preset in COMPILED:
            found[f"torch.compile {preset}"] = torch.compile(quantized, dynamic=True)
    return found, shapes, inputs


def lowest(run: Callable[[], Any], seconds: float) -> float:
    """The lowest time of calls during so many seconds."""
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now >= end:
            return best


def measure(name: str, compile_peers: bool, threads: int, seconds: float) -> list[dict[str, Any]]:
    """The times of all engines at each shape, in seconds."""
    found, shapes, inputs = engines(name, compile_peers, threads)
    rows = []
    for shape in shapes:
        args = inputs(*shape)
        times: dict[str, float] = {}
        with torch.inference_mode():
            for engine in found.values():
                engine(*args)
            for _ in range(ROUNDS):
                for title, engine in found.items():
                    best = lowest(partial(engine, *args), seconds / ROUNDS)
                    times[title] = min(best, times.get(title, best))
        rows.append({"model": name, "shape": list(shape), "seconds": times})
        print(name, shape, "  ".join(f"{k} {v * 1e3:.3f}" for k, v in times.items()), flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: milliseconds of each engine."""
    titles = list(rows[0]["seconds"])
    lines = ["| model | shape | " + " | ".join(titles) + " |", "|---|---|" + "--:|" * len(titles)]
    for row in rows:
        cells = " | ".join(f"{row['seconds'][title] * 1e3:.3f}" for title in titles)
        lines.append(f"| {row['model']} | {' x '.join(map(str, row['shape']))} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.quantised", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each engine at each shape (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="of each engine (default: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        rows = measure(name, not options.no_compile, options.threads, options.seconds)
        (options.out / f"{name}.json").write_text(
            json.dumps({"threads": options.threads, "rows": rows}, indent=1) + "\n"
        )
        (options.out / f"{name}.md").write_text(f"Milliseconds, threads: {options.threads}.\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
