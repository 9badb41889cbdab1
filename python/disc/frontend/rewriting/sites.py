"""Where a construct stands in the user's code, for messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ... import errors

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

    @property
    def source(self) -> str:
        """As errors name it."""
        return f"{self.file}:{self.line}"

    def refuse(self, why: str) -> errors.CompileError:
        """The error that says why the construct cannot be compiled."""
        return errors.CompileError("import", why.replace("_disc_returned", "what is returned"), self.source)


def site(file: str, line: int, text: str) -> Site:
    """The place of a construct; ``text`` is its first line."""
    return Site(file, line, text)
