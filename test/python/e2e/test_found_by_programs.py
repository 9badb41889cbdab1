"""What random programs (`test/python/programs`) found, said in the fewest words; each compares with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import disc


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: torch.Tensor) -> Any:
        """Calls it."""
        return self.fn(*args)


def compare(
    fn: Callable[..., Any], *args: torch.Tensor, dynamic: Iterable[dict[int, Any]], calls: Iterable[Any]
) -> None:
    """Compiles a function for ``args`` with ``dynamic`` dims, and compares it at ``calls``."""
    model = disc.compile(Fn(fn), args, dynamic_shapes=(tuple(dynamic),))
    for call in calls:
        want = fn(*(x.clone() for x in call))
        got = model(*call)
        for g, w in zip(
            got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
        ):
            assert g.dtype == w.dtype
            torch.testing.assert_close(g, w, equal_nan=True)


N = Dim("n", min=0, max=1000)


def test_isin_of_no_elements() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.isin(x, y), torch.isin(y, x, invert=True), torch.isin(x, torch.arange(3)), torch.isin(x.sum(), y)

    x, y = torch.arange(12).reshape(4, 3) % 7, torch.arange(30) * 2
    calls = [(x, y), (x[:0], y), (x, y[:0]), (x[:1], y[:1]), (x[:0], y[:0]), (x.repeat(9, 1), y[3:])]
    compare(fn, x, y, dynamic=[{0: N}, {0: Dim("m", min=0)}], calls=calls)
    floats = [(a.double() / 2, b.float()) for a, b in calls]
    compare(fn, *floats[0], dynamic=[{0: N}, {0: Dim("m", min=0)}], calls=floats)


def test_isin_of_nan() -> None:
    """NaN is in no set, and those in it hide nothing, at any size: the search compares."""
    specials = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 5e-324, 1e308], dtype=torch.float64)

    def given(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, 16, dtype=torch.float64, generator=generator)
        places = torch.randint(0, 7, (n, 16), generator=generator)
        x = torch.where(torch.rand(n, 16, generator=generator) < 0.3, specials[places], x)
        return x, x.flip(0)[: n // 2 + 1]

    calls = [given(n, seed) for seed, n in enumerate((5, 1, 2, 9, 30, 2, 1, 3, 60))]
    calls += [(x, torch.full_like(y, torch.nan)) for x, y in calls[:4]]

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.isin(x, x), torch.isin(x, y), torch.isin(y, x, invert=True)

    compare(fn, *given(4, 99), dynamic=[{0: N}, {0: Dim("m", min=0)}], calls=calls)


def test_loop_over_a_range_of_a_remainder() -> None:
    """`n % 3` is no extent, as `n` may be negative, but as long as a loop."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for i in range(int(x.sum()) % 3):
            x = x + i + 1
        return x

    calls = [(torch.full((n,), k),) for n in (5, 1, 7) for k in (1, -1, -3, 2)]
    compare(fn, torch.arange(5), dynamic=[{0: N}], calls=calls)


def test_index_arithmetic_in_a_body_is_not_used_behind_it() -> None:
    """The constant 1 of the places that masked_scatter reads, then of a slice."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.masked_scatter(x > 0, x.flip(0))[None].float()
        return y.unsqueeze(0).expand(2, *y.shape)[1]

    x = torch.arange(40).reshape(2, 4, 5) % 7 - 3
    compare(fn, x, dynamic=[{2: N}], calls=[(x,), (x[..., :1],), (x[..., :0],)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_type_as_is_its_operand_or_a_copy(dtype: torch.dtype) -> None:
    def first(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.type_as(torch.ones(2, dtype=dtype))
        y.add_(1)
        return x.clone(), y.clone()

    def second(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.type_as(torch.ones(2, dtype=dtype))
        x[1:] = x[:-1].clone()
        return x * 2, y * 2

    for fn in (first, second):
        model = disc.compile(Fn(fn), (torch.arange(5.0),), dynamic_shapes=(({0: Dim("n", min=2)},),))
        for n in (5, 2, 33):
            x, y = torch.arange(float(n)), torch.arange(float(n))
            for got, want in zip(model(x), fn(y), strict=True):
                assert torch.equal(got, want)
            assert torch.equal(x, y)


def test_diagonal_replaced_by_another_dtype() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.diagonal_scatter(y.diagonal()), y.diagonal_scatter(x.diagonal(1), 1)

    x, y = torch.arange(20).reshape(4, 5) % 3 > 0, torch.arange(20.0).reshape(4, 5)
    compare(fn, x, y, dynamic=[{0: N}, {0: N}], calls=[(x, y), (x[:1], y[:1]), (x[:2], y[:2])])


def test_places_of_nan_in_pools() -> None:
    """Of several NaN the last one counts; of other equal elements the first."""
    nan, inf = float("nan"), float("inf")

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image = x.reshape(1, 1, -1, 4)
        pools = [F.max_pool1d(x, 3, 1, 1, return_indices=True), F.adaptive_max_pool1d(x, 2, return_indices=True)]
        pools += [
            F.max_pool2d(image, 2, 1, 1, return_indices=True),
            F.max_pool2d(image, (3, 2), 2, return_indices=True),
        ]
        pools += [F.adaptive_max_pool2d(image, 2, return_indices=True)]
        pools += [F.max_pool3d(image[None], (1, 2, 2), 1, return_indices=True)]
        return tuple(x for pair in pools for x in pair)

    x = torch.tensor(
        [nan, nan, 1, 2, 2, -inf, -inf, inf, inf, nan, 3, nan, nan, nan, 5, 5, 0, -0.0, 1, 1, nan, 3, 3, 2]
    )
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        y = x.to(dtype).reshape(1, 1, -1)
        compare(
            fn, y, dynamic=[{2: 4 * Dim("k", min=3)}], calls=[(y,), (y[..., :12],), (y.flip(2),), (y.repeat(1, 1, 3),)]
        )


def test_a_loop_without_steps_says_nothing_of_extents() -> None:
    """The steps read the first row: behind the loop it need not exist."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y, i = x.clone(), 0
        while i < x.size(0):
            y[i] = y[i] + y[0]
            i += 2
        return y[:1] * 2

    model = disc.compile(Fn(fn), (torch.randn(5, 4),), dynamic_shapes=(({0: Dim("n", min=0)},),))
    for n in (5, 1, 2, 0, 6):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), fn(x))


def test_a_diagonal_of_a_length_that_may_be_0() -> None:
    """Its length is min(1, n)."""
    model = disc.compile(
        Fn(lambda x: x.diagonal(-1, 0, 1)), (torch.randn(2, 5),), dynamic_shapes=(({1: Dim("n", min=0)},),)
    )
    for n in (5, 1, 0, 2, 60):
        x = torch.randn(2, n)
        torch.testing.assert_close(model(x), x.diagonal(-1, 0, 1))


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett"])
def test_windows_of_one_place(name, periodic):
    def windowed(x):
        return getattr(torch, f"{name}_window")(x.shape[0], periodic=periodic) * x

    for size in (1, 2, 6):
        x = torch.randn(size)
        torch.testing.assert_close(disc.compile(windowed, (x,))(x), windowed(x), rtol=1e-5, atol=1e-6)
    model = disc.compile(windowed, (torch.randn(6),), dynamic_shapes=({0: "n"},))
    for size in (1, 2, 5, 17):
        x = torch.randn(size)
        torch.testing.assert_close(model(x), windowed(x), rtol=1e-5, atol=1e-6)


def test_windows_of_which_there_may_be_fewer_than_their_length() -> None:
    """To lay out the product PyTorch asks which of the two dims is larger."""
    sizes = Dim("n", min=1) + 2
    for given in (sizes, Dim("k", min=3), Dim.AUTO):
        model = disc.compile(Fn(lambda x: x.unfold(-1, 3, 1) * 2), (torch.randn(7),), dynamic_shapes=(({0: given},),))
        assert not model.guards()
        for n in (7, 3, 4, 12):
            x = torch.randn(n)
            assert torch.equal(model(x), x.unfold(-1, 3, 1) * 2)


def test_squeeze_in_a_branch_for_one_row() -> None:
    def single(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0) * 2 if x.shape[0] == 1 else x.mean(0)

    def both(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze() * 2 if x.shape[0] == 1 and x.shape[1] == 1 else x.sum((0, 1))

    calls = [(torch.randn(n, m, 3),) for n, m in ((4, 6), (1, 1), (1, 7), (7, 1))]
    for function in (single, both):
        dims = {0: Dim("n", min=1), 1: Dim("m", min=1)}
        compare(function, torch.randn(4, 6, 3), dynamic=(dims,), calls=calls)


def test_equal_tensors_of_any_sizes() -> None:
    def same(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum() + 1 if torch.equal(x, y) else y.sum(), y * 2 if x[x > 0].equal(y) else y

    dims = {0: Dim("n", min=1)}, {0: Dim("m", min=1)}
    calls = [(torch.ones(n), torch.ones(m)) for n, m in ((3, 3), (3, 4), (1, 1), (7, 2))]
    compare(same, torch.ones(3), torch.ones(4), dynamic=dims, calls=calls)


@pytest.mark.parametrize("loss", [F.huber_loss, F.soft_margin_loss])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_the_dtype_of_their_input(loss: Callable[..., torch.Tensor], reduction: str) -> None:
    calls = [(torch.randn(n, 3).bfloat16(), torch.randn(n, 3)) for n in (1, 5, 17)]
    compare(
        lambda x, y: loss(x, y, reduction=reduction), *calls[1], dynamic=({0: Dim("n")}, {0: Dim("n")}), calls=calls
    )
    compare(
        lambda x, y: loss(y, x, reduction=reduction), *calls[1], dynamic=({0: Dim("n")}, {0: Dim("n")}), calls=calls
    )


def test_a_complex_element_at_a_place_that_data_decides() -> None:
    table = torch.randn(8, 3, dtype=torch.complex64)

    def picked(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        place = x.sum().long() & 7
        return table[place], table[:, place & 1], x.to(torch.complex64)[place]

    calls = [(torch.randn(n) * 9,) for n in (8, 11, 23)]
    compare(picked, calls[1][0], dynamic=({0: Dim("n", min=8)},), calls=calls)


def test_patches_are_a_view_of_the_image() -> None:
    def patches(x: torch.Tensor) -> torch.Tensor:
        each = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5)
        return each.reshape(x.shape[0], each.shape[1] * each.shape[2], 3 * 16)

    dims = {0: Dim("b"), 2: Dim("h", min=4), 3: Dim("w", min=4)}
    calls = [(torch.randn(b, 3, h, w),) for b, h, w in ((1, 4, 4), (2, 16, 8), (3, 7, 23), (1, 31, 17), (2, 12, 5))]
    compare(patches, calls[1][0], dynamic=(dims,), calls=calls)
    model = disc.compile(Fn(patches), calls[1], dynamic_shapes=((dims,),))
    assert model.ir("memory").count("disc_plan.kernel_func") == 1


def test_windows_and_reversed_dims_along_any_dim() -> None:
    """Computed coordinates, which let dims be walked as one, and short ones be joined."""

    def windows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.unfold(1, 3, 2) * 2,
            x.unfold(2, 5, 1).clone(),
            x.unfold(1, 2, 1).unfold(2, 3, 2).contiguous(),
            x.flip(1).unfold(2, 4, 3).relu(),
            x.flip((1, 2)) + x,
            x.unfold(2, 17, 16).flip(-1).sum(1),
        )

    dims = {0: Dim("b"), 1: Dim("n", min=3), 2: Dim("m", min=17)}
    calls = [(torch.randn(b, n, m),) for b, n, m in ((2, 8, 32), (1, 3, 17), (3, 5, 19), (1, 16, 64), (2, 7, 33))]
    compare(windows, calls[0][0], dynamic=(dims,), calls=calls)
    compare(windows, calls[0][0], dynamic=({0: Dim("b")},), calls=[(torch.randn(b, 8, 32),) for b in (1, 2, 5)])


def test_an_adaptive_pool_that_keeps_a_size() -> None:
    """A size of None was the example's, silently."""

    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        every_other = x[..., ::2]
        return (
            F.adaptive_max_pool2d(x, (5, None)),
            F.adaptive_max_pool2d(every_other, (None, 3)),
            F.adaptive_avg_pool2d(every_other, (5, None)),
            F.adaptive_max_pool2d(x, (None, None)),
        )

    dims = {2: Dim("h", min=1), 3: Dim("w", min=1)}
    calls = [(torch.randn(1, 6, h, w),) for h, w in ((7, 7), (9, 4), (2, 13), (1, 1), (8, 6))]
    compare(pools, calls[0][0], dynamic=(dims,), calls=calls)

    def places(x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_max_pool2d(x, (5, None), return_indices=True)[1]

    with pytest.raises(disc.CompileError, match="fixes it"):
        disc.compile(Fn(places), calls[0], dynamic_shapes=((dims,),))


def test_a_sum_with_zero_has_the_sign_of_the_sum() -> None:
    """x + 0.0 was x, and atan2 of it -pi for pi."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.signbit(x + 0.0), torch.atan2(x * y + 0, y), torch.signbit(x + -0.0), torch.signbit(0 + x), x + 0.0

    x, y = torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0]), torch.tensor([-1.0, -1.0, 1.0, 1.0, -0.0])
    compare(fn, x, y, dynamic=[{0: N}, {0: N}], calls=[(x, y), (x[1:3], y[1:3])])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_ldexp_by_integers_is_exact(dtype: torch.dtype) -> None:
    """2 to the exponent may not be a number where the result is one, or is 0. PyTorch multiplies by a float power."""

    def fn(x: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ldexp(x, e), torch.ldexp(x[:, None], e[:5].short()), torch.ldexp(x, (e % 8).to(torch.float32))

    info = torch.finfo(dtype)
    tiny = info.smallest_normal * info.eps
    values = torch.tensor([0.0, -0.0, torch.inf, torch.nan, 1.0, -1.5, tiny, 3 * tiny, info.tiny, info.max, 0.7])
    exponents = torch.tensor([0, 1, -1, 20, -20, 130, -130, 149, -150, 270, -276, 900, -900, 1073, -1074, 2000, -2090])
    x, e = values.to(dtype).repeat_interleave(len(exponents)), exponents.repeat(len(values))
    compare(fn, x, e, dynamic=[{0: N}, {0: N}], calls=[(x, e), (x, e.sign() * 2**30), (x[:7], e[:7])])
    compare(fn, x, e.int(), dynamic=[{0: N}, {0: N}], calls=[(x, e.int()), (x * 0.3, e.int())])


def test_moments_of_infinities() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.var_mean(x, 1)[1], torch.std_mean(x, 1, correction=0)[1]

    x = torch.tensor([[1.0, torch.inf, 3.0], [-torch.inf, 0.0, 2.0], [torch.inf, -torch.inf, 1.0], [1.0, 2.0, 4.0]])
    model = disc.compile(Fn(fn), (x,), dynamic_shapes=(({0: N, 1: Dim("m", min=1)},),))
    # Eager PyTorch has NaN at some lengths and infinities at others.
    for got in model(x):
        torch.testing.assert_close(got, x.mean(1), equal_nan=True)


def test_layer_norm_of_equal_numbers_is_zero() -> None:
    """Rounded, their mean differed from them, and 1 / sqrt(eps) made 5e-4 of that."""
    x = torch.randn(64, 1)
    dims = ({0: N, 1: Dim("m", min=1)},)
    model = disc.compile(Fn(lambda x: F.layer_norm(x, x.shape[1:])), (x.repeat(1, 12),), dynamic_shapes=(dims,))
    for length in (1, 3, 7, 12, 33, 100, 513):
        assert not model((1000 * x).repeat(1, length)).any()
