"""Conditions on extents: right for 0 and 1, too, if the range has them, which torch.export takes for impossible."""

import pytest
import torch
from torch.export import Dim

import flow_reference
from disc.frontend import markers
from disc.frontend.export import export
from rewriting_traced import Function, count


def equal(x):
    if x.shape[0] == 1:
        return x * 100
    return x + 1


def unequal(x):
    return x + 1 if len(x) != 1 else x * 100


def empty(x):
    if x.shape[0] == 0:
        return torch.ones(3)
    return x.sum(0)


def less(x):
    if x.size(0) < 2:
        return x * 100
    return x + 1


def number(x):
    if x.numel() == 3 or x.shape[0] > 16:
        return x * 100
    return x + 1


def truth(x):
    if x.shape[0]:
        return x + 1 if x.shape[0] - 1 else x * 100
    return x - 1


def nested(x):
    def factor(n):
        return 1 if n == 1 else 2

    return x * factor(x.shape[0])


def asserted(x):
    assert x.shape[0] > 1, "more than one"
    return x + 1


def single(x):
    if x.shape[0] == 1:
        total = x.square()
    else:
        total = x.abs().sum(0, keepdim=True)
    return x * total


def many(x):
    total = x.abs().sum(0, keepdim=True) if x.shape[0] != 1 else x.square()
    return x * total


@pytest.mark.parametrize("least", [0, 1, 2])
@pytest.mark.parametrize(
    "function", [equal, unequal, empty, less, number, truth, nested, asserted, single, many], ids=lambda f: f.__name__
)
def test_conditions_on_extents(function, least):
    program = export(Function(function), (torch.randn(5, 3),), None, (({0: Dim("T", min=least, max=40)},),))
    for n in (n for n in (0, 1, 2, 3, 16, 17) if n >= least):
        x = torch.randn(n, 3)
        try:
            wanted = function(x)
        except AssertionError:
            with pytest.raises(RuntimeError):
                flow_reference.run(program, x)
            continue
        torch.testing.assert_close(flow_reference.run(program, x), wanted)


def test_what_ranges_decide_is_no_branch():
    for function in (equal, unequal, empty, less, truth, nested):
        program = export(Function(function), (torch.randn(5, 3),), None, (({0: Dim("T", min=2, max=40)},),))
        assert count(program, markers.branch_begin) == 0, function


def test_what_changes_nothing_otherwise_is_no_branch():
    """Where the condition does not hold, the view is the tensor itself."""

    def places(x):
        where = torch.arange(x.shape[1])[None]
        if where.shape[0] != x.shape[0]:
            where = where.expand(x.shape[0], -1)
        return x + where

    def copied(x):
        y = x[:1]
        if x.shape[0] != 1:
            y = y.expand(x.shape[0], -1) * 2
        return x + y

    for function, branches in ((places, 0), (copied, 1)):
        program = export(Function(function), (torch.randn(5, 3),), None, (({0: Dim("T", min=1, max=40)},),))
        assert count(program, markers.branch_begin) == branches
        for n in (1, 2, 7):
            x = torch.randn(n, 3)
            torch.testing.assert_close(flow_reference.run(program, x), function(x))
