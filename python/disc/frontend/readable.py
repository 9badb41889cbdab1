"""Conditions of ``torch.export`` on sizes, as users write them: ``x.shape[0] % 2 == 0``."""

from __future__ import annotations

import re

_PLACE = re.compile(r"L\[([\"'])(\w+)\1\]")
_SIZE = re.compile(r"\.size\(\)\[(\d+)\]")
_REMAINDER = re.compile(r"Mod\(([^(),]+), (\d+)\)")
_RELATIONS = {"Eq": "==", "Ne": "!="}


def readable(condition: str) -> str:
    """A condition in Python's notation, on the arguments' shapes."""
    text = _SIZE.sub(r".shape[\1]", _PLACE.sub(r"\2", condition))
    text = _REMAINDER.sub(r"\1 % \2", text).replace("IntInfinity()", "∞")
    text = re.sub(r"\b(Min|Max)\(", lambda match: match[0].lower(), text)
    text = re.sub(r" and (\S+) <= ∞$", "", text)
    for function, sign in _RELATIONS.items():
        parts = _arguments(text, function)
        if len(parts) == 2:
            return f"{parts[0]} {sign} {parts[1]}"
    return text


def _arguments(text: str, function: str) -> list[str]:
    """The arguments of a call that is the whole text; none if it is something else."""
    if not text.startswith(f"{function}(") or not text.endswith(")"):
        return []
    parts, depth, start = [], 0, len(function) + 1
    for i, c in enumerate(text[start:-1], start):
        depth += (c in "([") - (c in ")]")
        if depth < 0:
            return []
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:-1].strip()]


def short(source: str) -> str:
    """A line of an installed package without the folder of packages: ``transformers/cache_utils.py:84``."""
    return source.rpartition("site-packages/")[2]


def requirement(source: str, condition: str) -> str:
    """``model.py:12 needs x.shape[0] % 2 == 0``."""
    return f"{short(source)} needs {readable(condition)}"
