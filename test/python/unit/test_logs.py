"""The logger "disc": stages at INFO, decisions at DEBUG, and the switches in the environment."""

import logging
import os
import subprocess
import sys

import pytest
import torch

import disc
from disc.compilation import _shortened
from disc.dynamo.partition import _fallback
from disc.logs import configure

IMPORT_ONLY = disc.Options(stop_after="import")


class Half(torch.nn.Module):
    def forward(self, x):
        return x.view(-1, 2).sum(1)


def test_stages_and_decisions(caplog):
    with caplog.at_level(logging.DEBUG, "disc"), pytest.warns(UserWarning, match=r"2 \* Dim"):
        disc.compile(Half(), torch.randn(8), dynamic_shapes=({0: "n"},), options=IMPORT_ONLY)
    records = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "disc"]
    assert any(level == logging.INFO and text.startswith("import: ") for level, text in records)
    assert any(level == logging.INFO and text.startswith("compiled Half in ") for level, text in records)
    assert any(level == logging.DEBUG and 'n = 2 * Dim("n2"' in text for level, text in records)
    assert not any("\n" in text for _, text in records)


def test_an_unknown_level():
    with pytest.raises(ValueError, match="level: expected one of debug, info, warning, error, got 'loud'"):
        configure("loud")


@pytest.mark.parametrize("variables", [{"DISC_LOG": "info"}, {"TORCH_LOGS": "disc"}])
def test_switches(variables):
    code = (
        "import disc, torch;"
        "disc.compile(torch.nn.ReLU(), torch.ones(3), options=disc.Options(stop_after='import', progress=False))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert "import: " in result.stderr and result.stderr.count("compiled ReLU") == 1


def test_the_root_logger_stays_the_program_s():
    code = (
        "import disc, logging, torch;"
        "disc.compile(torch.nn.ReLU(), torch.ones(3), options=disc.Options(stop_after='import'));"
        "assert not logging.root.handlers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ir_is_not_a_message():
    ir = "see current operation:\n" + "\n".join(f"  %{i} = linalg.generic" for i in range(60))
    assert _shortened(ir) == "see current operation: ... (the rest is in the reproducer)"
    node = torch.fx.Graph().placeholder("x")
    assert "\n" not in _fallback(node, ir).reason


def test_the_stages_are_listed():
    model = disc.compile(Half(), torch.randn(8), options=IMPORT_ONLY)
    with pytest.raises(ValueError, match="ir: expected a stage; the stages are: import"):
        model.ir()
