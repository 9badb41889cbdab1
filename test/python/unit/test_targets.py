"""Targets: the registry, names with chips, and the pipelines that they give."""

import importlib.metadata

import pytest
import torch

import disc
from disc import pipeline, targets
from disc.pipeline import Pipeline, Stage
from disc.targets import Choice, Target


class Mine(Target):
    """A target of one's own."""

    name = "mine"
    chips = ("one", "two")

    def pipeline(self, chips):
        if unknown := [chip for chip in chips if chip not in self.chips]:
            raise ValueError(f"target 'mine': no chip is called {unknown[0]!r}")
        return Pipeline("mine", (Stage("shape", tuple(f"pass-{chip}" for chip in chips)),))


@pytest.fixture
def registry(monkeypatch):
    """The registry, put back after the test."""
    monkeypatch.setattr(targets, "_targets", dict(targets._targets))


def test_the_targets_there_are():
    assert {"cpu", "cuda", "cuda-emulated", "null", "rocm", "rocm-emulated"} <= set(targets.names())
    assert list(targets.names()) == sorted(targets.names())
    for name in targets.names():
        assert targets.find(name).target.name == name
        assert targets.find(name).pipeline.target


def test_chips_follow_a_colon():
    assert targets.find("cuda").chips == ("sm_80", "sm_90")
    assert targets.find("cuda:sm_90").chips == ("sm_90",)
    assert targets.find("cuda: sm_80 , sm_120a").chips == ("sm_80", "sm_120a")
    assert targets.find("rocm:gfx942").chips == ("gfx942",)
    assert targets.find("cpu") == Choice(targets.find("cpu").target, ())
    assert targets.find("cuda-emulated").chips == ("checked",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpu", "no target 'tpu'; the targets are: .*cpu, cuda, "),
        ("", "no target ''"),
        ("CUDA", "no target 'CUDA'"),
        ("tpu:v5", "no target 'tpu'"),
        ("cuda:", "'cuda:' names an empty chip"),
        ("cuda:sm_80,", "'cuda:sm_80,' names an empty chip"),
        ("cuda:,sm_80", "names an empty chip"),
    ],
)
def test_what_is_not_there(text, message):
    with pytest.raises(ValueError, match=message):
        targets.find(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:zen4", "target 'cpu' takes no chips, got zen4; options have 'cpu' for its kind"),
        ("cuda:gfx942", "target 'cuda': no chip is called 'gfx942'; names are like 'sm_80'"),
        ("rocm:gfx942,sm_90", "target 'rocm': no chip is called 'sm_90'; names are like 'gfx90a'"),
        ("cuda-emulated:slow", "target 'cuda-emulated' is 'checked' or 'fast', not slow"),
        ("rocm-emulated:checked,fast", "target 'rocm-emulated' is 'checked' or 'fast', not checked, fast"),
        ("null:x", "target 'null' has no chips, got x"),
    ],
)
def test_chips_that_are_not_there(text, message):
    with pytest.raises(ValueError, match=message):
        _ = targets.find(text).pipeline
    with pytest.raises(ValueError, match=message):
        pipeline.default(text)
    with pytest.raises(ValueError, match=message):
        disc.compile(torch.nn.ReLU(), (torch.randn(2),), target=text)


def test_registering_one(registry):
    mine = Mine()
    targets.register(mine)
    assert "mine" in targets.names()
    assert targets.find("mine") == Choice(mine, ("one", "two"))
    assert pipeline.default("mine:two")["shape"].passes == ("pass-two",)
    assert disc.Options(target="mine:one").stages["shape"].passes == ("pass-one",)
    assert mine.missing() == ""
    with pytest.raises(ValueError, match="no chip is called 'three'"):
        pipeline.default("mine:three")
    with pytest.raises(ValueError, match="a target 'mine' is known already"):
        targets.register(Mine())
    with pytest.raises(TypeError, match=r"expected a disc.targets.Target, got ABCMeta"):
        targets.register(Mine)
    with pytest.raises(TypeError, match="abstract"):
        Target()


def test_entry_points_are_found(registry, monkeypatch):
    entry = importlib.metadata.EntryPoint("mine", f"{__name__}:Mine", "disc.targets")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry] if group == "disc.targets" else [])
    targets._load_entry_points.cache_clear()
    try:
        assert "mine" in targets.names() and isinstance(targets.find("mine").target, Mine)
    finally:
        targets._load_entry_points.cache_clear()


KNOWN = ["cpu", "cuda", "cuda:sm_90", "rocm", "cuda-emulated", "cuda-emulated:fast", "rocm-emulated", "null"]


@pytest.mark.parametrize("text", KNOWN)
def test_each_stage_ends_by_checking_its_contract(text):
    stages = pipeline.default(text)
    assert stages.names == pipeline.default("cpu").names
    for stage in stages:
        assert stage.passes[-1] == f"disc-{stage.name}-verify"
        assert len(set(stage.passes) - {"canonicalize", "cse"}) == len(
            [p for p in stage.passes if p not in ("canonicalize", "cse")]
        )


@pytest.mark.parametrize("text", [t for t in KNOWN if t != "cpu"])
def test_devices_differ_from_the_cpu_where_they_must(text):
    """Everything up to the schedule is the CPU's, less what is for it alone; then there are blocks of threads."""
    stages, cpu = pipeline.default(text), pipeline.default("cpu")
    assert stages["shape"].passes[0].startswith("disc-describe-device{device=")
    assert stages["shape"].passes[1:] == cpu["shape"].passes
    assert stages["library"].without("disc-library-claim-functions") == cpu["library"]
    assert stages["memory"] == cpu["memory"]
    of_cpu = {p.split("{")[0] for p in cpu["fusion"].passes}
    assert {p.split("{")[0] for p in stages["fusion"].passes} <= of_cpu
    assert "disc-fusion-form-kernels{many-products=false fuse-concats=true}" in stages["fusion"].passes
    assert stages.has("disc-schedule-blocks") and not stages.has("disc-schedule-kernels")
    assert stages.has("disc-gpu-emit-kernels")
    assert not stages.has("disc-schedule-pack-weights")
    # Where a library does not do one product at a time better.
    assert stages.has("disc-fusion-merge-products") == text.startswith("cuda")


def test_what_describes_a_device():
    def described(text):
        return pipeline.default(text)["shape"].passes[0]

    assert described("cuda") == "disc-describe-device{device=cuda warp=32 matrix-unit=true arch=sm_80,sm_90}"
    assert described("cuda:sm_75") == "disc-describe-device{device=cuda warp=32 arch=sm_75}"
    assert described("rocm:gfx90a") == "disc-describe-device{device=rocm warp=64 arch=gfx90a}"
    assert described("rocm-emulated") == "disc-describe-device{device=emulated warp=64}"
    assert described("null") == "disc-describe-device{device=null warp=32}"
    assert "disc-emulate-kernels{check=true}" in pipeline.default("cuda-emulated")["codegen"].passes
    assert "disc-emulate-kernels{check=false}" in pipeline.default("cuda-emulated:fast")["codegen"].passes


def test_options_choose_the_pipeline():
    assert disc.Options().stages is pipeline.default("cpu")
    assert disc.Options(target="null").stages == pipeline.default("null")
    custom = Pipeline("cpu", (Stage("mine", ("cse",)),))
    assert disc.Options(target="null", pipeline=custom).stages is custom
    with pytest.raises(ValueError, match="no target 'tpu'"):
        _ = disc.Options(target="tpu").stages
    assert disc.Options(target="null", winograd=False).stages == pipeline.default("null")
    with pytest.raises(ValueError, match=r"precision='bf16' is for CPUs: no stage .* for target 'null'"):
        _ = disc.Options(target="null", precision="bf16").stages


@pytest.mark.parametrize("text", ["cuda", "rocm-emulated", "null"])
def test_a_model_is_compiled_for_its_target(text):
    """Up to the memory stage, which has nothing to do with what runs it."""

    def schedule(**given):
        options = disc.Options(stop_after="memory", **given.pop("options", {}))
        return disc.compile(torch.nn.Softmax(-1), (torch.randn(3, 7),), options=options, **given).ir("schedule")

    ir = schedule(target=text)
    warp, device = (64, "emulated") if text.startswith("rocm") else (32, text)
    assert f'device = "{device}"' in ir and ("warp = 64" in ir) == (warp == 64)
    assert "threads = 256" in ir
    assert "threads = 256" in schedule(options={"target": text})
    # What the call says is what holds.
    assert "accumulators" in schedule(target="cpu", options={"target": text})
    assert "accumulators" in schedule()


def test_precision_is_the_cpus():
    with pytest.raises(ValueError, match=r"precision='bf16' is for CPUs: no stage .* for target 'cuda'"):
        disc.compile(torch.nn.Linear(3, 3), (torch.randn(2, 3),), target="cuda", options=disc.Options(precision="bf16"))
