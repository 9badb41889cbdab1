"""Slices of any bounds under Dim.AUTO: Python's elements at every size, or an error."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim

import disc

BOUNDS = st.none() | st.integers(-4, 4)


class Slice(torch.nn.Module):
    def __init__(self, place):
        super().__init__()
        self.place = place

    def forward(self, x):
        return x[:, self.place] * 2


@settings(max_examples=16)
@given(start=BOUNDS, end=BOUNDS, step=st.integers(1, 3))
def test_slices_of_few_elements(start, end, step):
    module = Slice(slice(start, end, step))
    model = disc.compile(module, (torch.randn(3, 7, 4),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for n in (7, 0, 1, 2, 3, 4, 5, 11):
        x = torch.randn(2, n, 4)
        try:
            result = model(x)
        except disc.ShapeError:
            # Where torch.export takes a length for granted that fewer elements do not have.
            assert n < 4
            continue
        torch.testing.assert_close(result, module(x))
