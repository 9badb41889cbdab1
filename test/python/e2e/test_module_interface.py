"""Compiled models in the place of a module: parameters, modes, devices, attributes."""

import pytest
import torch
from torch import nn

import disc


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("offset", torch.ones(3))
        self.config = {"hidden": 4}

    def forward(self, x):
        return self.dropout(self.linear(x)) + self.offset

    def encode(self, x):
        return self(x)


def compiled(module):
    return disc.compile(module, (torch.randn(2, 4),), dynamic_shapes=({0: "n"},))


def test_parameters_and_attributes():
    module = Net().eval()
    model = compiled(module)
    assert list(model.parameters()) == list(module.parameters())
    assert dict(model.named_parameters()).keys() == {"linear.weight", "linear.bias"}
    assert [b.data_ptr() for b in model.buffers()] == [module.offset.data_ptr()]
    assert dict(model.named_buffers()).keys() == {"offset"}
    assert model.config == {"hidden": 4}
    assert model.linear is module.linear
    assert not model.training
    for n in (1, 5, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model.forward(x), module(x))


def test_methods_of_the_module_are_not_run_by_mistake():
    model = compiled(Net().eval())
    with pytest.raises(AttributeError, match=r"call model\.module\.encode, which PyTorch runs"):
        _ = model.encode
    with pytest.raises(AttributeError, match="'Model' object has no attribute 'missing'"):
        _ = model.missing
    assert not hasattr(model, "__len__")
    assert not hasattr(disc.Model.__new__(disc.Model), "config")


def test_modes():
    module = Net().eval()
    model = compiled(module)
    assert model.eval() is model and model.train(False) is model and model.requires_grad_(False) is model
    with pytest.raises(ValueError, match=r"train\(\): the module was compiled in evaluation mode"):
        model.train()
    with pytest.raises(ValueError, match="results of a compiled model have no gradients"):
        model.requires_grad_()
    with pytest.raises(ValueError, match=r"eval\(\): .* training mode, on which Dropout depends"):
        compiled(Net()).eval()
    linear = compiled(nn.Linear(4, 3))
    assert linear.eval() is linear


def test_devices_and_dtypes():
    model = compiled(Net().eval())
    same = (model.cpu(), model.float(), model.to("cpu"), model.to(torch.float32), model.to(torch.ones(1)))
    assert all(x is model for x in same) and model.to(device="cpu", dtype=torch.float32) is model
    with pytest.raises(ValueError, match=r"to\(\): expected cpu, for which the model was compiled, got cuda"):
        model.cuda()
    for convert in (model.half, model.double, model.bfloat16):
        with pytest.raises(ValueError, match=r"to\(\): expected torch\.float32, for which the model was compiled"):
            convert()


def test_without_the_module(tmp_path):
    compiled(Net().eval()).save(tmp_path / "model.disc")
    model = disc.load(tmp_path / "model.disc")
    assert model.eval() is model and model.cpu() is model
    with pytest.raises(disc.CompileError, match="the compiled model has no module"):
        model.parameters()
    with pytest.raises(AttributeError, match="no attribute 'config'"):
        _ = model.config


class ConvertsItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        self.router = self.router.to(x.dtype)
        return self.norm.float()(self.router(x))


def test_a_module_that_converts_itself_to_what_it_is():
    module = ConvertsItself().eval()
    model = disc.compile(module, (torch.randn(3, 4),), dynamic_shapes=({0: "n"},))
    for n in (1, 7, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), module(x))
