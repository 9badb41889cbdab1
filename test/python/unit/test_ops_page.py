"""docs/ops.md is what the lowering rules and OpInfo's lists say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_page_is_fresh():
    run = subprocess.run(
        [sys.executable, ROOT / "tools/gen_ops.py", "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
