"""torch.compile in new processes, where the order of imports and what is printed at exit matter."""

import os
import subprocess
import sys

import pytest

FIRST = {
    "disc before PyTorch's compiler": """
import sys, torch, disc, functorch.compile
assert "disc.frontend" not in sys.modules
""",
    "the back end alone": "import torch",
}
PROGRAM = """
def call(x):
    return torch.relu(x) + 1

x = torch.randn(3)
compiled = torch.compile(call, backend="disc", options={"fallback": "error"})
assert torch.equal(compiled(x), call(x))
import torch._export.serde.serialize
assert torch.ops.disc.lstm and not hasattr(torch.ops.disc, "unknown")
"""


@pytest.mark.parametrize("first", FIRST)
def test_nothing_is_printed(first, tmp_path):
    command = [sys.executable, "-c", FIRST[first] + PROGRAM]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
