"""The forms in which a back end hands over its code for a region, and their tables of functions."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackendError
from .graph import Dim, Value


@dataclass(frozen=True, kw_only=True)
class Code:
    """What all forms have in common."""

    constants: Sequence[Value] = ()
    """Parameters among the region's inputs that ``init`` gets once, when the model is loaded, and ``run`` does not."""
    numbers: Sequence[Dim] | None = None
    """Extents and expressions whose values ``run`` gets as int64; None means all symbols of the region's shapes."""
    description: str | None = None
    """The text that ``init`` gets of the region; None means the operations as JSON (:meth:`Region.describe`)."""


@dataclass(frozen=True, kw_only=True)
class SourceCode(Code):
    """C or C++ that defines ``const disc_backend_table DISC_REGION`` (``disc_backend.h``); clang or gcc compiles it."""

    text: str
    language: str = "c"
    """``"c"`` or ``"c++"``."""
    flags: Sequence[str] = ()
    """More options for the compiler."""
    libraries: Sequence[str] = ()
    """Shared libraries that it needs: paths, or names as for ``-l``."""


@dataclass(frozen=True, kw_only=True)
class ObjectFile(Code):
    """A relocatable object, compiled with ``-fPIC``, that defines the table under the name ``symbol``."""

    path: str | os.PathLike[str]
    symbol: str
    libraries: Sequence[str] = ()
    """Shared libraries that it needs: paths, or names as for ``-l``."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary(Code):
    """A shared library that exports the table under the name ``symbol``. Libraries that are compiled ahead of time need
    it at run time, under its own name."""

    path: str | os.PathLike[str]
    symbol: str


@dataclass(frozen=True, kw_only=True)
class PythonFunction(Code):
    """For prototypes: a function of this process. It gets the inputs as tensors that share the host's memory (they have
    ``__dlpack__``), then as ints the ``numbers`` that it asks for, and returns a tensor or a tuple of them. Not for
    libraries."""

    function: Callable[..., Any]


@dataclass(frozen=True)
class Linkable:
    """Code with its table: for this process at an address, for a library in files."""

    symbol: str
    address: int = 0
    owner: Any = None
    """Keeps the code alive."""
    objects: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


_loaded: dict[str, Linkable] = {}
"""Source code that this process has compiled and loaded, by the symbol of its table: it is compiled once."""


class Builder:
    """Makes of code what can be linked."""

    def __init__(self, *, ahead_of_time: bool, cpu: str = "native", machine: str = "") -> None:
        """``machine``: the triple of another machine that the code is for."""
        self._ahead, self._cpu, self._machine = ahead_of_time, cpu, machine
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._made: dict[str, Linkable] = {}

    def build(self, code: Code, region: Any) -> Linkable:
        """The code of a region, with its table."""
        if isinstance(code, SourceCode):
            return self._source(code, region.backend)
        if isinstance(code, ObjectFile):
            return self._object(code, region.backend)
        if isinstance(code, SharedLibrary):
            path = os.fspath(code.path)
            if self._ahead:
                return Linkable(code.symbol, libraries=(_library_file(path, region.backend),))
            return _load(path, code.symbol, region.backend)
        if isinstance(code, PythonFunction):
            if self._ahead:
                raise _error(region.backend, "a Python function cannot be a part of a library")
            from .python_function import table

            return table(code.function, region)
        raise _error(region.backend, f"compile() must return a Code, got {type(code).__name__}")

    def folder(self) -> Path:
        """A folder for files, as long as this object."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="disc-backends-")
        return Path(self._folder.name)

    def _source(self, code: SourceCode, backend: str) -> Linkable:
        key = "\0".join([code.text, code.language, *code.flags, *code.libraries, self._cpu, self._machine])
        name = f"disc_region_{hashlib.sha256(key.encode()).hexdigest()[:20]}"
        known = self._made if self._ahead else _loaded
        if name in known:
            return known[name]
        if code.language not in ("c", "c++"):
            raise _error(backend, f"language must be 'c' or 'c++', got {code.language!r}")
        source = self.folder() / f"{name}.{'c' if code.language == 'c' else 'cpp'}"
        source.write_text(code.text, encoding="utf-8")
        include = Path(__file__).parent.parent / "include"
        command = [
            *_compiler(code.language, backend),
            *([f"--target={self._machine}"] if self._machine else []),
            *([] if self._machine and self._cpu == "native" else [f"-march={self._cpu}"]),
            "-O3",
            "-fPIC",
            f"-DDISC_REGION={name}",
            f"-I{include}",
            *code.flags,
            str(source),
        ]
        libraries = [_library_flag(library) for library in code.libraries]
        if self._ahead:
            output = self.folder() / f"{name}.o"
            _run([*command, "-c", "-o", str(output)], backend)
            files = tuple(_library_file(library, backend) for library in code.libraries)
            made = Linkable(name, owner=self._folder, objects=(str(output),), libraries=files)
        else:
            output = self.folder() / f"{name}.so"
            _run([*command, "-shared", "-o", str(output), *libraries], backend)
            made = _load(str(output), name, backend, owner=self._folder)
        known[name] = made
        return made

    def _object(self, code: ObjectFile, backend: str) -> Linkable:
        path = os.fspath(code.path)
        if not os.path.isfile(path):
            raise _error(backend, f"the object file {path} is missing")
        if self._ahead:
            files = tuple(_library_file(library, backend) for library in code.libraries)
            return Linkable(code.symbol, objects=(path,), libraries=files)
        output = self.folder() / f"{hashlib.sha256(Path(path).read_bytes()).hexdigest()[:20]}.so"
        if not output.exists():
            libraries = [_library_flag(library) for library in code.libraries]
            _run([*_compiler("c++", backend), "-shared", "-o", str(output), path, *libraries], backend)
        return _load(str(output), code.symbol, backend, owner=self._folder)


def _error(backend: str, text: str) -> BackendError:
    return BackendError(f"back end {backend!r}: {text}", backend=backend)


def _compiler(language: str, backend: str) -> list[str]:
    names = ("clang-22", "clang", "gcc", "cc") if language == "c" else ("clang++-22", "clang++", "g++", "c++")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        raise _error(
            backend,
            f"it generates {language.upper()} code, and there is no compiler: install one of {', '.join(names)}",
        )
    return [found]


def _run(command: Sequence[str], backend: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise _error(backend, f"its code does not compile: {' '.join(command)}\n{done.stderr.strip()[:4000]}")


def _library_flag(library: str) -> str:
    return library if os.sep in library else f"-l{library}"


@functools.lru_cache(maxsize=64)
def _library_file(library: str, backend: str) -> str:
    """The file of a library that is named as for ``-l``, for the linker that makes libraries."""
    if os.sep in library:
        if not os.path.isfile(library):
            raise _error(backend, f"the library {library} is missing")
        return library
    compiler = _compiler("c", backend)
    found = subprocess.run(
        [*compiler, f"-print-file-name=lib{library}.so"], capture_output=True, text=True
    ).stdout.strip()
    if os.sep not in found:
        raise _error(backend, f"lib{library}.so is missing")
    return os.path.realpath(found)


def _load(path: str, symbol: str, backend: str, owner: Any = None) -> Linkable:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise _error(backend, f"its library cannot be loaded: {error}") from None
    try:
        table = ctypes.c_char.in_dll(library, symbol)
    except ValueError:
        raise _error(
            backend,
            f"{os.path.basename(path)} does not define {symbol}; the code must contain"
            " 'const disc_backend_table DISC_REGION = {...}' (disc_backend.h)",
        ) from None
    # The process keeps libraries loaded: a model may outlive everything here.
    unique = f"{symbol}_{ctypes.addressof(table):x}"
    return Linkable(unique, ctypes.addressof(table), (library, owner))
