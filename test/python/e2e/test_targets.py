"""The conformance suite on every target that can run here."""

import pytest
import torch

from conformance.cases import CASES, check
from conformance.runners import RUNNERS, SVE


def run_case(case, runner, folder):
    if runner.missing:
        pytest.skip(f"needs {runner.missing}")
    torch.manual_seed(0)
    module = case.make().eval()
    with runner.compile(case, module, folder) as run:
        check(case, module, run)


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conformance(case, runner, tmp_path):
    run_case(case, runner, tmp_path)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("products", "reductions", "maths", "block")], ids=str)
def test_long_vectors(case, tmp_path):
    run_case(case, SVE, tmp_path)
