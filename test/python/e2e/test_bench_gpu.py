"""What bench/gpu.sh does on a machine with a GPU, on libraries for an emulated one."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_carried_libraries(tmp_path):
    run("bench.gpu.build", str(tmp_path), "--target", "cuda-emulated:fast", "--only", "chain", "softmax", "gather")
    results = tmp_path / "results.json"
    # Libraries alone: nothing of the compiler is imported.
    printed = run("bench.gpu.run", str(tmp_path), str(results), "--device", "cpu", "--largest", "40")
    assert "softmax      (1, 1)" in printed
    found = json.loads(results.read_text())["differences"]
    assert set(found) == {"chain", "softmax", "gather"} and "(1, 31)" in found["chain"]
    assert max(d for shapes in found.values() for d in shapes.values()) < 1e-5
