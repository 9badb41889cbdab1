"""Statements without jumps: blocks of items, of which each begins at its begin and ends at its end.

``return``, ``break`` and ``continue`` become assignments, and what follows them moves to where it is reached.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .source import NotRewritable

RETURNED = "_disc_returned"
# The statements after an ``if`` are reached from both of its sides, on at most this many paths of a tracer.
_COPIES = 8


@dataclass
class Item:
    """A part of a block."""

    node: ast.stmt
    """Where it stands in the source."""


Block = list[Item]


@dataclass
class Plain(Item):
    """A statement as it is; a ``return`` is the function's last one."""


@dataclass
class Rest:
    """The statements after an ``if`` that both sides may reach."""

    name: str
    body: Block


@dataclass
class Follow(Item):
    """Goes on with a :class:`Rest`."""

    rest: Rest


@dataclass
class If(Item):
    """A condition."""

    test: ast.expr
    then: Block
    orelse: Block
    rests: list[Rest] = field(default_factory=list)


@dataclass
class Loop(Item):
    """``for`` or ``while``, without ``else``; it ends, too, when the flag ``stop`` is true after a step."""

    node: ast.For | ast.While
    body: Block
    stop: str | None
    item: str = ""
    """The name of the body's parameter."""


@dataclass
class With(Item):
    """``with``."""

    node: ast.With
    body: Block


@dataclass
class Try(Item):
    """``try``."""

    node: ast.Try
    body: Block
    handlers: list[Block]
    orelse: Block
    final: Block


class _Jumped(ast.Pass):
    """A jump whose flags are set: the rest of the block must not run."""


class _Leave(ast.Pass):
    """A ``return`` whose value is set."""


class _Follow(ast.Pass):
    """A statement that stands for :class:`Follow`."""

    rest: Rest


@dataclass
class _Exit:
    """A statement that jumps leave by flags: a loop, ``with`` or ``try``, or an ``if`` whose rest is shared."""

    stop: str | None = None
    """Of a loop: set by what ends it."""
    left: dict[type, str] = field(default_factory=dict)
    """Set by the kinds of jumps that go on outside of it."""
    is_loop: bool = False


_JUMPS = (ast.Return, ast.Break, ast.Continue, _Jumped, _Leave, _Follow)
_TRIES = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))  # type: ignore[attr-defined]
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _children(stmt: ast.AST) -> list[list[ast.stmt]]:
    parts = [getattr(stmt, name, []) for name in ("body", "orelse", "finalbody")]
    parts += [h.body for h in getattr(stmt, "handlers", [])]
    parts += [c.body for c in getattr(stmt, "cases", [])]
    return [p for p in parts if isinstance(p, list)]


def _has(stmts: Sequence[ast.stmt], kinds: tuple[type, ...], loops: bool) -> bool:
    """Whether there is a jump of these kinds; ``loops``: also in the bodies of loops."""
    for s in stmts:
        if isinstance(s, kinds):
            return True
        if isinstance(s, _NESTED):
            continue
        if isinstance(s, (ast.For, ast.While)) and not loops:
            if _has(s.orelse, kinds, loops):
                return True
        elif any(_has(part, kinds, loops) for part in _children(s)):
            return True
    return False


def _returns(stmts: Sequence[ast.stmt]) -> bool:
    return _has(stmts, (ast.Return, _Leave), True)


def _jumps(stmts: Sequence[ast.stmt]) -> bool:
    """Whether anything in a block leaves it otherwise than at its end."""
    return _returns(stmts) or _has(stmts, _JUMPS, False)


def _falls(stmts: Sequence[ast.stmt]) -> bool:
    """Whether the end of a block may be reached."""
    for s in stmts:
        if isinstance(s, (*_JUMPS, ast.Raise)):
            return False
        if isinstance(s, ast.If) and not _falls(s.body) and not _falls(s.orelse):
            return False
        if _is_endless(s):
            return False
    return True


def _is_endless(s: ast.stmt) -> bool:
    """Whether a statement is a ``while True`` without ``break``."""
    forever = isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and bool(s.test.value)
    return forever and not _has(s.body, (ast.Break,), False)  # type: ignore[attr-defined]


class Structure:
    """Makes blocks of the statements of one function."""

    def __init__(self, file: str, number: Callable[[], int]) -> None:
        """``number`` returns a new number at each call, for names."""
        self._file, self._number = file, number
        self.made: set[str] = set()
        """Variables that are added."""
        self._copies = 1
        """How often a tracer that follows both sides of each ``if`` would get to the statements."""
        self._matching: list[ast.stmt] = []
        """``match`` statements that only match."""

    def function(self, body: list[ast.stmt]) -> Block:
        """The body of a function. If any ``return`` is inside another statement, all are gathered at the end."""
        if not any(_returns(part) for s in body if not isinstance(s, _NESTED) for part in _children(s)):
            return self._block(body, [], top=True)
        if _falls(body):
            body = [*body, ast.copy_location(ast.Return(None), body[-1])]
        elif _is_endless(body[-1]):
            body = [*body, _at(body[-1], ast.Return(_load(RETURNED)))]
        return self._block(body, [], top=True)

    def _block(self, stmts: Sequence[ast.stmt], exits: list[_Exit], top: bool = False) -> Block:
        out: Block = []
        for i, s in enumerate(stmts):
            rest = stmts[i + 1 :]
            if isinstance(s, _Jumped):
                return out
            if isinstance(s, _Follow):
                return [*out, Follow(s, s.rest)]
            if isinstance(s, ast.Raise):
                return [*out, Plain(s)]
            if isinstance(s, (ast.Return, ast.Break, ast.Continue, _Leave)):
                return [*out, Plain(s)] if top else [*out, *self._jump(s, exits)]
            if isinstance(s, ast.If) and not self._is_shared(s, rest):
                if _jumps([s]):
                    out.append(self._branch(s, rest, exits))
                    return [*out, Plain(_at(s, ast.Return(_load(RETURNED))))] if top else out
                out.append(If(s, s.test, self._block(s.body, exits), self._block(s.orelse, exits)))
            elif isinstance(s, (ast.Global, ast.Nonlocal, ast.Pass)):
                continue
            elif isinstance(s, ast.Match) and s not in self._matching:
                return out + self._block([*self._match(s), *rest], exits, top)
            elif isinstance(s, (ast.If, ast.For, ast.While, ast.With, *_TRIES)):
                found, after = self._compound(s, exits, bool(rest))
                out += found
                if after:
                    return out + self._block([*after, *rest], exits, top)
            else:
                out.append(Plain(s))
        return out

    def _jump(self, s: ast.stmt, exits: list[_Exit]) -> Block:
        """The assignments that a jump becomes."""
        out: Block = []
        if isinstance(s, ast.Return):
            value = ast.Constant(None) if s.value is None else s.value
            out.append(Plain(_at(s, _assign(RETURNED, value))))
            self.made.add(RETURNED)
        kind = type(s)
        for exit in reversed(exits):
            flags: list[str | None] = []
            if exit.is_loop:
                flags = [exit.stop] if kind is not ast.Continue else []
            if exit.is_loop and kind in (ast.Break, ast.Continue):
                last = True
            else:
                # An exception may still prevent the jump out of a with or try.
                last = not exit.is_loop
                flags.append(exit.left.setdefault(ast.Return if kind is _Leave else kind, self._variable("left")))
            out += [Plain(_at(s, _assign(flag, ast.Constant(True)))) for flag in dict.fromkeys(flags) if flag]
            if last:
                break
        return out

    def _is_shared(self, s: ast.If, rest: Sequence[ast.stmt]) -> bool:
        """Whether the statements after an ``if`` are emitted once, although each side may or may not reach them."""
        return self._copies >= _COPIES and bool(rest) and _jumps([s]) and _falls(s.body) and _falls(s.orelse)

    def _branch(self, s: ast.If, rest: Sequence[ast.stmt], exits: list[_Exit]) -> If:
        then, orelse = s.body, s.orelse
        rests: list[Rest] = []
        both = _falls(then) and _falls(orelse)
        more: list[ast.stmt] = list(rest)
        if rest and both and not _is_short(rest[0]):
            self._copies *= 2
            rests.append(Rest(f"_disc_rest_{self._number()}", self._block(rest, exits)))
            self._copies //= 2
            follow = ast.copy_location(_Follow(), s)
            follow.rest = rests[0]
            more = [follow]
        if _falls(orelse):
            orelse = [*orelse, *(_copies(more[:1]) if both else more)]
        if _falls(then):
            then = [*then, *(more[:1] if both else more)]
        return If(s, s.test, self._block(then, exits), self._block(orelse, exits), rests)

    def _variable(self, kind: str) -> str:
        name = f"_disc_{kind}_{self._number()}"
        self.made.add(name)
        return name

    def _compound(self, s: Any, exits: list[_Exit], more: bool) -> tuple[Block, list[ast.stmt]]:
        """The items of a loop, ``with`` or ``try``, and the statements that follow it; ``more``: before others."""
        after: list[ast.stmt] = []
        exit = _Exit()
        inner = [*exits, exit]
        if isinstance(s, (ast.For, ast.While)):
            returns, breaks = _returns(s.body), _has(s.body, (ast.Break,), False)
            exit.is_loop = True
            exit.stop = self._variable("stop") if returns or breaks else None
            if exit.stop and returns and not breaks:
                exit.left[ast.Return] = exit.stop
            item = f"_disc_item_{self._number()}"
            body: list[ast.stmt] = s.body
            if isinstance(s, ast.For):
                body = [_at(s, ast.Assign([s.target], _load(item))), *body]
            made: Item = Loop(s, self._block(body, inner), exit.stop, item)
            if s.orelse:
                after += [_at(s, ast.If(_load(exit.stop), [ast.Pass()], s.orelse))] if exit.stop else s.orelse
            if ast.Return in exit.left and more:
                after.append(_at(s, ast.If(_load(exit.left[ast.Return]), [_at(s, _Jumped())], [])))
        else:
            if isinstance(s, ast.If):
                made = If(s, s.test, self._block(s.body, inner), self._block(s.orelse, inner))
            else:
                made = With(s, self._block(s.body, inner)) if isinstance(s, ast.With) else self._try(s, exit, inner)
            for kind, flag in exit.left.items():
                if more or (exits and not (kind is ast.Continue and exits[-1].is_loop)):
                    jump: ast.stmt = _Leave() if kind is ast.Return else kind()
                    after.append(_at(s, ast.If(_load(flag), [jump], [])))
        flags = dict.fromkeys([exit.stop, *exit.left.values()])
        return [*(Plain(_at(s, _assign(f, ast.Constant(False)))) for f in flags if f), made], after

    def _try(self, s: ast.Try, exit: _Exit, exits: list[_Exit]) -> Try:
        if _jumps(s.finalbody):
            reason = "a finally that returns, breaks or continues"
            raise NotRewritable(reason, self._file, s.finalbody[0].lineno, "jump after the try statement")
        body = self._block(s.body, exits)
        orelse = [_at(s, ast.If(_load(flag), [_at(s, _Jumped())], [])) for flag in exit.left.values()]
        orelse = [*orelse, *s.orelse] if s.orelse else []
        handlers = [self._block(h.body, exits) for h in s.handlers]
        return Try(s, body, handlers, self._block(orelse, exits), self._block(s.finalbody, exits))

    def _match(self, s: ast.Match) -> list[ast.stmt]:
        """``match`` as conditions."""
        subject = self._variable("subject")
        chain: list[ast.stmt] = []
        for case in reversed(s.cases):
            place = case.body[0]
            test = _comparison(case.pattern, subject)
            before: list[ast.stmt] = []
            if test is None:
                flag = self._variable("matched")
                taken = ast.match_case(case.pattern, None, [_assign(flag, ast.Constant(True))])
                self._matching.append(_at(place, ast.Match(_load(subject), [taken])))
                before = [_at(place, _assign(flag, ast.Constant(False))), self._matching[-1]]
                test = _load(flag)
            always = isinstance(test, ast.Constant)
            if case.guard is not None:
                test = case.guard if always else ast.BoolOp(ast.And(), [test, case.guard])
            if isinstance(case.pattern, ast.MatchAs) and always and case.pattern.name:
                before = [_at(place, _assign(case.pattern.name, _load(subject)))]
            where = _at(case.pattern, ast.If(test, case.body, chain))
            chain = [*before, *case.body] if always and case.guard is None else [*before, where]
        return [_at(s, _assign(subject, s.subject)), *chain]


def _comparison(pattern: ast.pattern, subject: str) -> ast.expr | None:
    """The condition that a pattern is, if it is one without names; True for the one that always matches."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return ast.Constant(True)
    if isinstance(pattern, ast.MatchValue):
        return ast.Compare(_load(subject), [ast.Eq()], [pattern.value])
    if isinstance(pattern, ast.MatchSingleton):
        return ast.Compare(_load(subject), [ast.Is()], [ast.Constant(pattern.value)])
    if isinstance(pattern, ast.MatchOr):
        parts = [_comparison(p, subject) for p in pattern.patterns]
        if all(p is not None and not isinstance(p, ast.Constant) for p in parts):
            return ast.BoolOp(ast.Or(), [p for p in parts if p is not None])
    return None


def _is_short(s: ast.stmt) -> bool:
    """Whether a statement ends a block and is as short as a call of it."""
    if isinstance(s, ast.Return):
        return s.value is None or isinstance(s.value, (ast.Constant, ast.Name))
    return isinstance(s, _JUMPS)


def _copies(stmts: list[ast.stmt]) -> list[ast.stmt]:
    return [s if isinstance(s, _Follow) else copy.deepcopy(s) for s in stmts]


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _at(place: ast.stmt | ast.pattern, node: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(node, place))
