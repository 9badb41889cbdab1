"""Patterns of operations, written declaratively, and where they match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .graph import Graph, Operation, Value

Check = Callable[["Match"], "bool | str | None"]


@dataclass(frozen=True, eq=False)
class Any_:
    """Any argument; see :func:`anything`."""

    name: str | None = None
    kind: str = ""
    """``"tensor"`` or ``"parameter"``: which arguments it stands for; "" for all."""


@dataclass(frozen=True, eq=False)
class Op:
    """An operation; see :func:`op`."""

    names: tuple[str, ...]
    operands: tuple[Any, ...]
    arguments: dict[str, Any]
    commutative: bool
    name: str | None

    def fits(self, operation: Operation) -> bool:
        """Whether the operator is one of the pattern's: a name without overload stands for all overloads."""
        return any(operation.name == n or operation.name.startswith(f"{n}.") for n in self.names)


def anything(name: str | None = None) -> Any_:
    """A pattern for any argument; with a ``name`` it is in ``match.values``. Used twice, it must be the same value."""
    return Any_(name)


def tensor(name: str | None = None) -> Any_:
    """A pattern for any tensor."""
    return Any_(name, "tensor")


def parameter(name: str | None = None) -> Any_:
    """A pattern for a parameter or buffer of the model that calls do not change."""
    return Any_(name, "parameter")


def op(
    names: str | Sequence[str],
    *operands: Any,
    commutative: bool = False,
    name: str | None = None,
    **arguments: Any,
) -> Op:
    """A pattern for an operation.

    >>> linear = op("aten.linear", tensor("x"), parameter("w"), anything("bias"))
    >>> op("aten.gelu", linear, approximate="none")

    Args:
        names: the operator, or one of several, as ``torch.ops`` has it: ``"aten.linear"``, ``"aten.add.Tensor"``.
        operands: patterns or constants for the first arguments; arguments without one may be anything.
        commutative: the first two operands may be exchanged.
        name: what ``match.operations`` has it under.
        arguments: patterns or constants for arguments by name.
    """
    given = (names,) if isinstance(names, str) else tuple(names)
    return Op(given, operands, arguments, commutative, name)


@dataclass
class Match:
    """Where a pattern matches."""

    pattern: Pattern
    root: Operation
    members: list[Operation] = field(default_factory=list)
    """All its operations, in program order."""
    operations: dict[str, Operation] = field(default_factory=dict)
    """The operations that the pattern names."""
    values: dict[str, Any] = field(default_factory=dict)
    """The arguments that the pattern names."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Operations that a back end takes as a whole.

    ``root`` computes the match's results; what the other operations compute must not be used outside of the match.
    ``check`` looks at a match, and returns None or True for yes, and a text for no: the reason, which reports show.
    """

    name: str
    root: Op
    check: Check | None = None

    def operators(self) -> set[str]:
        """The names of all operators in it."""
        found: set[str] = set()
        pending: list[Any] = [self.root]
        while pending:
            node = pending.pop()
            if isinstance(node, Op):
                found.update(node.names)
                pending += [*node.operands, *node.arguments.values()]
        return found

    def match(self, operation: Operation) -> Match | str | None:
        """The match with this root; or why it is rejected; or None if the operations differ."""
        for match in _matches(self.root, operation, Match(self, operation)):
            members = sorted(match.members, key=lambda member: member.id)
            match.members = list(dict.fromkeys(members))
            refused = _used_outside(match)
            if refused is None and self.check is not None:
                refused = self._refusal(self.check, match)
            return match if refused is None else refused
        return None

    def _refusal(self, check: Check, match: Match) -> str | None:
        what, root = f"the check of pattern {self.name!r}", match.root
        try:
            answer: Any = check(match)
        except Exception as error:
            raise CheckError(f"{what} raised {type(error).__name__}: {error}", root) from error
        if answer is None or answer is True:
            return None
        if answer is False or isinstance(answer, str):
            return answer or "its check says no"
        raise CheckError(f"{what} must return None, True or a reason, got {answer!r}", root)


class CheckError(Exception):
    """A check raised an exception, which is the cause, or returned something else than an answer."""

    def __init__(self, text: str, operation: Operation) -> None:
        super().__init__(f"{text} ({operation.name})")
        self.source = operation.source


def find(patterns: Iterable[Pattern], graph: Graph) -> Iterator[tuple[Operation, Pattern, Match | str]]:
    """All matches and refusals, with the operation that is their root."""
    listed = list(patterns)
    for operation in graph:
        for pattern in listed:
            if pattern.root.fits(operation):
                found = pattern.match(operation)
                if found is not None:
                    yield operation, pattern, found


def _used_outside(match: Match) -> str | None:
    inside = set(map(id, match.members))
    for member in match.members:
        if member is match.root:
            continue
        if member.block != match.root.block:
            return "its operations are in different branches or loops"
        for value in member.results:
            if value.is_used_elsewhere or any(id(user) not in inside for user in value.users):
                return f"another operation uses the result of {member.name}"
    return None


def _matches(pattern: Op, operation: Operation, known: Match) -> Iterator[Match]:
    if not pattern.fits(operation) or len(pattern.operands) > len(operation.args):
        return
    if any(name not in operation.names for name in pattern.arguments):
        return
    begun = Match(known.pattern, known.root, [*known.members, operation], dict(known.operations), dict(known.values))
    if pattern.name is not None:
        begun.operations[pattern.name] = operation
    given = [operation.args[: len(pattern.operands)]]
    if pattern.commutative and len(pattern.operands) >= 2:
        given.append((given[0][1], given[0][0], *given[0][2:]))
    for args in given:
        pairs = [*zip(pattern.operands, args, strict=True)]
        pairs += [(wanted, operation.argument(name)) for name, wanted in pattern.arguments.items()]
        yield from _arguments(pairs, begun)


def _arguments(pairs: Sequence[tuple[Any, Any]], known: Match) -> Iterator[Match]:
    if not pairs:
        yield known
        return
    (wanted, found), *rest = pairs
    if isinstance(wanted, Op):
        producer = found.producer if isinstance(found, Value) else None
        if producer is not None and producer.block == known.root.block:
            for match in _matches(wanted, producer, known):
                yield from _arguments(rest, match)
        return
    if isinstance(wanted, Any_):
        if wanted.kind == "tensor" and not isinstance(found, Value):
            return
        if wanted.kind == "parameter" and not (isinstance(found, Value) and found.is_constant):
            return
        if wanted.name is not None:
            if wanted.name in known.values and known.values[wanted.name] is not found:
                return
            values = {**known.values, wanted.name: found}
            known = Match(known.pattern, known.root, known.members, known.operations, values)
    elif isinstance(found, Value) or type(wanted) is not type(found) or wanted != found:
        return
    yield from _arguments(rest, known)
