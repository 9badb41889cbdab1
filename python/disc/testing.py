"""Helpers to measure and compare engines fairly; used by the demo, the tests and the benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Wall-clock times of one engine, in seconds."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample: what a figure in a table should be."""
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        """The smallest sample: the least disturbed one."""
        return min(self.samples)


def interleaved(
    engines: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 1.0,
    min_rounds: int = 5,
    max_rounds: int = 200,
    calls: int = 2,
) -> dict[str, Timing]:
    """Times several engines on the same work, in turns, for about `seconds`.

    A machine drifts (frequency, neighbours), so engines are compared round by round and not one after the other. Each
    turn is one call that is not counted, which lets the threads of the engine before go to sleep and brings this one's
    data back into the caches, followed by `calls` timed ones.
    """
    for run in engines.values():
        run()
    samples: dict[str, list[float]] = {name: [] for name in engines}
    start = time.perf_counter()
    for done in range(max_rounds):
        if done >= min_rounds and time.perf_counter() - start > seconds:
            break
        for name, run in engines.items():
            run()
            for _ in range(calls):
                before = time.perf_counter()
                run()
                samples[name].append(time.perf_counter() - before)
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def cpu_name() -> str:
    """The processor's name, to be stated with every figure."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()
