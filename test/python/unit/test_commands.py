"""The command disc: subcommands, help, exit statuses, and what explain, bench and doctor report."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch.export import Dim

import disc
from disc.cli import bench, commands, doctor, explain, main, opt, text
from disc.cli import run as commands_run
from disc.interface import SymbolSpec
from disc.reporting import limits
from models import MLP


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "mlp.pt2"
    program = torch.export.export(MLP(), (torch.zeros(4, 24),), dynamic_shapes=({0: Dim("n", min=1, max=64)},))
    torch.export.save(program, path)
    return path


def run(*args):
    return main.main([str(arg) for arg in args])


@pytest.mark.parametrize("name", main._SUBCOMMANDS)
def test_help_has_examples(name, capsys):
    assert run(name, "--help") == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"disc {name}" in out
    assert len(out.splitlines()) < 80


def test_help_lists_subcommands(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    for name in main._SUBCOMMANDS:
        assert f"\n  {name} " in out
    assert run("--version") == 0
    assert capsys.readouterr().out == f"disc {disc.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nosuch"], 2, "disc: error: No such command 'nosuch'"),
        (["expain", "x.pt2"], 2, "disc: error: No such command 'expain'; did you mean 'explain'? (see disc --help)"),
        (["run", "--repeat", "x", "lib.so"], 2, "disc run: error: Invalid value for '--repeat'"),
        (["run", "/no/such.so"], 1, "disc run: error: /no/such.so: No such file or directory"),
        (["compile", "/no/such.pt2"], 1, "disc compile: error: /no/such.pt2: No such file or directory"),
        (["explain", "/no/such.pt2"], 1, "disc explain: error: /no/such.pt2: No such file or directory"),
        (["bench", "/no/such.pt2"], 1, "disc bench: error: /no/such.pt2: No such file or directory"),
        (["opt", "--stage", "nosuch"], 2, "disc opt: error: --stage nosuch: the stages are shape"),
        (["opt", "--for", "nosuch", "--passes"], 2, "disc opt: error: --for: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(arguments, status, message, capsys):
    assert run(*arguments) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


def test_unknown_targets_get_a_short_error(model, capsys):
    assert run("compile", model, "--target", "foo") == 2
    err = capsys.readouterr().err
    assert "no CPU is called 'foo'" in err
    assert "host, x86-64-v3" in err
    assert len(err) < 250
    assert run("compile", model, "--target", "x86-64-v5") == 2
    assert "did you mean x86-64-v4 or" in capsys.readouterr().err


def test_suggestions():
    known = [f"cpu{i}" for i in range(20)]
    message = f"no CPU is called 'cup1' for m; there are: {', '.join(known)}"
    assert text.shortened(message) == "no CPU is called 'cup1' for m; did you mean cpu1 or cpu19 or cpu18 or cpu17?"
    assert text.shortened("no CPU is called 'x'; there are: a, b") == "no CPU is called 'x'; there are: a, b"
    assert text.shortened(message + " (DISC0202)") == text.shortened(message) + " (DISC0202)"
    assert text.shortened("another message") == "another message"


def test_completion(capsys):
    for shell in ("bash", "zsh", "fish"):
        assert run("completion", shell) == 0
        assert "_DISC_COMPLETE" in capsys.readouterr().out
    assert run("completion", "csh") == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("opt --stage ", {"shape", "fusion", "codegen"}),
        ("opt --stage fu", {"fusion"}),
        ("opt --for cuda --stage ", {"shape", "codegen"}),
        ("opt --for cu", {"cuda", "cuda-emulated"}),
        ("compile --target h", {"host"}),
        ("compile --target aarch", {"aarch64-linux-gnu"}),
        ("compile --emit sh", {"shared"}),
    ],
)
def test_values_are_completed(words, expected, monkeypatch, capsys):
    monkeypatch.setenv("_DISC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"disc {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    with pytest.raises(SystemExit):
        run()
    found = {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()}
    assert expected <= found if words.endswith(" ") else expected == found


def test_without_a_subcommand_there_is_help(capsys):
    assert run() == 0
    captured = capsys.readouterr()
    assert "Commands:" in captured.out and "disc explain" in captured.out
    assert captured.err == ""


class Pair(torch.nn.Module):
    """Two inputs in a dict, a number, and results in a dict."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, parts, count: int):
        return {"sum": self.linear(parts["a"] + parts["b"]), "scaled": parts["a"].bfloat16() * count}


def test_saved_models_run_and_are_measured(tmp_path, capsys):
    x = torch.ones(2, 4)
    shapes = {"parts": {"a": {0: "batch"}, "b": {0: "batch"}}, "count": Dim.DYNAMIC}
    compiled = disc.compile(Pair(), ({"a": x, "b": x}, 3), dynamic_shapes=shapes)
    file = tmp_path / "pair.disc"
    compiled.save(file)
    assert run("run", file, "batch=5", "--repeat", "2") == 0
    out = capsys.readouterr().out
    assert "parts_a: float32[5, 4]" in out and "bfloat16[5, 4]" in out and "runs" in out
    assert run("run", file, "--info") == 0
    assert re.search(r"model +Pair \(.*batch: 0 and more", capsys.readouterr().out, re.S)
    assert run("bench", file, "batch=5", "batch=6", "--seconds", "0.01", "--json") == 0
    assert [shape["values"]["batch"] for shape in json.loads(capsys.readouterr().out)["shapes"]] == [5, 6]
    assert run("run", file, "--weights", "w.safetensors") == 2
    assert "--weights is for a library" in capsys.readouterr().err


def test_a_saved_model_beside_eager(model, tmp_path, capsys):
    program = torch.export.load(model)
    disc.compile(program, dynamic_shapes=({0: "n"},)).save(tmp_path / "mlp.disc")
    assert run("bench", tmp_path / "mlp.disc", "n=3", "--eager", model, "--seconds", "0.01", "--json") == 0
    (shape,) = json.loads(capsys.readouterr().out)["shapes"]
    assert shape["difference"] < 1e-4


def test_sizes_of_disc_run_may_be_one_list():
    symbols = [SymbolSpec("batch", 1, 8), SymbolSpec("length", 2, None), SymbolSpec("more", 3, None)]
    for items in (["batch=2,length=7"], ["batch=2", "length=7"], ["batch=2,", "length=7"]):
        assert commands_run.symbol_values(symbols, items) == {"batch": 2, "length": 7, "more": 3}


def test_passes_of_a_stage(capsys):
    assert run("opt", "--passes") == 0
    assert "disc-shape-propagate" in capsys.readouterr().out


def test_opt_runs_a_stage(model, tmp_path):
    assert run("compile", model, "--compile-to", "shape", "-o", tmp_path / "shape.mlir") == 0
    # disc-opt ends the process.
    command = [sys.executable, "-c", "from disc.cli.main import main; raise SystemExit(main())", "opt"]
    environment = {**os.environ, "PYTHONPATH": str(Path(disc.__file__).parents[1])}
    result = subprocess.run(
        [*command, "--stage", "fusion", tmp_path / "shape.mlir"], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "disc_plan.kernel" in result.stdout
    result = subprocess.run([*command, "--no-such-pass"], capture_output=True, text=True, env=environment, input="")
    assert result.returncode == 1
    assert "--no-such-pass" in result.stderr


class Sliced(torch.nn.Module):
    def forward(self, x, y):
        return x + y[: x.shape[0]]


def explained(path, *arguments):
    """What disc explain prints as JSON, and its exit status."""
    result = CliRunner().invoke(explain.command, [str(path), *arguments, "--json"], standalone_mode=False)
    assert result.exception is None, result.exception
    return json.loads(result.stdout), result.return_value


def test_explain(tmp_path, capsys):
    path = tmp_path / "sliced.pt2"
    dims = ({0: Dim.DYNAMIC(max=64)}, {0: Dim.DYNAMIC(max=64)})
    torch.export.save(torch.export.export(Sliced(), (torch.zeros(3, 4), torch.zeros(5, 4)), dynamic_shapes=dims), path)
    found, status = explained(path, "--dims", "x=n,", "--dims", "y=m,", "--no-run")
    assert status == 0 and found["run"] is None
    assert found["inputs"] == ["x: float32[n, 4]", "y: float32[m, 4]"]
    (guard,) = found["guards"]
    assert guard["condition"] == "n <= m"
    assert guard["source"].startswith(__file__)
    assert found["sizes"][0] == {"name": "n", "range": found["symbols"][0].removeprefix("n: "), "places": "x dim 0"} | {
        "reason": "dynamic_shapes"
    }
    assert [(d["input"], d["dim"], d["size"]) for d in found["dims"] if not d["dynamic"]] == [("x", 1, 4), ("y", 1, 4)]
    assert run("explain", path, "--no-run") == 0
    out = capsys.readouterr().out
    for part in ("Dynamic sizes", "to 64", "Guards", "Unsupported operations: none", "The model compiles."):
        assert part in out
    assert "Slowest lines" not in out


def test_explain_measures_lines(model, monkeypatch, capsys):
    monkeypatch.setattr(limits, "measure", lambda threads: limits.Limits(threads, 100e9, 50e9, 10e9, 1 << 20))
    found, status = explained(model, "--dims", "x=n,", "n=64", "--threads", "1")
    measured = found["run"]
    assert status == 0 and measured["sizes"] == {"n": 64} and measured["threads"] == 1
    assert [line["share"] for line in measured["lines"]] == sorted(
        (x["share"] for x in measured["lines"]), reverse=True
    )
    assert sum(line["share"] for line in measured["lines"]) == pytest.approx(1)
    line = next(line for line in measured["lines"] if "self.second" in line["code"])
    assert line["source"].rpartition(":")[0].endswith("models.py") and line["of_limit"] > 0
    assert line["bound"] in ("arithmetic", "cache", "memory")
    assert run("explain", model, "n=64") == 2
    assert "no dynamic dim 'n'" in capsys.readouterr().err
    assert run("explain", model) == 0
    out = capsys.readouterr().out
    assert "Slowest lines, x_0=4" in out and "100 GFLOP/s of arithmetic" in out
    assert len(out.splitlines()) <= 25


def test_explain_unsupported(model, monkeypatch, capsys):
    error = disc.UnsupportedOpError([disc.UnsupportedOp("torch.aten.odd", "model.py:12", "there is no rule")])
    calls = []

    def compile(program, *, fallback, **rest):
        calls.append(fallback)
        raise error if not fallback else disc.CompileError("import", "PyTorch cannot do it either", "model.py:12")

    monkeypatch.setattr(disc, "compile", compile, raising=False)
    assert run("explain", model) == 1
    assert calls == [False, True]
    out = capsys.readouterr().out
    for part in ("torch.aten.odd", "there is no rule", "model.py:12", "PyTorch cannot do it either"):
        assert part in out


def test_bench(model, capsys):
    flags = ["--dims", "x=n,", "--seconds", "0.01", "--calls", "3", "--json"]
    assert run("bench", model, "n=1", "n=9", *flags) == 0
    found = json.loads(capsys.readouterr().out)
    assert [shape["values"] for shape in found["shapes"]] == [{"n": 1}, {"n": 9}]
    for shape in found["shapes"]:
        assert shape["difference"] < 1e-5
        assert shape["disc"]["calls"] >= 3
        assert shape["disc"]["best"] <= shape["disc"]["p50"] <= shape["disc"]["p99"]
    assert run("bench", model, "m=1", *flags) == 2
    assert "the model has no symbol 'm'; its symbols: n" in capsys.readouterr().err
    assert run("bench", model, "n=65", *flags) == 1
    assert capsys.readouterr().err.startswith("disc bench: error: n=65: ")


def test_percentiles():
    values = [float(n) for n in range(1, 101)]
    assert [bench._percentile(values, q) for q in (50, 90, 99)] == [50, 90, 99]
    assert bench._percentile([3.0, 1.0], 99) == 3


def test_least_values_of_symbols():
    from disc.cli.run import symbol_values

    specs = [SymbolSpec("n", 0, None), SymbolSpec("m", 3, 64, 8)]
    assert symbol_values(specs, []) == {"n": 0, "m": 8}
    assert symbol_values(specs, ["m=16"], least=1) == {"n": 1, "m": 16}


def test_doctor(capsys):
    assert run("doctor", "--no-test", "--json") == 0
    found = {(f["section"], f["name"]): f for f in json.loads(capsys.readouterr().out)}
    # The distribution of the build with CUDA is called 2.13.0, its __version__ is 2.13.0+cu130.
    assert found["versions", "torch"]["value"].startswith(torch.__version__.split("+")[0])
    assert found["CPU", "code"]["state"] == "ok"
    assert run("doctor", "--no-test") == 0
    assert "0 errors" in capsys.readouterr().out


def test_doctor_warns(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("DISC_CODE_CACHE", "")
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 0.5)
    warned = {f.name for f in doctor.examine(test=False) if f.state == "warning"}
    assert {"OMP_WAIT_POLICY", "code cache", "CPU quota"} <= warned


def test_limits_of_control_groups(tmp_path):
    assert doctor.cpu_quota(str(tmp_path)) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert doctor.cpu_quota(str(tmp_path)) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert doctor.cpu_quota(str(tmp_path)) is None
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text(str(3 << 30))
    assert doctor.memory_limit(str(tmp_path)) == 3 << 30


def test_self_test_reports_failures(monkeypatch):
    def broken():
        raise RuntimeError("no")

    monkeypatch.setattr(doctor, "_compile_and_run", broken)
    assert doctor._self_test() == ("self test", "compile and run", "RuntimeError: no", "error")


def test_commands_run_under_clicks_runner():
    result = CliRunner().invoke(opt.command, ["--help"])
    assert result.exit_code == 0
    assert isinstance(opt.command, commands.Command)
