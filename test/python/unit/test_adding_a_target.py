"""docs/howto/adding-a-target.md, followed."""

import re
from pathlib import Path

import pytest
import torch

import disc
from disc import targets

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/adding-a-target.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def followed(monkeypatch):
    """What there is after the page's Python has run."""
    monkeypatch.setattr(targets, "_targets", dict(targets._targets))
    names = {}
    for block in blocks("python"):
        exec(compile(block, "adding-a-target.md", "exec"), names)
    return names


def test_the_target_is_there(followed):
    assert "silent" in targets.names()
    assert targets.find("silent").target.missing() == ""
    with pytest.raises(ValueError, match="'silent' has no chips, got x"):
        disc.pipeline.default("silent:x")


def test_host_flow_checks_and_memory(followed):
    assert followed["result"].shape == (5, 16) and followed["result"].dtype == torch.float32
    assert followed["needed"].arena >= 5 * 16 * 4
    assert "threads = 256" in followed["blocks"] and 'device = "null"' in followed["blocks"]
    assert "dim 0 (batch) is out of range: expected 0 <= batch <= 64, got 65" in followed["refused"]


def test_launches(followed):
    """One for each kernel and call, and nothing that the CPU would do instead."""
    model = followed["model"]
    kernels = model.ir("memory").count("disc_plan.kernel_func")
    assert kernels > 1

    def counted():
        return model._executable.device_counters()

    before = counted()
    for rows in (1, 64, 7):
        model(torch.randn(rows, 8))
    after = counted()
    assert after["launches"] - before["launches"] == 3 * kernels
    with model.profile() as profile:
        model(torch.randn(3, 8))
    assert len(profile.launches) == kernels


def test_the_suite_takes_it(followed):
    """And finds that nothing has computed anything."""
    from conformance.cases import CASES, check

    runner = followed["runner"]
    assert runner.missing == "" and str(runner) == "silent"
    case = next(c for c in CASES if c.name == "double")
    module = case.make().eval()
    with runner.compile(case, module, Path()) as run, pytest.raises(AssertionError):
        check(case, module, run)


def test_the_code_of_null_is_the_pages():
    """What the page shows of C++ is what is compiled."""
    compiled = "".join(
        (ROOT / path).read_text(encoding="utf-8")
        for path in ("lib/Target/Null/DropKernels.cpp", "lib/Runtime/Device/Null.cpp")
    )
    shown = blocks("cpp")
    assert len(shown) == 2
    for block in shown:
        assert block.replace("Silent", "Null").replace("silent", "null") in compiled
    for path in re.findall(r"`((?:lib|test|python)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
