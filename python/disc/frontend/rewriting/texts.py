"""Names with a number that is known at run time only, as f"expert_{n}"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .conditions import constant_of
from .dynamic import is_dynamic


class Numbered:
    """A text with one number in it."""

    def __init__(self, before: str, number: Any, after: str) -> None:
        """``before`` and ``after``: the text around the number."""
        self._before, self.number, self._after = before, number, after

    def number_in(self, text: Any) -> int | None:
        """The number for which it is this text; None if there is no such number."""
        if not isinstance(text, str) or not (text.startswith(self._before) and text.endswith(self._after)):
            return None
        digits = text[len(self._before) : len(text) - len(self._after)]
        plain = digits.removeprefix("-")
        return int(digits) if plain.isdecimal() and str(int(digits)) == digits else None


def name(*parts: Any) -> str | Numbered:
    """An f-string that is a key or the name of an attribute: its texts, and tuples of one value each."""
    before = after = ""
    number: Any = None
    for part in parts:
        value = part[0] if isinstance(part, tuple) else part
        if isinstance(value, Tensor) and value.dim() == 0 and constant_of(value) is None:
            value = value.item()
        if not isinstance(value, torch.SymInt) or not is_dynamic(value):
            text = format(value)
            before, after = (before + text, after) if number is None else (before, after + text)
        elif number is None:
            number = value
        else:
            raise NotImplementedError("a name that contains several numbers known at run time only")
    return before if number is None else Numbered(before, number, after)
