"""Where a construct stands in the user's code, for messages."""

from __future__ import annotations

import sys
import sysconfig
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import errors
from ..locations import is_user_file

PACKAGE = str(Path(__file__).parents[2])
_STANDARD = sysconfig.get_paths()["stdlib"]

handlers: list[Callable[[], Any]] = []
"""What the ``except`` clauses around the code that runs catch."""


@dataclass(frozen=True)
class Site:
    """The place of a construct."""

    file: str
    line: int
    text: str
    partial: set[str] = field(default_factory=set, compare=False)
    """Variables that have a value on one path through it only."""
    kept: set[str] = field(default_factory=set, compare=False)
    """Those of them that code reads: they keep their value, and the condition that they have one."""

    @property
    def source(self) -> str:
        """As errors name it."""
        return f"{self.file}:{self.line}"

    def refuse(self, why: str) -> errors.CompileError:
        """The error that says why the construct cannot be compiled."""
        return errors.ControlFlowError("import", why.replace("_disc_returned", "what is returned"), self.source)


def site(file: str, line: int, text: str) -> Site:
    """The place of a construct; ``text`` is its first line."""
    return Site(file, line, text)


def called_from(text: str, code: types.CodeType | None = None) -> Site:
    """Where the user's code is that called something: ``text``; else where ``code`` begins."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users_file(file):
            return Site(file, frame.f_lineno, text)
        frame = frame.f_back
    return Site("<torch>", 0, text) if code is None else Site(code.co_filename, code.co_firstlineno, text)


def is_users_file(file: str) -> bool:
    """Whether a file is neither PyTorch's, Python's nor ours."""
    standard = file.startswith(_STANDARD) and "site-packages" not in file
    return is_user_file(file) and not standard and not file.startswith(PACKAGE)
