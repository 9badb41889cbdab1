"""disc.compile around its stages: arguments, IR, dumps, progress, and what a failure says."""

import gc
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.export import Dim

import disc
from disc import _native
from disc.pipeline import Stage, default
from models import MLP

ROOT = Path(__file__).resolve().parents[3]
ARGS = (torch.zeros(4, 24),)
SHAPES = ({0: Dim("n", min=1, max=64)},)


def compile_until(stage, **options):
    return disc.compile(MLP(), ARGS, dynamic_shapes=SHAPES, options=disc.Options(stop_after=stage, **options))


def disc_opt():
    """The tool, wherever this tree was built."""
    build = Path(os.environ.get("DISC_BUILD", ROOT / "build"))
    found = shutil.which("disc-opt", path=f"{build / 'tools/disc-opt'}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"disc-opt is not in {build} (set DISC_BUILD)")
    return found


class Line(torch.nn.Module):
    def forward(self, x):
        return x.relu() + 1  # the line that errors name


def line_number():
    return next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "the line that" in text)


def test_stop_after():
    model = compile_until("import")
    assert "linalg.generic" in model.ir("import")
    assert list(model.timings) == ["import"]
    assert model.threads == 0
    with pytest.raises(ValueError, match="no stage 'shape'; the stages are: import"):
        model.ir("shape")
    with pytest.raises(RuntimeError, match=r"stopped after 'import'.*compile without stop_after \(DISC0106\)"):
        model(*ARGS)


def test_ir_in_all_its_forms():
    model = compile_until("shape")
    assert "disc_shape.dim <n>" in model.ir("shape")
    assert "disc_shape.dim <n>" not in model.ir("import")
    assert "models.py" not in model.ir("shape")
    assert re.search(r'loc\(".*models\.py":\d+:', model.ir("shape", locations=True))
    assert '"func.func"() <{' in model.ir("shape", generic=True)
    assert repr(model) == "disc.Model(x: float32[n, 24])"
    assert [(s.name, s.min, s.max) for s in model.symbols] == [("n", 1, 64)]


def test_dump_ir(tmp_path):
    compile_until("shape", dump_ir=tmp_path / "deep" / "folder")
    files = sorted(p.name for p in (tmp_path / "deep" / "folder").iterdir())
    assert files == ["00-import.mlir", "01-shape.mlir"]
    assert "disc_shape.dim <n>" in (tmp_path / "deep/folder/01-shape.mlir").read_text()


def test_progress_is_for_terminals(capfd):
    compile_until("import")
    assert "import" not in capfd.readouterr().err
    compile_until("import", progress=True)
    assert "import" in capfd.readouterr().err


def test_wrong_arguments():
    with pytest.raises(
        TypeError, match=r"expected a torch.nn.Module or another callable, an ExportedProgram or an ONNX model, got int"
    ):
        disc.compile(3, ARGS)
    with pytest.raises(TypeError, match=r"options: expected disc.Options, got dict"):
        disc.compile(MLP(), ARGS, options={"threads": 2})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        disc.compile(MLP(), ARGS, dynamic_shape=SHAPES)


def test_a_failing_stage_names_the_line_and_leaves_a_reproducer(tmp_path):
    # The contract of the last stage does not hold after the first.
    pipeline = default().insert_after("import", Stage("early", ("canonicalize", "disc-codegen-verify")))
    options = disc.Options(pipeline=pipeline, reproducer_dir=tmp_path / "failures")
    with pytest.raises(disc.CompileError) as info:
        disc.compile(Line(), (torch.zeros(3),), options=options)
    error = info.value
    assert error.stage == "early"
    assert error.source == f"{__file__}:{line_number()}"
    assert "return x.relu() + 1" in str(error)
    assert "(pass disc-codegen-verify)" in error.diagnostic
    assert Path(error.reproducer).parent == tmp_path / "failures"

    result = subprocess.run(
        [disc_opt(), "--run-reproducer", error.reproducer], capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert error.diagnostic.splitlines()[0] in result.stderr


def test_a_pass_that_does_not_exist():
    pipeline = default().replace("shape", "disc-shape-propagate,no-such-pass")
    with pytest.raises(disc.CompileError, match="'no-such-pass' does not refer to a registered pass") as info:
        disc.compile(Line(), (torch.zeros(3),), options=disc.Options(pipeline=pipeline))
    assert info.value.stage == "shape"
    Path(info.value.reproducer).unlink()


def test_a_failing_export_is_a_compile_error():
    class Branches(torch.nn.Module):
        def forward(self, x):
            y = x.long()
            if x.sum() > 0:
                y = x
            return y

    with pytest.raises(disc.CompileError) as info:
        disc.compile(Branches(), (torch.zeros(3),))
    assert info.value.stage == "import"


def test_the_gpu_is_the_one_of_the_tensors(monkeypatch):
    seen = []

    def jit(module, kind, **options):
        seen.append(options["device"])
        return SimpleNamespace(
            info=lambda: {"parameters": []},
            init=lambda parameters: None,
            run=None,
            watch=lambda *_: None,
            times=lambda: {},
        )

    monkeypatch.setattr(_native, "jit", jit)
    with FakeTensorMode():  # which has GPUs everywhere
        x = torch.empty(4, 24, device="cuda:1")
        model = disc.compile(Line(), (x,))
        assert 'device = "cuda"' in model.ir("memory") and seen[-1] == 1
        disc.compile(Line(), (torch.zeros(4, 24, device="cpu:0"),))
        assert seen[-1] == 0
        spread = MLP()
        spread.same = torch.nn.Parameter(torch.zeros(2, device="cpu:0"))
        spread.extra = torch.nn.Parameter(x)
        with pytest.raises(ValueError, match="parameters are on several devices: cpu, cuda:1"):
            disc.compile(spread, ARGS)


def test_garbage_is_collected_as_the_user_wants_after_a_compilation():
    before = gc.get_threshold()
    try:
        gc.set_threshold(123, 4, 5)
        seen = []

        def watched(x):
            seen.append(gc.get_threshold())
            return x + 1

        disc.compile(watched, (torch.randn(3),))
        assert gc.get_threshold() == (123, 4, 5)
        assert seen[0][0] > 123
        gc.set_threshold(0)
        disc.compile(watched, (torch.randn(3),))
        assert gc.get_threshold()[0] == 0
        assert seen[-1][0] == 0
    finally:
        gc.set_threshold(*before)
