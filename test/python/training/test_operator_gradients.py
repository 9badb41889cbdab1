"""Gradients of OpInfo's operators against eager autograd: a part of them in each run, all of them at night."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*arguments: str, timeout: int) -> None:
    """Runs the command that compares gradients; it fails where they disagree with ``failing_gradients.txt``."""
    process = subprocess.run(
        [sys.executable, "-m", "opinfo.gradients", *arguments],
        cwd=ROOT / "test/python",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-4000:]


@pytest.mark.slow
def test_gradients_of_some_operators():
    run("--quick", "--samples", "1", timeout=900)


@pytest.mark.nightly
def test_gradients_of_all_operators():
    run(timeout=3 * 3600)
