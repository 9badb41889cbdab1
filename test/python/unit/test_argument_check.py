"""Example arguments that no model takes: the error names the input, before PyTorch's own does."""

import logging

import pytest
import torch
from torch import nn

import disc


class Twice(nn.Module):
    def forward(self, x, pair=None):
        return x * 2 if pair is None else x * 2 + pair["a"]


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), r"Twice\.forward: missing argument 'x'; the parameters are x, pair"),
        ((X, None, X), r"Twice\.forward: too many positional arguments"),
        ((nested(torch.strided),), r"argument \[0\] is a strided nested tensor.*layout=torch.jagged"),
        ((X, {"a": X.to_sparse()}), r"argument \[1\]\['a'\] has the layout torch.sparse_coo.*to_dense"),
        ((torch.quantize_per_tensor(X, 0.1, 0, torch.quint8),), r"argument \[0\] is a quantized tensor"),
    ],
)
def test_arguments_that_no_model_takes(args, text):
    with pytest.raises(disc.CompileError, match=text):
        disc.compile(Twice(), args)


def test_keyword_arguments():
    with pytest.raises(disc.CompileError, match=r"keyword argument \['pair'\]\['a'\] has the layout"):
        disc.compile(Twice(), (X,), {"pair": {"a": X.to_sparse()}})
    with pytest.raises(disc.CompileError, match="unexpected keyword argument 'other'"):
        disc.compile(Twice(), (X,), {"other": X})


class Strided(nn.Module):
    def forward(self, x):
        rows = torch.nested.as_nested_tensor([x[0], x[1, :2]])
        return torch.nested.to_padded_tensor(rows, 0.0)


class Custom(nn.Module):
    def forward(self, x):
        return torch.ops.disc_arguments.unknown(x)


_LIBRARY = torch.library.Library("disc_arguments", "FRAGMENT")
_LIBRARY.define("unknown(Tensor x) -> Tensor")
_LIBRARY.impl("unknown", lambda x: x * 2, "CPU")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (
            Strided(),
            r"(?s)strided nested tensors are not supported.*layout=torch.jagged.*at .*test_argument_check.py:\d+",
        ),
        (Custom(), r"(?s)disc_arguments\.unknown\.default has no fake kernel.*register_fake.*test_argument_check.py"),
    ],
)
def test_what_no_model_contains(module, text):
    with pytest.raises(disc.CompileError, match=text) as error:
        disc.compile(module, (X,))
    assert "draft_export" not in str(error.value)


def test_failed_operations_are_not_logged(caplog):
    with caplog.at_level(logging.ERROR), pytest.raises(disc.CompileError, match="reduction dim"):
        disc.compile(nn.Linear(4, 4), (torch.randn(3, 5),))
    assert not caplog.records
