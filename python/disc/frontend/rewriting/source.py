"""The source of a function object: the node of its file's syntax tree that it was compiled from."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...source_lines import line_of, lines_of

FunctionNode = ast.FunctionDef | ast.Lambda


class NotRewritable(Exception):
    """A function cannot be rewritten.

    Attributes:
        reason: why it cannot be rewritten.
        file: the file of the function, or of the statement that prevents it.
        line: its line.
        suggestion: what to change.
    """

    def __init__(self, reason: str, file: str, line: int, suggestion: str) -> None:
        self.reason, self.file, self.line, self.suggestion = reason, file, line, suggestion
        super().__init__(f"{file}:{line}: {reason}; {suggestion}")


@dataclass(frozen=True)
class Source:
    """Where a function comes from."""

    file: str
    node: FunctionNode
    class_name: str | None
    """The class that contains it, for names such as ``__x``."""

    def line(self, number: int) -> str:
        """A line of the file, without the spaces around it."""
        return line_of(self.file, number)


def mangled(name: str, class_name: str | None) -> str:
    """The name that ``name`` is compiled to inside a class."""
    plain = not class_name or not name.startswith("__") or name.endswith("__")
    return name if plain else f"_{str(class_name).lstrip('_')}{name}"


def find(function: types.FunctionType) -> Source:
    """The source of ``function``; NotRewritable if it has no source, or is a generator or a coroutine."""
    return _find(function.__code__, function.__globals__)


def node_of(code: types.CodeType) -> FunctionNode:
    """The node that ``code`` was compiled from; NotRewritable as :func:`find`."""
    return _find(code, None).node


def _find(code: types.CodeType, names: dict[str, Any] | None) -> Source:
    file, line = code.co_filename, code.co_firstlineno
    generators = (
        inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
    )
    if code.co_flags & generators:
        raise NotRewritable(
            f"{code.co_name} is a generator or a coroutine",
            file,
            line,
            "return a list, or write the loop at the place of use",
        )
    lines = lines_of(file, names)
    if not lines:
        raise NotRewritable(f"there is no source code of {code.co_name}", file, line, "define the function in a file")
    index = _index("".join(lines), file)
    # pytest changes the code of assertions.
    same = "@pytest_ar" in code.co_names or any(_alike(code, c) for c in index.codes.get((line, code.co_name), []))
    found = [entry for entry in index.nodes.get(line, []) if same and _fits(entry[0], entry[1], code)]
    if len(found) > 1 and hasattr(code, "co_positions"):
        found = [entry for entry in found if _encloses(entry[0], code)]
        # The body of a lambda is inside that of the lambda around it.
        lambdas = [(node, name) for node, name in found if isinstance(node, ast.Lambda)]
        if lambdas:
            found = [max(lambdas, key=lambda entry: _range(entry[0].body)[0])]
    if not found:
        reason = f"{code.co_name} differs from the code in its file"
        raise NotRewritable(reason, file, line, "reload the file, without hooks that change its code")
    if len({ast.dump(node) for node, _ in found}) > 1:
        reason, advice = "several lambdas on this line have the same arguments", "put each lambda on its own line"
        raise NotRewritable(reason, file, line, advice)
    return Source(file, *found[0])


def _fits(node: FunctionNode, class_name: str | None, code: types.CodeType) -> bool:
    name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    a = node.args
    names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None]
    return name == code.co_name and [mangled(n, class_name) for n in names] == list(code.co_varnames[: len(names)])


def _encloses(node: FunctionNode, code: types.CodeType) -> bool:
    """Whether instructions of ``code`` come from the body of a lambda."""
    if not isinstance(node, ast.Lambda):
        return True
    begin, end = _range(node.body)
    for line, last_line, column, last_column in code.co_positions():
        if line is None or last_line is None or column is None or last_column is None:
            continue
        if begin <= (line, column) < (last_line, last_column) <= end:
            return True
    return False


def _range(body: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where an expression begins and ends: line and column."""
    return (body.lineno, body.col_offset), (body.end_lineno or body.lineno, body.end_col_offset or 0)


def _alike(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two functions have the same code, apart from the functions in them."""

    def seen(code: types.CodeType) -> tuple[Any, ...]:
        constants = [repr(c) for c in code.co_consts if not isinstance(c, (types.CodeType, frozenset))]
        return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants

    return seen(a) == seen(b)


@dataclass(frozen=True)
class _Index:
    nodes: dict[int, list[tuple[FunctionNode, str | None]]]
    """The functions of a file by the first line of each, decorators included."""
    codes: dict[tuple[int, str], list[types.CodeType]]
    """Their code objects, by first line and name."""


@functools.lru_cache(maxsize=128)
def _index(text: str, file: str) -> _Index:
    try:
        tree = ast.parse(text)
        pending = [compile(text, file, "exec", dont_inherit=True)]
    except SyntaxError as error:
        reason, advice = "the file has changed and has a syntax error", "fix it and load the file again"
        raise NotRewritable(reason, file, error.lineno or 0, advice) from None
    found: dict[int, list[tuple[FunctionNode, str | None]]] = {}
    for node, class_name in _functions(tree):
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        found.setdefault(min([node.lineno, *(d.lineno for d in decorators)]), []).append((node, class_name))
    codes: dict[tuple[int, str], list[types.CodeType]] = {}
    while pending:
        code = pending.pop()
        codes.setdefault((code.co_firstlineno, code.co_name), []).append(code)
        pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return _Index(found, codes)


def _functions(tree: ast.AST) -> Iterator[tuple[FunctionNode, str | None]]:
    pending: list[tuple[ast.AST, str | None]] = [(tree, None)]
    while pending:
        node, class_name = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node, class_name
        inside = node.name if isinstance(node, ast.ClassDef) else class_name
        pending += [(child, inside) for child in ast.iter_child_nodes(node)]
