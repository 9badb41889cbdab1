"""What the compiler asks back ends, in order: what they claim, which regions they take, and for their code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BackendError, CompileError, UnsupportedOp, UnsupportedOpError
from .backend import Backend
from .code import Builder, Code, Linkable, PythonFunction
from .graph import Condition, Dim, Graph, Value
from .patterns import CheckError, Match, Pattern, find
from .region import Region


@dataclass(frozen=True)
class Claim:
    """A back end can compile an operation, as a part of a match."""

    backend: str
    pattern: str
    match: int


@dataclass(frozen=True)
class Refusal:
    """Why a back end does not compile an operation."""

    backend: str
    pattern: str
    reason: str


@dataclass(frozen=True)
class Decision:
    """Who compiles an operation."""

    op: str
    """The operator, ``aten.linear``."""
    source: str
    """The user's line."""
    backend: str | None
    """The back end, or None for DISC."""
    region: int | None = None
    pattern: str = ""
    when: str = ""
    """The condition on sizes under which the back end's code runs; "" for always."""
    refusals: tuple[Refusal, ...] = ()

    def __str__(self) -> str:
        who = f"{self.backend} (region {self.region}, {self.pattern})" if self.backend else "DISC"
        if self.when:
            who += f" if {self.when}"
        why = "; ".join(f"{r.backend}: {r.pattern + ': ' if r.pattern else ''}{r.reason}" for r in self.refusals)
        return f"{self.source or 'unknown'}: {self.op}: {who}" + (f" [{why}]" if why else "")


class Decisions(tuple[Decision, ...]):
    """Who compiles which operations; its text has a line for each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no back end was asked about an operation"

    def by(self, backend: str | None) -> list[Decision]:
        """The operations that a back end compiles, or DISC for None."""
        return [decision for decision in self if decision.backend == backend]


@dataclass
class Negotiation:
    """The back ends of one compilation and their answers."""

    backends: Sequence[Backend]
    on_device: bool = False
    """Whether the model's weights are on a device: the code of back ends runs on the host."""
    graph: Graph = field(default_factory=Graph)
    """What the import recorded."""
    regions: list[Region] = field(default_factory=list)
    linked: list[Linkable] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._patterns: dict[str, list[Pattern]] = {}
        for backend in self.backends:
            with _asking(backend, "its patterns"):
                self._patterns[backend.name] = list(backend.patterns())

    @property
    def names(self) -> list[str]:
        """The names of the back ends, in order of precedence."""
        return [backend.name for backend in self.backends]

    @property
    def merging(self) -> list[str]:
        """Those whose regions may contain several matches."""
        return [backend.name for backend in self.backends if backend.merges]

    def operators(self) -> set[str]:
        """The operators that are in a pattern of some back end."""
        return {name for patterns in self._patterns.values() for p in patterns for name in p.operators()}

    def claims(self) -> dict[int, tuple[list[Claim], list[Refusal]]]:
        """Of each operation, by its number, which back ends claim it and which refuse it."""
        found: dict[int, tuple[list[Claim], list[Refusal]]] = {op.id: ([], []) for op in self.graph}
        for backend in self.backends:
            number = 0
            with _checking(backend):
                for operation, pattern, answer in find(self._patterns[backend.name], self.graph):
                    if isinstance(answer, Match):
                        for member in answer.members:
                            found[member.id][0].append(Claim(backend.name, pattern.name, number))
                        number += 1
                    else:
                        found[operation.id][1].append(Refusal(backend.name, pattern.name, answer))
        return found

    def decide(self, module: Any, builder: Builder) -> None:
        """Asks about each region of a module between the partition and the choice, and writes the answers there."""
        by_id = self.graph.by_id()
        backends = {backend.name: backend for backend in self.backends}
        self.regions, self.linked, self.decisions = [], [], []
        taken: dict[int, tuple[Region, str]] = {}
        vetoes: dict[int, Refusal] = {}
        for number, name, members, operands, results in module.regions():
            region = Region(
                number,
                name,
                [by_id[id] for id, _, _ in members],
                [_seen(by_id[id].inputs[i], parameter, dims) for id, i, parameter, dims in operands],
                [_seen(by_id[id].results[i], None, dims) for id, i, dims in results],
                {id: (pattern, match) for id, pattern, match in members},
            )
            reason, when = self._ask(backends[name], region, module, builder)
            for op in region.operations:
                if reason is None:
                    taken[op.id] = (region, when)
                else:
                    vetoes[op.id] = Refusal(name, region.patterns[op.id][0], reason)
        unsupported = []
        for id, name, owner, refusals in module.composites():
            op = by_id[id]
            why = [Refusal(*refusal) for refusal in refusals]
            if id in taken:
                region, when = taken[id]
                self.decisions.append(
                    Decision(name, op.source, region.backend, region.number, owner[1], when, tuple(why))
                )
            else:
                why += [vetoes[id]] if id in vetoes else []
                self.decisions.append(Decision(name, op.source, None, refusals=tuple(why)))
                if op.unsupported:
                    said = [f"{r.backend} refuses it: {r.reason}" for r in why] or ["no pattern of a back end matches"]
                    unsupported.append(UnsupportedOp(name, op.source, "; ".join([op.unsupported, *said])))
        if unsupported:
            raise UnsupportedOpError(unsupported)

    def _ask(self, backend: Backend, region: Region, module: Any, builder: Builder) -> tuple[str | None, str]:
        """Why the region stays with the host, or the condition under which it does not."""
        with _asking(backend, "accept()", region):
            reason = backend.accept(region)
        when: Any = True
        # Where the host has no code there is no choice.
        if reason is None and not any(op.unsupported for op in region.operations):
            with _asking(backend, "prefer()", region):
                when = backend.prefer(region)
            if when is False:
                reason = "the host is faster (prefer)"
            elif when is not True and not isinstance(when, Condition):
                raise _failed(backend, f"prefer() must return a condition on sizes or a bool, got {when!r}", region)
        if reason is not None:
            if not isinstance(reason, str):
                raise _failed(backend, f"accept() must return None or a reason, got {reason!r}", region)
            module.veto_region(region.number, reason)
            return reason, ""
        with _asking(backend, "compile()", region):
            code = backend.compile(region)
            if not isinstance(code, Code):
                raise _failed(backend, f"compile() must return a Code, got {type(code).__name__}", region)
            region.constants = [self._constant(backend, region, value) for value in code.constants]
            numbers = list(code.numbers or ())
            if code.numbers is None and not isinstance(code, PythonFunction):
                numbers = region.symbols()
            if self.on_device and region.constants:
                reason = "its constants would be on the host, and the model's weights are on a device"
                module.veto_region(region.number, reason)
                return reason, ""
            linked = builder.build(code, region)
        self.regions.append(region)
        self.linked.append(linked)
        condition = when.expressions if isinstance(when, Condition) else ()
        with _asking(backend, "a number or condition of compile() or prefer()", region):
            module.compile_region(
                region.number,
                table=linked.symbol,
                description=region.describe(numbers) if code.description is None else code.description,
                constants=[value.parameter for value in region.constants],
                numbers=[number.text for number in numbers],
                when=list(condition),
            )
        return None, " and ".join(f"{text} >= 0" for text in condition)

    @staticmethod
    def _constant(backend: Backend, region: Region, value: Value) -> Value:
        if value not in region.inputs or not value.is_constant:
            raise _failed(
                backend, f"the constant {value.parameter or value} is not a parameter among the inputs", region
            )
        return value


def _seen(value: Value, parameter: str | None, dims: Sequence[str]) -> Value:
    """A value with its extents as the shape stage wrote them; ranges are known from the import."""
    if parameter is not None:
        value.parameter = parameter
    if len(dims) == len(value.dims):
        value.dims = tuple(
            known if known.text == text or known.is_static else Dim(text, known.min, known.max, known.divisor)
            for text, known in zip(dims, value.dims, strict=True)
        )
    return value


def _failed(backend: Backend, text: str, region: Region | None) -> BackendError:
    where = region.sources[0] if region is not None and region.sources else None
    name = "" if region is None else region.name
    of = "" if region is None else f", {region.name} ({', '.join(op.name for op in region.operations)})"
    return BackendError(f"back end {backend.name!r}{of}: {text}", backend=backend.name, region=name, source=where)


@contextlib.contextmanager
def _checking(backend: Backend) -> Iterator[None]:
    """Raises what a check of a pattern did wrong as an error that names the back end and the operation's line."""
    try:
        yield
    except CheckError as error:
        text = f"back end {backend.name!r}: {error}"
        raise BackendError(text, backend=backend.name, source=error.source or None) from error.__cause__


@contextlib.contextmanager
def _asking(backend: Backend, what: str, region: Region | None = None) -> Iterator[None]:
    """Raises whatever a back end's own code raises as an error that names it."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:
        raise _failed(backend, f"{what} raised {type(error).__name__}: {error}", region) from error
