"""What functions refuse, with the op and the line; complex and random models as libraries."""

import pytest
import torch
from torch import nn

import disc


class Fn(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def compiled(fn, *args):
    return disc.compile(Fn(fn), args)


def test_index_errors():
    x, i, m = torch.zeros(3, 4), torch.tensor([0, 2, 1]), torch.ones(3, 4)
    for fn in (
        lambda x, i, m: x.scatter_add(0, i[:, None].expand_as(m), m),
        lambda x, i, m: x.index_add(0, i, m),
        lambda x, i, m: x.index_put((i,), m),
    ):
        model = compiled(fn, x, i, m)
        assert torch.equal(model(x, i, m), torch.ones(3, 4))
        with pytest.raises(IndexError, match=r"aten\.\w+ at .*test_function_errors.py:\d+: index 7 is out of range"):
            model(x, torch.tensor([0, 7, 1]), m)
        # Only index_put counts from the end.
        if "index_put" not in str(model.ir("import")):
            with pytest.raises(IndexError, match="index -1 is out of range"):
                model(x, torch.tensor([0, -1, 1]), m)


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (
            torch.linalg.inv,
            r"\(Batch element 1\): The diagonal element 2 is zero, the inversion could not be completed",
        ),
        (torch.linalg.cholesky, r"\(Batch element 1\): .* leading minor of order 2 is not positive-definite"),
        (
            lambda x: torch.linalg.solve(x, x),
            r"\(Batch element 1\): The solver failed because the input matrix is singular",
        ),
    ],
)
def test_singular_matrices(fn, text):
    good = torch.eye(2).repeat(2, 1, 1)
    model = compiled(fn, good)
    torch.testing.assert_close(model(good), fn(good))
    bad = good.clone()
    bad[1] = 1
    with pytest.raises(torch.linalg.LinAlgError, match=text):
        fn(bad)
    with pytest.raises(RuntimeError, match=text):
        model(bad)
    with pytest.raises(RuntimeError, match="Batch element 0"):
        model(bad.flip(0))


def test_complex_inputs_and_results():
    def fn(x, y):
        return x * y, x.conj() @ y.mT, torch.fft.fft(x)

    x, y = torch.randn(3, 8, dtype=torch.complex64), torch.randn(3, 8, dtype=torch.complex64)
    n = torch.export.Dim("n", min=2)
    model = disc.compile(Fn(fn), (x, y), dynamic_shapes=(({0: n}, {0: n}),))
    for size in (3, 2, 7):
        x, y = torch.randn(size, 8, dtype=torch.complex64), torch.randn(8, size, dtype=torch.complex64).mT
        torch.testing.assert_close(model(x, y), fn(x, y), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(x.conj(), y), fn(x.conj(), y), rtol=1e-5, atol=1e-5)


def test_libraries(tmp_path):
    """Functions end in a library too, and it has a seed of its own."""

    def fn(x):
        return torch.rand_like(x), x.sort()[0], torch.linalg.inv(x @ x.mT + torch.eye(3)), torch.fft.rfft(x).abs()

    x = torch.randn(3, 12)
    path = tmp_path / "functions.so"
    disc.aot_compile(Fn(fn), (x,), output=path)
    library = disc.load(path)
    first, ordered, inverse, spectrum = (torch.as_tensor(t) for t in library(x))
    want = fn(x)
    torch.testing.assert_close((ordered, inverse, spectrum), want[1:])
    second = torch.as_tensor(library(x)[0])
    library.seed(0)
    assert torch.equal(torch.as_tensor(library(x)[0]), first) and not torch.equal(second, first)
    model = compiled(fn, x)
    assert torch.equal(model(x)[0], first)
