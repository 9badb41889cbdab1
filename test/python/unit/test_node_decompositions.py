"""Programs decomposed node by node: which are, and that the others are left to PyTorch."""

import pytest
import torch
from torch.export import Dim

import disc
from disc.frontend.node_decompositions import decomposed_by_node


class Net(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def promoted(x):
    y = torch.relu(x).half()
    y.add_(x)
    return y * 2


def view_before(x):
    y = torch.relu(x)
    first = y[:, 0]
    y.add_(1)
    return first + y.sum(1)


def view_after(x):
    y = torch.relu(x)
    y.add_(1)
    first = y[:, 0]
    y.mul_(3)
    return first, y


def changed_after_use(x):
    y = torch.relu(x)
    before = y * 2
    z = y.add_(x[0], alpha=2).mul_(3)
    return before, y, z


def sole_view(x):
    y = torch.relu(x)
    y.add_(1)
    return y[:, 0] * y.sum()


def unnamed_alias(x):
    y = torch.nn.functional.dropout(torch.relu(x), 0.5, False)
    y.add_(1)
    return y


def returned_operand(x):
    y = torch.relu(x)
    z = torch.nn.functional.dropout(y, 0.5, False)
    z.add_(1)
    return y + z


def reshaped_and_changed(x):
    y = torch.stack([x, x * 2]).reshape(-1, x.shape[1])
    y[0] += 1
    z = torch.stack([x, y[: x.shape[0]]]).flatten(0, 1).contiguous()
    z[:, 0].mul_(2)
    scores = torch.relu(x).view(1, x.shape[0], -1)
    scores.transpose(1, 2)[:, :2, :1] = x[0, 0]
    scores = scores + torch.einsum("nc,nd->ncd", x, x).transpose(1, 2).mul_(2).sum(0)[0]
    rows = torch.stack([x, x]).transpose(0, 1).contiguous()
    rows.copy_(rows * 2)
    return y, z, scores, rows


def unfolded_and_changed(x):
    y = torch.relu(x)
    z = y.reshape(-1)
    z[0] += 1
    return y + 1, z


def own_operand(x):
    y = torch.relu(x)
    y.add_(y)
    return y


def changed_row(x):
    y = torch.zeros_like(x)
    y[:, 0] = x[:, 1]
    return y


def without_rule(x):
    return torch.diff(x, dim=1, prepend=x[:, :1]), torch.std_mean(x, 1)


def differences_along_dynamic(x):
    return torch.diff(x, dim=0, prepend=x[:1])


def einsum_over_dynamic(x):
    return torch.einsum("nc,mc->nm", x, x * 2)


def grid_of_dynamic(x):
    rows, columns = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij")
    return x + rows * columns


def changed_part(x):
    values, places = torch.topk(x, 2, dim=1)
    before = values * 2
    values /= values.sum(1, keepdim=True)
    return before, values, places


def changed_view_among_parts(x):
    first, second = torch.relu(x).split(2, 1)
    first += 1
    return first, second


def several_results(x):
    values, places = torch.aminmax(x, dim=1)
    return places - values


def two_parts(x):
    y = torch.empty_like(x)
    first, rest = y[:, :1], y[:, 1:]
    first.copy_(x[:, :1] * 2)
    rest.copy_(x[:, 1:])
    first += 1
    return y, first, rest.sum(1)


def part_of_a_part(x):
    y = torch.relu(x)
    inside = y[:, 1:][0]
    before = inside * 2
    inside.mul_(3)
    y[0].sub_(1)
    y.narrow(1, 1, 2)[0].add_(1)
    torch.diagonal(y).zero_()
    y.permute(1, 0).unsqueeze(-2)[1:, -1].div_(2)
    y.t()[0].add_(5)
    y.transpose(-1, 0)[2] *= 3
    return before, inside, y.t()


def detached(x):
    y = torch.relu(x).to(torch.float32)
    y.detach_()
    return y + 1


LOCAL = [
    view_before,
    view_after,
    changed_row,
    two_parts,
    part_of_a_part,
    detached,
    changed_after_use,
    sole_view,
    reshaped_and_changed,
    unnamed_alias,
    without_rule,
    differences_along_dynamic,
    einsum_over_dynamic,
    grid_of_dynamic,
    changed_part,
    several_results,
]
OTHERS = [
    promoted,
    unfolded_and_changed,
    returned_operand,
    own_operand,
    changed_view_among_parts,
]


class Residual(torch.nn.Module):
    """The sum of a residual block, in place, as vision models write it."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.norm(x)
        y += x
        return torch.relu_(y)


def test_residual_blocks_are_not_traced_again(monkeypatch):
    monkeypatch.setattr("disc.frontend.updates.run_decompositions", None)
    module = Residual().eval()
    model = disc.compile(module, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", max=64)},))
    for n in (2, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), module(x))


class OfPositives(torch.nn.Module):
    """The size of what is decomposed depends on data: it has a new symbol in each trace."""

    def forward(self, x):
        positive = x[:, 0].nonzero().squeeze(1)
        count = x[0].argmax().item()
        torch._check(count >= 0)
        torch._check(count <= x.shape[0])
        first = x[:count]
        return torch.einsum("nc,mc->nm", x[positive], first)


def test_sizes_that_data_decides():
    model = disc.compile(OfPositives(), (torch.randn(5, 4),), dynamic_shapes=({0: Dim("n", min=4, max=64)},))
    for n in (4, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), OfPositives()(x))


class Overlapped(torch.nn.Module):
    """PyTorch's decomposition of istft sums windows of one signal; the shape function says as many as signals."""

    def forward(self, x):
        window = torch.hann_window(8)
        return torch.istft(torch.complex(x, x), 8, hop_length=2, window=window, length=2 * x.size(2) + 1)


def test_a_decomposition_of_another_shape_is_left_to_pytorch():
    x = torch.randn(2, 5, 12)
    model = disc.compile(Overlapped(), (x,), dynamic_shapes=({2: Dim("n", min=6, max=64)},))
    for n in (6, 12, 31):
        x = torch.randn(2, 5, n)
        torch.testing.assert_close(model(x), Overlapped()(x), rtol=1e-4, atol=1e-5)


def exported(function):
    with torch.no_grad():
        return torch.export.export(Net(function), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", max=64)},))


@pytest.mark.parametrize("function", LOCAL)
def test_local_changes_do(function):
    program = exported(function)
    before = [node.name for node in program.graph.nodes]
    assert decomposed_by_node(program) is not None
    assert [node.name for node in program.graph.nodes] == before


@pytest.mark.parametrize("function", OTHERS)
def test_others_are_left_to_pytorch(function):
    assert decomposed_by_node(exported(function)) is None


@pytest.mark.parametrize("function", LOCAL + OTHERS)
def test_results_are_those_of_eager(function):
    model = disc.compile(Net(function), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", max=64)},))
    for n in (2, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), function(x))


class Branches(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        if x.sum() > 0:
            z = x * 2
            z.add_(1)
            y = z * y
        else:
            y.sub_(1)
        return y * 2


def test_changes_inside_of_branches():
    model = disc.compile(Branches(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", max=64)},))
    for sign in (-1.0, 1.0):
        x = torch.full((5, 4), sign)
        torch.testing.assert_close(model(x), Branches()(x))


class SizeBehind(torch.nn.Module):
    """The size of what a side computes is used behind the branch."""

    def forward(self, x):
        y = x
        if x.mean() > 0:
            y = torch.softmax(x, 0)
        if x.sum() > 0:
            return y + 1
        if y.numel() > 40:
            return y - 1
        return y.clone()


def test_sizes_behind_branches():
    model = disc.compile(SizeBehind(), (torch.randn(5, 2),), dynamic_shapes=({0: Dim("n", min=0, max=64)},))
    for n in (0, 1, 5, 21):
        for x in (torch.rand(n, 2), -torch.rand(n, 2)):
            torch.testing.assert_close(model(x), SizeBehind()(x))


class Cache(torch.nn.Module):
    """Inputs and state that are written in parts, as a KV cache is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("rows", torch.zeros(5, 4))

    def forward(self, cache, x, begin: int):
        count = x.shape[0]
        torch._check(begin >= 0)
        torch._check(begin + count <= cache.shape[0])
        before = cache[:1] * 2
        cache.narrow(0, begin, count).copy_(x)
        cache[:, 1].mul_(2)
        self.total += cache.sum(0)
        self.rows[1:3, 0].add_(self.total[0])
        return before, cache[:count], self.total * 1


def test_inputs_and_state_that_are_written_in_parts(monkeypatch):
    monkeypatch.setattr("disc.frontend.updates.run_decompositions", None)
    module, own = Cache(), Cache()
    args = torch.randn(9, 4), torch.randn(3, 4), 2
    dims = ({0: Dim("room", min=1, max=64)}, {0: Dim("n", min=1, max=64)}, Dim.DYNAMIC)
    model = disc.compile(module, args, dynamic_shapes=dims)
    for room, count, begin in ((9, 3, 2), (1, 1, 0), (64, 31, 33), (9, 9, 0), (5, 1, 4)):
        cache, x = torch.randn(room, 4), torch.randn(count, 4)
        copy = cache.clone()
        got, want = model(cache, x, begin), own(copy, x, begin)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(cache, copy)
        torch.testing.assert_close(dict(module.named_buffers()), dict(own.named_buffers()))
