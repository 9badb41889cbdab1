"""What errors of the model's own say at run time: their text as far as it is known while tracing."""

from __future__ import annotations

import ast
import re
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...source_lines import lines_of
from . import graph
from .sites import Site

# What numbers and tensors that are known at run time only become in a text.
_TRACED = re.compile(r"\b(?:[suz]|zf|u?f|zuf)\d+\b|FakeTensor|<disc\.")


def reasons(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def text_of_raise(error: Exception) -> str:
    """What an error that a ``raise`` statement raised says, and where it does."""
    file, line, *_ = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error)
    if _TRACED.search(text):
        statement = _statement(file, line or 0, ast.Raise)
        made = None if statement is None else statement.exc
        frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
        text = ", ".join(_source(arg, frame) for arg in made.args) if isinstance(made, ast.Call) else ""
    return _joined(type(error).__name__, text, file, line or 0)


def text_of_assert(message: Callable[[], Any] | None, site: Site) -> str:
    """What a failed ``assert`` says."""
    text = ""
    if message is not None:
        statement = _statement(site.file, site.line, ast.Assert)
        written = None if statement is None else statement.msg
        if written is None or isinstance(written, ast.Constant):
            text = "" if written is None else str(written.value)
        else:
            try:
                with graph.tried():
                    text = str(message())
            except Exception:
                text = _source(written)
            if _TRACED.search(text):
                text = _source(written)
    return _joined("AssertionError", text or site.text, site.file, site.line)


def _joined(kind: str, text: str, file: str, line: int) -> str:
    return f"{kind}{': ' if text else ''}{text} ({Path(file).name}:{line})"


def is_message(file: str, line: int) -> bool:
    """Whether a line is a part of a statement that only says something: of an error, an assertion or a call."""
    return any(_statement(file, line, kind) is not None for kind in (ast.Raise, ast.Assert, ast.Expr))


def _statement(file: str, line: int, kind: type[ast.AST]) -> Any:
    """The statement of a kind at a line."""
    try:
        tree = ast.parse("".join(lines_of(file)))
    except SyntaxError:
        return None
    found = [x for x in ast.walk(tree) if isinstance(x, kind) and x.lineno <= line <= (x.end_lineno or 0)]  # type: ignore[attr-defined]
    return found[-1] if found else None


def _source(text: ast.expr, frame: types.FrameType | None = None) -> str:
    """A text as its source has it: what is put into it in braces, but for what is known in ``frame``."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(_source(part, frame) for part in text.values)
    value = text.value if isinstance(text, ast.FormattedValue) else text
    known = None if frame is None else _known(text, frame)
    return "{" + ast.unparse(value) + "}" if known is None else known


def _known(text: ast.expr, frame: types.FrameType) -> str | None:
    """A part of a text as it was while tracing, if nothing in it is known at run time only."""
    whole = ast.JoinedStr([text]) if isinstance(text, ast.FormattedValue) else text
    code = compile(ast.fix_missing_locations(ast.Expression(whole)), "<message>", "eval")
    try:
        with graph.tried():
            said = str(eval(code, frame.f_globals, dict(frame.f_locals)))
    except Exception:
        return None
    return None if _TRACED.search(said) else said
