"""Compiles programs, several as one module, runs them at many sizes, and reports the outcome of each."""

from __future__ import annotations

import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import disc
from closeness import differences, disagreements, wide_module
from disc.errors import DynamicDimError, InternalError

from .coverage import kernels_of
from .inputs import LARGE, assignments, make
from .program import EXAMPLE, IMPORTS, Group, Program, TolerantGroup, load, plain_cond
from .rewrite import original_name, rewritten_name
from .tracing import cheap

BAD = ("wrong", "internal", "unsupported", "refused", "error", "lost")
"""Outcomes that are failures."""
Compile = Callable[[nn.Module, Any, Any], Callable[..., Any]]
# Refusals whose reason is that torch.export fixes an extent, or has no rule for a size that depends on data.
# `while x.sum() < 5: x = x + 1` of bools: whether the result has bools or integers depends on the data.
_TYPE_OF_DATA = re.compile(r"before a step of a loop and .* after it")
_EXPORT = re.compile(
    r"torch\.export|Constraints violated|data-dependent|specialized|Could not guard|unbacked|must be constant|"
    r"tensor being mutated that has internal overlap"
)


@dataclass
class Outcome:
    """What happened to a program: "pass", one of :data:`BAD`, or "export" where torch.export does not accept it."""

    program: Program
    kind: str
    text: str = ""
    at: Mapping[str, int] = field(default_factory=dict)
    """The sizes at which it went wrong."""
    kernels: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """What the kernels of its module compute; with the first program of a module."""
    counts: Counter[str] = field(default_factory=Counter)
    """Runs that agree ("agree"), that eager refuses ("refused by eager"), and that a guard refuses ("guarded")."""


def compiled(
    module: nn.Module, args: Any, shapes: Any, sanitize: bool = False, cpu: str | None = None, opt_level: int = 3
) -> Callable[..., Any]:
    """As users compile; with checks of all accesses to memory, or for another CPU than this one."""
    # No two programs have the same code, so a cache of it would only grow.
    options = disc.Options(threads=1, sanitize=sanitize, cpu=cpu, opt_level=opt_level, code_cache=False)
    return disc.compile(module, args, dynamic_shapes=shapes, options=options)


def check(programs: Sequence[Program], seed: int, compile: Compile = compiled) -> list[Outcome]:
    """Outcomes of programs that are compiled together, or in parts where that fails."""
    with tempfile.TemporaryDirectory(prefix="programs-") as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        modules = load(programs, folder)
        straight = all(s.op not in ("flow", "compaction") for p in programs for s in p.steps)
        group = TolerantGroup(modules) if straight and len(programs) > 1 else Group(modules)
        try:
            args = tuple(make(p, _at_least(p, EXAMPLE), f"{seed}", plain=True) for p in programs)
            first = random.Random(f"{seed} {programs[0].name} trace").random() < 0.125
            # Of several programs those that fail are compiled once more by themselves.
            with cheap(first_attempt=first, again=len(programs) == 1):
                model = compile(group, args, (tuple(p.dynamic_shapes() for p in programs),))
        except Exception as error:
            if len(programs) == 1:
                return [Outcome(programs[0], *_refusal(error))]
            text = str(error)
        else:
            found = _Runs(programs, modules, seed, model, group.failed).outcomes()
            if found and hasattr(model, "ir"):
                found[0].kernels = kernels_of(model.ir("schedule", locations=True))
            alone = [o for place in sorted(group.failed) for o in check([programs[place]], seed, compile)]
            return [*found, *alone]
    culprits = _named(text, programs) or [programs[place] for place in sorted(group.failed)]
    if culprits:
        rest = [p for p in programs if p not in culprits]
        alone: dict[str, list[Outcome]] = {}
        for p in culprits:
            known = alone.get(original_name(p.name), [])
            if any(o.kind == "export" for o in known):
                alone[p.name] = [Outcome(p, "export", known[0].text)]  # A rewritten form has the same dims.
            else:
                alone[p.name] = check([p], seed, compile)
        return [o for found in alone.values() for o in found] + (check(rest, seed, compile) if rest else [])
    half = len(programs) // 2
    return check(programs[:half], seed, compile) + check(programs[half:], seed, compile)


def _at_least(program: Program, values: Mapping[str, int]) -> dict[str, int]:
    return {s: max(values[s], program.minimum[s]) for s in program.symbols}


def _named(text: str, programs: Sequence[Program]) -> list[Program]:
    """The programs whose dims or lines an error names."""
    names = set(re.findall(r"\b(P\w+?)_[ABC]\b", text))
    places = {int(n) for n in re.findall(r"inputs'?\]?[\[_](\d+)[\]_]", text)}
    lines = [int(n) for n in re.findall(r"group_\w+\.py:(\d+)", text)]
    begin, found = len(IMPORTS.splitlines()), []
    for place, program in enumerate(programs):
        end = begin + len(program.source.splitlines()) + 2
        if program.name in names or place in places or any(begin < line <= end for line in lines):
            found.append(program)
        begin = end
    return found if len(found) < len(programs) else []


def _refusal(error: Exception) -> tuple[str, str]:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, InternalError) or not isinstance(error, disc.CompileError):
        return "internal", text
    if isinstance(error, disc.UnsupportedOpError):
        return "unsupported", text
    if isinstance(error, DynamicDimError) or _EXPORT.search(text) or _TYPE_OF_DATA.search(text):
        return "export", text
    return "refused", text


class _TooLarge(Exception):
    """A value of more elements than a run of a random program should have."""


class _Limited(TorchDispatchMode):
    """Raises :class:`_TooLarge` where a result has too many elements."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(t, torch.Tensor) and t.numel() > _MOST_ELEMENTS for t in pytree.tree_leaves(result)):
            raise _TooLarge
        return result


_MOST_ELEMENTS = 200_000


@dataclass
class _Case:
    """Inputs of one program in one call."""

    sizes: dict[str, int]
    seed: str
    plain: bool
    want: Any = None
    """What eager PyTorch gives and makes of the inputs, or its error; None if nothing is compared."""

    def inputs(self, program: Program) -> tuple[torch.Tensor, ...]:
        return make(program, self.sizes, self.seed, self.plain)


class _Runs:
    """Calls of a compiled group."""

    def __init__(
        self, programs: Sequence[Program], modules: Sequence[nn.Module], seed: int, model: Any, failed: Collection[int]
    ) -> None:
        self.programs, self.modules, self.seed, self.model = programs, modules, seed, model
        self.wide = [wide_module(m) for m in modules]
        """The modules with what they hold in f64, for the exact values."""
        self.failed = failed
        """Those whose tracing failed: they have no results."""
        self.result = {p.name: Outcome(p, "pass") for place, p in enumerate(programs) if place not in failed}

    def outcomes(self) -> list[Outcome]:
        """Runs every program at all its sizes."""
        sizes = [assignments(p, self.seed) for p in self.programs]
        for place in range(len(sizes[0])):
            self._round([s[place] for s in sizes], f"{self.seed} {place}")
        return list(self.result.values())

    def _round(self, sizes: list[dict[str, int]], seed: str) -> None:
        own = [
            _Case(_at_least(p, EXAMPLE), seed, plain=True) if place in self.failed else self._case(p, m, s, seed)
            for place, (p, m, s) in enumerate(zip(self.programs, self.modules, sizes, strict=True))
        ]
        spare = [_Case(_at_least(p, EXAMPLE), seed, plain=True) for p in self.programs]
        error = self._call([s if isinstance(c.want, Exception) else c for s, c in zip(spare, own, strict=True)])
        for place, case in enumerate(own):
            if place in self.failed:
                continue
            alone = [case if i == place else s for i, s in enumerate(spare)]
            if isinstance(case.want, Exception):
                self._count(place, "refused by eager")
                self._refused(place, case, alone)
            elif error is not None:
                self._alone(place, case, alone)

    def _alone(self, place: int, case: _Case, cases: list[_Case]) -> None:
        """One program at its sizes, the others at those of the example."""
        error = self._call(cases)
        if isinstance(error, disc.ShapeError) or "it is updated in place, but a stride" in str(error):
            self._count(place, "guarded")
            self.result[self.programs[place].name].text = f"guard: {error}"
        elif error is not None:
            self._fail(place, "error", f"{type(error).__name__}: {error}", case.sizes)

    def _refused(self, place: int, case: _Case, cases: list[_Case]) -> None:
        """What eager PyTorch refuses is an error here too, unless the compiler does not need what eager asks for."""
        error = self._call(cases)
        if error is None:
            self._count(place, "accepted unlike eager")
            self.result[self.programs[place].name].text = f"accepted unlike eager: {case.want}"
        elif "internal error" in str(error):
            self._fail(place, "error", f"{type(error).__name__}: {error}", case.sizes)

    def _case(self, program: Program, module: nn.Module, sizes: dict[str, int], seed: str) -> _Case:
        """Inputs, and what eager makes of them; plain ones if eager cannot write to others."""
        limited = any(n in LARGE for n in sizes.values())
        for plain in (False, True):
            args = make(program, sizes, seed, plain)
            try:
                with plain_cond(), _Limited() if limited else nullcontext():
                    return _Case(sizes, seed, plain, (module(*args), args))
            except _TooLarge:
                return self._case(program, module, {s: min(n, 33) for s, n in sizes.items()}, seed)
            except Exception as error:
                refusal = error
        return _Case(sizes, seed, True, refusal)

    def _call(self, cases: Sequence[_Case]) -> Exception | None:
        """Runs the group and compares what is wanted; an error of the call is returned."""
        args = tuple(c.inputs(p) for p, c in zip(self.programs, cases, strict=True))
        try:
            got = self.model(*args)
        except Exception as error:
            return error
        for place, case in enumerate(cases):
            if case.want is None or isinstance(case.want, Exception):
                continue
            module, original = self.wide[place], case.inputs(self.programs[place])
            with plain_cond():
                reasons = disagreements(lambda *a, m=module: (m(*a), a), original, (got[place], args[place]), case.want)
            if reasons:
                self._fail(place, "wrong", "; ".join(reasons), case.sizes)
            else:
                self._count(place, "agree")
        self._compare_forms(cases, args, got)
        return None

    def _compare_forms(self, cases: Sequence[_Case], args: Sequence[Any], got: Sequence[Any]) -> None:
        """A program and its rewritten form, called with the same inputs, must agree with each other."""
        places = {p.name: place for place, p in enumerate(self.programs)}
        for place, program in enumerate(self.programs):
            other = places.get(rewritten_name(program.name))
            if other is None:
                continue
            case, same = cases[place], cases[other]
            skipped = any(c.want is None or isinstance(c.want, Exception) for c in (case, same))
            if skipped or (case.sizes, case.plain) != (same.sizes, same.plain):
                continue
            original = case.inputs(program)
            with plain_cond():
                reasons = differences(
                    lambda *a, m=self.wide[place]: (m(*a), a),
                    original,
                    (got[place], args[place]),
                    (got[other], args[other]),
                    case.want,
                )
            if reasons:
                self._fail(place, "wrong", "unlike its rewritten form: " + "; ".join(reasons), case.sizes)
            else:
                self._count(place, "agree with the rewritten form")

    def _count(self, place: int, what: str) -> None:
        self.result[self.programs[place].name].counts[what] += 1

    def _fail(self, place: int, kind: str, text: str, sizes: Mapping[str, int]) -> None:
        outcome = self.result[self.programs[place].name]
        if outcome.kind == "pass":
            outcome.kind, outcome.text, outcome.at = kind, text, dict(sizes)
