"""One op and dtype through export, the compiler and the comparison with eager."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import disc
from disc.frontend.program import export

from .compare import difference
from .samples import ALL_DTYPES, OPS, Program, Sample, other_shapes, samples


@dataclass(frozen=True)
class Outcome:
    """``kind`` is "pass", "fail" or "export": torch.export has none of the op's samples, which is not ours to pass."""

    op: str
    dtype: str
    kind: str
    reason: str = ""
    shapes: int = 0
    """How many pairs of a sample and shapes were compared."""
    less: str = ""
    """What was asked less of it: "static" extents, static "weights" or fewer "samples"; export refuses more."""


def one_line(text: object, limit: int = 140) -> str:
    """The start of a message, as one line without the list's separator."""
    line = " ".join(str(text).split()).replace("|", "/")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def evaluate(name: str, dtype: str, limit: int, survey: bool = False) -> Outcome:
    """Runs at most ``limit`` samples of one op; a ``survey`` only asks whether all its ops have rules."""
    warnings.simplefilter("ignore")
    try:
        calls = [call for call in samples(OPS[name], ALL_DTYPES[dtype], limit) if _eager(call) is not None]
    except Exception as error:
        return Outcome(name, dtype, "export", one_line(f"no samples: {error}"))
    if not calls:
        return Outcome(name, dtype, "export", "no samples")
    programs, why, less = _exported(calls)
    if not programs:
        return Outcome(name, dtype, "export", one_line(why))
    shapes, reason = _check_all(programs, survey)
    if reason is not None and any(len(call.tensors) > 1 for call in calls):
        # A layer's weights have static extents, and may have to: the kernel of a convolution.
        try:
            whole = Program(calls)
            again = export(whole, whole.inputs(), None, whole.dynamic_shapes(first=True))
            shapes, other = _check(whole, again, survey=survey)
            # What ran and was wrong says more than what was refused.
            if other is None or other.startswith(("values", "running")):
                reason, less = other, "weights"
        except disc.CompileError:
            pass
    if reason is None and shapes == 0 and not survey:
        reason = "nothing compared: the exported program refuses its own samples"
    return Outcome(name, dtype, "pass" if reason is None else "fail", reason or "", shapes, less)


def _check_all(programs: Sequence[tuple[Program, Any]], survey: bool) -> tuple[int, str | None]:
    shapes = 0
    for program, exported in programs:
        count, reason = _check(program, exported, survey=survey)
        shapes += count
        if reason is not None:
            return shapes, reason
    return shapes, None


def evaluate_together(names: Sequence[str], dtype: str, limit: int) -> bool:
    """Whether all of several ops pass as one program; if not, who knows which."""
    warnings.simplefilter("ignore")
    calls: list[Sample] = []
    for name in names:
        own = [call for call in samples(OPS[name], ALL_DTYPES[dtype], limit) if _eager(call) is not None]
        if not own:
            return False
        calls += own
    program = Program(calls)
    try:
        exported = _export(program, dynamic=True)
        count, reason = _check(program, exported)
        # A program that refuses its own samples was compared with nothing.
        return reason is None and count >= len(calls)
    except disc.CompileError:
        return False


def _eager(call: Sample) -> Any:
    """What eager gives, or None if it refuses."""
    try:
        with torch.no_grad():
            return call.call([t.clone() for t in call.tensors])
    except Exception:
        return None


def _export(program: Program, *, dynamic: bool) -> Any:
    shapes = program.dynamic_shapes() if dynamic else None
    return export(program, program.inputs(), None, shapes)


def _exported(calls: Sequence[Sample]) -> tuple[list[tuple[Program, Any]], str, str]:
    """The programs that torch.export makes of the samples, if possible one; why not if there are none; Outcome.less."""
    whole = Program(calls)
    try:
        return [(whole, _export(whole, dynamic=True))], "", ""
    except disc.CompileError as error:
        why = str(error)
    programs = []
    for call in calls if len(calls) > 1 else ():
        alone = Program([call])
        try:
            programs.append((alone, _export(alone, dynamic=True)))
        except disc.CompileError as error:
            why = str(error)
    if programs and len(programs) < len(calls):
        programs = _joined([program.calls[0] for program, _ in programs], programs)
    if not programs:
        try:
            return [(whole, _export(whole, dynamic=False))], "", "static"
        except disc.CompileError as error:
            why = str(error)
    less = "samples" if sum(len(program.calls) for program, _ in programs) < len(calls) else ""
    return programs, why.partition("torch.export failed:")[2] or why, less


def _joined(calls: list[Sample], apart: list[tuple[Program, Any]]) -> list[tuple[Program, Any]]:
    program = Program(calls)
    try:
        return [(program, _export(program, dynamic=True))]
    except disc.CompileError:
        return apart


def _check(program: Program, exported: Any, *, survey: bool = False) -> tuple[int, str | None]:
    """How many results were compared, and what is wrong with the last, if anything."""
    try:
        model = disc.compile(exported, options=disc.Options(stop_after="import" if survey else None))
    except disc.UnsupportedOpError as error:
        missing = sorted({f"{op.name.removeprefix('torch.')}: {op.reason}" for op in error.ops})
        return 0, one_line("; ".join(missing))
    except disc.CompileError as error:
        return 0, one_line(f"compiling: {error}")
    except Exception as error:
        return 0, one_line(f"compiling: {type(error).__name__}: {error}")
    if survey:
        return 0, None
    count, reason = _run(program, exported, model, [list(own) for own in program.inputs()], [True] * len(program.calls))
    if reason is not None:
        return count, reason
    changed, moved = [], []
    for call, candidates in zip(program.calls, other_shapes(exported, program.calls), strict=True):
        for tensors in candidates:
            if _eager(Sample(call.name, call.op, tensors, call.leaves, call.spec)) is not None:
                changed.append(list(tensors))
                moved.append(True)
                break
        else:
            changed.append(list(call.tensors))
            moved.append(False)
    if not any(moved):
        return count, None
    more, reason = _run(program, exported, model, changed, moved)
    return count + more, reason


def _run(
    program: Program, exported: Any, model: Any, tensors: list[list[torch.Tensor]], compared: list[bool]
) -> tuple[int, str | None]:
    inputs = tuple(tuple(t.clone() for t in own) for own in tensors)
    try:
        got = model(*inputs)
    except Exception as error:
        # Shapes that the exported program itself refuses are not ours to run.
        return 0, None if _refused(exported, tensors) else one_line(f"running: {type(error).__name__}: {error}")
    count = 0
    for i, call in enumerate(program.calls):
        if not compared[i]:
            continue
        with torch.no_grad():
            want = call.call([t.clone() for t in tensors[i]])
        why = difference(OPS[call.name], call, tensors[i], got[i], want)
        if why is not None and not _refused(exported, tensors, i, want):
            sizes = " ".join(str(list(t.shape)) for t in tensors[i])
            return count, one_line(f"{why} ({call.name if len(program.calls) > 1 else 'shapes'} {sizes})")
        count += 1
    return count, None


def _refused(exported: Any, tensors: list[list[torch.Tensor]], place: int = -1, want: Any = None) -> bool:
    """Whether the exported program has no result for ``tensors``, or (of one call) another one than eager."""
    try:
        with torch.no_grad():
            results = exported.module()(*[tuple(t.clone() for t in own) for own in tensors])
    except Exception:
        return True
    if place < 0:
        return False
    ours = torch.utils._pytree.tree_leaves(results[place])
    theirs = torch.utils._pytree.tree_leaves(want)
    return any(
        isinstance(t, torch.Tensor) and (t.shape != o.shape or t.dtype != o.dtype)
        for o, t in zip(ours, theirs, strict=False)
    )
