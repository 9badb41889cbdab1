"""PyTorch's structured trace: what tlparse makes of the artifacts of compilations."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch
import disc

@torch.library.custom_op("trace::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

twice.register_autograd(lambda context, gradient: gradient * 2)

class Rows(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)[: x.shape[0] - 1]

class Custom(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(twice(self.linear(x)) + 1)

def main():
    rows = torch.export.Dim("rows", min=2, max=64)
    disc.compile(Rows(), (torch.randn(5, 8),), dynamic_shapes=({0: rows},))
    try:
        disc.compile(Custom(), (torch.randn(3, 8),))
    except disc.UnsupportedOpError:
        pass
    disc.compile(Custom(), (torch.randn(3, 8),), fallback=True)
    torch.compile(Custom(), backend="disc", dynamic=True)(torch.randn(3, 8)).sum().backward()

main()
"""
STAGES = ("import", "shape", "library", "fusion", "schedule", "memory", "codegen")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trace")


@pytest.fixture(scope="module")
def report(folder):
    """The files of tlparse's report by compile id, ``0/0``, then by the name of the artifact."""
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "TORCH_TRACE": str(folder / "trace"), "DISC_CODE_CACHE": ""}
    subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment, check=True, capture_output=True)
    (log,) = (folder / "trace").glob("*.log")
    tlparse = shutil.which("tlparse", path=Path(sys.executable).parent)
    assert tlparse, "requirements-dev.txt has it"
    command = [tlparse, str(log), "-o", str(folder / "report"), "--no-browser", "--strict-compile-id"]
    subprocess.run(command, check=True, capture_output=True)
    found = {}
    for path in (folder / "report").glob("-_*/*"):
        compile_id = path.parent.name.removeprefix("-_").rpartition("_")[0].replace("_", "/")
        found.setdefault(compile_id, {})[re.sub(r"_\d+$", "", path.stem)] = path
    return found


def test_a_compilation_outside_of_torch_compile_is_an_entry_of_its_own(report):
    files = report["0/0"]
    assert {f"disc_ir_{stage}" for stage in STAGES} <= files.keys()
    assert "disc_plan.kernel" in files["disc_ir_fusion"].read_text()
    assert json.loads(files["disc_symbols"].read_text()) == [
        {"data_dependent": False, "max": 64, "min": 2, "name": "rows"}
    ]
    timings = json.loads(files["disc_timings"].read_text())
    assert {*STAGES, "emit", "load"} == timings["seconds"].keys()
    assert timings["model"] == "Rows" and timings["from the code cache"] is False
    assert isinstance(json.loads(files["disc_guards"].read_text()), list)
    assert "compilation_metrics" in files


def test_an_error_is_in_the_report(report):
    files = report["1/0"]
    error = json.loads(files["disc_error"].read_text())
    assert error["code"] == "DISC0003" and error["type"] == "UnsupportedOpError" and error["stage"] == "import"
    assert [op["op"] for op in error["operations"]] == ["torch.trace.twice"]
    assert re.search(r"script\.py:\d+", error["operations"][0]["source"])
    assert "UnsupportedOpError" in files["compilation_metrics"].read_text()


def test_what_pytorch_runs_is_in_the_report(report):
    (fallback,) = json.loads(report["2/0"]["disc_fallbacks"].read_text())
    assert fallback["op"] == "trace::twice" and "script.py:" in fallback["source"]


def test_graphs_of_torch_compile_are_in_dynamos_entry(report):
    files = report["3/0"]
    assert "dynamo_output_graph" in files
    forward = json.loads(files["disc_forward_graph_report"].read_text())
    assert forward["parts"] == 2
    assert [f["op"] for f in forward["fallbacks"]] == ["trace.twice.default"]
    # Each part of a graph has names of its own.
    shapes = sorted(name for name in files if name.endswith("_ir_shape"))
    assert len(shapes) == 3 and shapes[0].startswith("disc_backward_graph") and "disc_forward_graph" in shapes[1]
    for name in shapes:
        assert {name.replace("ir_shape", f"ir_{stage}") for stage in STAGES} <= files.keys()


def test_stages_are_in_the_timeline(report, folder):
    events = json.loads((folder / "report/chromium_events.json").read_text())
    steps = {(e["name"], e["args"]["compile_id"]) for e in events if e["name"].startswith("disc_")}
    assert {(f"disc_{stage}", "0/0") for stage in (*STAGES, "emit", "load")} <= steps
    assert ("disc_codegen", "3/0") in steps


def test_the_stack_leads_to_the_users_line(report, folder):
    log = (folder / "report/raw.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in log]
    names = [r["compilation_metrics"]["co_name"] for r in records if "compilation_metrics" in r]
    assert names[:3] == ["disc.compile: Rows", "disc.compile: Custom", "disc.compile: Custom"]
    starts = [record for record in records if "dynamo_start" in record]
    assert [frame["name"] for frame in starts[0]["dynamo_start"]["stack"]] == ["<module>", "main"]
    assert "disc.compile(Rows()" in starts[0]["dynamo_start"]["stack"][-1]["loc"]


def test_without_a_trace_nothing_is_made(monkeypatch):
    from disc.viewers import torch_trace

    monkeypatch.setattr(torch_trace, "active", lambda: False)
    made = []
    torch_trace.text("ir", lambda: made.append("text"))
    torch_trace.data("facts", lambda: made.append("data"))
    with torch_trace.compilation("model"), torch_trace.step("shape"):
        pass
    assert made == []
