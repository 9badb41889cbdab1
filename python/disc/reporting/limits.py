"""The limits of this machine, measured: arithmetic, and the bandwidth of cache and memory.

DISC compiles the kernels that measure them, and its own threads run them: multiply-adds on registers, and a loop that
reads one array and writes another.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .. import _native, pipeline

_CHAINS, _STEPS = 12, 8
"""Sums that do not depend on each other, which hide the latency of an instruction, and how often each is updated."""
_ELEMENTS = 1 << 18
_SECONDS = 0.15
"""How long each measurement takes."""
_UNKNOWN_CACHE = 8 << 20
_LARGEST = 1 << 29
"""Bytes that a measurement of memory takes at most."""

_FMA = """\
func.func @main(%x: tensor<{n}xf32> {{disc_shape.name = "x"}}) -> (tensor<{n}xf32>) {{
  %e = tensor.empty() : tensor<{n}xf32>
  %a = arith.constant 0.999 : f32
  %b = arith.constant 0.001 : f32
{constants}
  %y = linalg.generic {{indexing_maps = [affine_map<(d0)->(d0)>, affine_map<(d0)->(d0)>],
      iterator_types = ["parallel"]}} ins(%x : tensor<{n}xf32>) outs(%e : tensor<{n}xf32>) {{
  ^bb0(%u: f32, %o: f32):
{body}
  }} -> tensor<{n}xf32>
  return %y : tensor<{n}xf32>
}}
"""
_COPY = """\
disc_shape.symbol @n min 1
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>, disc_shape.name = "x"}) -> (tensor<?xf32>) {
  %zero = arith.constant 0 : index
  %n = tensor.dim %x, %zero : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0)->(d0)>, affine_map<(d0)->(d0)>],
      iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%u: f32, %o: f32):
    %s = arith.negf %u : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %y : tensor<?xf32>
}
"""


@dataclass(frozen=True)
class Limits:
    """What this machine can do with a number of threads, as it was measured."""

    threads: int
    flops: float
    """f32 operations a second; a multiply-add is two."""
    cache_bandwidth: float
    """Bytes a second, read and written, of arrays in the cache."""
    memory_bandwidth: float
    """Bytes a second, read and written, of arrays that are much larger than the caches."""
    cache_bytes: int
    """What counts as in the cache: half of the last-level cache."""

    def bandwidth(self, size: int) -> float:
        """Bytes a second for a kernel that touches ``size`` bytes."""
        return self.cache_bandwidth if size <= self.cache_bytes else self.memory_bandwidth

    def seconds(self, operations: int, size: int) -> float:
        """The least time of ``operations`` on ``size`` bytes."""
        return max(operations / self.flops, size / self.bandwidth(size))

    def bound(self, operations: int, size: int) -> str:
        """What limits a kernel: ``"arithmetic"``, ``"cache"`` or ``"memory"``."""
        if operations / self.flops >= size / self.bandwidth(size):
            return "arithmetic"
        return "cache" if size <= self.cache_bytes else "memory"

    def __str__(self) -> str:
        return (
            f"{self.flops / 1e9:.0f} GFLOP/s, {self.cache_bandwidth / 1e9:.0f} GB/s in cache, "
            f"{self.memory_bandwidth / 1e9:.0f} GB/s from memory ({self.threads} threads)"
        )


@functools.lru_cache
def measure(threads: int) -> Limits:
    """Measures the limits, once per process and number of threads; takes about a second."""
    host = _native.host_target()
    cache = (host["l3_bytes"] or host["l2_bytes"] or _UNKNOWN_CACHE) // 2
    copy = _executable(_COPY, threads)
    in_cache = max(_bandwidth(copy, size) for size in (cache // 16, cache // 4, cache // 2))
    in_memory = _bandwidth(copy, min(8 * cache, _LARGEST))
    return Limits(threads, fma_peak(threads), max(in_cache, in_memory), in_memory, cache)


def fma_peak(threads: int) -> float:
    """f32 operations a second of multiply-adds on registers; a multiply-add is two operations."""
    run, x = _executable(_fma_text(), threads).run, torch.ones(_ELEMENTS)
    return 2 * _CHAINS * _STEPS * _ELEMENTS / _best(lambda: run((x,)))


def _fma_text() -> str:
    """Per element: sums that do not depend on each other, each multiplied and added to several times."""
    constants = [f"  %k{j} = arith.constant {float(j)} : f32" for j in range(_CHAINS)]
    body = [f"    %s{j}_0 = arith.addf %u, %k{j} : f32" for j in range(_CHAINS)]
    body += [f"    %s{j}_{i + 1} = math.fma %s{j}_{i}, %a, %b : f32" for i in range(_STEPS) for j in range(_CHAINS)]
    total = f"%s0_{_STEPS}"
    for j in range(1, _CHAINS):
        body.append(f"    %t{j} = arith.addf {total}, %s{j}_{_STEPS} : f32")
        total = f"%t{j}"
    body.append(f"    linalg.yield {total} : f32")
    return _FMA.format(n=_ELEMENTS, constants="\n".join(constants), body="\n".join(body))


def _executable(text: str, threads: int) -> _native.Executable:
    module = _native.Module.parse(text)
    module.set_host_target()
    for stage in pipeline.default():
        module.run(stage.text)
    executable = _native.jit(module, torch.Tensor, threads=threads)
    executable.init([])
    return executable


def _bandwidth(copy: _native.Executable, size: int) -> float:
    """Bytes a second of reading and writing ``size`` bytes in all."""
    x = torch.ones(max(1, size // 8))
    return 8 * x.numel() / _best(lambda: copy.run((x,)))


def _best(call: Callable[[], object]) -> float:
    """The shortest time of a call: the least disturbed one."""
    call()
    best, end, calls = float("inf"), time.perf_counter() + _SECONDS, 0
    while calls < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best, calls = min(best, time.perf_counter() - start), calls + 1
    return best
