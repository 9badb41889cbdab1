"""tools/check_layers.py: what it accepts, what it refuses, and that the tree obeys."""

from pathlib import Path

import pytest

import check_layers

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("file", "line", "ok"),
    [
        ("lib/Transforms/Fusion/A.cpp", '#include "lib/Transforms/Support/ShapeAnalysis.h"', True),
        ("lib/Transforms/Fusion/A.cpp", '#include "lib/Transforms/Fusion/Passes.h.inc"', True),
        ("lib/Transforms/Fusion/A.cpp", '#include "lib/Transforms/Schedule/Schedules.h"', False),
        ("lib/Target/CPU/A.cpp", '#include "lib/Target/Common/B.h"', True),
        ("lib/Target/CPU/A.cpp", '#include "lib/Target/Host/B.h"', False),
        ("lib/Target/CPU/A.cpp", '#include "lib/Target/Driver/Driver.h"', False),
        ("lib/Target/Driver/A.cpp", '#include "lib/Runtime/Core/Abi.h"', True),
        ("lib/Target/Driver/A.cpp", '#  include "lib/Target/CPU/B.h"', True),
        ("lib/Target/Driver/A.cpp", '#include "lib/Elsewhere/B.h"', False),
        ("lib/Runtime/Core/A.cpp", '#include "dialects/Shape/SymExpr.h"', False),
        ("lib/Runtime/Core/A.cpp", '#include "llvm/ADT/StringRef.h"', False),
        ("lib/Runtime/Core/A.cpp", "#include <Python.h>", False),
        ("lib/Runtime/Core/A.cpp", "#include <vector>", True),
        ("dialects/Plan/Plan.td", 'include "dialects/Shape/Shape.td"', True),
        ("dialects/Plan/Plan.td", 'include "mlir/IR/OpBase.td"', True),
        ("dialects/Plan/A.cpp", '#include "lib/Transforms/Support/ShapeAnalysis.h"', False),
        ("lib/Transforms/Shape/A.cpp", '#include "../Support/ShapeAnalysis.h"', False),
        ("python/disc/_native/A.cpp", '#include "lib/Target/Driver/Jit.h"', True),
        ("tools/disc-opt/A.cpp", '#include "lib/Target/Driver/Driver.h"', True),
    ],
)
def test_cpp_include(file, line, ok):
    violations = list(check_layers.check_cpp(file, "// first\n" + line + "\n"))
    assert [v.line for v in violations] == ([] if ok else [2])


@pytest.mark.parametrize(
    ("file", "line", "ok"),
    [
        ("python/disc/compiler.py", "from . import pipeline", True),
        ("python/disc/frontend/rules.py", "from ..errors import CompileError", True),
        ("python/disc/compiler.py", "import torch, examples.minilm", False),
        ("python/disc/compiler.py", "from check_layers import main", False),
        ("python/disc/frontend/hooks.py", "from ..torch_compat import patches", True),
        ("python/disc/torch_compat/lasting.py", "from .patching import Patch", True),
        ("python/disc/torch_compat/lasting.py", "from ..errors import CompileError", False),
        ("python/disc/torch_compat/lasting.py", "from disc import frontend", False),
        ("examples/minilm.py", "import disc", True),
        ("tools/x.py", "import disc", True),
    ],
)
def test_python_import(file, line, ok):
    violations = list(check_layers.check_python(file, line, {"examples", "check_layers"}))
    assert bool(violations) != ok


def test_relative_imports_resolve_to_absolute_names():
    text = "from ..errors import A\nfrom . import b\nimport c.d\n"
    found = list(check_layers.python_imports("python/disc/frontend/rules.py", text))
    assert found == [(1, "disc.errors"), (2, "disc.frontend"), (3, "c.d")]


def test_the_tree_obeys():
    assert [str(v) for v in check_layers.check_tree(ROOT)] == []
