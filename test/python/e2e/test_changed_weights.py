"""Parameters that change after compiling: the next call uses the new ones."""

import copy
import functools
import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc import weight_watch
from disc.data_aliases import aliases_of
from disc.tensor_layout import layout

pytestmark = pytest.mark.share(2)

N = Dim("n", min=1, max=512)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 40)
        self.norm = nn.BatchNorm1d(40)
        self.last = nn.Linear(40, 8, bias=False)
        self.table = nn.Embedding(16, 40)
        self.scale = torch.ones(8)
        self.shifts = {"all": [torch.zeros(8), torch.zeros(8)]}
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x, ids):
        hidden = torch.relu(self.norm(self.first(x))) + self.table(ids)
        return self.last(hidden) * self.scale + self.shift + self.shifts["all"][1]


def inputs(n):
    return torch.randn(n, 24), torch.randint(0, 16, (n,))


@pytest.fixture(scope="module")
def compiled():
    torch.manual_seed(0)
    net = Net().eval()
    return net, disc.compile(net, inputs(4), dynamic_shapes=({0: N}, {0: N}))


def agrees(net, model):
    for n in (1, 2, 7, 64):
        x = inputs(n)
        torch.testing.assert_close(model(*x), net(*x).detach())


def in_place(net):
    with torch.no_grad():
        net.first.weight.mul_(1.5)
        net.norm.running_mean.add_(0.3)
        net.table.weight[3] = 2.0


def loaded(net):
    other = Net()
    net.load_state_dict(other.state_dict())


def assigned(net):
    net.load_state_dict({k: v.clone() + 0.1 for k, v in net.state_dict().items()}, assign=True)


def data(net):
    # Freed and allocated again: the memory may be the same as before.
    for _ in range(2):
        net.last.weight.data = net.last.weight.data * 1.25


def replaced(net):
    net.first.weight = nn.Parameter(torch.randn(40, 24))


_KEPT = []


def replaced_and_kept(net):
    _KEPT.append(net.first.weight)
    net.first.weight = nn.Parameter(torch.randn(40, 24))


def layer_replaced_and_kept(net):
    _KEPT.append(net.last)
    net.last = nn.Linear(40, 8, bias=False)


def buffer_replaced_and_kept(net):
    _KEPT.append(net.shift)
    net.shift = torch.randn(8)


def assigned_and_kept(net):
    _KEPT.append(list(net.parameters()))
    assigned(net)


def data_in_place(net):
    net.first.weight.data.mul_(1.5)
    net.norm.running_var.data[3:] += 0.5
    net.shift.detach().data.add_(1.0)


def data_in_compiled_code(net):
    @functools.partial(torch.compile, backend="eager", fullgraph=True)
    def update():
        net.first.weight.data.mul_(1.5)

    torch._dynamo.reset()
    update()


def shared(net):
    # The storages of all weights get other memory.
    net.share_memory()


def data_in_inference_mode(net):
    with torch.inference_mode():
        net.last.weight.data.mul_(0.5)


def attribute_replaced(net):
    net.scale = torch.randn(8)


def attribute_replaced_and_kept(net):
    _KEPT.append(net.scale)
    net.scale = torch.randn(8)


def element_replaced(net):
    _KEPT.append(net.shifts["all"][1])
    net.shifts["all"][1] = torch.randn(8)


def element_in_place(net):
    net.shifts["all"][1] += 2.0


def buffer(net):
    net.shift.fill_(3.0)


def attribute(net):
    net.scale.mul_(2.0)


def optimized(net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(*inputs(9)).square().mean().backward()
        optimizer.step()


CHANGES = [
    in_place,
    loaded,
    assigned,
    data,
    data_in_place,
    data_in_inference_mode,
    data_in_compiled_code,
    shared,
    attribute_replaced,
    attribute_replaced_and_kept,
    element_replaced,
    element_in_place,
    replaced,
    replaced_and_kept,
    layer_replaced_and_kept,
    buffer_replaced_and_kept,
    assigned_and_kept,
    buffer,
    attribute,
    optimized,
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_call_uses_the_new_weights(compiled, change):
    net, model = compiled
    agrees(net, model)
    change(net)
    agrees(net, model)


def test_changes_through_data_that_was_kept(compiled):
    net, model = compiled
    weight = net.first.weight.data
    agrees(net, model)
    rows = weight.view(-1)[:100].detach()
    rows.mul_(2.0)
    agrees(net, model)
    del weight
    agrees(net, model)
    rows.add_(0.5)
    agrees(net, model)


def test_reading_data_packs_nothing_again(compiled, monkeypatch):
    net, model = compiled
    packed = []
    adopt = weight_watch.WeightWatch._adopt
    monkeypatch.setattr(weight_watch.WeightWatch, "_adopt", lambda *a: (packed.append(True), adopt(*a))[1])
    x = inputs(3)
    for _ in range(40):
        assert net.first.weight.data.norm() > 0
        model(*x)
    assert not packed
    aliases = aliases_of(net.first.weight)
    assert aliases.alive() == []
    net.first.weight.data.mul_(1.25)
    agrees(net, model)
    assert len(packed) == 1


def test_an_attribute_that_is_no_tensor_any_more(compiled):
    net, model = compiled
    kept, net.scale = net.scale, 2.0
    with pytest.raises(disc.CompileError, match="attribute scale was a tensor"):
        model(*inputs(3))
    net.scale = kept
    agrees(net, model)


def test_refresh_sees_writes_of_numpy(compiled):
    net, model = compiled
    net.first.bias.detach().numpy()[:] += 3.0
    model.refresh()
    agrees(net, model)


def test_data_of_other_tensors_is_what_it_was():
    tensor = torch.randn(3, requires_grad=True)
    alias = tensor.data
    assert not alias.requires_grad and alias.data_ptr() == tensor.data_ptr()
    tensor.data = torch.ones(4)
    assert tensor.tolist() == [1.0] * 4
    assert torch.eye(2).to_sparse().data.is_sparse and torch.empty(3, device="meta").data.is_meta
    assert torch.func.vmap(lambda x: x + tensor.data)(torch.ones(2, 4)).tolist() == [[2.0] * 4] * 2
    torch.testing.assert_close(copy.deepcopy(nn.Linear(2, 3)).weight.shape, (3, 2))


def test_training_and_evaluating_by_turns(compiled):
    net, model = compiled
    net.load_state_dict(Net().state_dict())
    net.scale = torch.ones(8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for n in (3, 1, 17):
        optimizer.zero_grad()
        net(*inputs(n)).square().mean().backward()
        optimizer.step()
        agrees(net, model)


def test_another_dtype_is_an_error():
    net = nn.Linear(6, 3)
    model = disc.compile(net, (torch.randn(2, 6),), dynamic_shapes=({0: N},))
    net.double()
    with pytest.raises(disc.CompileError, match="weights have changed and cannot be packed"):
        model(torch.randn(3, 6))
    net.float()
    x = torch.randn(5, 6)
    torch.testing.assert_close(model(x), net(x).detach())


def test_an_exported_program_is_watched_too():
    net = nn.Linear(6, 3)
    program = torch.export.export(net, (torch.randn(2, 6),), dynamic_shapes=({0: N},))
    model = disc.compile(program)
    with torch.no_grad():
        net.weight.add_(1.0)
    x = torch.randn(5, 6)
    torch.testing.assert_close(model(x), net(x).detach())


def test_state_is_not_packed_again():
    class Count(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total += self.linear(x).sum(0)
            return self.total.clone()

    net = Count()
    eager = copy.deepcopy(net)
    model = disc.compile(net, (torch.randn(2, 4),), dynamic_shapes=({0: N},))
    for n in (1, 3, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), eager(x).detach())
        with torch.no_grad():
            for part in (net, eager):
                part.total.mul_(0.5)
                part.linear.weight.mul_(1.1)


def test_weights_are_not_kept_alive_on_demand():
    net = nn.Linear(64, 64)
    reference = nn.Linear(64, 64)
    reference.load_state_dict(net.state_dict())
    options = disc.Options(keep_module=False)
    model = disc.compile(net, (torch.randn(2, 64),), dynamic_shapes=({0: N},), options=options)
    module, weight = weakref.ref(net), weakref.ref(net.weight)
    del net
    gc.collect()
    assert module() is None and weight() is None
    filler = [torch.randn(64, 64) for _ in range(50)]
    for n in (1, 5):
        x = torch.randn(n, 64)
        torch.testing.assert_close(model(x), reference(x).detach(), rtol=1e-5, atol=1e-5)
    del filler


def test_the_model_itself_is_freed():
    model = disc.compile(nn.Linear(4, 4), (torch.randn(2, 4),), dynamic_shapes=({0: N},))
    found = weakref.ref(model)
    del model
    assert found() is None


def test_calls_of_several_threads_see_a_change_once():
    net = nn.Linear(32, 16)
    model = disc.compile(net, (torch.randn(2, 32),), dynamic_shapes=({0: N},))
    x = torch.randn(7, 32)
    for _ in range(3):
        with torch.no_grad():
            net.weight.add_(0.5)
        expected, results = net(x).detach(), []
        threads = [threading.Thread(target=lambda: results.append(model(x))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            torch.testing.assert_close(result, expected)


def test_the_layout_of_this_pytorch_is_known():
    found = layout()
    assert found is not None and found.owners is not None


@pytest.mark.parametrize("backend", ["eager", "disc"])
def test_modules_that_torch_compile_changes(backend):
    """Dynamo sees nothing of the watch, which sees what Dynamo's code assigns."""

    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.zeros(6))
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, x):
            return x * self.scale + self.shift

        def update(self, x):
            self.shift = self.shift * 0.5 + x.data.mean(0)
            return self(x)

    module = Running()
    model = disc.compile(module, (torch.randn(4, 6),), dynamic_shapes=({0: N},))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    update = torch.compile(module.update, backend=backend, dynamic=True, fullgraph=True)
    for n in (4, 9, 2):
        x = torch.randn(n, 6)
        with torch.no_grad():
            expected = copy.deepcopy(module).update(x)
            torch.testing.assert_close(update(x), expected)
            torch.testing.assert_close(model(x), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Noting(torch.Tensor):
    """Notes what it is asked for."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(torch.overrides.resolve_name(func))
        return super().__torch_function__(func, types, args, kwargs or {})


asked: list[str] = []


def test_nobody_sees_that_data_is_noted(compiled):
    net, _ = compiled
    aliases_of(net.first.weight)
    assert type(torch.Tensor.data) is type(torch._C.TensorBase.__dict__["data"])
    asked.clear()
    assert type(net.scale.as_subclass(Noting).data) is Noting
    assert type(net.first.weight.detach().as_subclass(Noting).data) is Noting
    assert set(asked) == {"torch.Tensor.data.__get__"}
    x = torch.randn(3)
    torch._dynamo.reset()
    read = torch.compile(lambda x: torch.Tensor.data.__get__(x) + x.data, backend="eager", fullgraph=True)
    torch.testing.assert_close(read(x), 2 * x)
    with pytest.raises((RuntimeError, TypeError)):
        del x.data
    with pytest.raises(RuntimeError, match="under vmap"):
        torch.vmap(lambda row: row.data)(x)
