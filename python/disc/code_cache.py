"""Where compiled code is cached between compilations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

VARIABLE = "DISC_CODE_CACHE"
"""The environment variable that names the folder where the options do not; empty means no cache."""


def folder(option: str | os.PathLike[str] | Literal[False] | None) -> str:
    """The folder for ``Options.code_cache``; "" means no cache."""
    if option is False:
        return ""
    if option is not None:
        return os.path.abspath(os.fspath(option))
    if VARIABLE in os.environ:
        return os.path.abspath(os.environ[VARIABLE]) if os.environ[VARIABLE] else ""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    return os.path.join(caches, "disc", "code")
