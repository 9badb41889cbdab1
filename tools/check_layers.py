#!/usr/bin/env python3
"""Holds the tree to its import order: a folder may only use folders to its left.

The order is that of docs/architecture.md. C++ `#include "..."` lines and Python imports are read as text, so this
needs no build. Prints one line per violation and exits with 1 when there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# Left to right. Layers with the same rank are siblings, which do not see each other.
LAYERS: list[tuple[str, ...]] = [
    ("lib/Runtime",),
    ("dialects",),
    ("lib/Transforms/Support",),
    ("lib/Transforms/Shape",),
    ("lib/Transforms/Library",),
    ("lib/Transforms/Fusion",),
    ("lib/Transforms/Schedule",),
    ("lib/Transforms/Memory",),
    ("lib/Target/Common",),
    (
        "lib/Target/Host",
        "lib/Target/CPU",
        "lib/Target/GPU",
        "lib/Target/NVVM",
        "lib/Target/ROCDL",
        "lib/Target/Emulation",
        "lib/Target/Null",
    ),
    ("lib/Target/Driver",),
    ("python/disc/torch_compat",),
    ("python/disc",),
    # The ends of the tree: nothing in it may depend on them, and they may use everything.
    ("tools", "test", "bench", "examples"),
]
RANK = {folder: rank for rank, folders in enumerate(LAYERS) for folder in folders}
ROOTS = tuple(sorted({folder.split("/")[0] for folder in RANK}))

# The runtime ships inside compiled libraries: no compiler, no framework, no interpreter.
RUNTIME_FORBIDDEN = re.compile(r"(mlir|mlir-c|llvm|llvm-c|lld|clang|torch|ATen|c10|pybind11|nanobind)/|Python\.h")

CPP_SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".c", ".td", ".inc"}
INCLUDE = re.compile(r'^[ \t]*#?[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


class Violation(NamedTuple):
    """One forbidden import."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        """Formatted as compilers do, so that editors can jump to it."""
        return f"{self.file}:{self.line}: {self.message}"


def layer_of(path: str) -> str | None:
    """The layer that a path relative to the root belongs to (the longest matching prefix)."""
    matches = [folder for folder in RANK if path == folder or path.startswith(folder + "/")]
    return max(matches, key=len, default=None)


def allowed(importer: str, imported: str) -> bool:
    """Whether layer `importer` may use layer `imported`."""
    if importer == imported:
        return True
    if RANK[importer] == len(LAYERS) - 1:
        return imported in ("tools", "examples") or RANK[imported] < RANK[importer]
    return RANK[imported] < RANK[importer]


def check_cpp(file: str, text: str) -> Iterator[Violation]:
    """Violations among the includes of one C++ or TableGen file."""
    layer = layer_of(file)
    assert layer is not None
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        quote, included = match.groups()
        if layer == "lib/Runtime" and RUNTIME_FORBIDDEN.match(included):
            yield Violation(file, line, f"lib/Runtime may not include <{included}>")
            continue
        if quote != '"' or not included.startswith(tuple(r + "/" for r in ROOTS)):
            if included.startswith(".."):
                yield Violation(file, line, f'"{included}": include from the root of the repository, not by ..')
            continue
        target = layer_of(included)
        if target is None:
            yield Violation(file, line, f'"{included}" lies in no layer')
        elif not allowed(layer, target):
            yield Violation(file, line, f'{layer} may not include {target} ("{included}")')


def python_imports(file: str, text: str) -> Iterator[tuple[int, str]]:
    """Absolute module names imported by one Python file, with their lines; relative imports resolved."""
    package = file.removeprefix("python/").rsplit("/", 1)[0].split("/")
    for node in ast.walk(ast.parse(text, file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])


def check_python(file: str, text: str, root_modules: Iterable[str]) -> Iterator[Violation]:
    """Violations among the imports of one Python file: the package may not use what stands to its right."""
    layer = layer_of(file)
    if layer not in ("python/disc/torch_compat", "python/disc"):
        return
    for line, module in python_imports(file, text):
        top = module.split(".")[0]
        imported = layer_of(f"python/{module.replace('.', '/')}")
        if top in root_modules or (imported is not None and not allowed(layer, imported)):
            yield Violation(file, line, f"{layer} may not import {module}")


def root_modules(root: Path) -> set[str]:
    """Names importable from the folders to the right of python/disc."""
    names = {"tools", "test", "bench", "examples"}
    for folder in ("tools", "examples", "bench", "test/python"):
        names |= {path.stem for path in (root / folder).glob("*.py")}
    return names - {"__init__", "conftest"}


def check_tree(root: Path) -> list[Violation]:
    """All violations in the tree at `root`."""
    violations: list[Violation] = []
    modules = root_modules(root)
    for top in ROOTS:
        for path in sorted((root / top).rglob("*")):
            file = path.relative_to(root).as_posix()
            if path.suffix not in CPP_SUFFIXES | {".py"} or layer_of(file) is None:
                continue
            text = path.read_text(encoding="utf-8")
            violations += check_python(file, text, modules) if path.suffix == ".py" else check_cpp(file, text)
    return violations


def main() -> int:
    """Checks the tree that this file is in, or the one given as argument."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    violations = check_tree(root)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
