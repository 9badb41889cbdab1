"""Programs of users that failed once, said in the fewest words; each compares with eager PyTorch."""

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
    with pytest.warns(UserWarning, match=r't = Dim\("t", min=1\)'):
        disc.compile(fn, (torch.randn(example, 3),), dynamic_shapes=({0: "t"},))


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
