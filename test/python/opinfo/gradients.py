"""Gradients of OpInfo's operators, compiled, against those of eager autograd in float64.

``python -m opinfo.gradients`` in test/python evaluates operators and compares with ``failing_gradients.txt``, which
lists each operator whose gradients are not compiled or differ, and why.

A parameter has static sizes, and the tensors of a sample must have dynamic ones. So a tensor of a sample is an
argument, to which elements of a parameter of zeros are added: ``x + parameter[arange(x.numel())].reshape(x.shape)``.
The gradient of those elements is that of the tensor.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.testing._internal.opinfo.core import OpInfo

import disc
from disc.compilation import LOAD, Compilation
from disc.compiler import build, load, steps
from disc.frontend.export import export
from disc.frontend.training.step import TrainingProgram

from .compare import RANDOM, UNINITIALISED
from .evaluate import one_line
from .pool import Lost, run
from .samples import HOLE, OPS, Program, Sample, other_shapes

PATH = Path(__file__).with_name("failing_gradients.txt")
_HEAD = (
    "# Operators of OpInfo whose gradients in float64 are not compiled, or differ from eager autograd's, and why.\n"
    "# `static`: only with static sizes. The list only shrinks: python -m opinfo.gradients --shrink."
)
SAMPLES = 3
_CONSIDERED = 96
_SECONDS = 120.0
_GROUP = 12
"""Samples in one program."""
_PART = 29
"""The ordinary test suite evaluates one operator in so many."""
_EXACT = (1e-9, 1e-9)
_CLOSE = (1e-7, 1e-7)
"""(rtol, atol) where eager autograd and the compiled gradient follow different formulas."""
_DRAWING = ("pca_lowrank", "svd_lowrank")
"""They multiply by random vectors: gradients depend on these where the rank is not that of the matrix."""
_OTHER_FORMULAS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """``kind`` is "pass", "static" (it passes with static sizes only), "fail", or "none": nothing to differentiate."""

    op: str
    kind: str
    reason: str = ""
    calls: int = 0
    """How many pairs of a sample and shapes were compared."""


@dataclass
class _Call(Sample):
    """A sample with the tensors whose gradients are computed."""

    wanted: tuple[int, ...] = ()
    """Their places among the tensors."""
    process: Callable[[Any], Any] = field(default=lambda result: result)
    """Makes of the result what OpInfo differentiates, for example without the signs of eigenvectors."""

    def loss(self, tensors: Sequence[Tensor]) -> Tensor:
        """The weighted sum of all floating-point results; a number of float64."""
        results = pytree.tree_leaves(self.process(self.call(tensors)))
        total: Any = 0.0
        for number, result in enumerate(results):
            if not isinstance(result, Tensor) or not (result.is_floating_point() or result.is_complex()):
                continue
            for part in (result.real, result.imag) if result.is_complex() else (result,):
                weights = torch.cos(torch.arange(part.numel(), dtype=torch.float64) * 0.7 + 0.3 + number)
                total = total + (part.to(torch.float64) * weights.reshape(part.shape)).sum()
        return total


def differentiable(op: OpInfo) -> bool:
    """Whether PyTorch has gradients of the operator in float64."""
    return bool(op.supports_autograd) and torch.float64 in op.supported_dtypes("cpu")


def selection(patterns: Sequence[str]) -> list[str]:
    """The differentiable operators that match a pattern; all, without patterns."""
    names = [name for name, op in OPS.items() if differentiable(op)]
    return [name for name in names if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]


def quick_selection() -> list[str]:
    """A part of all operators, always the same."""
    listed = read(PATH)
    return [name for name in selection([]) if name not in listed and not crc32(name.encode()) % _PART]


# -- samples -----------------------------------------------------------------------------------------


def calls_of(name: str, limit: int) -> tuple[list[_Call], str]:
    """At most ``limit`` samples that eager autograd differentiates, spread over all; why not, if there are none."""
    op = OPS[name]
    if op.name in (*RANDOM, *UNINITIALISED, *_DRAWING):
        return [], "its results are random"
    torch.manual_seed(0)
    why = "no samples"
    try:
        generated = list(itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), _CONSIDERED))
    except Exception as error:
        return [], one_line(f"no samples: {error}")
    step = max(len(generated) / limit, 1.0) if limit else 1.0
    count = min(limit, len(generated)) if limit else len(generated)
    places = sorted({min(int(i * step), len(generated) - 1) for i in range(count)})
    # The samples at these places first, then any.
    order = [*places, *(i for i in range(len(generated)) if i not in places)] if generated else []
    found: list[_Call] = []
    for i in order:
        if len(found) >= count:
            break
        call = _call(op, name, generated[i])
        if call.drops:
            why = "its results are random"
        elif not call.wanted:
            why = "no floating-point tensor of a sample requires a gradient"
        else:
            try:
                gradients = eager_gradients(call, call.tensors)
            except Exception as error:
                why = one_line(f"eager autograd: {error}")
                continue
            if all(g is None for g in gradients):
                why = "no result depends on a tensor"
            else:
                found.append(call)
    return found, why


def _call(op: OpInfo, name: str, info: Any) -> _Call:
    leaves, spec = pytree.tree_flatten(((info.input, *info.args), dict(info.kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    wanted = tuple(i for i, t in enumerate(tensors) if t.requires_grad and t.is_floating_point())
    holes = [HOLE if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return op.gradcheck_wrapper(op.op, *args, **kwargs)

    return _Call(
        name,
        wrapped,
        tuple(t.detach() for t in tensors),
        holes,
        spec,
        op.name,
        bool(info.kwargs.get("dropout_p")),
        wanted=wanted,
        process=info.output_process_fn_grad,
    )


def eager_gradients(call: _Call, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients of eager autograd; None where the loss does not depend on a tensor."""
    own = [t.clone().requires_grad_(i in call.wanted) for i, t in enumerate(tensors)]
    loss = call.loss([t + 0.0 if i in call.wanted else t for i, t in enumerate(own)])
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        return [None for _ in call.wanted]
    return list(torch.autograd.grad(loss, [own[i] for i in call.wanted], allow_unused=True))


# -- programs ----------------------------------------------------------------------------------------


class _Losses(Program):
    """The sum of the losses of several calls; see the file's header for its parameters."""

    calls: tuple[_Call, ...]

    def __init__(self, calls: Sequence[_Call]) -> None:
        super().__init__(calls)
        self.added = nn.ParameterList()
        for call in calls:
            for i in call.wanted:
                room = 1
                for size in call.tensors[i].shape:
                    room *= 2 * size + 2
                self.added.append(torch.zeros(room, dtype=call.tensors[i].dtype))

    def forward(self, *tensors: tuple[Tensor, ...]) -> Tensor:
        added = iter(self.added)
        total: Any = 0.0
        for call, own in zip(self.calls, tensors, strict=True):
            given = list(own)
            for i in call.wanted:
                place = torch.arange(given[i].numel())
                given[i] = given[i] + next(added).index_select(0, place).reshape(given[i].shape)
            total = total + call.loss(given)
        return total


class _Compiled:
    """The compiled gradients of a program."""

    def __init__(self, program: _Losses, exported: Any, stop_after: str | None = None) -> None:
        self.program, self.exported = program, exported
        names = dict(program.named_parameters())
        self.sums: dict[str, Tensor] = {}

        def sums(used: list[str]) -> dict[str, Tensor]:
            self.sums = {name: torch.zeros_like(names[name]) for name in used}
            return self.sums

        options = disc.Options(code_cache=False, opt_level=1)
        compilation = Compilation(options, "gradients")
        training = TrainingProgram(names, None, sums=sums)
        imported = compilation.import_model(exported, (), None, None, training=training)
        if stop_after == "import":
            return
        with compilation.progress(steps(compilation)):
            executable = build(compilation, imported)
            assert executable is not None
            with compilation.step(LOAD):
                load(executable, imported.parameters)
        self._model = disc.model.Model(
            imported, compilation.pipeline, compilation.texts, executable, compilation.timings, imported.signature
        )

    def __call__(self, tensors: Sequence[Sequence[Tensor]]) -> list[list[Tensor | None]]:
        """The gradients of each call's wanted tensors; None for a tensor that the loss does not depend on."""
        for total in self.sums.values():
            total.zero_()
        self._model(*[tuple(t.clone() for t in own) for own in tensors])
        result: list[list[Tensor | None]] = []
        numbers = itertools.count()
        for call, own in zip(self.program.calls, tensors, strict=True):
            mine: list[Tensor | None] = []
            for i in call.wanted:
                total = self.sums.get(f"added.{next(numbers)}")
                shape = own[i].shape
                mine.append(None if total is None else total[: own[i].numel()].clone().reshape(shape))
            result.append(mine)
        return result


def _export(program: _Losses, *, dynamic: bool) -> Any:
    extents = any(tensor.dim() for call in program.calls for tensor in call.tensors)
    return export(program, program.inputs(), None, program.dynamic_shapes() if dynamic and extents else None)


# -- comparing ---------------------------------------------------------------------------------------


def difference(call: _Call, got: Sequence[Tensor | None], want: Sequence[Tensor | None]) -> str | None:
    """Why the gradients of a call differ from eager's; None if they do not."""
    rtol, atol = _CLOSE if call.name in _OTHER_FORMULAS else _EXACT
    for place, g, w in zip(call.wanted, got, want, strict=True):
        if g is None and w is None:
            continue
        if g is None or w is None:
            # A gradient of zeros and none are alike, as for a parameter that a branch does not use.
            known = w if g is None else g
            if bool((known != 0).any()):
                return f"values: the gradient of tensor {place} is missing {'here' if g is None else 'in eager'}"
            continue
        far = (g - w).abs() > atol + rtol * w.abs()
        far |= (g != g) != (w != w)
        far |= (w.abs() == torch.inf) & (g != w)
        if bool(far.any()):
            at = int(far.reshape(-1).nonzero()[0])
            return (
                f"values: gradient of tensor {place}: {int(far.sum())} of {far.numel()} differ, first"
                f" {g.reshape(-1)[at].item():.12g} instead of {w.reshape(-1)[at].item():.12g}"
            )
    return None


def _checked(program: _Losses, exported: Any) -> tuple[int, str | None]:
    """How many calls were compared, and what is wrong, if anything."""
    try:
        compiled = _Compiled(program, exported)
    except disc.UnsupportedOpError as error:
        missing = sorted({f"{op.name.removeprefix('torch.')}: {op.reason}" for op in error.ops})
        return 0, one_line("; ".join(missing))
    except disc.CompileError as error:
        return 0, one_line(f"compiling: {error}")
    except Exception as error:
        return 0, one_line(f"compiling: {type(error).__name__}: {error}")
    own = [list(call.tensors) for call in program.calls]
    count, reason = _run(compiled, own, [True] * len(own))
    if reason is not None:
        return count, reason
    candidates: list[list[Tensor] | None] = []
    for call, several in zip(program.calls, other_shapes(exported, program.calls), strict=True):
        candidates.append(next((list(t) for t in several if _accepts(call, t)), None))
    if not any(candidates):
        return count, None
    changed = [mine if other is None else other for mine, other in zip(own, candidates, strict=True)]
    more, reason = _run(compiled, changed, [other is not None for other in candidates])
    return count + more, reason


def _accepts(call: _Call, tensors: Sequence[Tensor]) -> bool:
    try:
        gradients = eager_gradients(call, tensors)
    except Exception:
        return False
    return any(g is not None for g in gradients)


def _run(compiled: _Compiled, tensors: list[list[Tensor]], compared: list[bool]) -> tuple[int, str | None]:
    try:
        got = compiled(tensors)
    except Exception as error:
        try:
            compiled.exported.module()(*[tuple(own) for own in tensors])
        except Exception:
            return 0, None  # the exported program itself refuses these shapes
        return 0, one_line(f"running: {type(error).__name__}: {error}")
    count = 0
    for i, call in enumerate(compiled.program.calls):
        if not compared[i]:
            continue
        why = difference(call, got[i], eager_gradients(call, tensors[i]))
        if why is not None:
            return count, one_line(f"{why} (shapes {' '.join(str(list(t.shape)) for t in tensors[i])})", 240)
        count += 1
    return count, None


# -- evaluating --------------------------------------------------------------------------------------


def _attempt(calls: Sequence[_Call], *, dynamic: bool) -> tuple[int, str | None]:
    program = _Losses(calls)
    try:
        exported = _export(program, dynamic=dynamic)
    except disc.CompileError as error:
        return 0, one_line("export: " + (str(error).partition("torch.export failed:")[2] or str(error)))
    count, reason = _checked(program, exported)
    if reason is None and count < len(calls):
        reason = "nothing compared: the exported program refuses its own samples"
    return count, reason


def evaluate(name: str, limit: int) -> Outcome:
    """The gradients of at most ``limit`` samples (0: all), each at its own shape and another."""
    warnings.simplefilter("ignore")
    calls, why = calls_of(name, limit)
    if not calls:
        return Outcome(name, "none", why)
    count, reason = _attempt(calls, dynamic=True)
    if reason is None:
        return Outcome(name, "pass", calls=count)
    count, static = 0, ""
    for call in calls:
        compared, why_not = _attempt([call], dynamic=True)
        if why_not is not None and not why_not.startswith("values"):
            static = static or why_not
            compared, still = _attempt([call], dynamic=False)
            why_not = still and (still if still.startswith("values") else why_not)
        if why_not is not None:
            return Outcome(name, "fail", why_not, count)
        count += compared
    return Outcome(name, "static" if static else "pass", static, count)


def evaluate_together(names: Sequence[str], limit: int) -> list[Outcome] | None:
    """Several operators as one program: their outcomes if all pass, and None otherwise."""
    warnings.simplefilter("ignore")
    found = {name: calls_of(name, limit) for name in names}
    calls = [call for own, _ in found.values() for call in own]
    if calls and _attempt(calls, dynamic=True)[1] is not None:
        return None
    return [
        Outcome(name, "pass", calls=2 * len(own)) if own else Outcome(name, "none", why)
        for name, (own, why) in found.items()
    ]


def outcomes(names: Sequence[str], limit: int, processes: int, *, verbose: bool = False) -> list[Outcome]:
    """Each operator by itself."""
    results = []
    tasks = [(evaluate, (name, limit)) for name in names]
    for place, outcome in run(tasks, processes, _SECONDS):
        result = Outcome(names[place], "fail", str(outcome)) if isinstance(outcome, Lost) else outcome
        results.append(result)
        if verbose:
            print(f"{result.kind:6} {result.op} {result.reason or result.calls}", flush=True)
    return results


def outcomes_together(names: Sequence[str], limit: int, processes: int, *, verbose: bool = False) -> list[Outcome]:
    """Many operators in one program, which is quicker; those of a program that fails by themselves."""
    listed = read(PATH)
    good = [name for name in names if name not in listed]
    size = max(_GROUP // max(limit, 1), 1)
    groups = [good[i : i + size] for i in range(0, len(good), size)]
    results: list[Outcome] = []
    alone = [name for name in names if name in listed]
    for place, found in run([(evaluate_together, (group, limit)) for group in groups], processes, _SECONDS):
        if isinstance(found, Lost) or found is None:
            alone += groups[place]
        else:
            results += found
    return results + outcomes(alone, limit, processes, verbose=verbose)


# -- the list ----------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, tuple[str, str]]:
    """Operator to its kind and reason."""
    entries = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line and not line.startswith("#"):
            op, kind, reason = (part.strip() for part in line.split("|"))
            entries[op] = (kind, reason)
    return entries


def renew(results: Sequence[Outcome], *, grow: bool) -> None:
    """Brings the list up to date; new failures are listed only if ``grow``."""
    entries = read(PATH)
    for result in results:
        known = entries.pop(result.op, None)
        if result.kind in ("fail", "static", "none") and (known is not None or grow):
            keeps = known is not None and known[0] == result.kind and result.reason.startswith("values")
            entries[result.op] = known if keeps and known is not None else (result.kind, result.reason)
    lines = [f"{op} | {kind} | {reason}" for op, (kind, reason) in sorted(entries.items())]
    PATH.write_text("\n".join([_HEAD, *lines]) + "\n")


def disagreements(results: Sequence[Outcome]) -> list[str]:
    """What the list says otherwise."""
    entries = read(PATH)
    lines = []
    for r in results:
        kind = entries.get(r.op, ("pass", ""))[0]
        if r.kind != kind:
            lines.append(f"{r.op}: {r.kind} instead of {kind}" + (f": {r.reason}" if r.reason else ""))
    return sorted(lines)


def table(results: Sequence[Outcome]) -> str:
    """How many operators pass, fail, or have nothing to differentiate."""
    kinds = Counter(r.kind for r in results)
    return (
        f"{len(results)} operators: {kinds['pass']} pass, {kinds['static']} with static sizes only, {kinds['fail']}"
        f" fail, {kinds['none']} with nothing to compare; {sum(r.calls for r in results)} calls compared"
    )


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser("opinfo.gradients", description=__doc__)
    parser.add_argument("--ops", nargs="*", default=[], help="names or patterns (*); default: all")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each (0: all; default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--quick", action="store_true", help="a part of all operators, always the same")
    parser.add_argument("--together", action="store_true", help="many operators in one program, which is quicker")
    parser.add_argument("--listed", action="store_true", help="only what is listed")
    parser.add_argument("--shrink", action="store_true", help="take what passes off the list")
    parser.add_argument("--grow", action="store_true", help="also list what fails")
    args = parser.parse_args()
    start = time.monotonic()
    names = quick_selection() if args.quick else selection(args.ops)
    if args.listed:
        names = [name for name in names if name in read(PATH)]
    if args.together:
        results = outcomes_together(names, args.samples, args.jobs, verbose=True)
    else:
        results = outcomes(names, args.samples, args.jobs, verbose=True)
    print(table(results))
    if args.shrink or args.grow:
        renew(results, grow=args.grow)
    lines = disagreements(results)
    print("\n".join(lines))
    print(f"{len(lines)} disagree with the list; {time.monotonic() - start:.0f} s")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
