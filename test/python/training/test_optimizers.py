"""Optimizers of PyTorch and of users as compiled programs, beside their own steps."""

import copy

import pytest
import torch
from torch import optim

import disc
from disc import errors
from disc.frontend.locations import source_of
from disc.frontend.optimizers import trace_optimizer
from training_optimizer_steps import SHAPES, CompiledStep, assert_close, assert_same_states, compare, named, parameters
from training_user_optimizers import Assigning, Clipped, Counting, Decayed, Lion, OldAdam, Positional

CASES = {
    "sgd": (optim.SGD, {"lr": 0.1}),
    "sgd-nesterov": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True},
    ),
    "sgd-dampening": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "adam": (optim.Adam, {"weight_decay": 0.1}),
    "adamw": (optim.AdamW, {"amsgrad": True, "maximize": True}),
    "adagrad": (optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "rmsprop": (optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "adadelta": (optim.Adadelta, {"weight_decay": 0.1}),
    "adamax": (optim.Adamax, {}),
    "nadam": (optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "radam": (optim.RAdam, {"betas": (0.9, 0.9)}),
    "asgd": (optim.ASGD, {"t0": 5.0}),
    "rprop": (optim.Rprop, {}),
    "adafactor": (optim.Adafactor, {"weight_decay": 0.1}),
    "lion": (Lion, {"weight_decay": 0.1}),
    "old-adam": (OldAdam, {"weight_decay": 0.1}),
    "clipped": (Clipped, {}),
    "positional": (Positional, {}),
    "counting": (Counting, {}),
    "decayed": (Decayed, {}),
    "assigning": (Assigning, {}),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CASES)
def test_twenty_steps_are_those_of_pytorch(name):
    kind, options = CASES[name]
    compare(lambda tensors: kind(tensors, **options), dtype=torch.float64)


@pytest.mark.parametrize("name", ["sgd-nesterov", "adam", "nadam", "rmsprop", "asgd"])
def test_float32_is_updated_with_numbers_in_double(name):
    kind, options = CASES[name]
    compare(lambda tensors: kind(tensors, **options), shapes=((4, 3), (5,)))


def test_muon():
    compare(lambda tensors: optim.Muon(tensors, lr=0.1), shapes=((4, 3), (3, 4)), steps=1)


def test_learning_rates_and_betas_are_read_at_each_call():
    schedulers = {}

    def change(optimizer, number):
        # A warm-up begins with 0, and schedulers add options when they are made.
        if optimizer not in schedulers:
            schedulers[optimizer] = optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
        optimizer.param_groups[0]["betas"] = (0.9 - number / 100, 0.99)
        if number:
            schedulers[optimizer].step()

    step = compare(lambda tensors: optim.AdamW(tensors, lr=0.1), steps=6, change=change)
    assert ("betas", 0) in [(number.name, number.index) for number in step.traced.hyper_parameters]


def test_a_schedule_that_begins_with_zero():
    def change(optimizer, number):
        optimizer.param_groups[0]["lr"] = 0.01 * number

    compare(lambda tensors: optim.Adam(tensors, lr=0.0), steps=3, change=change)


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
def test_a_learning_rate_that_is_a_tensor(kind):
    def change(optimizer, number):
        optimizer.param_groups[0]["lr"].fill_(0.1 / (number + 1))

    step = compare(lambda tensors: kind(tensors, lr=torch.tensor(0.1)), steps=4, change=change)
    assert any(name.endswith("lr") for name in step.traced.states)


def test_an_int_where_a_float_is_meant_is_a_number():
    def change(optimizer, number):
        optimizer.param_groups[0]["lr"] = [1, 0.5, 2][number]

    compare(lambda tensors: optim.Adadelta(tensors, lr=1), steps=3, change=change)


def test_groups_have_options_of_their_own():
    def make(tensors):
        decayed = {"params": [tensors[0], tensors[3]], "weight_decay": 0.1, "lr": 0.01}
        return optim.AdamW([decayed, {"params": tensors[1:3], "weight_decay": 0.0, "amsgrad": True}])

    step = compare(make, steps=4)
    assert {number.group for number in step.traced.hyper_parameters} == {0, 1}


def test_layers_with_rates_of_their_own_share_what_is_traced(monkeypatch):
    from disc.frontend import optimizers

    traced = []

    def trace(optimizer, scope):
        traced.append(scope)
        return original(optimizer, scope)

    original = optimizers.trace_update
    monkeypatch.setattr(optimizers, "trace_update", trace)
    tensors = parameters([(4, 4), (4,)] * 6)
    groups = [{"params": [p], "lr": 0.1 * 0.9**i, "weight_decay": 0.1 * (p.dim() > 1)} for i, p in enumerate(tensors)]
    trace_optimizer(optim.AdamW(groups), named(tensors))
    assert len(traced) == 2


def _made(kind=optim.AdamW, **options):
    tensors = parameters(((3,), (2, 2)))
    optimizer = kind(tensors, lr=0.1, **options)
    return tensors, optimizer, trace_optimizer(optimizer, named(tensors))


def test_what_must_not_change_is_checked():
    tensors, optimizer, traced = _made()
    group = optimizer.param_groups[0]
    traced.structure.check(optimizer)
    for name, value, text in (
        ("amsgrad", True, r"param_groups\[0\]\['amsgrad'\].*expected False, got True"),
        ("weight_decay", 0.0, r"'weight_decay'\] of the optimizer is 0.0.*weight_decay"),
        ("maximize", True, r"param_groups\[0\]\['maximize'\]"),
        ("lr", None, r"param_groups\[0\]\['lr'\].*expected a number, got None"),
    ):
        before = group[name]
        group[name] = value
        with pytest.raises(errors.ArgumentTypeError, match=text):
            traced.structure.check(optimizer)
            [number.read(optimizer) for number in traced.hyper_parameters]
        group[name] = before
    traced.structure.check(optimizer)
    group["weight_decay"] = 0.3
    traced.structure.check(optimizer)
    optimizer.add_param_group({"params": parameters(((2,),))})
    with pytest.raises(errors.CallError, match="expected 1 groups, got 2"):
        traced.structure.check(optimizer)
    group["params"] = tensors[:1]
    optimizer.param_groups.pop()
    with pytest.raises(errors.CallError, match="other parameters"):
        traced.structure.check(optimizer)


def test_states_are_the_optimizers_own():
    tensors, optimizer, traced = _made()
    for name, parameter in named(tensors):
        assert list(optimizer.state[parameter]) == ["step", "exp_avg", "exp_avg_sq"]
        for key, tensor in optimizer.state[parameter].items():
            assert traced.states[f"optimizer.{name}.{key}"] is tensor
            assert traced.program.state_dict[f"optimizer.{name}.{key}"] is tensor
        assert traced.program.state_dict[name].data_ptr() == parameter.data_ptr()
    assert traced.parameters == ["layer.0", "layer.1"]


def test_states_that_are_loaded_are_other_tensors():
    tensors, optimizer, traced = _made()
    other = _made()[1]
    for parameter in other.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    other.step()
    assert not traced.changed(optimizer)
    optimizer.load_state_dict(copy.deepcopy(other.state_dict()))
    assert traced.changed(optimizer)
    traced.adopt(optimizer)
    states = traced.states
    assert not traced.changed(optimizer)
    assert states["optimizer.layer.0.step"] is optimizer.state[tensors[0]]["step"]
    assert states["optimizer.layer.0.step"] == 1
    del optimizer.state[tensors[1]]["exp_avg"]
    with pytest.raises(errors.CallError, match=r"optimizer.layer.1.exp_avg.*expected a tensor of shape \[2, 2\]"):
        traced.current_states(optimizer)


@pytest.mark.parametrize("kind", [optim.AdamW, OldAdam])
def test_steps_of_pytorch_may_come_between(kind):
    mine, theirs = parameters(), parameters()
    optimizer, reference = kind(mine, lr=0.1), kind(theirs, lr=0.1)
    step = CompiledStep(optimizer, named(mine))
    generator = torch.Generator().manual_seed(1)
    for number in range(6):
        gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        reference.step()
        if number == 3:
            for parameter, gradient in zip(mine, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
            if step.traced.changed(optimizer):
                step = CompiledStep(optimizer, named(mine))
        else:
            step(*gradients)
    for ours, expected in zip(mine, theirs, strict=True):
        assert_close(ours.detach(), expected.detach())
    assert_same_states(optimizer, reference)


def test_parameters_without_gradients_are_left_alone():
    tensors = parameters(((3,), (4,), (5,), (6,)))
    tensors[1].requires_grad_(False)
    optimizer = optim.AdamW(tensors[:3], lr=0.1)
    step = CompiledStep(optimizer, named(tensors), unused={"layer.2"})
    assert step.traced.parameters == ["layer.0"]
    before = [tensor.clone() for tensor in tensors]
    step(torch.ones(3))
    same = [torch.equal(a, b) for a, b in zip(before, tensors, strict=True)]
    assert same == [False, True, True, True]
    assert list(optimizer.state) == [tensors[0]]


def test_a_shared_parameter_is_updated_once():
    (tensor,) = parameters(((3,),))
    step = CompiledStep(optim.SGD([tensor], lr=1.0), [("a", tensor), ("b", tensor)])
    before = tensor.detach().clone()
    step(torch.ones(3))
    assert step.traced.parameters == ["a"]
    assert_close(tensor.detach(), before - 1)


def test_momentum_begins_with_zeros_if_that_is_the_same():
    tensors, optimizer, traced = _made(optim.SGD, momentum=0.9)
    assert not traced.needs_first_step
    assert optimizer.state[tensors[0]]["momentum_buffer"].eq(0).all()
    _, optimizer, traced = _made(optim.SGD, momentum=0.9, dampening=0.5)
    assert traced.needs_first_step and not optimizer.state
    assert traced.states["optimizer.layer.0.momentum_buffer"].shape == (3,)


def test_what_cannot_be_compiled_is_said():
    tensors = parameters(((3,),))
    with pytest.raises(errors.CompileError, match=r"LBFGS.step needs a closure"):
        trace_optimizer(optim.LBFGS(tensors), named(tensors))
    with pytest.raises(errors.CompileError, match="SparseAdam does not support dense gradients"):
        trace_optimizer(optim.SparseAdam(tensors), named(tensors))
    optimizer = optim.SGD(tensors, lr=0.1)
    with pytest.raises(errors.CompileError, match="none of the parameters"):
        trace_optimizer(optimizer, named(parameters(((3,),))))
    numbers = [torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))]
    with pytest.raises(errors.CompileError, match=r"'layer.0' is complex"):
        trace_optimizer(optim.SGD(numbers, lr=0.1), named(numbers))
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(errors.CompileError, match=r"hooks of its steps \(.*lambda"):
        trace_optimizer(optimizer, named(tensors))


def test_operations_have_the_lines_of_the_optimizer():
    tensors = parameters(((3,),))
    for kind, line in ((optim.AdamW, "adam.py"), (Lion, "training_user_optimizers.py")):
        program = trace_optimizer(kind(tensors), named(tensors)).program
        nodes = [node for node in program.graph.nodes if "mul" in str(node.target) and "stack_trace" in node.meta]
        places = [source_of(node) for node in nodes]
        assert places and all(place[0].endswith(line) for place in places)


def test_options_of_execution_do_not_matter():
    compare(lambda tensors: optim.AdamW(tensors, foreach=True), steps=3)
    compare(lambda tensors: optim.Adam(tensors, fused=True), steps=3)


def test_many_parameters_are_traced_as_one():
    tensors = parameters([(8, 4), (8,), (4, 8, 3), (2, 5)] * 25)
    step = CompiledStep(optim.AdamW(tensors), named(tensors))
    reference = parameters([(8, 4), (8,), (4, 8, 3), (2, 5)] * 25)
    optimizer = optim.AdamW(reference)
    for parameter in reference:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    step(*(torch.ones_like(parameter) for parameter in tensors))
    for ours, expected in zip(tensors, reference, strict=True):
        assert_close(ours.detach(), expected.detach())
    assert_same_states(step.optimizer, optimizer)


def test_after_torch_compile():
    """Its first use wraps methods of all optimizers."""
    torch.compile(torch.neg, backend="eager")(torch.ones(1))
    assert hasattr(optim.RAdam._init_group, "_torchdynamo_orig_callable")
    compare(lambda tensors: optim.RAdam(tensors))


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "radam"])
def test_whole_steps_of_a_module_in_float32(name):
    """With the backward pass before it: also with options that decompose a step in another way."""
    kind, options = CASES[name]
    options = {**options, "amsgrad": True} if name in ("adam", "adamw") else options
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    eager = copy.deepcopy(module)
    optimizer, other = (kind(m.parameters(), lr=1e-2, **options) for m in (module, eager))

    def loss(module, x):
        return module(x).pow(2).mean()

    step = disc.compile_training(module, optimizer, (torch.randn(4, 3),), loss=loss, dynamic_shapes=({0: "b"},))
    for rows in (4, 1, 7, 3, 64, 2):
        x = torch.randn(rows, 3)
        other.zero_grad()
        expected = loss(eager, x)
        expected.backward()
        other.step()
        torch.testing.assert_close(step(x), expected.detach())
    for p, q in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(p, q)
