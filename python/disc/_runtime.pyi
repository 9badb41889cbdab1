"""Compiled libraries: the C interface of DISC, without compiler and framework."""

from collections.abc import Sequence
from typing import Any

version: int

def device_missing(kind: str) -> str:
    """What this process lacks to run models for a kind of device; "" if nothing."""

class MemoryUsage:
    """How much memory a model holds, in bytes, as its budget counts it."""

    @property
    def budget(self) -> int:
        """0: none."""

    @property
    def held(self) -> int:
        """By calls, or kept for later ones."""

    @property
    def peak(self) -> int:
        """The most at once since reset_memory_peak()."""

    @property
    def allocations(self) -> int: ...
    @property
    def other_plans(self) -> int:
        """Calls that used another plan than the first."""

    @property
    def last_plan(self) -> int:
        """-1: no call has chosen one."""

class Model:
    """A loaded model."""

    def __init__(self, path: bytes, threads: int, weights: bytes | None, trust_files: bool, device: int) -> None: ...
    def run(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Runs the model on a tuple of arrays; `outputs` is None or a tuple of arrays to write to, or None."""

    def output_shapes(self, inputs: tuple[Any, ...]) -> tuple[tuple[int | None, ...], ...]: ...
    def swap_weights(self, path: bytes) -> None: ...
    def seed(self, seed: int) -> None: ...
    def reset(self) -> None: ...
    def read_state(self, index: int, buffer: Any) -> None:
        """Copies the state of parameter `index` to a contiguous buffer of its size."""

    def save_state(self, path: bytes) -> None: ...
    def load_state(self, path: bytes) -> None: ...
    def set_memory_budget(self, bytes: int, fail: bool = False) -> None:
        """The most bytes that all calls may hold at once; 0: no limit. A call that there is no room for at the moment
        waits, or fails with `fail`."""

    def memory(self) -> MemoryUsage: ...
    def reset_memory_peak(self) -> None: ...
    def describe(self) -> dict[str, Any]:
        """Name, cpu, version of the runtime, threads, device."""

    def inputs(self) -> list[tuple[str, str, Sequence[str], bool]]:
        """Tuples (name, dtype, texts of the dims)."""

    def outputs(self) -> list[tuple[str, str, Sequence[str], bool]]: ...
    def parameters(self) -> list[tuple[str, str, Sequence[str], bool]]: ...
    def symbols(self) -> list[tuple[str, int, int | None, int]]:
        """Tuples (name, min, max or None, divisor)."""
