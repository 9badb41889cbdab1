"""Functions and TorchScript operators that PyTorch has for plain numbers alone work with dynamic sizes and data."""

import pytest
import torch
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

ATEN, PRIM = torch.ops.aten, torch.ops.prim


class Numbers(torch.nn.Module):
    def forward(self, a, b):
        n, m = ATEN.IntImplicit(a), ATEN.Int(b)
        division = ATEN.div(n, m)
        return (
            float(division),
            int(ATEN.ceil(float(b) - 0.5)),
            float(ATEN.sqrt(ATEN.Int(a * a))),
            ATEN.ge(n, m),
            bool(ATEN.Bool(m)),
            int(ATEN.Int(a > 3)),
            float(ATEN.Float(a)),
            ATEN.ScalarImplicit(b),
        )


def test_numbers_from_data():
    module = Numbers()
    model = disc.compile(module, (torch.tensor(7), torch.tensor(2.5, dtype=torch.float64)))
    for a, b in ((7, 2.5), (2, 3.0), (3, -4.25), (0, 1.5)):
        inputs = torch.tensor(a), torch.tensor(b, dtype=torch.float64)
        assert model(*inputs) == pytest.approx(module(*inputs))


class Sizes(torch.nn.Module):
    def forward(self, x):
        rows, columns = ATEN.size(x, 0), ATEN.size(x, -1)
        least, most = PRIM.min(rows, columns), PRIM.max(rows, columns)
        return ATEN.numel(x), ATEN.len(x), least, most, x.reshape(columns, rows)[:least] + most


def test_sizes_stay_dynamic():
    module = Sizes()
    model = disc.compile(module, (torch.randn(3, 5),), dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))
    for shape in ((3, 5), (5, 3), (1, 1), (11, 2)):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), module(x))


def first_of_order(x):
    return torch.take_along_dim(x, x.argsort(1), 1)


FUNCTIONS = {
    "kron": lambda x, y: torch.kron(x, y),
    "kron_rank": lambda x, y: torch.kron(x[0], y),
    "vander": lambda x, y: (torch.vander(x[:, 0]), torch.linalg.vander(y, N=3)),
    "take_along": lambda x, y: (first_of_order(x), torch.take_along_dim(y, torch.argmax(y, 1)[:, None], 1)),
    "windows": lambda x, y: (
        x * torch.hann_window(x.shape[1]),
        torch.hamming_window(x.shape[0], periodic=False),
        torch.blackman_window(y.shape[0]),
        torch.bartlett_window(y.shape[1]),
    ),
    "triangles": lambda x, y: (
        torch.tril_indices(x.shape[0], y.shape[1], 1),
        y[tuple(torch.triu_indices(y.shape[0], y.shape[1], -1))],
    ),
    "tensor_split": lambda x, y: (*torch.tensor_split(x, 3), *y.tensor_split(4, dim=1)),
    "combinations": lambda x, y: torch.combinations(x[:, 0]),
    "mean": lambda x, y: (x.mean(dtype=torch.complex64), y.mean(1, dtype=torch.complex64)),
    "cov": lambda x, y: torch.cov(torch.cat([x, x * x])),
}


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_sizes(name):
    module, dims = Function(FUNCTIONS[name]), {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    model = disc.compile(module, (torch.rand(4, 7), torch.rand(3, 5)), dynamic_shapes=(dims, dims))
    for first, second in (((4, 7), (3, 5)), ((5, 5), (2, 9)), ((1, 3), (1, 1)), ((3, 2), (7, 4))):
        inputs = torch.rand(first), torch.rand(second)
        torch.testing.assert_close(model(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dtypes", [(torch.int64, torch.float32), (torch.float32, torch.int64), (torch.int32, torch.float64)]
)
def test_gradients_of_a_threshold_are_promoted(dtypes):
    class Threshold(torch.nn.Module):
        def forward(self, grad, x):
            return ATEN.threshold_backward(grad, x, 1)

    inputs = [(torch.rand(3, 4) * 5).to(dtype) for dtype in dtypes]
    got, want = disc.compile(Threshold(), tuple(inputs))(*inputs), Threshold()(*inputs)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("dims", "summed", "unroll"), [([1, 0], [2, 0], 0), ([0], [2], 0), ([0, 1], [0], 1)])
def test_products_of_three_insert_sets_of_dims(dims, summed, unroll):
    class Product(torch.nn.Module):
        def forward(self, x, y, z):
            return ATEN._trilinear(x, y, z, [0], [0], dims, summed, unroll)

    inputs = torch.rand(3, 6), torch.rand(3, 6), torch.rand([3, 6][len(dims) - 1 :])
    torch.testing.assert_close(disc.compile(Product(), inputs)(*inputs), Product()(*inputs))


class Filled(torch.nn.Module):
    def forward(self, x, into):
        axis = torch.ones([1], dtype=torch.int32)
        zero, two = torch.zeros([], dtype=torch.int64), torch.full([1, 1], 2)
        total = x.sum(axis.item()) + x.softmax(torch.zeros([1], dtype=torch.int64).item())[0, 0]
        made = torch.arange(1, 13, out=into)
        two.add_(x.shape[0])
        # A tensor that something has changed is data.
        return total, made, torch.linspace(0, 1, 5, out=torch.empty(5)), zero.item(), torch.ones(two.item())


def test_values_of_filled_tensors_are_numbers():
    module = Filled()
    into = torch.zeros(3, 4, dtype=torch.int64)
    model = disc.compile(module, (torch.randn(3, 5), into.clone()), dynamic_shapes=({0: Dim.AUTO}, None))
    for n in (3, 1, 6):
        x, ours, theirs = torch.randn(n, 5), into.clone(), into.clone()
        torch.testing.assert_close(model(x, ours), module(x, theirs))
        torch.testing.assert_close(ours, theirs)


def test_tables_of_sizes():
    """``torch.as_tensor`` of lists of sizes, and arithmetic on them."""

    def starts(x, y):
        shapes = [tuple(x.shape), (y.shape[0], 3 * y.shape[1])]
        table = torch.as_tensor(shapes, dtype=torch.long, device=x.device)
        begins = torch.cat((table.new_zeros((1,)), table.prod(1).cumsum(0)[:-1]))
        return table, begins, torch.as_tensor([x.shape[0], 7]), torch.as_tensor((x.shape[1] / 2, 0.5))

    dims = ({0: Dim("n", min=1, max=50), 1: Dim("m", min=1, max=50)}, {0: Dim("k", min=1, max=50)})
    model = disc.compile(starts, (torch.randn(4, 5), torch.randn(3, 6)), dynamic_shapes=dims)
    for n, m, k in ((4, 5, 3), (1, 1, 1), (13, 7, 2), (2, 31, 50)):
        x, y = torch.randn(n, m), torch.randn(k, 6)
        torch.testing.assert_close(model(x, y), starts(x, y))
