"""What torch.export refuses, in the user's terms."""

import pytest
import torch
from torch.export import Dim

import disc
from disc.frontend.export import export


class Unrolled(torch.nn.Module):
    def forward(self, x):
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total + x[i]
        return total


class Conditional(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] % 3 == 0 else x


def test_a_dim_that_the_code_fixes():
    with pytest.raises(disc.CompileError) as info:
        disc.compile(Unrolled(), (torch.zeros(5, 2),), dynamic_shapes=({0: Dim("steps", min=1, max=9)},))
    assert "steps: the model's code does not work for the whole range" in str(info.value)
    assert "steps is 5 in the model's code" in str(info.value)
    assert "for i in range(1, x.shape[0]):" in str(info.value)


def test_a_condition_on_a_dim():
    with pytest.raises(disc.CompileError, match=r"steps = .* must satisfy .*% 3\) == 0") as info:
        disc.compile(Conditional(), (torch.zeros(6, 2),), dynamic_shapes=({0: Dim("steps", min=2, max=9)},))
    assert info.value.source.rpartition(":")[0] == __file__


def test_other_failures_are_reported_as_they_are():
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("not like this")

    with pytest.raises(disc.CompileError, match=r"torch\.export failed: not like this"):
        export(Broken(), (torch.zeros(2),), None, None)
