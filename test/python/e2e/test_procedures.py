"""Procedures: functions of the host flow that invoke themselves, on a stack of their own."""

from pathlib import Path

import pytest
import torch

from compiled_text import compile_text


def reference(x):
    """What ``f`` of ``procedures.mlir`` computes."""
    saved = []
    while x[0] < 0:
        saved.append(x)
        x = x + 1
    y = x * 2
    for s in reversed(saved):
        y = s + y
    return y


@pytest.fixture(scope="module")
def recursive():
    return compile_text(Path(__file__).with_name("procedures.mlir").read_text())


@pytest.mark.parametrize(("size", "depth"), [(1, 0), (3, 1), (64, 100), (7, 10_000), (3, 100_000), (5, 3)])
def test_a_procedure_recurses_as_deep_as_data_says(recursive, size, depth):
    x = torch.randint(-3, 4, (size,)).float()
    x[0] = -depth
    torch.testing.assert_close(recursive.run((x,))[0], reference(x), rtol=0, atol=0)


def test_recursion_that_never_ends_is_an_error_and_harms_nothing(recursive):
    with pytest.raises(MemoryError, match=r"recursion is too deep: .* activations have used up the stack of 256 MiB"):
        recursive.run((torch.full((2,), -3e7),))
    x = torch.tensor([-5.0, 1.0])
    torch.testing.assert_close(recursive.run((x,))[0], reference(x), rtol=0, atol=0)
