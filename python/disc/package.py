"""An installed library: what a C or C++ project finds with CMake or pkg-config."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import ArgumentValueError
from .header import c_identifier

# The libraries that the runtime inside an archive needs; a shared library names its own.
_STATIC_LIBS = ("stdc++", "m", "pthread", "dl")


def disc_header() -> Path:
    """``disc.h``, the C interface of every library; FileNotFoundError if disc was not built."""
    path = Path(__file__).parent / "include" / "disc.h"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: run make to build disc")
    return path


def install_library(
    prefix: str | os.PathLike[str],
    *,
    name: str,
    library: str | os.PathLike[str],
    header: str,
    version: str,
    weights: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Installs a compiled library, so that other projects find it::

        PREFIX/lib/libNAME.so (or .a)                   and the file of weights beside it
        PREFIX/include/disc.h, NAME.h
        PREFIX/lib/cmake/NAME/                          find_package(NAME), target NAME::NAME
        PREFIX/lib/pkgconfig/NAME.pc                    pkg-config NAME

    No file contains an absolute path: the prefix may be moved. Each file is replaced as a whole, so that a process that
    has the old library open continues to use it. The library's soname must be ``libNAME.so``.

    Args:
        prefix: the folder to install to; created if it does not exist.
        name: the library's name in C, as :func:`disc.header.c_identifier` returns it.
        library: the file that was linked, ``.so`` or ``.a``.
        header: the text of ``NAME.h``.
        version: the library's version, ``"1.2.3"``.
        weights: the file of weights, if it is not in the library; it keeps its name, which the library knows.

    Returns:
        The files that were written.
    """
    if name != c_identifier(name):
        raise ArgumentValueError(f"{name!r} cannot name a library; {c_identifier(name)!r} can")
    if not re.fullmatch(r"\d+(\.\d+){0,3}", version):
        raise ArgumentValueError(f"version: expected numbers separated by points, got {version!r}")
    library = Path(library)
    if library.suffix not in (".so", ".a"):
        raise ArgumentValueError(f"{library}: only shared libraries (.so) and archives (.a) can be installed")
    static = library.suffix == ".a"
    root = Path(prefix)
    file = f"lib{name}{library.suffix}"
    written = [_copy(library, root / "lib" / file)]
    if weights is not None:
        written.append(_copy(Path(weights), root / "lib" / Path(weights).name))
    written += [
        _install_disc_header(root / "include" / "disc.h"),
        _write(root / "include" / f"{name}.h", header),
        # CMake looks for the name in lower case.
        _write(root / f"lib/cmake/{name}/{name.lower()}-config.cmake", _cmake_config(name, file, static)),
        _write(root / f"lib/cmake/{name}/{name.lower()}-config-version.cmake", _cmake_version(version)),
        _write(root / f"lib/pkgconfig/{name}.pc", _pkg_config(name, version, static)),
    ]
    return written


def _cmake_config(name: str, file: str, static: bool) -> str:
    # By file, not by find_package(Threads): that needs C or C++ to be enabled already.
    libs = f'\n    INTERFACE_LINK_LIBRARIES "{";".join(_STATIC_LIBS)}"' if static else ""
    return f"""\
# find_package({name}) defines the target {name}::{name}.
if(NOT TARGET {name}::{name})
  get_filename_component(_{name}_prefix "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
  add_library({name}::{name} {"STATIC" if static else "SHARED"} IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_LOCATION "${{_{name}_prefix}}/lib/{file}"
    INTERFACE_INCLUDE_DIRECTORIES "${{_{name}_prefix}}/include"{libs})
  unset(_{name}_prefix)
endif()
"""


def _cmake_version(version: str) -> str:
    return f"""\
# Versions of one major number are compatible, those that begin with 0 if they have one minor number.
set(PACKAGE_VERSION "{version}")
string(REGEX MATCH "^(0[.][0-9]+|[1-9][0-9]*)" _have "${{PACKAGE_VERSION}}")
string(REGEX MATCH "^(0[.][0-9]+|[1-9][0-9]*)" _want "${{PACKAGE_FIND_VERSION}}")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
elseif(PACKAGE_FIND_VERSION VERSION_LESS PACKAGE_VERSION AND
       (_have STREQUAL _want OR PACKAGE_FIND_VERSION STREQUAL "0"))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
unset(_have)
unset(_want)
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
"""


def _pkg_config(name: str, version: str, static: bool) -> str:
    libs = "".join(f" -l{lib}" for lib in _STATIC_LIBS) if static else ""
    return f"""\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: {name}
Description: A model compiled by DISC
Version: {version}
Libs: -L${{libdir}} -l{name}{libs}
Cflags: -I${{includedir}}
"""


def _install_disc_header(target: Path) -> Path:
    """Copies disc.h, unless a library by a later version of disc installed its own, which is compatible."""
    source = disc_header()
    if target.is_file() and _header_version(target) > _header_version(source):
        return target
    return _copy(source, target)


def _header_version(path: Path) -> tuple[int, ...]:
    text = path.read_text(encoding="utf-8", errors="replace")
    found = (re.search(rf"^#define DISC_VERSION_{part} (\d+)", text, re.M) for part in ("MAJOR", "MINOR", "PATCH"))
    return tuple(int(match[1]) if match else 0 for match in found)


def _copy(source: Path, target: Path) -> Path:
    if target.exists() and target.samefile(source):
        return target
    with _replaced(target) as file, open(source, "rb") as content:
        shutil.copyfileobj(content, file, 1 << 20)
    return target


def _write(target: Path, text: str) -> Path:
    with _replaced(target) as file:
        file.write(text.encode())
    return target


@contextmanager
def _replaced(target: Path) -> Iterator[BinaryIO]:
    """A new file, which takes the target's place when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(path, 0o755 if target.suffix == ".so" else 0o644)
        os.replace(path, target)
    except BaseException:
        os.unlink(path)
        raise
