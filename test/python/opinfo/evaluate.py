"""One op and dtype through export, the compiler and the comparison with eager."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.testing._utils as testing_utils

import disc
from disc.frontend.export import export

from .compare import DRAWS, difference, distribution_difference, is_random
from .samples import ALL_DTYPES, OPS, Program, Sample, other_shapes, samples


@dataclass(frozen=True)
class Outcome:
    """``kind`` is "pass", "less" (it passes where less is asked), "fail" or "export": torch.export has none of the op's
    samples, which is not ours to pass."""

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
    line = re.sub(r" at /\S+:\d+ .*", "", " ".join(str(text).split())).replace("|", "/")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def evaluate(name: str, dtype: str, limit: int, survey: bool = False, shapes: int = 2) -> Outcome:
    """Runs at most ``limit`` samples (0: all) of one op at ``shapes`` shapes each.

    A ``survey`` only asks whether all its ops have rules.
    """
    warnings.simplefilter("ignore")
    try:
        calls = [call for call in samples(OPS[name], ALL_DTYPES[dtype], limit) if _eager(call) is not None]
    except Exception as error:
        return Outcome(name, dtype, "export", one_line(f"no samples: {error}"))
    if not calls:
        return Outcome(name, dtype, "export", "no samples")
    # Many samples in one program take minutes to export.
    parts = [calls[i : i + _TOGETHER] for i in range(0, len(calls), _TOGETHER)]
    outcomes = [_evaluate(name, dtype, part, survey, shapes) for part in parts]
    if all(outcome.kind == "export" for outcome in outcomes):
        return outcomes[0]
    order = ("fail", "less", "export", "pass")
    worst = min(outcomes, key=lambda outcome: order.index(outcome.kind))
    if worst.kind == "export":
        worst = replace(worst, kind="less", less="samples")
    return replace(worst, shapes=sum(outcome.shapes for outcome in outcomes))


_TOGETHER = 16
_WRONG = ("values", "distribution", "comparing", "running", "structure")


def _evaluate(name: str, dtype: str, calls: list[Sample], survey: bool, wanted: int) -> Outcome:
    programs, why, less = _exported(calls)
    if not programs:
        return Outcome(name, dtype, "export", one_line(why))
    shapes, reason = _check_all(programs, survey, wanted)
    # Also of its own shapes: the exporter may have taken extents that broadcast for equal ones.
    refused = reason is not None and not reason.startswith(_WRONG)
    if refused and any(len(call.tensors) > 1 for call in calls):
        # A layer's weights have static extents, and may have to: the kernel of a convolution.
        try:
            whole = Program(calls)
            again = export(whole, whole.inputs(), None, whole.dynamic_shapes(first=True))
            shapes, other = _check(whole, again, survey=survey, wanted=wanted)
            if other is None or other.startswith(_WRONG):
                reason, less = other, "weights"
        except disc.CompileError:
            pass
    if reason is None and shapes == 0 and not survey:
        reason = "nothing compared: the exported program refuses its own samples"
    kind = "fail" if reason is not None else "less" if less else "pass"
    return Outcome(name, dtype, kind, reason or "", shapes, less)


def _check_all(programs: Sequence[tuple[Program, Any]], survey: bool, wanted: int) -> tuple[int, str | None]:
    shapes = 0
    for program, exported in programs:
        count, reason = _check(program, exported, survey=survey, wanted=wanted)
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
    # Without extents, nothing is asked by naming them dynamic, and torch.export does not take it.
    extents = any(tensor.dim() for call in program.calls for tensor in call.tensors)
    shapes = program.dynamic_shapes() if dynamic and extents else None
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


def _check(program: Program, exported: Any, *, survey: bool = False, wanted: int = 2) -> tuple[int, str | None]:
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
    others = other_shapes(exported, program.calls)
    accepted = [
        [list(own) for own in candidates if _eager(replace(call, tensors=own)) is not None]
        for call, candidates in zip(program.calls, others, strict=True)
    ]
    for turn in range(wanted - 1):
        moved = [turn < len(own) for own in accepted]
        if not any(moved):
            break
        changed = [
            own[turn] if turn < len(own) else list(call.tensors)
            for own, call in zip(accepted, program.calls, strict=True)
        ]
        more, reason = _run(program, exported, model, changed, moved)
        count += more
        if reason is not None:
            break
    return count, reason


def _run(
    program: Program, exported: Any, model: Any, tensors: list[list[torch.Tensor]], compared: list[bool]
) -> tuple[int, str | None]:
    def inputs() -> tuple[Any, ...]:
        return tuple(tuple(t.clone() for t in own) for own in tensors)

    try:
        got = model(*inputs())
    except Exception as error:
        # Shapes that the exported program itself refuses are not ours to run.
        refused = _own_results(exported, tensors) is None
        said = "refused" if isinstance(error, disc.ShapeError) else "running"
        return 0, None if refused else one_line(f"{said}: {type(error).__name__}: {error}")
    draws = [got]
    if any(is_random(call) for call, wanted in zip(program.calls, compared, strict=True) if wanted):
        draws += [model(*inputs()) for _ in range(DRAWS - 1)]
    count = 0
    for i, call in enumerate(program.calls):
        if not compared[i]:
            continue
        with torch.no_grad(), _unseeded() if is_random(call) else nullcontext():
            wants = [call.call([t.clone() for t in tensors[i]]) for _ in range(DRAWS if is_random(call) else 1)]
        why = difference(OPS[call.name], call, tensors[i], got[i], wants[0])
        if why is None and is_random(call):
            why = distribution_difference([draw[i] for draw in draws], wants)
        if why is not None:
            # Where torch.export fixed a rank or a dtype, its program's own result has another form than eager's.
            own = _own_results(exported, tensors)
            if own is None:
                continue
            if _other_form(own[i], wants[0]):
                why = difference(OPS[call.name], call, tensors[i], got[i], own[i])
        if why is not None:
            sizes = " ".join(str(list(t.shape)) for t in tensors[i])
            return count, one_line(f"{why} ({call.name if len(program.calls) > 1 else 'shapes'} {sizes})", 240)
        count += 1
    return count, None


def _unseeded() -> Any:
    """OpInfo's random ops seed PyTorch's generator at each call; here they do not."""
    unseeded = ExitStack()
    unseeded.enter_context(mock.patch.object(torch, "manual_seed", lambda seed: None))
    unseeded.enter_context(mock.patch.object(testing_utils, "freeze_rng_state", nullcontext))
    return unseeded


def _own_results(exported: Any, tensors: list[list[torch.Tensor]]) -> Any:
    """What torch.export's program itself gives for ``tensors``; None if it refuses them."""
    try:
        with torch.no_grad():
            return exported.module()(*[tuple(t.clone() for t in own) for own in tensors])
    except Exception:
        return None


def _other_form(ours: Any, theirs: Any) -> bool:
    return any(
        isinstance(t, torch.Tensor) and (t.shape != o.shape or t.dtype != o.dtype)
        for o, t in zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(theirs), strict=False)
    )
