"""Makes a failing program small: fewer results, steps, inputs and dims, as long as it fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .program import Program, Step


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float = 60) -> Program:
    """The smallest program found that still fails."""
    deadline = time.monotonic() + seconds
    current, changed = program, True
    while changed and time.monotonic() < deadline:
        changed = False
        for candidate in _smaller(current):
            if time.monotonic() > deadline:
                break
            if _cost(candidate) < _cost(current) and fails(candidate):
                current, changed = candidate, True
                break
    return current


def _cost(program: Program) -> tuple[int, int, int]:
    dims = sum(len(i.dims) for i in program.inputs)
    return (sum(len(s.text.splitlines()) for s in program.steps), len(program.inputs) + len(program.outputs), dims)


def _smaller(program: Program) -> Iterator[Program]:
    for name in program.outputs:
        if len(program.outputs) > 1:
            yield replace(program, outputs=(name,)).pruned()
    for name in program.outputs:
        if len(program.outputs) > 1:
            yield replace(program, outputs=tuple(o for o in program.outputs if o != name)).pruned()
    for place in reversed(range(len(program.steps))):
        step = program.steps[place]
        rest = program.steps[:place] + program.steps[place + 1 :]
        if not step.defines:
            yield replace(program, steps=rest).pruned()
            continue
        for other in sorted(step.reads):
            yield _renamed(replace(program, steps=rest), step.result, other).pruned()
    # An intermediate value as the result.
    for step in program.steps:
        if step.result not in program.outputs:
            yield replace(program, outputs=(step.result,)).pruned()
    for spec in program.inputs:
        for dim in range(len(spec.dims)):
            dims = spec.dims[:dim] + spec.dims[dim + 1 :]
            inputs = tuple(replace(i, dims=dims) if i is spec else i for i in program.inputs)
            yield replace(program, inputs=inputs)
        for other in program.inputs:
            if other is not spec:
                inputs = tuple(i for i in program.inputs if i is not spec)
                yield _renamed(replace(program, inputs=inputs), spec.name, other.name)


def _renamed(program: Program, old: str, new: str) -> Program:
    def changed(text: str) -> str:
        return re.sub(rf"\b{old}\b", new, text)

    steps = tuple(Step(changed(s.result), changed(s.text), s.op) for s in program.steps)
    return replace(program, steps=steps, outputs=tuple(dict.fromkeys(changed(o) for o in program.outputs)))
