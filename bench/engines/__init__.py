"""The engines that are compared, one class in one file each.

To add a peer, add a file with a subclass of `Engine` called `Peer`: nothing else lists them.
"""

from __future__ import annotations

import importlib
import pkgutil

from .base import ISAS, NATIVE, Context, Engine, NotSupported

__all__ = ["ISAS", "NATIVE", "Context", "Engine", "NotSupported", "load", "names"]

OURS = "disc"
STATIC = "disc_static"
LIBRARY = "disc_library"
OWN = (OURS, STATIC, LIBRARY)
"""DISC in its several forms; all others are peers."""
REFERENCE = "eager"


def names() -> list[str]:
    """All engines, by the names of their files; ours last."""
    found = {m.name for m in pkgutil.iter_modules(__path__)} - {"base", "exports", *OWN}
    return [*sorted(found), *OWN]


def load(name: str) -> type[Engine]:
    """The engine of that name."""
    if name not in names():
        raise ValueError(f"no engine {name!r}; there are: {', '.join(names())}")
    engine: type[Engine] = importlib.import_module(f"{__name__}.{name}").Peer
    return engine
