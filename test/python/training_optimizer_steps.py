"""Compiled steps of optimizers beside those of PyTorch, with the same gradients."""

import torch

import disc
from disc.frontend.optimizers import trace_optimizer

SHAPES = ((4, 3), (5,), (), (2, 3, 4))


def parameters(shapes=SHAPES, dtype=torch.float32):
    """Parameters that are the same in every call."""
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]


def named(tensors):
    return [(f"layer.{number}", tensor) for number, tensor in enumerate(tensors)]


class CompiledStep:
    """``optimizer.step()`` as a compiled program."""

    def __init__(self, optimizer, names, unused=()):
        self.optimizer = optimizer
        self.traced = trace_optimizer(optimizer, names, unused)
        self.tensors = dict(names)
        gradients = [torch.zeros_like(self.tensors[name]) for name in self.traced.parameters]
        self.model = disc.compile(self.traced.program, (*gradients, *self._numbers()))

    def _numbers(self):
        numbers = [number.read(self.optimizer) for number in self.traced.hyper_parameters]
        return [torch.tensor(number, dtype=torch.float64) for number in numbers]

    def __call__(self, *gradients):
        traced, optimizer = self.traced, self.optimizer
        traced.structure.check(optimizer)
        if traced.needs_first_step:
            for name, gradient in zip(traced.parameters, gradients, strict=True):
                self.tensors[name].grad = gradient.clone()
            optimizer.step()
        elif not traced.changed(optimizer):
            traced.before_step(optimizer)
            self.model(*gradients, *self._numbers())
            traced.after_step(optimizer)
            return
        else:
            raise AssertionError("the optimizer keeps other tensors now")
        traced.adopt(optimizer)


def assert_close(ours, theirs, name=""):
    """Within rounding: 1e-12 in float64 and 1e-6 in float32, relative, or of the largest element."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
    bound = 1e-12 if ours.dtype == torch.float64 else 1e-6
    largest = theirs.abs().max().item() if theirs.numel() else 0.0
    torch.testing.assert_close(ours, theirs, rtol=4 * bound, atol=bound * largest, equal_nan=True, msg=None)


def assert_same_states(optimizer, reference):
    """The states of two optimizers, by the number of the parameter."""
    first, second = optimizer.state_dict(), reference.state_dict()
    assert first["state"].keys() == second["state"].keys()
    for number, expected in second["state"].items():
        found = first["state"][number]
        assert list(found) == list(expected)
        for key, value in expected.items():
            if isinstance(value, list):
                for ours, theirs in zip(found[key], value, strict=True):
                    assert_close(ours, theirs, f"{number}.{key}")
            elif isinstance(value, torch.Tensor):
                assert_close(found[key], value, f"{number}.{key}")
            else:
                assert type(found[key]) is type(value) and found[key] == value, (number, key)


def compare(make, shapes=SHAPES, dtype=torch.float32, steps=20, change=None):
    """``steps`` steps of an optimizer that ``make`` makes, compiled and by PyTorch; the compiled one.

    ``change(optimizer, step)`` is called before each step.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        mine, theirs = parameters(shapes, dtype), parameters(shapes, dtype)
        optimizer, reference = make(mine), make(theirs)
        step = CompiledStep(optimizer, named(mine))
        generator = torch.Generator().manual_seed(1)
        for number in range(steps):
            gradients = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
            if change is not None:
                change(optimizer, number)
                change(reference, number)
            for parameter, gradient in zip(theirs, gradients, strict=True):
                parameter.grad = gradient.clone()
            reference.step()
            step(*gradients)
            for ours, expected in zip(mine, theirs, strict=True):
                assert_close(ours.detach(), expected.detach(), f"step {number}")
        assert_same_states(optimizer, reference)
        return step
    finally:
        torch.set_default_dtype(before)
