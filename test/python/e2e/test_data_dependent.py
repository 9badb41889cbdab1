"""Extents that depend on data, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., object]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: torch.Tensor) -> object:
        """Calls it."""
        return self.fn(*args)


def built(fn: Callable[..., object], *args: object, dynamic: object) -> disc.Model:
    """``fn`` compiled for the dynamic dims of its arguments."""
    return disc.compile(Fn(fn), args, dynamic_shapes=(dynamic,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.bfloat16, torch.int64])
def test_nonzero_static(dtype: torch.dtype) -> None:
    """A function with two results, cut and filled."""
    n = Dim("n", min=0, max=200)
    x = torch.randint(0, 2, (5, 4)).to(dtype)
    model = built(lambda x: torch.nonzero_static(x.t(), size=9, fill_value=-7), x, dynamic=({0: n},))
    for length in (5, 1, 0, 2, 3, 17, 200, 4):
        x = torch.randint(0, 2, (length, 4)).to(dtype)
        assert torch.equal(model(x), torch.nonzero_static(x.t(), size=9, fill_value=-7))


def agree(ours: object, expected: object) -> None:
    """Results alike in structure, dtype, shape and value."""
    if isinstance(expected, (tuple, list)):
        assert isinstance(ours, type(expected)) and len(ours) == len(expected)
        for mine, theirs in zip(ours, expected, strict=True):
            agree(mine, theirs)
    elif isinstance(expected, torch.Tensor):
        assert isinstance(ours, torch.Tensor)
        assert ours.dtype == expected.dtype and ours.shape == expected.shape
        torch.testing.assert_close(ours, expected, equal_nan=True)
    else:
        assert type(ours) is type(expected) and ours == expected


LENGTHS = (7, 0, 1, 2, 15, 16, 17, 31, 3, 97, 200, 5)


def sparse(length: int, columns: int = 4) -> torch.Tensor:
    """Small numbers, many of them zero."""
    return torch.randint(-1, 3, (length, columns)).float()


def check(fn: Callable[..., object], make: Callable[[int], tuple[object, ...]] = lambda n: (sparse(n),)) -> disc.Model:
    """``fn`` at many lengths, and on inputs of nothing but zeros and nothing but ones, from one artifact."""
    torch.manual_seed(0)
    args = make(6)
    length = Dim("length", min=0, max=200)
    tensors = [isinstance(a, torch.Tensor) and a.dim() > 0 for a in args]
    model = built(fn, *args, dynamic=tuple({0: length} if t else None for t in tensors))
    for n in LENGTHS:
        args = make(n)
        agree(model(*args), fn(*args))
        for fill in (torch.zeros_like, torch.ones_like):
            filled = [fill(a) if t else a for a, t in zip(args, tensors, strict=True)]
            agree(model(*filled), fn(*filled))
    return model


def test_nonzero() -> None:
    """A new extent, and what can be done with it."""

    def fn(x: torch.Tensor) -> object:
        rows = torch.nonzero(x)
        values = rows.float() * 2 + 1
        return rows, values.sum(0), values @ values.t(), torch.softmax(values, 0), torch.cat([values, values[:, :1]], 1)

    model = check(fn)
    assert [s.name for s in model.symbols] == ["length", "u0"]
    assert model.symbols[1].data_dependent and model.symbols[1].max == 800
    with pytest.raises(ValueError, match="u0"):
        model.memory(length=4)
    assert model.memory(length=4, u0=3).arena < model.memory(length=4, u0=16).arena


def test_masked_select() -> None:
    """Several extents, one after the other, and their sum."""

    def fn(x: torch.Tensor) -> object:
        some = torch.masked_select(x, x > 0)
        other = torch.masked_select(x, x[:, :1] == 1)
        joined = torch.cat([some, other, x.flatten()])
        return some, joined, joined.sum(), joined.relu().cumsum(0)

    check(fn)


def test_boolean_index() -> None:
    """Masks over all dims, over the first, over one in the middle, and beside other indices."""

    def fn(x: torch.Tensor) -> object:
        stacked = torch.stack([x, x + 1, x - 1], 1)
        rows = x[x.sum(1) > 1]
        some = stacked[:, :, 0][x[:, :3] > 0]
        first = stacked[x[:, 0] > 0, 1]
        return x[x > 0], rows, rows.softmax(-1) @ rows.t(), some, first, stacked[:, torch.tensor([True, False, True])]

    check(fn)


def test_mask_assignment() -> None:
    """Values for what a mask selects: one, as many as there are, rows, and beside other indices."""

    def fn(x: torch.Tensor) -> object:
        ones, many, rows, added = x.clone(), x.clone(), x.clone(), x.clone()
        ones[x > 0] = 7.0
        many[x > 0] = x[x > 0] * 10
        rows[x[:, 0] > 0] = x[x[:, 0] > 0].flip(1) + 1
        rows[x[:, 0] > 0, 1] = 5.0
        added.index_put_((x > 1,), x[x > 1], accumulate=True)
        return ones, many, rows, added, torch.masked_scatter(x, x > 0, x[x > 0] * 2)

    check(fn)


def test_unique() -> None:
    """Distinct elements and rows, with places and counts."""

    def fn(x: torch.Tensor) -> object:
        some = torch.unique(x, return_inverse=True, return_counts=True)
        runs = torch.unique_consecutive(x[:, 0], return_inverse=True, return_counts=True)
        rows = torch.unique(x[:, :2].long(), dim=0, return_inverse=True, return_counts=True)
        return *some, *runs, *rows, torch.unique_consecutive(x, dim=0), torch.unique(x > 0), some[0].sum()

    check(fn, lambda n: (sparse(max(n, 1)),))


def test_routing() -> None:
    """A mixture of experts: each sees the rows that chose it, and adds to theirs."""

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(16, 3)
            self.experts = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            result = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                row, place = torch.where(chosen == i)
                result.index_add_(0, row, expert(x[row]).relu() * weight[row, place, None])
            return result

    torch.manual_seed(0)
    module = Experts().eval()
    model = disc.compile(module, (torch.randn(6, 16),), dynamic_shapes=({0: Dim("rows", min=0, max=300)},))
    with torch.no_grad():
        for n in LENGTHS:
            x = torch.randn(n, 16)
            torch.testing.assert_close(model(x), module(x), atol=1e-5, rtol=1e-5)


def test_views_of_any_layout() -> None:
    """What is counted and read may be permuted, sliced with steps, repeated and reshaped."""

    def fn(x: torch.Tensor) -> object:
        stacked = torch.stack([x, 1 - x, x * 0 + 1], 2)
        views = [
            x.t(),
            x[:, 1::2],
            stacked.permute(2, 0, 1)[1:],
            x[:, :1].expand(-1, 3),
            stacked.transpose(1, 2)[..., 2],
        ]
        return [
            result
            for view in views
            for result in (torch.nonzero(view), view[view > 0], view.flatten()[view.flatten() == 1])
        ]

    check(fn)


def test_mask_as_tuple() -> None:
    """where() with one argument, and gathering by what it gives."""

    def fn(x: torch.Tensor) -> object:
        i, j = torch.where(x > 0)
        return i, x[i, j], x[i].sum(1), torch.argwhere(x).shape[0]

    check(fn)


def test_item_as_size() -> None:
    """A number read from a tensor as an extent, an offset and a number."""

    def fn(x: torch.Tensor, n: torch.Tensor) -> object:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        head = x[:k]
        return head, head.sum(0), torch.arange(k) * 3, torch.ones(k, 2) @ x[:2].t()[:2], x * k, k, k * 2

    torch.manual_seed(0)
    length = Dim("length", min=2, max=200)
    model = built(fn, sparse(6), torch.tensor(3), dynamic=({0: length}, None))
    for n, k in ((6, 3), (2, 0), (2, 2), (200, 199), (17, 16), (5, 1)):
        args = (sparse(n), torch.tensor(k))
        agree(model(*args), fn(*args))
    with pytest.raises(disc.ShapeError, match=r"torch._check\(u0 <= length\)"):
        model(sparse(4), torch.tensor(5))
    with pytest.raises(
        disc.ShapeError, match=r"item at .*:\d+: u0 is out of range: expected at least 0, got -1 \(DISC0101\)$"
    ):
        model(sparse(4), torch.tensor(-1))


def test_item_as_number() -> None:
    """Numbers that may be negative, or are no integers, are no extents."""

    def fn(x: torch.Tensor, n: torch.Tensor, f: torch.Tensor) -> object:
        return x * n.item() + f.item(), n.item(), n.item() * 2 - 1, x + f.item() * 2, f.item(), (n > 0).item()

    model = built(fn, sparse(6), torch.tensor(3), torch.tensor(0.5), dynamic=({0: Dim("length", min=2)}, None, None))
    for n, k in ((6, -3), (2, 2**61 + 1)):
        args = (sparse(n), torch.tensor(k), torch.tensor(1.25))
        agree(model(*args), fn(*args))


def test_slices_by_numbers_that_may_be_negative() -> None:
    """Python's bounds and indices, from a number and from the elements of a tensor."""

    def fn(x: torch.Tensor, n: torch.Tensor, places: torch.Tensor) -> object:
        k = n.item()
        return x[k:], x[:k] * 2, x[k], x[:, k], torch.tensor_split(x, places, 1)

    shapes = ({0: Dim("rows", min=4), 1: Dim("columns", min=4)}, None, None)
    model = built(fn, sparse(6), torch.tensor(2), torch.tensor([1, 3]), dynamic=shapes)
    for n, k, places in ((6, 2, [1, 3]), (6, -3, [3, 1]), (4, 0, [-1, 9]), (5, -4, [0, 0]), (4, 3, [2, -2])):
        args = (sparse(n), torch.tensor(k), torch.tensor(places))
        agree(model(*args), fn(*args))
    with pytest.raises(IndexError, match=r"index 7 is out of range for a dimension of extent 4"):
        model(sparse(4), torch.tensor(7), torch.tensor([1, 2]))


def test_int_inputs() -> None:
    """Dynamic integers among the arguments, under their names."""

    def fn(x: torch.Tensor, k: int) -> object:
        return torch.arange(k) * k, x.new_zeros(k, 3), x.sum() * k, k + 1

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, k: int) -> object:
            return fn(x, k)

    shapes = {"x": {0: Dim("length", min=0, max=200)}, "k": Dim.DYNAMIC}
    model = disc.compile(Module(), (sparse(6), 5), dynamic_shapes=shapes)
    for n, k in ((6, 5), (3, 2), (0, 17), (7, 300)):
        agree(model(sparse(n) * 0 + 1, k), fn(sparse(n) * 0 + 1, k))
    with pytest.raises(TypeError, match="input 'k': expected an int, got float"):
        model(sparse(2), 2.0)


def test_counting() -> None:
    """Repetitions and histograms."""

    def fn(x: torch.Tensor) -> object:
        n = x.abs().long()[:, 0]
        repeated = torch.repeat_interleave(x, n, dim=0)
        # Of nothing, eager's sums of weights are integers.
        weighted = torch.bincount(torch.cat([n, n.new_ones(1)]), torch.cat([x[:, 1], x.new_ones(1)]), minlength=5)
        return repeated, repeated.sum(0), torch.bincount(n), torch.bincount(n, minlength=5), weighted

    check(fn)


def test_counting_errors() -> None:
    """What eager refuses."""
    model = built(torch.repeat_interleave, torch.tensor([2, 1]), dynamic=({0: Dim("n")},))
    with pytest.raises(IndexError, match=r"repeat_interleave.* at .*: repeats can not be negative"):
        model(torch.tensor([2, -1, 3]))


def test_library(tmp_path: Path) -> None:
    """The same ahead of time: results, what is said of the interface, and shapes that data decides."""

    def fn(x: torch.Tensor, n: torch.Tensor) -> object:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= 64)
        rows = torch.nonzero(x)
        return rows, x[x > 0].cumsum(0), torch.arange(k)[:, None] * x[:1, 0].sum()

    torch.manual_seed(0)
    artifact = disc.aot_compile(
        Fn(fn),
        (sparse(6), torch.tensor(3)),
        dynamic_shapes=(({0: Dim("length", min=1, max=200)}, None),),
        output=tmp_path / "libselect.so",
        header=tmp_path / "select.h",
    )
    assert [tuple(map(str, t.dims)) for t in artifact.interface.outputs] == [("u1", "2"), ("u2",), ("u0", "1")]
    # C gets what it could not allocate.
    assert "DLManagedTensorVersioned **output_0" in (tmp_path / "select.h").read_text()
    library = disc.load(artifact.path)
    for n, k in ((6, 3), (1, 0), (200, 64), (17, 1), (5, 16)):
        args = (sparse(n), torch.tensor(k))
        agree(library(*args), fn(*args))
    args = (torch.zeros(4, 4), torch.tensor(0))
    agree(library(*args), fn(*args))
    assert library.output_shapes(*args) == ((None, 2), (None,), (None, 1))
    # An array of the caller's may be larger; what was written is the result.
    x = sparse(5)
    out = (torch.empty(40, 2, dtype=torch.int64), torch.empty(20), None)
    results = library(x, torch.tensor(2), out=out)
    agree(results, fn(x, torch.tensor(2)))
    assert results[0].data_ptr() == out[0].data_ptr()
    with pytest.raises(disc.ShapeError, match=r"item at .*: u0 is out of range"):
        library(sparse(3), torch.tensor(65))
    with pytest.raises(disc.ShapeError, match="output 'output_0', dim 0: expected at least"):
        library(torch.ones(3, 4), torch.tensor(5), out=(torch.empty(4, 2, dtype=torch.int64), None, None))


def test_errors_of_the_model() -> None:
    """What the model's own code raises, and what it asserts."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise ValueError("not a number")
        assert x.sum() < 100, "too much"
        torch._assert_async(x[0] != 7, "not a seven")
        torch._assert_async(x[0])
        return x * 2

    model = built(fn, torch.ones(3), dynamic=({0: Dim("length", min=1)},))
    agree(model(torch.ones(4)), fn(torch.ones(4)))
    for bad, text in (
        (torch.nan, r"^ValueError: not a number \(test_data_dependent.py:\d+\)"),
        (70.0, r"^AssertionError: too much \(test_data_dependent.py:\d+\)"),
        (7.0, "^not a seven"),
        (0.0, "^torch._assert_async"),
    ):
        with pytest.raises(disc.ShapeError, match=text):
            model(torch.full((2,), bad))


def test_operators_that_ask_for_sizes() -> None:
    """What PyTorch asks of sizes, whether there is an element for one, is no condition where sizes depend on data."""

    def operators(x: torch.Tensor, k: int) -> list[torch.Tensor]:
        some, rows = x[x > 0], x[x[:, 0] > 0]
        return [
            rows.logsumexp(0),
            rows.logsumexp((0, 1)),
            torch.cdist(rows, x),
            torch.cdist(x, rows, p=1.0),
            torch.nn.functional.cosine_similarity(rows, x[:1]),
            torch.nn.functional.cosine_similarity(rows, x[0], dim=-1),
            torch.diff(some),
            torch.diff(rows, n=2, dim=0, prepend=x[:1]),
            torch.trapz(some),
            torch.trapezoid(rows, x[0] * 2),
            torch.cumulative_trapezoid(some, dx=0.5),
            torch.tensordot(rows, rows, ([0], [0])),
            torch.tensordot(rows, x, ([1], [1])),
            torch.tensordot(some, x, 0),
            torch.nn.utils.rnn.pad_sequence([some, x[:, 0], x[0]], batch_first=True),
            torch.nn.utils.rnn.pad_sequence([rows, x], padding_value=2.0),
            x[:k].logsumexp(0),
        ]

    example = torch.randn(9, 3)
    rows = {0: torch.export.Dim("n", min=1, max=100)}
    model = disc.compile(operators, (example, 4), dynamic_shapes=(rows, torch.export.Dim.DYNAMIC))
    for seed, n in enumerate((9, 1, 2, 5, 64, 3)):
        x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
        for given in (x, x.abs() + 0.1, torch.cat([x[:1].abs(), -x[1:].abs()]), -x.abs()):
            for got, expected in zip(model(given, 2), operators(given.double(), 2), strict=True):
                torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_count_that_must_be_a_dim() -> None:
    """The elements found are read behind the guard on their count, also where the count goes by the dim's name."""

    def places(x: torch.Tensor) -> torch.Tensor:
        found = x.masked_select(x > 0)
        return torch.xlogy(x.abs(), found.abs() + 1).nonzero()

    dim = torch.export.Dim("n", min=2)
    with pytest.warns(UserWarning, match="works for some sizes"):
        model = disc.compile(places, (torch.arange(1, 6, dtype=torch.int32),), dynamic_shapes=({0: dim},))
    for n in (3, 700, 5000, 33):
        x = torch.arange(1, n + 1, dtype=torch.int32)
        torch.testing.assert_close(model(x), places(x))
        with pytest.raises(disc.ShapeError, match=f"expected count == n, got 0 and {n}"):
            model(-x)
