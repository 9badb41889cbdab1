"""How often the import computes what is expensive: counts, whatever a machine's speed."""

import pytest
import torch
from torch.export import Dim
from torch.utils._sympy.value_ranges import bound_sympy

import disc
from disc.frontend import import_program
from disc.torch_compat.tracing import FakeTensorMode
from disc.torch_compat.versions import MINOR


class Pooled(torch.nn.Module):
    """The same expressions of sizes, block after block."""

    def forward(self, x):
        for _ in range(4):
            y = torch.nn.functional.pad(x, (0, (7 - x.shape[1] % 7) % 7))
            x = x + y.unflatten(1, (-1, 7)).sum(2).mean(1, keepdim=True)
        return x


def test_bounds_of_an_expression_are_computed_once(monkeypatch):
    seen = []

    def counted(expr, ranges):
        seen.append(expr)
        return bound_sympy(expr, ranges)

    monkeypatch.setattr("disc.frontend.extents.bound_sympy", counted)
    import_program(Pooled(), (torch.randn(3, 20),), dynamic_shapes=({1: Dim("n", min=8, max=640)},))
    assert seen
    assert len(seen) == len(set(seen))


@pytest.fixture
def traces(monkeypatch):
    """The traces made so far."""
    made = []
    original = torch.export.export

    def counted(*args, **kwargs):
        made.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", counted)
    return made


def is_traced():
    """As transformers' is_torchdynamo_compiling."""
    try:
        return torch.compiler.is_compiling()
    except Exception:
        return False


class Attention(torch.nn.Module):
    """The question about causality that transformers' attention asks, and others of its kind."""

    def __init__(self):
        super().__init__()
        self.is_causal = False
        self.plain = True

    def forward(self, x, mask):
        length = x.shape[1]
        causal = length > 1 and mask is None and self.is_causal
        other = length > 1 and self.is_causal
        either = length == 1 or self.plain or x.sum() > 0
        if length == 1 and not is_traced():
            x = x + 0
        if 1 < length < 99 and not self.plain and mask.sum() > 0:
            x = x * 2
        if not (length > 1 and mask is None) and not causal and not other and either:
            x = x + mask
        return x.cumsum(1)


class Asking(Attention):
    """As long as the answer matters, or code of the model's runs behind it, it is no such condition."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def falsehood(self):
        return False

    def forward(self, x, mask):
        length = x.shape[1]
        if length > 1 and mask is not None:
            x = x * 2
        if length > 2 and self.falsehood() and mask is None:
            x = x * 3
        if length > 3 or (mask is None and not self.plain):
            x = x + 1
        return x + mask


@pytest.mark.parametrize("kind", [Attention, Asking])
def test_conditions_that_make_no_difference_cost_no_second_trace(kind, traces):
    module = kind()
    dims = {0: Dim("b", min=1, max=64), 1: Dim("l", min=1, max=100)}
    compiled = disc.compile(module, (torch.randn(2, 5), torch.ones(2, 5)), dynamic_shapes=(dims, dims))
    assert len(traces) == (1 if kind is Attention else 2)
    for rows, length in ((1, 1), (2, 1), (1, 2), (3, 3), (2, 4), (5, 5), (2, 98), (64, 100), (1, 1)):
        x, mask = torch.randn(rows, length), torch.rand(rows, length)
        torch.testing.assert_close(compiled(x, mask), module(x, mask), rtol=1e-5, atol=1e-5)


class Padded(torch.nn.Module):
    """A condition of the model's own on a single size, which is false for some."""

    def forward(self, x):
        padding = (8 - x.shape[1] % 8) % 8
        if padding > 0:
            x = torch.nn.functional.pad(x, (0, padding), value=1.0)
        return x.unflatten(1, (-1, 8)).sum(1)


def test_a_condition_that_fails_for_some_size_costs_one_trace(traces):
    module = Padded()
    compiled = disc.compile(module, (torch.randn(2, 5),), dynamic_shapes=({1: Dim("n", min=2, max=99)},))
    assert len(traces) == 2
    for length in (2, 7, 8, 9, 16, 99):
        x = torch.randn(2, length)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)


class Growing(torch.nn.Module):
    """Results of other shapes, step after step."""

    def forward(self, x):
        for _ in range(12):
            x = torch.cat([x, x[:, :1] * 2], 1)
        return x


@pytest.mark.skipif(MINOR < 13, reason="PyTorch 2.12 makes each result twice")
def test_results_are_made_once(monkeypatch):
    made = []
    original = FakeTensorMode._get_output_tensor_from_cache_entry

    def counted(*args):
        made.append(args)
        return original(*args)

    monkeypatch.setattr(FakeTensorMode, "_get_output_tensor_from_cache_entry", counted)
    import_program(Growing(), (torch.randn(3, 20),), dynamic_shapes=({1: Dim("n", min=8, max=640)},))
    assert 0 < len(made) < 18  # of 36 results, some of which are like another


class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(32, 4))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


def test_a_dim_that_is_refined_is_not_traced_with_rewritten_control_flow(traces, monkeypatch):
    dims = {0: Dim("b", min=1), 1: Dim("l", min=1)}
    rewritten = []
    monkeypatch.setattr("disc.frontend.export.rewritten", rewritten.append)
    with pytest.warns(UserWarning, match=r'l = Dim\("l", min=1, max=32\)'):
        compiled = disc.compile(Positions(), (torch.randn(2, 5, 4),), dynamic_shapes=(dims,))
    assert not rewritten
    assert compiled(torch.zeros(1, 32, 4)).shape == (1, 32, 4)
