"""PyTorch's OpInfo database: what CI runs of it. All of it: ``python -m opinfo`` in test/python."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_opinfo_agrees_with_the_list():
    run = subprocess.run(
        [sys.executable, "-m", "opinfo", "--quick"],
        cwd=ROOT / "test/python",
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
