"""The peak of what PyTorch's CPU allocator hands out in a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def highest(changes: Iterable[int]) -> int:
    """The largest running sum of changes in bytes."""
    held = most = 0
    for change in changes:
        held += change
        most = max(most, held)
    return most


def peak_of(call: Callable[[], Any]) -> int:
    """The most bytes at one time of what the call allocates.

    The profiler records when the CPU allocator allocates and frees a block, with its size. It does not see blocks that
    were allocated before the call, such as parameters. It also does not see memory that libraries allocate themselves,
    such as oneDNN's scratch memory: to the advantage of PyTorch.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    del result
    found: Any = profiler.profiler
    events = [e for e in found.kineto_results.events() if e.name() == "[memory]"]
    return highest(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()))
