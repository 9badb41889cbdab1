"""Which names a piece of Python binds and reads, and whose they are."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Names:
    """What a piece of code does with names, itself and what is called where it stands."""

    bound: dict[str, None] = field(default_factory=dict)
    """Set or deleted, in the order of the source."""
    killed: set[str] = field(default_factory=set)
    """Those of them that certainly are."""
    read: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    """Those that functions and lazy generators defined in it read or set, whenever they run."""
    set_by_functions: set[str] = field(default_factory=set)
    """Those that functions defined in it set."""
    paths: dict[str, None] = field(default_factory=dict)
    """Attributes that are set, such as ``self.x.y``, if variables and attributes alone lead to them."""

    def __ior__(self, other: Names) -> Names:
        self.bound |= other.bound
        self.killed |= other.killed
        self.read |= other.read
        self.captured |= other.captured
        self.set_by_functions |= other.set_by_functions
        self.paths |= other.paths
        return self


def names_of(nodes: ast.AST | Iterable[ast.AST], functions: bool = True) -> Names:
    """What statements or expressions do with names; ``functions``: also what functions defined in them do."""
    visitor = _Visitor(functions)
    for node in [nodes] if isinstance(nodes, ast.AST) else nodes:
        visitor.visit(node)
    return visitor.names


def path_of(node: ast.AST) -> str | None:
    """``self.x.y`` for an expression of a variable and attributes."""
    if isinstance(node, ast.Name):
        return node.id
    inner = path_of(node.value) if isinstance(node, ast.Attribute) else None
    return None if inner is None or not isinstance(node, ast.Attribute) else f"{inner}.{node.attr}"


class _Visitor(ast.NodeVisitor):
    def __init__(self, functions: bool = True) -> None:
        self.names = Names()
        self._functions = functions
        self._maybe = 0
        """How many conditions stand around the node."""

    def _bind(self, name: str) -> None:
        self.names.bound[name] = None
        if not self._maybe:
            self.names.killed.add(name)

    def _visit_maybe(self, *nodes: ast.AST) -> None:
        self._maybe += 1
        for node in nodes:
            self.visit(node)
        self._maybe -= 1

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bind(node.id)
        if not isinstance(node.ctx, ast.Store):
            self.names.read.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load) and (path := path_of(node)):
            self.names.paths[path] = None
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.names.read.add(node.target.id)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        for part in (node.value, node.target):
            if part is not None:
                self.visit(part)

    def visit_TypeAlias(self, node: Any) -> None:
        self._bind(node.name.id)
        # Its value is evaluated when it is asked for.
        self.names.captured |= names_of(node.value).read

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._visit_maybe(*node.values[1:])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._visit_maybe(node.body, node.orelse)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.visit(node.left)
        self.visit(node.comparators[0])
        self._visit_maybe(*node.comparators[1:])

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)
        if node.msg is not None:
            self._visit_maybe(node.msg)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._visit_maybe(*node.cases)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._bind(node.rest)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._visit_maybe(*node.body, *node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._visit_maybe(*node.body, *node.orelse)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._visit_maybe(node.target, *node.body, *node.orelse)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item)
        self._visit_maybe(*node.body)

    def visit_Try(self, node: Any) -> None:
        self._visit_maybe(*node.body, *node.handlers, *node.orelse, *node.finalbody)

    visit_TryStar = visit_Try

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *_evaluated(node.args), *_annotations(node)):
            self.visit(part)
        self._bind(node.name)
        self._capture(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in _evaluated(node.args):
            self.visit(part)
        self._capture(node)

    def _capture(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        if not self._functions:
            return
        scope = Scope.of(node, None)
        inner = scope.names
        free = (inner.read | inner.captured | inner.set_by_functions | scope.outer) - scope.locals
        self.names.captured |= free
        self.names.set_by_functions |= (scope.nonlocals | inner.set_by_functions) - scope.locals - scope.globals

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._bind(node.name)
        inner = names_of(node.body)
        self.names.captured |= inner.read | inner.captured
        self.names.set_by_functions |= inner.set_by_functions

    def visit_Starred(self, node: ast.Starred) -> None:
        if isinstance(node.value, ast.GeneratorExp):
            self._comprehension(node.value)
        else:
            self.visit(node.value)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> None:
        self._comprehension(node)

    visit_SetComp = visit_ListComp
    visit_DictComp = visit_ListComp

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        inner = self._comprehension(node)
        self.names.captured |= inner.read

    def _comprehension(self, node: ast.expr) -> Names:
        self.visit(node.generators[0].iter)  # type: ignore[attr-defined]
        inner = _Visitor()
        inner._maybe = 1
        targets = _Visitor()
        for generator in node.generators:  # type: ignore[attr-defined]
            targets.visit(generator.target)
        inner.generic_visit(node)
        own = set(targets.names.bound)
        names = inner.names
        for found in (names.read, names.captured, names.set_by_functions):
            found -= own
        names.bound = {name: None for name in names.bound if name not in own}
        self.names |= names
        return names


def _evaluated(arguments: ast.arguments) -> list[ast.expr]:
    return [x for x in (*arguments.defaults, *arguments.kw_defaults) if x is not None]


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    arguments = (*parameters(node.args),)
    return [x for x in (*(a.annotation for a in arguments), node.returns) if x is not None]


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, ``*args`` and ``**kwargs`` included."""
    a = arguments
    return [x for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None]


def level(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a function's body without those of functions and classes in it."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)


@dataclass
class Scope:
    """The names of one function."""

    parameters: set[str]
    locals: set[str]
    globals: set[str]
    nonlocals: set[str]
    parent: Scope | None
    names: Names
    """Those of all of its body."""
    expression: bool = False
    """Whether it stands for an expression of the function around it, to which its ``:=`` belong."""

    @staticmethod
    def of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, parent: Scope | None) -> Scope:
        """The scope of a function that the user wrote."""
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        declared: dict[type, set[str]] = {ast.Global: set(), ast.Nonlocal: set()}
        for inner in level(body):
            if isinstance(inner, (ast.Global, ast.Nonlocal)):
                declared[type(inner)].update(inner.names)
        params = {a.arg for a in parameters(node.args)}
        names = names_of(body)
        own = (params | set(names.bound)) - declared[ast.Global] - declared[ast.Nonlocal]
        return Scope(params, own, declared[ast.Global], declared[ast.Nonlocal], parent, names)

    @staticmethod
    def of_expression(node: ast.FunctionDef, parent: Scope, walrus: set[str]) -> Scope:
        """The scope of a function that stands for an expression inside ``parent``; ``walrus``: what its ``:=`` set."""
        scope, owner = Scope.of(node, parent), parent
        while owner.expression and owner.parent is not None:
            owner = owner.parent
        scope.globals |= walrus & owner.globals
        scope.nonlocals |= walrus - owner.globals
        scope.locals -= walrus
        scope.expression = True
        return scope

    @property
    def outer(self) -> set[str]:
        """The names that it may set and that others read: variables of other functions, and global ones."""
        return self.globals | self.nonlocals

    def is_builtin(self, name: str) -> bool:
        """Whether a name is that of a builtin, as far as functions go."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.locals or name in scope.outer:
                return False
            scope = scope.parent
        return hasattr(builtins, name)
