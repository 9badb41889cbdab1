#!/usr/bin/env python3
"""Speed of the generated products and of attention, shape by shape, on one core.

    python bench/kernels.py                  # the shapes of the models we care about, against PyTorch's library
    python bench/kernels.py --rows 1 130     # every row count: shows cliffs at the edges of tiles
    python bench/kernels.py --attention

One compilation serves all row counts. Figures are of whole calls, in time of the calling thread's CPU, so that
neighbours on the machine disturb them little; the best of many calls counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import disc
from disc.testing import cpu_name

SHAPES = [
    *((8, 1536, 384), (8, 384, 1536), (32, 1536, 384), (128, 384, 384), (128, 1536, 384)),
    *((1024, 1536, 384), (1024, 384, 1536), (3200, 1536, 384), (1024, 1024, 1024), (2048, 2048, 2048)),
    *((1, 1536, 384), (1, 768, 768), (64, 3, 384), (200, 1000, 1000)),
]
HEADS, HEAD_SIZE = 12, 32
ATTENTION = [(1, 1), (1, 8), (1, 17), (1, 32), (1, 64), (1, 128), (1, 512), (8, 128), (1, 2000)]


class Attention(nn.Module):
    """Attention over heads that lie side by side, as the projections of an encoder leave them."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The heads' results side by side again."""
        heads = [x.unflatten(-1, (HEADS, HEAD_SIZE)).transpose(1, 2) for x in (query, key, value)]
        return nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


def best(run: Callable[[], object], seconds: float) -> float:
    """CPU seconds of the fastest call."""
    fastest, end, calls = float("inf"), time.perf_counter() + seconds, 0
    run()
    while calls < 3 or time.perf_counter() < end:
        calls += 1
        before = time.thread_time()
        run()
        fastest = min(fastest, time.thread_time() - before)
    return fastest


def compile_linear(columns: int, depth: int, cpu: str | None) -> tuple[nn.Module, disc.Model]:
    """A linear layer, compiled for any number of rows."""
    module = nn.Linear(depth, columns).eval()
    rows = torch.export.Dim("rows", min=1, max=1 << 16)
    compiled = disc.compile(
        module, (torch.randn(6, depth),), dynamic_shapes=({0: rows},), options=disc.Options(threads=1, cpu=cpu)
    )
    return module, compiled


def attention_inputs(batch: int, length: int) -> tuple[Tensor, ...]:
    """Queries, keys and values."""
    return tuple(torch.randn(batch, length, HEADS * HEAD_SIZE) for _ in range(3))


def compile_attention(cpu: str | None) -> tuple[nn.Module, disc.Model]:
    """Attention, compiled for any batch and length."""
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=4096)
    module, shapes = Attention(), ({0: batch, 1: length},) * 3
    options = disc.Options(threads=1, cpu=cpu)
    return module, disc.compile(module, attention_inputs(2, 6), dynamic_shapes=shapes, options=options)


def check(actual: Tensor, expected: Tensor) -> None:
    """No speed without the right result."""
    if not torch.allclose(actual, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())):
        raise SystemExit(f"wrong result: {(actual - expected).abs().max():.1e} off")


def report(
    name: str, flops: float, module: nn.Module, model: disc.Model, args: tuple[Tensor, ...], seconds: float
) -> None:
    """One row of the table."""
    check(model(*args), module(*args))
    ours, theirs = best(partial(model, *args), seconds), best(partial(module, *args), seconds)
    columns = f"{ours * 1e6:10.1f}  {flops / ours * 1e-9:9.1f}  {flops / theirs * 1e-9:9.1f}  {theirs / ours:6.2f}"
    print(f"{name:>18}  {columns}", flush=True)


def sweep(first: int, last: int, columns: int, depth: int, cpu: str | None, secs: float) -> None:
    """Every row count, and those that cost more than 5 % over the line between their neighbours."""
    _, model = compile_linear(columns, depth, cpu)
    times = {m: best(partial(model, torch.randn(m, depth)), secs) for m in range(first, last + 1)}
    cliffs = []
    for m, t in times.items():
        line = (times.get(m - 1, t) + times.get(m + 1, t)) / 2
        cliffs += [m] if t > 1.05 * line else []
        print(f"{m:>6}  {t * 1e6:8.1f} us  {2e-9 * m * columns * depth / t:6.1f} GFLOP/s  {t / line:5.2f}", flush=True)
    print("more than 1.05 of the line between the neighbours:", cliffs or "none")


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs=2, type=int, metavar=("FIRST", "LAST"), help="sweep these row counts")
    parser.add_argument("--columns", type=int, default=1536, help="of the sweep")
    parser.add_argument("--depth", type=int, default=384, help="of the sweep")
    parser.add_argument("--attention", action="store_true", help="attention instead of products")
    parser.add_argument("--cpu", help="code for this kind, such as x86-64-v3 (PyTorch: ONEDNN_MAX_CPU_ISA, ...)")
    parser.add_argument("--seconds", type=float, default=0.3, help="per figure")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"one core of: {cpu_name()}")
    with torch.no_grad():
        if args.rows:
            first, last = args.rows
            sweep(first, last, args.columns, args.depth, args.cpu, args.seconds)
            return
        print(f"{'':>18}  {'us':>10}  {'GFLOP/s':>9}  {'PyTorch':>9}  {'ratio':>6}")
        if args.attention:
            module, model = compile_attention(args.cpu)
            for batch, length in ATTENTION:
                inputs = attention_inputs(batch, length)
                flops = 4.0 * batch * HEADS * length**2 * HEAD_SIZE
                report(f"{batch} x {length}", flops, module, model, inputs, args.seconds)
            return
        compiled: dict[tuple[int, int], tuple[nn.Module, disc.Model]] = {}
        for m, n, k in SHAPES:
            if (n, k) not in compiled:
                compiled[n, k] = compile_linear(n, k, args.cpu)
            report(f"{m} x {n} x {k}", 2.0 * m * n * k, *compiled[n, k], (torch.randn(m, k),), args.seconds)


if __name__ == "__main__":
    main()
