"""Torch's names for sizes, such as ``s77``, in the texts of errors: the user's names take their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .dim_hints import name_of
from .hints import spec_of

_SYMBOL = re.compile(r"\bs\d+\b")


def names_of_places(names: Sequence[str], specs: Sequence[Any]) -> dict[str, str]:
    """The user's name of each dim that has one, by its place: ``batch`` for ``x.shape[0]``.

    ``names`` and ``specs`` are of the leaves of the arguments.
    """
    found = {}
    for name, spec in zip(names, specs, strict=False):
        dims = spec if isinstance(spec, Mapping) else range(len(spec)) if isinstance(spec, (list, tuple)) else ()
        for dim in dims:
            said = spec_of(spec, dim)
            # Of 2 * batch the root has the name.
            if (own := name_of(said)) is not None and not hasattr(said, "root"):
                found[f"{name}.shape[{dim}]"] = own
    return found


def with_places(text: str, places: Mapping[str, str], names: Mapping[str, str]) -> str:
    """``text`` with names of dims, or else places in the arguments, in the place of torch's symbols."""

    def place(match: re.Match[str]) -> str:
        found = places.get(match[0])
        return match[0] if found is None else names.get(found, found)

    return _SYMBOL.sub(place, text)
