"""Numbers of bytes as people write them."""

from __future__ import annotations

import re

from .errors import ArgumentTypeError, ArgumentValueError

_UNITS = {"": 1, "b": 1}
_UNITS.update({prefix + suffix: 1000 ** (n + 1) for n, prefix in enumerate("kmgt") for suffix in ("", "b")})
_UNITS.update({prefix + suffix: 1024 ** (n + 1) for n, prefix in enumerate("kmgt") for suffix in ("i", "ib")})


def parse_bytes(text: int | str, what: str = "memory_budget") -> int:
    """A number of bytes: an int, or text such as ``"512MiB"``, ``"1.5 GB"`` or ``"4096"``.

    Raises ArgumentTypeError or ArgumentValueError, which begin with ``what``, for anything else and for less than 1.
    """
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise ArgumentTypeError(f"{what}: expected a number of bytes or text such as '512MiB', got {text!r}")
    if isinstance(text, int):
        count = text
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([a-z]*)\s*", text.lower())
        if match is None or match[2] not in _UNITS:
            raise ArgumentValueError(f"{what}: expected a number of bytes or text such as '512MiB', got {text!r}")
        count = int(float(match[1]) * _UNITS[match[2]])
    if not 1 <= count < 1 << 63:
        raise ArgumentValueError(f"{what}: expected at least one byte, got {text!r}")
    return count
