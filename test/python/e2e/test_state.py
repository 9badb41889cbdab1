"""What a model changes: its buffers and its inputs, in this process and in libraries."""

import copy
import re
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

N = Dim("N", max=100)


class Counter(nn.Module):
    """Counts its calls, keeps a decaying sum, and adds 1 to its input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3, 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x, y):
        self.calls.add_(1)
        self.total.mul_(0.5).add_(y)
        x.add_(1)
        return x, self.total.sum(1), x[:, :2], None, self.calls, {"rows": x.shape[0], "total": self.total}


@pytest.fixture(scope="module")
def counter():
    module = Counter()
    eager = copy.deepcopy(module)
    model = disc.compile(
        module,
        (torch.randn(5, 4), torch.randn(2, 1, 4)),
        dynamic_shapes=({0: N}, None),
        options=disc.Options(threads=2),
    )
    return module, eager, model


@pytest.mark.parametrize("n", [1, 7, 100, 2, 0])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
def test_buffers_and_inputs(counter, n, layout):
    module, eager, model = counter
    x = {
        "contiguous": lambda: torch.randn(n, 4),
        "transposed": lambda: torch.randn(4, n).t(),
        "sliced": lambda: torch.randn(2 * n, 9)[::2, 1:8:2],
    }[layout]()
    x_eager, y = x.clone(), torch.randn(2, 1, 4)
    got, expected = model(x, y), eager(x_eager, y)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(x, x_eager)
    # What eager returns as it is, is returned as it is.
    assert got[0] is x and got[4] is module.calls and got[5]["total"] is module.total
    assert set(model.state()) == {"total", "calls"} and model.state()["total"] is module.total
    torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))


def test_updates_are_in_place(counter):
    flow = counter[2].ir("memory")
    flow = flow[flow.index("disc_rt.entry") :]
    # No copy: each kernel writes over what it reads.
    assert "disc_rt.copy" not in flow
    for memory in re.findall(r"(%\d+) = disc_rt.parameter", flow) + re.findall(
        r"(%\d+) = disc_rt.input %arg0\[0\]", flow
    ):
        assert re.search(rf"launch %arg0 @\w+\({memory}, .*{memory}\)", flow)


def test_inputs_that_cannot_be_updated(counter):
    model = counter[2]
    y = torch.randn(2, 1, 4)
    with pytest.raises(RuntimeError, match="input 'x': it is updated in place, but a stride of 0"):
        model(torch.randn(1, 4).expand(3, 4), y)
    both = torch.zeros(2, 1, 4)
    with pytest.raises(RuntimeError, match="input 'x': it is updated in place, but overlaps input 'y'"):
        model(both.view(2, 4), both)


class Old(nn.Module):
    """Reads what its buffer was after the new value is known; exchanges two others."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))
        self.register_buffer("a", torch.ones(3))
        self.register_buffer("b", torch.full((3,), 2.0))

    def forward(self, x):
        before = self.last.clone()
        self.last.copy_(x)
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old)
        return torch.softmax(before, 0) + self.last, x


def test_old_values_are_kept_while_they_are_read():
    module = Old()
    eager = copy.deepcopy(module)
    model = disc.compile(module, (torch.randn(3),))
    for _ in range(3):
        x = torch.randn(3)
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))


def test_batch_norm_statistics():
    norm = nn.BatchNorm1d(5)
    eager = copy.deepcopy(norm)
    model = disc.compile(norm, (torch.randn(8, 5),), dynamic_shapes=({0: Dim("n", min=2, max=64)},))
    for n in (2, 64, 7):
        x = torch.randn(n, 5)
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(dict(norm.named_buffers()), dict(eager.named_buffers()))


def test_calls_take_turns(counter):
    module, _, model = counter
    before = int(module.calls)
    threads = [
        threading.Thread(target=lambda: [model(torch.zeros(2, 4), torch.zeros(2, 1, 4)) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(module.calls) == before + 800


class Cache(nn.Module):
    """Attention over a cache of keys and values, a buffer and an input, to which each call adds some."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 3, 64, 8))

    def forward(self, q, k, v, values, at):
        length = k.shape[2]
        self.keys[:, :, 5 : 5 + length] = k
        values[:, :, 5 : 5 + length] = v
        self.keys[:, :, 0] = at
        return torch.softmax(q @ self.keys.transpose(2, 3), -1) @ values


def test_cache_without_copies():
    module = Cache()
    eager = copy.deepcopy(module)

    def inputs(n):
        return [torch.randn(2, 3, 1, 8), *torch.randn(2, 2, 3, n, 8), torch.randn(2, 3, 64, 8), torch.randn(2, 3, 8)]

    shapes = (None, {2: Dim("n", min=1, max=32)}, {2: Dim("n", min=1, max=32)}, None, None)
    model = disc.compile(module, inputs(3), dynamic_shapes=shapes)
    flow = model.ir("memory")
    flow = flow[flow.index("disc_rt.entry") :]
    assert "disc_rt.copy" not in flow
    keys = re.search(r"(%\d+) = disc_rt.parameter .* \"keys\"", flow)[1]
    values = re.search(r"(%\d+) = disc_rt.input %arg0\[3\]", flow)[1]
    launches = re.findall(r"launch %arg0 @\w*\((%\d+), %\d+, (%\d+)\)", flow)
    assert sorted(first for first, last in launches if first == last) == sorted([keys, keys, values])
    for n in (1, 32, 7):
        given = inputs(n)
        expected = [x.clone() for x in given]
        torch.testing.assert_close(model(*given), eager(*expected))
        torch.testing.assert_close(module.keys, eager.keys)
        torch.testing.assert_close(given[3], expected[3])


class Positions(nn.Module):
    """A cache that is written at positions which tensors tell."""

    def forward(self, cache, at, k, add):
        cache.index_copy_(1, at, k)
        cache[:, at + 8] = 2 * k
        add.index_add_(0, at, k[0])
        return cache.sum(1) + add.sum()


def test_positions_without_copies():
    def inputs(n):
        return [torch.randn(2, 16, 4), torch.randperm(8)[:n], torch.randn(2, n, 4), torch.randn(8, 4)]

    module = Positions()
    n = Dim("n", min=1, max=8)
    model = disc.compile(module, inputs(3), dynamic_shapes=(None, {0: n}, {1: n}, None))
    flow = model.ir("memory")
    flow = flow[flow.index("disc_rt.entry") :]
    assert "disc_rt.copy" not in flow
    for size in (1, 8, 5):
        given = inputs(size)
        expected = [x.clone() for x in given]
        torch.testing.assert_close(model(*given), module(*expected))
        torch.testing.assert_close(given, expected)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "libcounter.so"
    module = Counter()
    module.total.fill_(3.0)
    disc.aot_compile(
        module,
        (torch.randn(5, 4), torch.randn(2, 1, 4)),
        dynamic_shapes=({0: N}, None),
        output=path,
        header=path.with_suffix(".h"),
        target="x86-64-v3",
        packed=False,
    )
    return module, path


def test_library(library):
    module, path = library
    eager = copy.deepcopy(module)
    model, other = disc.load(path, threads=2), disc.load(path, threads=2)
    assert [spec.updated for spec in model.inputs] == [True, False]
    assert {spec.name for spec in model.parameters if spec.updated} == {"total", "calls"}
    for n in (3, 1, 100):
        x, y = torch.randn(n, 4), torch.randn(2, 1, 4)
        x_eager = x.clone()
        expected = eager(x_eager, y)
        got = model(x, y)
        # Every output is a tensor of its own; None is none.
        torch.testing.assert_close(got[:4], (*expected[:3], expected[4]))
        assert got[4].dtype == torch.int64 and int(got[4]) == n
        torch.testing.assert_close(got[5], expected[5]["total"])
        torch.testing.assert_close(x, x_eager)
    # Each model has its own state, and the weights' file is not written to.
    assert int(other(torch.zeros(1, 4), torch.zeros(2, 1, 4))[3]) == 1
    model.reset()
    assert int(model(torch.zeros(1, 4), torch.zeros(2, 1, 4))[3]) == 1
    strided = np.zeros((4, 6), np.float32).T[:3]
    model(strided, np.zeros((2, 1, 4), np.float32))
    assert (strided == 1).all()
    frozen = np.zeros((3, 4), np.float32)
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="input 'x' is read-only"):
        model(frozen, np.zeros((2, 1, 4), np.float32))


def test_header(library):
    text = library[1].with_suffix(".h").read_text()
    assert "float *x, const float *y," in text and "x: float32[N, 4] (updated in place)" in text


class Aliases(nn.Module):
    """Outputs that nothing computes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))

    def forward(self, x, nothing=None, pair=None):
        return {
            "x": x,
            "view": x.t(),
            "weight": self.weight,
            "tail": self.weight[1:],
            "rows": x.shape[0] * 2,
            "number": 3,
            "fraction": 0.5,
            "nothing": nothing,
            "again": [x, pair[0] if pair else x],
        }


def test_aliases(tmp_path):
    module = Aliases()
    x, other = torch.randn(5, 3), torch.randn(2)
    shapes = {"x": {0: N}, "nothing": None, "pair": (None, None)}
    model = disc.compile(module, (x, None, (other, None)), dynamic_shapes=shapes)
    for n in (5, 1, 0):
        x = torch.randn(n, 3)
        got = model(x, None, (other, None))
        torch.testing.assert_close(got, module(x, None, (other, None)))
        assert got["x"] is x and got["again"][1] is other and got["weight"].data_ptr() == module.weight.data_ptr()
    path = tmp_path / "libaliases.so"
    disc.aot_compile(
        module, (torch.randn(5, 3), None, (other, None)), dynamic_shapes=shapes, output=path, target="x86-64-v3"
    )
    loaded = disc.load(path)
    assert [spec.name for spec in loaded.outputs][:4] == ["x", "view", "weight", "tail"]
    for n in (5, 1):
        x = torch.randn(n, 3)
        got = loaded(x, other)
        expected = [v for v in torch.utils._pytree.tree_leaves(module(x, None, (other, None))) if v is not None]
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, torch.as_tensor(b), check_dtype=isinstance(b, torch.Tensor))


class Copies(nn.Module):
    """Returns copies of what it is called with, owns, computes and changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.randn(3))
        self.weight = nn.Parameter(torch.randn(2, 3), requires_grad=False)

    def forward(self, x, y):
        before, row = x.clone(), x[:1].clone()
        x.mul_(0)
        h = torch.sin(y)
        self.scale.add_(1)
        results = {"x": x, "before": before, "row": row, "after": x.clone(), "y": y, "copied": y.clone()}
        results |= {"view": y.detach(), "copied view": y.view(-1, 3).clone()}
        results |= {"h": h, "again": h, "copy of h": h.clone()}
        return results | {"scale": self.scale, "copied scale": self.scale.clone(), "weight": self.weight.clone()}


def test_copies_have_memory_of_their_own(tmp_path):
    def check(got, expected, owned):
        torch.testing.assert_close(got, expected)
        for name, value in got.items():
            shared = {other for other in got if got[other].data_ptr() == value.data_ptr()}
            own = {other for other in expected if expected[other].data_ptr() == expected[name].data_ptr()}
            assert shared == ({name} if owned else own), name

    module = Copies()
    eager = copy.deepcopy(module)
    args, shapes = (torch.randn(5, 3), torch.randn(4, 3)), ({0: N}, None)
    model = disc.compile(module, args, dynamic_shapes=shapes)
    for n in (5, 1, 100, 2):
        x, y = torch.randn(n, 3), torch.randn(4, 3)
        x_eager = x.clone()
        got = model(x, y)
        check(got, eager(x_eager, y), owned=False)
        assert got["x"] is x and got["scale"] is module.scale and got["view"].data_ptr() == y.data_ptr()
    path = tmp_path / "libcopies.so"
    eager = copy.deepcopy(module)
    disc.aot_compile(module, args, dynamic_shapes=shapes, output=path, target="x86-64-v3")
    loaded = disc.load(path)
    for n in (5, 1):
        x, y = torch.randn(n, 3), torch.randn(4, 3)
        expected = eager(x.clone(), y)
        check(dict(zip(expected, loaded(x, y), strict=True)), expected, owned=True)


def test_copies_in_torch_compile():
    def f(x, y):
        before = x.clone()
        x.mul_(0)
        h = y + 1
        return before, y.clone(), h, h.clone()

    compiled = torch.compile(f, backend="disc", dynamic=True)
    for n in (5, 3, 17):
        x, y = torch.randn(n, 3), torch.randn(n)
        expected = f(x.clone(), y)
        got = compiled(x, y)
        torch.testing.assert_close(got, expected)
        assert len({t.data_ptr() for t in (*got, x, y)}) == 6


def test_pt2_file(tmp_path):
    module = Counter()
    eager = copy.deepcopy(module)
    exported = torch.export.export(module, (torch.randn(5, 4), torch.randn(2, 1, 4)), dynamic_shapes=({0: N}, None))
    torch.export.save(exported, tmp_path / "counter.pt2")
    model = disc.compile(torch.export.load(tmp_path / "counter.pt2"))
    for n in (3, 1):
        x, y = torch.randn(n, 4), torch.randn(2, 1, 4)
        x_eager = x.clone()
        torch.testing.assert_close(model(x, y), eager(x_eager, y))
        torch.testing.assert_close(x, x_eager)
        torch.testing.assert_close(model.state()["total"], eager.total)


class Notes(nn.Module):
    """Changes attributes that are no buffers."""

    def __init__(self, forward):
        super().__init__()
        self.mean, self.history, self.calls, self.size, self.last = torch.ones(3), [], 0, 0, None
        self.own = forward

    def forward(self, x):
        return self.own(self, x)


def _averages(self, x):
    self.mean = self.mean * 0.9 + x.sum(0)
    return x - self.mean


def _appends(self, x):
    self.history.append(x.sum(0))
    return sum(self.history)


class Counting(Notes):
    def forward(self, x):
        self.calls += 1
        return x * self.calls


def _keeps(self, x):
    self.last = x * 2
    return self.last + 1


def _begins_anew(self, x):
    self.history = []
    self.history.append(x)
    self.size = x.shape[0]
    return self.history[0] + self.size + self.mean


@pytest.mark.parametrize(
    ("model", "name"),
    [(Notes(_appends), "self.history"), (Counting(None), "self.calls"), (Notes(_keeps), "self.last")],
    ids=["appends", "counts", "keeps"],
)
def test_changed_attributes_are_a_warning(model, name):
    with pytest.warns(UserWarning, match=f"the call changes {name}, which a compiled model does not"):
        disc.compile(model, (torch.randn(5, 3),), dynamic_shapes=({0: N},))
    assert model.history == [] and model.calls == 0 and model.last is None


def test_a_tensor_that_is_read_and_replaced_is_state():
    module = Notes(_averages)
    eager = copy.deepcopy(module)
    model = disc.compile(module, (torch.randn(5, 3),), dynamic_shapes=({0: N},))
    for n in (5, 1, 100):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(module.mean, eager.mean)


def _grows(self, x):
    self.mean = torch.cat([self.mean, x.sum(0)])
    return self.mean.sum() + x


def test_a_tensor_that_is_read_and_replaced_by_another_shape_is_an_error():
    with pytest.raises(disc.CompileError, match=r"self.mean is read and then replaced by a tensor of another shape"):
        disc.compile(Notes(_grows), (torch.randn(5, 3),), dynamic_shapes=({0: N},))


def _converts(self, x):
    self.mean = self.mean.to(x.dtype)
    return x - self.mean


def test_a_conversion_of_an_attribute_is_a_warning():
    model = Notes(_converts)
    with pytest.warns(UserWarning, match="the call changes self.mean"):
        compiled = disc.compile(model, (torch.randn(5, 3).double(),), dynamic_shapes=({0: N},))
    for n in (5, 1, 100):
        x = torch.randn(n, 3, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), copy.copy(model)(x))


def test_attributes_that_each_call_sets_first_are_none_of_that(recwarn):
    model = Notes(_begins_anew)
    compiled = disc.compile(model, (torch.randn(5, 3),), dynamic_shapes=({0: N},))
    for n in (5, 1, 100):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), copy.copy(model)(x))
    assert not [w for w in recwarn if "the call changes" in str(w.message)]


class ByData(nn.Module):
    """Reads and assigns ``.data``."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(3))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x, factor):
        self.mean.data.mul_(0.9).add_(x.sum(0))
        self.weight.data = self.weight * 0.5 + factor
        y = x * 2
        y.data = y + 1
        y.data[:1] += self.mean.data
        if factor.sum() > 0:
            y.data.mul_(factor)
        x.data = x * 3
        return y * self.weight, x.data


def test_data_attribute():
    model = ByData()
    eager = copy.deepcopy(model)
    with torch.no_grad():
        compiled = disc.compile(model, (torch.randn(5, 3), torch.randn(3)), dynamic_shapes=({0: N}, None))
        for n, sign in ((5, 1), (1, -1), (7, -1), (100, 1), (2, 1)):
            x, factor = torch.randn(n, 3), sign * torch.rand(3)
            mine = x.clone()
            torch.testing.assert_close(compiled(mine, factor), eager(x, factor))
            torch.testing.assert_close(mine, x)
            torch.testing.assert_close(model.state_dict(), eager.state_dict())


def test_data_of_another_shape():
    class Grown(nn.Module):
        def forward(self, x):
            y = x * 2
            y.data = torch.cat([y, y])
            return y

    with pytest.raises(disc.CompileError, match=r"is assigned to .data of one") as caught:
        disc.compile(Grown(), (torch.randn(5, 3),), dynamic_shapes=({0: N},))
    assert "y.data" in str(caught.value) or __file__ in str(caught.value)


def test_batch_norm_with_an_average_over_all_calls():
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.ReLU())
    eager = copy.deepcopy(model)
    compiled = disc.compile(model, (torch.randn(8, 4),), dynamic_shapes=({0: Dim("n", min=2, max=60)},))
    for n in (8, 2, 60, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), eager(x))
        torch.testing.assert_close(model.state_dict(), eager.state_dict())


def test_buffers_that_share_memory():
    class Shared(nn.Module):
        def __init__(self, rows):
            super().__init__()
            whole = torch.zeros(10, 3)
            self.register_buffer("cache", whole[:5])
            self.register_buffer("head", whole[rows])

        def forward(self, x):
            self.cache.add_(x)
            return self.head + self.cache.sum(0)

    with pytest.raises(disc.CompileError, match="updates 'cache', which shares memory with 'head'"):
        disc.compile(Shared(slice(4, 6)), (torch.randn(3),))
    apart = Shared(slice(5, 7))
    eager = copy.deepcopy(apart)
    compiled = disc.compile(apart, (torch.randn(3),))
    for _ in range(2):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), eager(x))
