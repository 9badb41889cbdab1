"""Packages of back ends (examples/backends), installed with pip where the tests of one session find them."""

import importlib
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "backends"


def install(name, folder):
    """Installs an example into a folder that becomes a part of sys.path, so that its entry point is found."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", folder]
    # setuptools writes its build folder beside the sources: they are copied.
    source = Path(folder).with_name(f"{name}-source")
    copied = subprocess.run(["cp", "-r", EXAMPLES / name, source], capture_output=True, text=True)
    assert copied.returncode == 0, copied.stderr
    done = subprocess.run([*command, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
