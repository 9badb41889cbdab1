"""Clipping, loss scaling and gradients that are not finite, against the same in eager PyTorch."""

import copy

import pytest
import torch

import disc

SIZES = (3, 1, 6, 2)
OPTIONS = {
    "clip_norm": {"clip_norm": 0.05},
    "clip_value": {"clip_value": 0.01},
    "loss_scale": {"loss_scale": 256.0},
    "all": {"clip_norm": 0.05, "clip_value": 0.01, "loss_scale": 256.0, "non_finite": "skip"},
}


def loss(module, x):
    return (module(x) ** 2).mean()


def made(**options):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    example = (torch.randn(4, 4, dtype=torch.float64),)
    step = disc.compile_training(module, optimizer, example, loss=loss, dynamic_shapes=({0: "n"},), **options)
    return module, optimizer, step


def state(module, optimizer):
    values = [*module.parameters(), *(x for s in optimizer.state.values() for x in s.values())]
    return [x.detach().clone() for x in values]


def eager_step(module, optimizer, x, clip_norm=None, clip_value=None):
    optimizer.zero_grad()
    value = loss(module, x)
    value.backward()
    norm = None
    if clip_norm is not None:
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
    if clip_value is not None:
        torch.nn.utils.clip_grad_value_(module.parameters(), clip_value)
    optimizer.step()
    return value.detach(), norm


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("accumulated", [False, True])
def test_as_in_eager(name, accumulated):
    options = OPTIONS[name]
    module, _, step = made(**options)
    eager = copy.deepcopy(module)
    optimizer = torch.optim.AdamW(eager.parameters(), lr=0.01)
    clips = {k: v for k, v in options.items() if k.startswith("clip")}
    for number, size in enumerate(SIZES):
        if "clip_norm" in clips and number == 2:
            step.clip_norm = clips["clip_norm"] = 0.02  # between calls
        x = torch.randn(size, 4, dtype=torch.float64)
        if accumulated:
            value = step.accumulate(x)
            step.apply()
        else:
            value = step(x)
        expected, norm = eager_step(eager, optimizer, x, **clips)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
        if norm is not None:
            torch.testing.assert_close(step.gradient_norm, norm, rtol=1e-9, atol=1e-12)
        for p, q in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)
    assert step.skipped == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_steps_with_gradients_that_are_not_finite_are_skipped(bad):
    module, optimizer, step = made(non_finite="skip")
    x = torch.randn(3, 4, dtype=torch.float64)
    step(x)
    before = state(module, optimizer)
    step(torch.full((2, 4), bad, dtype=torch.float64))
    assert step.skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(before, state(module, optimizer), strict=True))
    step(x)
    assert step.skipped == 1
    assert not all(torch.equal(a, b) for a, b in zip(before, state(module, optimizer), strict=True))


def test_steps_with_gradients_that_are_not_finite_can_raise():
    module, optimizer, step = made(non_finite="raise")
    x = torch.randn(3, 4, dtype=torch.float64)
    step(x)
    before = state(module, optimizer)
    with pytest.raises(disc.errors.NonFiniteError, match="DISC0105"):
        step(torch.full((2, 4), float("nan"), dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(before, state(module, optimizer), strict=True))
    step(x)


def test_they_are_applied_otherwise_as_in_eager():
    module, _, step = made()
    step(torch.full((2, 4), float("nan"), dtype=torch.float64))
    assert all(p.isnan().any() for p in module.parameters())


def test_wrong_options_are_errors():
    for wrong, text in (({"non_finite": "stop"}, "non_finite"), ({"options": disc.Options(target="cuda")}, "target")):
        with pytest.raises(ValueError, match=text):
            made(**wrong)
    with pytest.raises(ValueError, match="none of the module's parameters"):
        disc.compile_training(
            torch.nn.Linear(2, 2), torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1), torch.ones(1, 2)
        )


def test_checks_of_linear_algebra():
    """A matrix without an inverse is an error, and changes nothing."""

    class Inverse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(2 * torch.eye(4, dtype=torch.float64) + 0.1)

        def forward(self, x):
            return (x @ torch.linalg.inv(self.weight)).square().mean()

    module = Inverse()
    twin = copy.deepcopy(module)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, twin))
    step = disc.compile_training(module, mine, (torch.randn(3, 4).double(),), dynamic_shapes=({0: "n"},))
    for n in SIZES:
        x = torch.randn(n, 4).double()
        expected = twin(x)
        theirs.zero_grad()
        expected.backward()
        theirs.step()
        torch.testing.assert_close(step(x), expected.detach())
        torch.testing.assert_close(module.weight, twin.weight)
    with torch.no_grad():
        module.weight.zero_()
    with pytest.raises(disc.ShapeError, match=r"linalg\.inv: the matrix is singular"):
        step(x)
    assert not module.weight.any()


def test_errors_of_indices_change_nothing():
    """Indices that a kernel computes are checked before an update, also beside the loss."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.Adam(module.parameters())

    def loss(module, x):
        at = x.sum().long().clamp(0, 1000).reshape(1)
        return module(x).square().mean() + x[:, 0].index_select(0, at).sum()

    step = disc.compile_training(
        module, optimizer, (torch.zeros(4, 6),), loss=loss, dynamic_shapes=({0: torch.export.Dim("n", min=1)},)
    )
    for n in (3, 1, 17):
        step(torch.full((n, 6), 0.001))
        before = copy.deepcopy((module.state_dict(), optimizer.state_dict()["state"]))
        with pytest.raises(IndexError, match="index 1000 is out of range"):
            step(torch.full((n, 6), 1000.0))
        after = module.state_dict(), optimizer.state_dict()["state"]
        assert all(torch.equal(x, after[0][name]) for name, x in before[0].items())
        assert all(torch.equal(x, after[1][p][name]) for p in before[1] for name, x in before[1][p].items())


def test_arguments_are_those_of_the_loss():
    """Errors and names of arguments are as for a compiled model."""
    module = torch.nn.Linear(6, 3)
    optimizer = torch.optim.Adam(module.parameters())
    x = torch.randn(4, 6)
    step = disc.compile_training(
        module, optimizer, (x,), loss=lambda module, x, scale=2.0: scale * module(x).sum(), dynamic_shapes=({0: "n"},)
    )
    step(x=x[:2])
    with pytest.raises(TypeError, match="missing argument 'x'"):
        step()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        step(x, y=x)


def test_another_parameter_of_the_module_is_an_error():
    """As after ``load_state_dict(assign=True)``: the optimizer would update tensors that the module does not have."""
    module = torch.nn.Linear(6, 3)
    optimizer = torch.optim.Adam(module.parameters())
    x = torch.randn(4, 6)
    step = disc.compile_training(
        module, optimizer, (x,), loss=lambda module, x: module(x).sum(), dynamic_shapes=({0: "n"},)
    )
    step(x)
    module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()})
    step(x)
    module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()}, assign=True)
    for _ in range(2):
        with pytest.raises(disc.errors.CallError, match="'weight' of the module is another tensor"):
            step(x)
