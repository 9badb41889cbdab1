"""Dtypes, devices, slices, ranges and functions as arguments: constants of the compiled model."""

import functools

import pytest
import torch
from torch import nn

import closeness
import disc


def scaled(x, by):
    return x * by


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x, dtype, rows, *, activation=torch.relu, steps=range(2), places=None):
        for step in steps:
            x = activation(self.linear(x) + step)
        if places is not None:
            x = x[:, places["columns"]]
        return x[rows].to(dtype)


CASES = {
    "dtype and slice": ((torch.float64, slice(1, None)), {}),
    "function": ((torch.float32, slice(0, 3)), {"activation": torch.sigmoid}),
    "partial": ((torch.float32, slice(None, None, 2)), {"activation": functools.partial(scaled, by=0.5)}),
    "method": ((torch.float32, slice(2)), {"activation": torch.Tensor.tanh, "steps": range(1, 6, 2)}),
    "inside of a dict": ((torch.float16, slice(1, 2)), {"places": {"columns": slice(1, 4)}}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model(name, tmp_path):
    more, named = CASES[name]
    module = Steps()
    shapes = {"x": {0: torch.export.Dim("n", min=3)}, "dtype": None, "rows": None}
    shapes |= {key: {"columns": None} if key == "places" else None for key in named}
    model = disc.compile(module, (torch.randn(5, 6), *more), kwargs=named, dynamic_shapes=shapes)
    model.save(tmp_path / "model.disc")
    loaded = disc.load(tmp_path / "model.disc")
    for n in (3, 4, 17, 64, 5):
        x = torch.randn(n, 6)
        closeness.check(functools.partial(module, **named), (x, *more), model(x, *more, **named))
        closeness.check(functools.partial(module, **named), (x, *more), loaded(x, *more, **named))


def test_another_value_is_an_error():
    model = disc.compile(Steps(), (torch.randn(5, 6), torch.float64, slice(1, 3)), dynamic_shapes="auto")
    with pytest.raises(
        disc.errors.ConstantError,
        match=r"argument 'dtype' is a constant .* expected torch.float64, .* got torch.float16",
    ):
        model(torch.randn(5, 6), torch.half, slice(1, 3))
    with pytest.raises(
        disc.errors.ConstantError, match=r"argument 'rows' is a constant .* expected slice\(1, 3, None\)"
    ):
        model(torch.randn(5, 6), torch.float64, slice(1, 4))


def test_a_local_function_stays_in_its_process(tmp_path):
    weight = torch.randn(6)

    def own(x):
        return x * weight

    module = Steps()
    model = disc.compile(
        module, (torch.randn(5, 6), torch.float32, slice(2)), kwargs={"activation": own}, dynamic_shapes="auto"
    )
    for n in (2, 9, 3):
        x = torch.randn(n, 6)
        call = functools.partial(module, activation=own)
        closeness.check(call, (x, torch.float32, slice(2)), model(x, torch.float32, slice(2), activation=own))
    with pytest.raises(disc.CompileError, match="cannot be pickled"):
        model.save(tmp_path / "model.disc")


def test_several_examples():
    def converted(x, dtype):
        return x.to(dtype).cumsum(0)

    model = disc.compile(converted, examples=[(torch.randn(2, 6), torch.float64), (torch.randn(3, 6), torch.float64)])
    for n in (1, 4, 100):
        x = torch.randn(n, 6)
        torch.testing.assert_close(model(x, torch.float64), x.double().cumsum(0))
