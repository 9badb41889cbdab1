"""Programs of users that failed once, said in the fewest words; each compares with eager PyTorch."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.func import hessian, jacfwd, vmap
from torch.nn import functional

import disc

SIZES = (5, 1, 2, 7, 16, 17, 48, 1)


def compare(fn, *dims, sizes=SIZES, example=5, exact=False):
    """Compiles ``fn``, of tensors [n, *dims] each, and compares it with eager at several n."""

    def given(n):
        generator = torch.Generator().manual_seed(n)
        return [torch.randn(n, *shape, generator=generator) for shape in dims]

    model = disc.compile(fn, tuple(given(example)), dynamic_shapes=({0: Dim("n", min=1)},) * len(dims))
    for n in sizes:
        got, expected = model(*given(n)), fn(*given(n))
        for g, e in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, expected)), strict=True):
            torch.testing.assert_close(g, e, **({"rtol": 0, "atol": 0} if exact else {}))
    return model


def test_second_derivatives_of_activations():
    """PyTorch has them while gradients are enabled; of products with vectors its rules for batches make odd views."""
    torch.manual_seed(0)
    weight, net = torch.randn(4, 2), nn.Sequential(nn.Linear(2, 4), nn.SiLU(), nn.Linear(4, 1))

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        activations = (functional.gelu, functional.mish, torch.sin, functional.softsign)
        return (
            vmap(hessian(lambda z: net(z)[0]))(x),
            *(vmap(hessian(lambda z, a=a: a(weight @ z).sum()))(x) for a in activations),
            vmap(jacfwd(jacfwd(lambda z: torch.sin(torch.mv(weight, z)).sum())))(x),
        )

    compare(fn, (2,), sizes=(5, 1, 7))


def test_distributions_of_numbers():
    """Their arguments are checked while the model is traced; all distributions are rewritten at once."""
    d = torch.distributions

    def fn(mean: Tensor, spread: Tensor) -> tuple[Tensor, ...]:
        posterior = d.Normal(mean, spread.exp(), validate_args=True)
        return (
            d.Normal(0.0, 1.0).log_prob(mean),
            d.kl_divergence(posterior, d.Normal(0.0, 1.0)),
            posterior.log_prob(spread),
            d.LKJCholesky(3, 1.0).log_prob(torch.eye(3).expand(mean.shape[0], 3, 3)),
        )

    model = compare(fn, (3,), (3,))
    with pytest.raises(disc.ShapeError, match="ValueError"):
        model(torch.full((2, 3), torch.nan), torch.zeros(2, 3))


@pytest.mark.parametrize("example", [40, 7])
def test_chunks_of_a_padded_length(example):
    """A condition on a length of any size repeats with the length of a chunk: some lengths prove it."""

    def fn(x: Tensor) -> Tensor:
        n, width = x.shape
        pad = (16 - n % 16) % 16
        chunks = functional.pad(x, (0, 0, 0, pad)).reshape(-1, 16, width)
        y = (chunks + functional.pad(chunks[:-1, -1:], (0, 0, 0, 0, 1, 0))).reshape(-1, width)
        if pad > 0:
            y = y[:n]
        return y

    compare(fn, (3,), example=example, exact=True)
    model = disc.compile(fn, (torch.randn(example, 3),), dynamic_shapes=({0: "t"},))
    with pytest.raises(disc.ShapeError, match="broadcast"):
        model(torch.randn(0, 3))  # without a chunk, what is joined with all but the last one is one more


def test_half_of_the_rows():
    """What only 0 violates narrows the range to 1 and more, not to even numbers; a bound of a slice narrows nothing."""

    def best(x: Tensor) -> Tensor:
        return x.topk(max(1, x.shape[0] // 2), 0)[0]

    def cleared(x: Tensor) -> Tensor:
        y = x.clone()
        y[x.shape[0] // 2 :] = y.mean()
        return y

    with pytest.warns(UserWarning, match=r'n = Dim\("n", min=1\)'):
        model = disc.compile(best, (torch.randn(6, 3),), dynamic_shapes=({0: "n"},))
    for n in SIZES:
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), best(x), rtol=0, atol=0)
    compare(cleared, (3,))


@pytest.mark.parametrize("example", [40, 7])
def test_products_of_chunks(example):
    """Whether there is one chunk, as in the example, is no condition: it asks how to sum."""

    def fn(x: Tensor) -> Tensor:
        n, width = x.shape
        chunks = functional.pad(x, (0, 0, 0, (16 - n % 16) % 16)).reshape(-1, 16, width)
        return torch.einsum("cld,ckd->clk", chunks, chunks).sum(1) + torch.einsum("cld->ld", chunks).sum()

    compare(fn, (3,), example=example)


def test_a_range_with_an_extent_as_its_step():
    def fn(x: Tensor, y: Tensor) -> Tensor:
        out = []
        for i in range(0, x.shape[0], y.shape[0]):
            out.append(x[i] * y[0])
        return torch.stack(out)

    rows = {0: Dim("n", min=1)}, {0: Dim("m", min=1)}
    model = disc.compile(fn, (torch.randn(9, 3), torch.randn(2, 3)), dynamic_shapes=rows)
    for n, m in ((9, 2), (1, 1), (7, 3), (5, 9)):
        x, y = torch.randn(n, 3), torch.randn(m, 3)
        torch.testing.assert_close(model(x, y), fn(x, y), rtol=0, atol=0)


def test_a_new_tensor_in_each_step_that_is_changed_in_place():
    """What a step makes anew is none of what the loop carries."""

    def fn(x: Tensor) -> Tensor:
        centres = x.clone()
        for _ in range(20):
            new = torch.zeros_like(centres)
            new += centres * 0.5
            if (new - centres).norm() < 1e-2:
                break
            centres = new
        return centres

    compare(fn, (3,))


def test_running_sums_of_exponentials():
    """As exact as eager, which adds in float64."""
    x = torch.rand(300_000, generator=torch.Generator().manual_seed(0)) * 0.1
    model = disc.compile(lambda x: x.logcumsumexp(0), (x[:9],), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(model(x).double(), x.double().logcumsumexp(0), rtol=2e-7, atol=0)


def test_a_factorisation_that_is_differentiated(caplog):
    """Its check orders effects: PyTorch passes None for the tensor that stands for the order."""
    torch._dynamo.reset()
    scales = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def fn(x: Tensor) -> Tensor:
        kernel = torch.exp(-(torch.cdist(x, x) ** 2) * scales[0].exp())
        return torch.linalg.cholesky(kernel + scales[1].exp() * torch.eye(len(x), dtype=x.dtype)).diagonal().log().sum()

    compiled = torch.compile(fn, backend="disc", dynamic=True)
    for n in (5, 2, 7):
        x = torch.randn(n, 2, dtype=torch.float64, requires_grad=True)
        expected = torch.autograd.grad(fn(x), [x, scales])
        for got, want in zip(torch.autograd.grad(compiled(x), [x, scales]), expected, strict=True):
            torch.testing.assert_close(got, want)
    assert "runs in PyTorch" not in caplog.text


def test_slices_with_numbers_as_bounds_are_set():
    def fn(x: Tensor, low: int, high: int) -> Tensor:
        y = x.clone()
        y[:, low:high] = 0
        y[..., low:high] += 1
        return y

    dims = ({0: "n", 1: Dim("m", min=1)}, Dim.DYNAMIC, Dim.DYNAMIC)
    model = disc.compile(fn, (torch.randn(5, 7), 1, 3), dynamic_shapes=dims)
    for columns in (7, 1, 30):
        for low, high in ((0, 2), (0, 40), (4, 2), (3, 3), (1, 5)):
            x = torch.randn(2, columns)
            torch.testing.assert_close(model(x, low, high), fn(x, low, high))


class Beams(nn.Module):
    """A step's number, and a computed one, beside tensors of indices, slices, ``...`` and None."""

    def forward(self, scores: Tensor, last: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        deep = scores.unsqueeze(-1).expand(-1, -1, 3)
        total, sums = torch.zeros(last.shape[0]), torch.zeros(last.shape[0], 3)
        for t in range(scores.shape[0]):
            total = total + scores[t, last]
            sums = sums + deep[t, last] + deep[t, ..., [0, 1, 1]][last] + deep[t, last, 2].unsqueeze(-1)
        h = scores.shape[0] // 2
        rows = deep[h, None, last, 1:], deep[..., h : h + 1, last, :], deep[last % scores.shape[0], :, h % 3]
        back = -1 - last.argmin() % 6
        masked = scores[: h + 1, mask], deep[h, mask], deep[[0, 0], h % 6, 0:h], deep[h:, back, [2, 0]]
        return total, sums, scores[h, last], scores[h:, last], *rows, *masked


def test_numbers_of_steps_beside_tensors_of_indices():
    def given(steps, beams):
        generator = torch.Generator().manual_seed(steps)
        mask = torch.tensor([True, False, True, True, False, True])
        return torch.randn(steps, 6, generator=generator), torch.randint(0, 6, (beams,), generator=generator), mask

    module = Beams()
    dims = ({0: Dim("steps", min=1, max=100)}, {0: Dim("beams", min=1)}, None)
    model = disc.compile(module, given(7, 3), dynamic_shapes=dims)
    for sizes in ((7, 3), (1, 1), (2, 9), (100, 4), (3, 2), (17, 1)):
        for got, expected in zip(model(*given(*sizes)), module(*given(*sizes)), strict=True):
            torch.testing.assert_close(got, expected)


def test_a_written_number_that_a_loop_changes_as_an_index():
    """A walk down a tree: what a loop's value is like was taken for the value itself."""

    def walk(scores, child):
        node, depth = torch.tensor(0), 0
        while True:
            best = scores[node].argmax()
            after = child[node, best]
            depth += 1
            if after < 0:
                break
            node = after
        return node, best, depth

    def given(n):
        child = torch.arange(1, n + 1)[:, None].repeat(1, 4)
        child[n - 1] = -1
        return torch.randn(n, 4, generator=torch.Generator().manual_seed(n)), child

    model = disc.compile(walk, given(7), dynamic_shapes=({0: Dim("n", min=1)},) * 2)
    for n in SIZES:
        assert model(*given(n)) == walk(*given(n))


@pytest.mark.parametrize("transform", [torch.func.jacfwd, torch.func.jacrev])
def test_jacobians_in_a_loop_that_data_ends(transform):
    """Levenberg and Marquardt's method; what transforms wrap has no memory of its own."""

    def fit(x, y, p):
        def residuals(p):
            return p[0] * torch.exp(-p[1] * x) - y

        for count in range(20):
            jacobian = transform(residuals)(p)
            step = torch.linalg.solve(
                jacobian.T @ jacobian + 0.01 * torch.eye(2, dtype=p.dtype), -jacobian.T @ residuals(p)
            )
            p = p + step
            if step.norm() < 1e-3:
                break
        return p, count

    def given(n):
        x = torch.linspace(0, 4, n, dtype=torch.float64)
        return x, 2 * torch.exp(-0.7 * x), torch.tensor([1.5, 0.5], dtype=torch.float64)

    model = disc.compile(fit, given(20), dynamic_shapes=({0: Dim("n", min=2)}, {0: Dim("n", min=2)}, None))
    for n in (20, 2, 3, 17, 100, 2):
        (p, count), (expected, steps) = model(*given(n)), fit(*given(n))
        assert count == steps
        torch.testing.assert_close(p, expected, rtol=1e-9, atol=1e-9)


def test_a_count_of_at_least_one_of_an_extent():
    """The counts of a batch of graphs; torch.export takes the extent for 2 or more, and so the counts."""

    def atoms(batch, graphs):
        return torch.bincount(batch, minlength=graphs.shape[0])

    dims = ({0: Dim("n", min=0, max=100)}, {0: Dim("g", min=1, max=100)})
    model = disc.compile(atoms, (torch.tensor([0, 0, 1, 2]), torch.zeros(3)), dynamic_shapes=dims)
    for batch, count in (([0, 2], 3), ([0, 0], 1), ([], 1), ([5], 1), ([1], 100)):
        given = torch.tensor(batch, dtype=torch.int64), torch.zeros(count)
        assert torch.equal(model(*given), atoms(*given))


def portrait(x: Tensor) -> Tensor:
    """The longer side last."""
    h, w = x.shape[-2:]
    if h > w:
        x = x.mT
    return x.mean(-1)


def residual(x: Tensor) -> Tensor:
    """Adds what has its shape."""
    if x.shape == x.mT.shape:
        return x + x.mT
    return x * 3


def smaller_product(x: Tensor) -> Tensor:
    """The smaller of two products."""
    n, m = x.shape
    if n < m:
        return x @ x.T
    return x.T @ x


def area(x: Tensor) -> Tensor:
    """Another result for large images."""
    return x[:1] * 2 if x.shape[0] * x.shape[1] > 30 else x * 3


@pytest.mark.parametrize("example", [(4, 6), (6, 4), (4, 3)])
@pytest.mark.parametrize("function", [portrait, residual, smaller_product, area])
def test_conditions_on_two_extents(function, example):
    """torch.export answers by the example what it cannot solve for one dim, and takes no notice of it."""
    dims = ({0: Dim("h", min=1, max=99), 1: Dim("w", min=1, max=99)},)
    model = disc.compile(function, (torch.randn(example),), dynamic_shapes=dims)
    for size in ((3, 5), (5, 3), (4, 3), (9, 8), (1, 1), (1, 7), (7, 1), (4, 4), (31, 1), (99, 98)):
        x = torch.randn(size)
        got, expected = model(x), function(x)
        assert got.shape == expected.shape
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_conditions_on_two_extents_where_there_is_no_branch():
    """What the program was not compiled for is an error of the call."""

    def longest(x, y):
        return max([x, y], key=lambda z: z.shape[0]) * 2

    def chosen(x, y):
        return (x * 2, y * 3)[int(x.shape[0] < y.shape[0])]

    for function in (longest, chosen):
        dims = ({0: "a"}, {0: "b"})
        model = disc.compile(function, (torch.randn(5), torch.randn(4)), dynamic_shapes=dims)
        for a, b in ((7, 3), (2, 1), (5, 9)):
            x, y = torch.randn(a), torch.randn(b)
            if a > b:
                torch.testing.assert_close(model(x, y), function(x, y))
                continue
            try:
                got = model(x, y)
            except disc.ShapeError as error:
                assert "test_found_by_users.py" in str(error)
            else:
                torch.testing.assert_close(got, function(x, y))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_padded_to_the_longest(batch_first, side):
    """The longest of the call, whichever was in the example."""

    def padded(a, b, c):
        return nn.utils.rnn.pad_sequence([a, b, c], batch_first, padding_value=-1.5, padding_side=side)

    def given(*lengths):
        return tuple(torch.randn(n, 3) for n in lengths)

    model = disc.compile(padded, given(4, 6, 5), dynamic_shapes=({0: "a"}, {0: "b"}, {0: "c"}))
    for lengths in ((4, 6, 5), (1, 1, 1), (9, 2, 3), (2, 2, 11), (3, 1, 3), (1, 0, 0), (0, 5, 1)):
        x = given(*lengths)
        assert torch.equal(model(*x), padded(*x))


def test_tokens_shifted_to_the_right():
    """A view of all columns but one, of two or one, is changed in place."""

    def shifted(ids):
        y = ids.new_zeros(ids.shape)
        y[:, 1:] = ids[:, :-1].clone()
        y[:, 0] = 2
        return y.masked_fill_(y == -100, 1)

    dims = ({0: Dim("B", min=1, max=64), 1: Dim("T", min=1, max=256)},)
    model = disc.compile(shifted, (torch.randint(3, 99, (2, 7)),), dynamic_shapes=dims)
    for size in ((2, 7), (1, 1), (3, 2), (5, 3), (64, 256), (2, 1)):
        ids = torch.randint(3, 99, size)
        assert torch.equal(model(ids), shifted(ids))


@pytest.mark.parametrize("size", ["one", "several"])
def test_adaptive_pools_to_sizes_known_at_run_time(size):
    class Pools(nn.Module):
        def forward(self, x, y):
            n = y.shape[0] if size == "one" else y.shape[0] + x.shape[2] // 4
            return (
                functional.adaptive_avg_pool1d(x, n),
                functional.adaptive_max_pool1d(x, n),
                functional.adaptive_avg_pool2d(x[None], (n, 3)),
                functional.adaptive_max_pool2d(x[None], (2, n)),
                functional.adaptive_max_pool2d(x[None], (n, None)),
                functional.adaptive_max_pool3d(x[None, None], (2, n, 3)),
                functional.adaptive_max_pool1d(x, 4, return_indices=True),
            )

    dims = ({2: Dim("n", min=1, max=60)}, {0: Dim("m", min=1, max=9)})
    model = disc.compile(Pools(), (torch.randn(2, 8, 12), torch.randn(5)), dynamic_shapes=dims)
    for n, m in ((20, 3), (12, 5), (9, 1), (60, 9), (1, 9), (13, 4)):
        args = torch.randn(2, 8, n), torch.randn(m)
        torch.testing.assert_close(model(*args), Pools()(*args))


_OF_TWO_SIZES = {
    "kernel": lambda x, k: functional.max_pool1d(x, k),
    "windows": lambda x, k: x.unfold(2, k, 1),
    "bins": lambda x, k: torch.histc(x, k),
    "epsilon": lambda x, k: functional.instance_norm(x, eps=float(k)),
    "groups": lambda x, k: functional.group_norm(x.repeat(1, k, 1), k),
}


@pytest.mark.parametrize("name", _OF_TWO_SIZES)
def test_numbers_of_two_sizes_are_checked(name):
    """What an operator takes as a number of Python is the example's; at a call with another number that is an error."""
    function = _OF_TWO_SIZES[name]

    class Model(nn.Module):
        def forward(self, x, y):
            return function(x, x.shape[2] // y.shape[0])

    dims = ({2: Dim("n", min=9, max=60)}, {0: Dim("m", min=1, max=9)})
    with pytest.warns(UserWarning, match="can have sizes like the example's only"):
        model = disc.compile(Model(), (torch.randn(2, 8, 12), torch.randn(5)), dynamic_shapes=dims)
    for n, m in ((12, 5), (12, 6), (16, 7), (12, 3), (9, 9), (60, 1)):
        args = torch.randn(2, 8, n), torch.randn(m)
        if n // m == 2:
            torch.testing.assert_close(model(*args), Model()(*args))
        else:
            with pytest.raises(disc.ShapeError, match=rf"expected n // m == 2, got {n // m}"):
                model(*args)


def test_pools_over_all_of_a_dim():
    def pools(x):
        image = x[:, None]
        return (
            functional.max_pool1d(x, x.size(2)).squeeze(2),
            functional.max_pool1d(x, kernel_size=x.shape[2], stride=1, ceil_mode=True),
            nn.functional.avg_pool1d(x, x.shape[-1]),
            functional.avg_pool2d(image, x.size()[1:]),
            functional.avg_pool2d(image, (2, x.shape[2]), stride=(1, 3)),
            functional.max_pool2d(image, kernel_size=(3, x.shape[2])),
            functional.max_pool2d(image, (x.shape[1], 1)),
            functional.avg_pool3d(image[:, :, None], (1, 2, x.shape[2])),
        )

    model = disc.compile(pools, (torch.randn(2, 8, 12),), dynamic_shapes=({2: Dim("n", min=1, max=60)},))
    for n in (12, 1, 2, 60, 17):
        x = torch.randn(2, 8, n)
        torch.testing.assert_close(model(x), pools(x))


def test_fill_diagonal_of_any_size():
    def filled(x, y):
        square = x @ x.T
        return square.fill_diagonal_(-1.0), y.fill_diagonal_(2)

    dims = ({0: Dim("n", min=1, max=60)}, {1: Dim("m", min=1, max=60)})
    model = disc.compile(filled, (torch.randn(8, 8), torch.randn(8, 8)), dynamic_shapes=dims)
    for n, m in ((8, 8), (1, 1), (3, 60), (60, 3), (9, 7)):
        x, y = torch.randn(n, 8), torch.randn(8, m)
        mine = y.clone()
        torch.testing.assert_close(model(x, mine), filled(x, y))
        torch.testing.assert_close(mine, y)


def test_least_squares():
    def solved(a, b):
        whole, last = torch.linalg.lstsq(a, b), torch.linalg.lstsq(a, b[..., 0], driver="gelsd")
        single = torch.linalg.lstsq(a[0], b[0, :, 0]).solution
        return whole.solution, whole.rank, last[0], last.singular_values, single

    dims = {0: Dim("b", min=1, max=9), 1: Dim("n", min=1, max=20)}
    model = disc.compile(solved, (torch.randn(3, 8, 3), torch.randn(3, 8, 2)), dynamic_shapes=(dims, dims))
    for batch, n in ((2, 13), (3, 8), (9, 20), (1, 3), (2, 3), (2, 1), (4, 2)):
        a, b = torch.randn(batch, n, 3, dtype=torch.float64), torch.randn(batch, n, 2, dtype=torch.float64)
        for got, want in zip(model(a.float(), b.float()), solved(a, b), strict=True):
            # Of random matrices the smallest singular value may be small, and what it is divided by is f32.
            torch.testing.assert_close(got.to(want.dtype), want, rtol=1e-3, atol=1e-3)
    with pytest.raises(disc.CompileError, match="depends on the rank"):
        disc.compile(
            lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd").residuals.sum(),
            (torch.randn(3, 8, 3), torch.randn(3, 8, 2)),
            dynamic_shapes=(dims, dims),
        )


def test_residuals_of_least_squares():
    def solved(a, b):
        return tuple(torch.linalg.lstsq(a, b, driver=driver) for driver in ("gels", "gelsd", "gelsy"))

    dims = {0: Dim("b", min=1, max=9)}
    model = disc.compile(solved, (torch.randn(3, 8, 3), torch.randn(3, 8, 2)), dynamic_shapes=(dims, dims))
    for batch in (3, 1, 9):
        a, b = torch.randn(batch, 8, 3), torch.randn(batch, 8, 2)
        for got, want in zip(model(a, b), solved(a, b), strict=True):
            torch.testing.assert_close(tuple(got), tuple(want), rtol=1e-3, atol=1e-4)
    a[0, :, 1] = a[0, :, 0]
    with pytest.raises(disc.ShapeError, match="without full rank"):
        model(a, b)


def test_computed_sizes_that_are_one_in_the_example():
    """Chunks of a sequence that is shorter than a chunk in the example, as Mamba-2 has them."""

    def chunked(x):
        count = (x.shape[0] + 7) // 8
        y = functional.pad(x, (0, 0, 0, count * 8 - x.shape[0])).view(count, 8, 4)
        return (
            torch.einsum("nid,mid->nm", y, y),
            torch.einsum("nid,njd->nij", y, y).softmax(-1) @ y,
            y.transpose(1, 2).reshape(4, -1) @ y.reshape(-1, 4),
            y.sum(1).cumsum(0).reshape(1, -1, 4),
            y.permute(1, 0, 2).reshape(2, 4, -1, 4).transpose(0, 2).reshape(-1, 32),
        )

    model = disc.compile(chunked, (torch.randn(5, 4),), dynamic_shapes=({0: Dim("n", min=1, max=100)},))
    for n in (5, 13, 1, 8, 9, 100, 16, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), chunked(x), rtol=1e-4, atol=1e-4)


def test_sizes_as_numbers():
    def numbers(x):
        n = x.shape[0]
        return (
            x.new_tensor([n, 2]),
            x.new_tensor(n, dtype=torch.int32),
            functional.pad(x, (0, 1, 2, 0), value=n),
            functional.pad(x, (1, 0), "constant", n / 2),
            torch.unravel_index(torch.arange(2 * n).view(2, n), (n, 3)),
            functional.scaled_dot_product_attention(x[None], x[None], x[None], scale=1 / (n + 1)),
        )

    model = disc.compile(numbers, (torch.randn(6, 3),), dynamic_shapes=({0: Dim("n", min=1, max=60)},))
    for n in (6, 5, 1, 2, 60, 17):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), numbers(x))


@pytest.mark.parametrize("shapes", ["auto", ({0: "n", 1: "n"},)])
def test_a_column_for_each_row(shapes):
    """The loop is as long as dim 0, and slices dim 1: that the slice has one column is known of no symbol's range."""

    def shortest(d):
        for k in range(d.shape[0]):
            d = torch.minimum(d, d[:, k : k + 1] + d[k : k + 1])
        return d

    model = disc.compile(shortest, (torch.rand(5, 5),), dynamic_shapes=shapes)
    for n in (1, 2, 7, 5, 3):
        d = torch.rand(n, n)
        torch.testing.assert_close(model(d), shortest(d), rtol=0, atol=0)


@pytest.mark.parametrize("shapes", ["auto", ({0: "n", 1: "m"},)])
def test_what_a_branch_asks_of_sizes_holds_there_alone(shapes):
    """hsplit asks for an even size, in a side that only even sizes take."""

    def halves(x):
        return torch.hsplit(x, 2) if x.shape[1] % 2 == 0 else (x, x)

    def half(x):
        return torch.hsplit(x, 2)[0] * 2 if x.shape[1] % 2 == 0 else x

    for function in (halves, half):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = disc.compile(function, torch.rand(5, 6), dynamic_shapes=shapes)
        for shape in ((2, 4), (2, 5), (1, 1), (3, 2), (4, 17)):
            x = torch.rand(shape)
            torch.testing.assert_close(model(x), function(x), rtol=0, atol=0)


def test_a_table_of_positions_for_one_number_of_patches():
    """Where the branch holds, sizes of the example differ from what the branch knows."""
    table = torch.randn(1, 16, 3, generator=torch.Generator().manual_seed(0))

    def embed(x):
        h, w = x.shape[2] // 4, x.shape[3] // 4
        tokens = x[:, :, :h, :w].flatten(2).transpose(1, 2)
        if tokens.shape[1] == 16:
            tokens = tokens * 2
            tokens = tokens + table
        if h * w == 16 and x.shape[2] == x.shape[3]:
            return tokens + table
        grid = table.reshape(1, 4, 4, 3).permute(0, 3, 1, 2)
        grid = functional.interpolate(grid, size=(h, w), mode="bicubic", align_corners=False)
        return tokens + grid.permute(0, 2, 3, 1).view(1, -1, 3)

    dims = ({0: Dim("b", min=1), 2: Dim("h", min=4), 3: Dim("w", min=4)},)
    model = disc.compile(embed, (torch.randn(2, 3, 8, 9),), dynamic_shapes=dims)
    for b, h, w in ((2, 8, 9), (1, 4, 4), (1, 16, 16), (3, 13, 7), (2, 8, 32), (1, 41, 31)):
        x = torch.randn(b, 3, h, w)
        torch.testing.assert_close(model(x), embed(x), rtol=1e-5, atol=1e-5)


def test_lists_of_numbers_of_sizes_as_indices():
    def ends(x: Tensor) -> tuple[Tensor, ...]:
        n, mask = x.shape[0], x[0] > x[0].mean()
        y, z = x.clone(), x.clone()
        y[[0, n - 1]] = y[[n - 1, 0]] * 2
        for i in range(n - 1):
            z[i, [0, 2]] = z[i, [2, 0]] + i
            z[i, mask] = z[i + 1].amax()
            z[[i, i + 1]] = z[[i + 1, i]]
        return x[[0, n - 1, n // 2]], x[:, [n % 3, -1]], x[[0, n - 1], [n % 3, 2]], x[n // 2, [0, -1]], y, z

    compare(ends, (3,), exact=True)


_LONG, _SHORT = Dim("long", min=3), Dim("short", min=2)


@pytest.mark.parametrize("shapes", ["auto", ({0: _LONG}, {0: _SHORT}), ({0: Dim.AUTO}, {0: _SHORT})])
@pytest.mark.parametrize("example", [(20, 12), (5, 9)])
def test_slices_up_to_the_size_of_another_input(shapes, example):
    """Which of two sizes is less is no question that the example answers, neither in a branch nor outside."""

    def both(q, k):
        return q[: k.shape[0]], k[: q.shape[0]], q[k.shape[0] :]

    def branch(q, k):
        return k * 2 if q[0] > 100 else k[: q.shape[0]]

    def loop(q, k):
        total = torch.zeros(())
        for i in range(q.shape[0]):
            total = total + k[: q.shape[0]].sum() + k[i:].sum()
        return total

    for function in (both, branch, loop):
        given = [torch.randn(n) for n in example]
        model = disc.compile(function, given, dynamic_shapes=shapes)
        for sizes in ((20, 12), (3, 5), (31, 2), (4, 4), (3, 2)):
            given = [torch.randn(n) for n in sizes]
            torch.testing.assert_close(model(*given), function(*given))


def test_a_slice_of_a_product_up_to_a_sum():
    """The sum is no more than the product for sizes of 2 and more alone."""

    def first(x, y):
        return (x[:, None] * y).flatten()[: x.shape[0] + y.shape[0]]

    given = torch.randn(6), torch.randn(3)
    model = disc.compile(first, given, dynamic_shapes=({0: Dim("n", min=1)}, {0: Dim("m", min=1)}))
    for n, m in ((6, 3), (1, 1), (2, 1), (1, 9), (17, 5)):
        given = torch.randn(n), torch.randn(m)
        torch.testing.assert_close(model(*given), first(*given), rtol=0, atol=0)


def test_sizes_equal_by_their_dim_in_a_branch():
    """That k is as long as v is known to the compiled program, not to the trace of the side of a branch."""

    def resized(q, k, v):
        if q.shape[0] > v.shape[0]:
            return torch.cat([k, q[: q.shape[0] - v.shape[0]]])
        return k[: q.shape[0]]

    given = [torch.randn(n) for n in (20, 12, 12)]
    model = disc.compile(resized, given, dynamic_shapes=({0: _LONG}, {0: _SHORT}, {0: _SHORT}))
    for n, m in ((20, 12), (3, 5), (31, 2), (4, 4), (3, 100)):
        given = [torch.randn(size) for size in (n, m, m)]
        torch.testing.assert_close(model(*given), resized(*given), rtol=0, atol=0)


@pytest.mark.parametrize("least", [2, 5, 16])
@pytest.mark.parametrize("example", [20, 33])
def test_remainders_of_a_size_with_a_lower_bound(least, example):
    """The least size was the only one that was tried: an even one made every size even."""

    def weights(x):
        n = x.shape[0]
        y = torch.zeros_like(x)
        if n % 2 == 0:
            y[0] = y[n // 2] = 1
            y[1 : n // 2] = 2
        else:
            y[0] = 1
            y[1 : (n + 1) // 2] = 2
        return x * y if n % 5 > 0 else y

    model = disc.compile(weights, (torch.randn(example),), dynamic_shapes=({0: Dim("n", min=least)},))
    for n in (16, 17, 20, 25, 33, 64, 99):
        x = torch.randn(n)
        torch.testing.assert_close(model(x), weights(x), rtol=0, atol=0)


def test_the_kth_value_of_half_of_a_size():
    compare(lambda x: x.kthvalue((x.shape[0] + 1) // 2, 0).values, (3,), exact=True)


def test_transforms_of_as_many_elements_as_data_decides():
    """PyTorch requires an element, which a number that data decides is not known to be."""

    def spectra(x):
        chosen = x[x > 0]
        return torch.fft.rfft(chosen), torch.fft.fft(chosen), torch.fft.ifft(chosen)

    model = disc.compile(spectra, (torch.randn(9),), dynamic_shapes=({0: Dim("n", min=1)},))
    for n in (9, 1, 2, 17, 64):
        x = torch.randn(n)
        x[0] = 1
        for got, expected in zip(model(x), spectra(x), strict=True):
            torch.testing.assert_close(got, expected)
    with pytest.raises(disc.ShapeError):
        model(-torch.ones(3))


def test_a_mask_for_what_a_cache_contains():
    """The cut of the cache has a size of its own, which a check at run time makes that of the mask."""

    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, 64, 4))

        def forward(self, x, position):
            begin = position.item()
            end = begin + x.shape[1]
            self.keys[:, begin:end] = x
            scores = x @ self.keys[:, :end].transpose(1, 2)
            later = torch.arange(end)[None] > torch.arange(begin, end)[:, None]
            return scores.masked_fill(later, -torch.inf)

    mine, other = Cached(), Cached()
    given = torch.randn(2, 5, 4), torch.tensor(0)
    model = disc.compile(mine, given, dynamic_shapes=({1: Dim("t", min=1, max=64)}, None))
    for t, position in ((5, 0), (1, 5), (1, 6), (7, 3), (13, 40), (2, 62)):
        given = torch.randn(2, t, 4), torch.tensor(position)
        torch.testing.assert_close(model(*given), other(*given), rtol=1e-5, atol=1e-5)
    with pytest.raises(disc.ShapeError):
        model(torch.randn(2, 3, 4), torch.tensor(62))


def test_an_extent_that_is_negative_where_its_branch_is_not_taken():
    """The arena is laid out for both branches: a temporary of the other one occupied a negative number of bytes."""

    def fn(q: Tensor, k: Tensor) -> Tensor:
        more = q.shape[0] - k.shape[0]
        if more > 0:
            return torch.zeros(more, more).cumsum(0).sum() + (q[:more] * 2).exp().cumsum(0).sum() + k.cumsum(0).sum()
        return k.cumsum(0).sum()

    dims = ({0: Dim("l", min=1)}, {0: Dim("s", min=1)})
    model = disc.compile(fn, (torch.randn(20).double(), torch.randn(12).double()), dynamic_shapes=dims)
    for left, right in ((3, 100), (100, 3), (1, 1), (3, 100_000), (257, 1), (1, 17)):
        q, k = torch.randn(left).double(), torch.randn(right).double()
        torch.testing.assert_close(model(q, k), fn(q, k))


def test_positions_that_are_sequences_of_tensors():
    """PyTorch asks for the values of their elements: ``rows, columns = zip(*pairs); mask[rows, columns] = 0``."""

    def fn(x: Tensor, pairs: Tensor) -> tuple[Tensor, ...]:
        rows, columns = zip(*pairs, strict=True)
        marked = x.clone()
        marked[rows, columns] = 7
        return marked, x[rows, [*columns]] * 2, x[:, [pairs[0, 0], 1, -pairs[1, 1]]], x[(rows[0], 2), 1:]

    model = disc.compile(
        fn, (torch.randn(5, 4), torch.zeros(3, 2, dtype=torch.int64)), dynamic_shapes=({0: Dim("n", min=4)}, None)
    )
    for n in (5, 4, 9):
        given = torch.randn(n, 4), torch.randint(0, 4, (3, 2))
        for got, want in zip(model(*given), fn(*given), strict=True):
            assert torch.equal(got, want)
