"""`import disc` where parts of it cannot be loaded: no torch, no LLVM, nothing built."""

import subprocess
import sys
from pathlib import Path

import pytest

import disc

PYTHON = Path(disc.__file__).resolve().parents[1]

# A module that is blocked is missing, as if it were not installed; `broken` ones raise what a missing library raises.
BLOCK = """
import sys
sys.path.insert(0, {path!r})
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r} or name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        if name in {broken!r}:
            raise ImportError("libLLVM.so.22: cannot open shared object file", name=name)
sys.meta_path.insert(0, Block())
"""


def run(code, missing=("torch", "torch_mlir", "tqdm", "sympy"), broken=("disc._native",), flags=()):
    script = BLOCK.format(path=str(PYTHON), missing=tuple(missing), broken=tuple(broken)) + code
    return subprocess.run([sys.executable, *flags, "-c", script], capture_output=True, text=True)


def message(result):
    assert result.returncode == 1
    return result.stderr.strip().splitlines()[-1]


def test_import_needs_neither_torch_nor_llvm():
    code = (
        "import disc\n"
        "disc.ShapeError, disc.Options(), disc.pipeline.default(), disc.Profile\n"
        "assert 'torch' not in sys.modules and 'compile' in dir(disc)\n"
        "print('imported')"
    )
    result = run(code)
    assert result.stdout == "imported\n", result.stderr


def test_errors_say_what_is_missing():
    text = "ImportError: disc.compile needs disc._native, which cannot be loaded (libLLVM.so.22: cannot open"
    assert message(run("import disc; disc.compile")).startswith(text)
    text = "ImportError: disc.compile needs torch, which is not installed"
    assert message(run("from disc import compile", broken=())) == text
    assert message(run("import disc; disc.lowers", missing=["torch_mlir"])).startswith(
        "ImportError: disc.lowers needs torch_mlir, which is not installed"
    )
    text = "AttributeError: module 'disc' has no attribute 'compiel'"
    assert message(run("import disc; disc.compiel")).startswith(text)


def test_an_error_inside_a_part_is_not_hidden():
    result = run("import disc; disc.compile", missing=["disc.locations", "disc.frontend.locations"], broken=())
    assert "locations" in message(result) and "not installed" not in message(result)


def test_what_is_not_built(tmp_path):
    # The sources of the extension module lie in a folder of its name.
    (tmp_path / "disc/_native").mkdir(parents=True)
    for file in (PYTHON / "disc").glob("*.py"):
        (tmp_path / "disc" / file.name).write_text(file.read_text())
    code = f"sys.path.insert(0, {str(tmp_path)!r}); import disc; disc.compile"
    text = "ImportError: disc.compile needs disc._native, which is not built; run make"
    # Without site-packages: an editable install there would lead back to what is built.
    assert message(run(code, broken=(), flags=["-S"])) == text


@pytest.mark.parametrize("name", disc.__all__)
def test_every_name_is_there(name):
    assert getattr(disc, name) is not None
    assert name in dir(disc)
