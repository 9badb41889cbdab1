"""Where compiled models are cached between compilations.

An entry is found by the input IR of a model, the machine it is for and the passes. It has the machine code, and the IR
after each stage, but no weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import __version__, _native
from .options import Options
from .pipeline import Pipeline

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


@dataclass(frozen=True)
class Entry:
    """Where one compiled model is in the cache, or will be."""

    folder: str
    limit: int
    key: str

    def find(self) -> tuple[dict[str, str], list[bytes]] | None:
        """The IR after each stage, and the objects; None if the cache does not have them."""
        contents = _native.find_cached(self.folder, self.limit, self.key)
        if contents is None:
            return None
        texts, *objects = contents
        return json.loads(zlib.decompress(texts)), objects

    def store(self, texts: Mapping[str, str], objects: Sequence[bytes]) -> None:
        """Adds a compiled model; nothing happens if the folder cannot be written."""
        packed = zlib.compress(json.dumps(texts).encode(), 3)
        _native.store_cached(self.folder, self.limit, self.key, [packed, *objects])


def entry(options: Options, pipeline: Pipeline, text: str) -> Entry | None:
    """The entry of a model whose input IR is ``text``, its target included; None if it is not to be cached as a whole.

    What is made for a GPU depends on programs outside of DISC.
    """
    where = folder(options.code_cache)
    if not where or options.dump_ir is not None or options.stop_after is not None or pipeline.target != "cpu":
        return None
    # The passes are the same as long as the file that has them is.
    native = os.stat(_native.__file__)
    parts = [__version__, str(native.st_size), str(native.st_mtime_ns), str(options.opt_level)]
    parts += [f"{stage.name}: {stage.text}" for stage in pipeline]
    digest = hashlib.sha256()
    for part in (*parts, text):
        data = part.encode()
        # Sizes keep ("a", "bc") apart from ("ab", "c").
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return Entry(where, options.code_cache_limit, digest.hexdigest())
