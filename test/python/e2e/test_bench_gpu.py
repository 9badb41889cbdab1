"""What bench/gpu.sh does on a machine with a GPU, on libraries for an emulated one."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bench.gpu.run

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.mark.nightly
def test_carried_libraries(tmp_path):
    run("bench.gpu.build", str(tmp_path), "--target", "cuda-emulated:fast", "--only", "chain", "softmax", "gather")
    results = tmp_path / "results.json"
    # Libraries alone: nothing of the compiler is imported.
    printed = run("bench.gpu.run", str(tmp_path), str(results), "--device", "cpu", "--largest", "40")
    assert "softmax      (1, 1)" in printed
    found = json.loads(results.read_text())["models"]
    assert set(found) == {"chain", "softmax", "gather"} and "(1, 31)" in found["chain"]["differences"]
    assert max(d for model in found.values() for d in model["differences"].values()) < 1e-5

    # A model that cannot be run takes no other along.
    (tmp_path / "libsoftmax.so").write_bytes(b"no library")
    flags = ("--device", "cpu", "--largest", "40", "--only", "softmax", "gather")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("bench.gpu.run", str(tmp_path), str(results), *flags)
    assert "wrong: softmax: ended with status 1\n" in failed.value.stderr
    found = json.loads(results.read_text())["models"]
    assert found["softmax"] == {"error": "ended with status 1"} and found["gather"]["differences"]


@pytest.mark.nightly
def test_networks(tmp_path):
    """Libraries without weights: who runs them makes the weights, and they may differ from those of the compilation."""
    names = ["ranker_small", "early_exit_small", "llama_decode_small"]
    run("bench.gpu.build", str(tmp_path), "--target", "cuda-emulated:fast", "--only", *names)
    results = tmp_path / "results.json"
    run("bench.gpu.run", str(tmp_path), str(results), "--device", "cpu", "--shares", "1.5")
    found = json.loads(results.read_text())["models"]
    assert set(found) == set(names) and "(1, 17)" in found["llama_decode_small"]["differences"]

    spec = bench.gpu.run.SPECS["ranker_small"]
    torch.manual_seed(1)
    other = spec.make().eval().requires_grad_(False)
    model = bench.gpu.run.loaded("ranker_small", spec, other, tmp_path)
    assert max(bench.gpu.run.check("ranker_small", spec, model, other, "cpu").values()) < 1e-5
    model.close()


@pytest.mark.nightly
def test_carried_cases(tmp_path):
    """What data decides the extents of comes from the run."""
    file = str(tmp_path / "cases.tar.xz")
    run("bench.gpu.cases", "build", file, "--target", "cuda-emulated:fast", "--only", "data_dependent", "scatters")
    printed = run("bench.gpu.cases", "run", file, "--device", "cpu")
    assert [line.split()[0] for line in printed.splitlines()] == ["data_dependent", "scatters"]


def test_differences():
    def difference(got, wanted):
        return bench.gpu.run.difference([torch.tensor(got)], [torch.tensor(wanted)])

    assert difference([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert difference([math.nan, math.inf, 2.0], [math.nan, math.inf, 3.0]) == pytest.approx(1 / 3)
    assert difference([math.nan], [0.0]) == difference([0.0], [math.nan]) == difference([math.inf], [0.0]) == math.inf
    assert difference([1.0], [[1.0]]) == math.inf
