"""Training runs against eager PyTorch: one compiled step, batches of changing sizes.

In f64 losses, parameters, buffers and the optimizer's state differ from eager's by at most 1e-9 of a tensor's largest
magnitude. In f32 rounding errors grow with the run, in eager too: there the distance from an f64 run is at most 8 times
that of eager's f32 run, plus 1e-6.
"""

import pytest
import torch

import disc
from bench.training import models
from bench.training.models import gpt
from bench.training.models.base import TrainingModel, eager_step
from training_cases import AUTOCAST, CASES
from training_twins import Twins, changing, compile_step, cycle, same_state, snapshot

GROWTH, FLOOR = 8.0, 1e-6
TREES = "tree_lstm"
NAMES = [name for name in models.names() if name != TREES]


@pytest.fixture(scope="module")
def mlp():
    return models.load("mlp", small=True)


@pytest.fixture(scope="module")
def _compiled(mlp):
    return Twins(mlp)


@pytest.fixture
def twins(_compiled):
    """Both runs of the MLP from the start; compiled once for all tests."""
    return _compiled.restart()


@pytest.mark.share(2)
@pytest.mark.parametrize("name", NAMES)
def test_model(name):
    """Each network, and both outcomes of its conditions."""
    model = models.load(name, small=True)
    twins = Twins(model)
    twins.run(cycle(model, 12))
    twins.check()


def test_trees_are_an_error():
    """Steps over trees are not supported yet, and the error says what to do."""
    with pytest.raises(disc.errors.GradientError, match="with_gradients"):
        Twins(models.load(TREES, small=True))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CASES)
def test_case(name):
    """Each thing that a step must handle."""
    model = CASES[name]
    twins = Twins(model)
    twins.run(cycle(model, 10))
    twins.check()


def follow_in_f32(model: TrainingModel, steps: int) -> None:
    """A run in f32 beside eager's in f32 and in f64."""
    twins = Twins(model, torch.float32)
    exact = model.build(torch.float32).double()
    optimizer = model.make_optimizer(exact)
    reference = []
    for i, shape in enumerate(changing(model, steps)):
        twins.run([shape], seed=i)
        reference.append(eager_step(model, exact, optimizer, *model.data(shape, i, torch.float64)).item())
    ours = [abs(a - r) for (a, _), r in zip(twins.losses, reference, strict=True)]
    eager = [abs(e - r) for (_, e), r in zip(twins.losses, reference, strict=True)]
    assert max(ours) <= GROWTH * max(eager) + FLOOR, (max(ours), max(eager))
    assert twins.step.compilations == 1


@pytest.mark.share(5, even=True)
@pytest.mark.parametrize("name", NAMES)
def test_model_in_f32(name):
    follow_in_f32(models.load(name, small=True), 10)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_long_run(name):
    """200 steps, each of another size."""
    model = models.load(name, small=True)
    twins = Twins(model)
    twins.run(changing(model, 200))
    twins.check()


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_long_run_in_f32(name):
    follow_in_f32(models.load(name, small=True), 200)


@pytest.mark.nightly
def test_real_weights():
    """MiniLM with its real weights, in f32."""
    follow_in_f32(models.load("minilm"), 200)


def test_compilation_changes_nothing():
    """Parameters and buffers are as before, and the optimizer's state is that of no step."""
    model = CASES["buffers"]
    module, expected = model.build(), model.build()
    optimizer, other = model.make_optimizer(module), model.make_optimizer(expected)
    compile_step(model, module, optimizer, torch.float32)
    same_state(snapshot(module, optimizer)[:2], snapshot(expected, other)[:2])
    for each, its in ((module, optimizer), (expected, other)):
        eager_step(model, each, its, *model.data((2, 3)))
    same_state(snapshot(module, optimizer), snapshot(expected, other))


def test_result(mlp):
    """The loss before the update, a scalar without a gradient. Parameters are the module's own tensors."""
    module = mlp.build()
    optimizer = mlp.make_optimizer(module)
    places = [parameter.data_ptr() for parameter in module.parameters()]
    step = compile_step(mlp, module, optimizer, torch.float32)
    batch = mlp.data((3, 4))
    expected = mlp.loss(module, *batch)
    loss = step(*batch)
    assert loss.shape == () and loss.dtype == torch.float32 and not loss.requires_grad
    torch.testing.assert_close(loss, expected.detach())
    assert mlp.loss(module, *batch) < expected
    assert [parameter.data_ptr() for parameter in module.parameters()] == places
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("name", ["groups", "convolutions"])
def test_resume(name, tmp_path):
    """A run that was saved in the middle goes on as if it had not stopped: AdamW, SGD with momentum and batch norm."""
    model = CASES[name]
    shapes, file = cycle(model, 8), tmp_path / "state.pt"

    def start():
        module = model.build()
        optimizer = model.make_optimizer(module)
        return module, optimizer

    def run(step, numbers):
        return [step(*model.data(shapes[i], i)).item() for i in numbers]

    module, optimizer = start()
    step = compile_step(model, module, optimizer, torch.float32)
    run(step, range(4))
    torch.save((module.state_dict(), optimizer.state_dict()), file)
    expected = run(step, range(4, 8))
    after = snapshot(module, optimizer)

    # Loaded into the objects of the running step.
    states = torch.load(file)
    module.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    assert run(step, range(4, 8)) == expected
    same_state(snapshot(module, optimizer), after)
    assert step.compilations == 1

    # Loaded into new objects, before the step is compiled, as another process does.
    module, optimizer = start()
    states = torch.load(file)
    module.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    step = compile_step(model, module, optimizer, torch.float32)
    assert run(step, range(4, 8)) == expected
    same_state(snapshot(module, optimizer), after)


def test_scheduler(mlp, twins):
    """Learning rates of a scheduler are read at each call."""
    schedulers = [
        torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=12)
        for optimizer in (twins.eager_optimizer, twins.optimizer)
    ]
    for i, shape in enumerate(cycle(mlp, 10)):
        twins.run([shape], seed=i)
        for scheduler in schedulers:
            scheduler.step()
    twins.check()


@pytest.mark.parametrize(
    "changes", [{"lr": 1e-2, "weight_decay": 0.2}, {"betas": (0.5, 0.8), "eps": 1e-6}, {"lr": 0.0}]
)
def test_changed_options(mlp, twins, changes):
    """Numbers among the options of a group may change between steps."""
    twins.run(cycle(mlp, 4))
    for optimizer in (twins.eager_optimizer, twins.optimizer):
        optimizer.param_groups[0].update(changes)
    twins.run(cycle(mlp, 4), seed=4)
    twins.check()
    assert changes.items() <= twins.optimizer.param_groups[0].items()


def test_changed_structure(mlp, twins):
    """An option that decides what the step computes: an error that names it, and nothing has changed."""
    twins.optimizer.param_groups[0]["amsgrad"] = True
    before = snapshot(twins.module, twins.optimizer)
    with pytest.raises((TypeError, ValueError), match="amsgrad"):
        twins.step(*twins.batch((2, 3), 0))
    same_state(snapshot(twins.module, twins.optimizer), before)


def test_eager_between(mlp, twins):
    """Steps of eager PyTorch, and changes of a parameter in place, between compiled steps."""
    for i, shape in enumerate(cycle(mlp, 8)):
        if i % 2:
            twins.run([shape], seed=i)
            continue
        for module, optimizer in ((twins.eager, twins.eager_optimizer), (twins.module, twins.optimizer)):
            eager_step(mlp, module, optimizer, *twins.batch(shape, i))
            with torch.no_grad():
                next(module.parameters()).mul_(0.99)
    twins.check()


def test_first_step_in_eager(mlp):
    """The optimizer has state already when the step is compiled."""
    module, expected = mlp.build(torch.float64), mlp.build(torch.float64)
    optimizer, other = mlp.make_optimizer(module), mlp.make_optimizer(expected)
    for i in range(2):
        eager_step(mlp, module, optimizer, *mlp.data((2, 3), i, torch.float64))
    step = compile_step(mlp, module, optimizer, torch.float64)
    for i in range(2, 5):
        step(*mlp.data((2, 3), i, torch.float64))
    for i in range(5):
        eager_step(mlp, expected, other, *mlp.data((2, 3), i, torch.float64))
    same_state(snapshot(module, optimizer), snapshot(expected, other), 1e-9, 1e-12)


def test_evaluation_between():
    """The module in evaluation mode between two steps has the weights of that moment."""
    model = CASES["convolutions"]
    twins = Twins(model)
    for i, shape in enumerate(cycle(model, 4)):
        twins.run([shape], seed=i)
        x, _ = twins.batch((2, 12), 100 + i)
        with torch.no_grad():
            actual, expected = twins.module.eval()(x), twins.eager.eval()(x)
        twins.module.train(), twins.eager.train()
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_accumulate(mlp):
    """Gradients of micro-batches of different sizes are added up before one update."""
    twins = Twins(mlp)
    for first in range(0, 9, 3):
        twins.eager_optimizer.zero_grad()
        for i in range(first, first + 3):
            batch = twins.batch(mlp.shapes[i % len(mlp.shapes)], i)
            loss = mlp.loss(twins.eager, *batch)
            loss.backward()
            before = snapshot(twins.module, twins.optimizer)
            twins.losses.append((twins.step.accumulate(*batch).item(), loss.item()))
            same_state(snapshot(twins.module, twins.optimizer), before)
        twins.eager_optimizer.step()
        twins.step.apply()
    # A whole step after accumulation starts from zero gradients.
    twins.run(cycle(mlp, 3), seed=20)
    # The step, the gradients of a micro-batch, and the update.
    twins.check(compilations=3)


@pytest.mark.parametrize("wrong", ["features", "rank", "dtype", "too_large", "different", "missing"])
def test_wrong_argument(mlp, twins, wrong):
    """An error, after which everything is as before, and the next step goes on."""
    twins.run(cycle(mlp, 2))
    x, y = twins.batch((3, 4), 0)
    batch = {
        "features": (x[..., :-1], y),
        "rank": (x[0], y),
        "dtype": (x.float(), y),
        "too_large": tuple(t[:, :1].expand(-1, 300, -1) for t in (x, y)),
        "different": (x, y[:2]),
        "missing": (x,),
    }[wrong]
    before = snapshot(twins.module, twins.optimizer)
    with pytest.raises((TypeError, ValueError)):
        twins.step(*batch)
    same_state(snapshot(twins.module, twins.optimizer), before)
    twins.run(cycle(mlp, 2), seed=2)
    twins.check()


def test_error_inside():
    """An id that the table does not have: no parameter, buffer or state changes."""
    model = gpt.ONE_LAYER
    twins = Twins(model, torch.float32)
    twins.run(cycle(model, 2))
    before = snapshot(twins.module, twins.optimizer)
    (ids,) = twins.batch((2, 6), 0)
    with pytest.raises(IndexError):
        twins.step(ids.index_fill(1, torch.tensor([3]), 1000))
    same_state(snapshot(twins.module, twins.optimizer), before)
    twins.run(cycle(model, 2), seed=2)
    twins.check(1e-3, 1e-5)


def test_autocast():
    """Forward and backward products in bf16, parameters and optimizer in f32."""
    twins = Twins(AUTOCAST, torch.float32)
    twins.run(cycle(AUTOCAST, 8))
    twins.check(2e-2, 2e-3)
    assert all(parameter.dtype == torch.float32 for parameter in twins.module.parameters())


@pytest.fixture(scope="module")
def dropout():
    """The module, optimizer and step of a network with dropout, on two threads, and its state at the start."""
    model = gpt.SMALL_WITH_DROPOUT
    module = model.build()
    optimizer = model.make_optimizer(module)
    step = compile_step(model, module, optimizer, torch.float32, options=disc.Options(threads=2))
    return module, optimizer, step, snapshot(module, optimizer)


def test_dropout(dropout):
    """The same seed results in the same run, another seed in another; the mean loss is eager's."""
    model = gpt.SMALL_WITH_DROPOUT
    module, optimizer, step, start = dropout

    def run(seed):
        module.load_state_dict(start[0])
        optimizer.load_state_dict(start[2])
        step.seed(seed)
        return [step(*model.data(shape, i)).item() for i, shape in enumerate(cycle(model, 5))]

    first = run(1)
    assert run(1) == first and run(2) != first
    # Losses of one batch at the first weights, of which only the dropped elements differ.
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.0
    batch = model.data((8, 24))
    module.load_state_dict(start[0])
    ours = torch.stack([step(*batch) for _ in range(100)])
    with torch.no_grad():
        eager = torch.stack([model.loss(module, *batch) for _ in range(100)])
    error = (ours.var() / 100 + eager.var() / 100).sqrt()
    assert (ours.mean() - eager.mean()).abs() <= 5 * error
    assert 0.5 < ours.std() / eager.std() < 2.0
    assert step.compilations == 1


def test_threads(dropout):
    """One thread and two: the same run, dropout included."""
    model = gpt.SMALL_WITH_DROPOUT
    module = model.build()
    optimizer = model.make_optimizer(module)
    one = compile_step(model, module, optimizer, torch.float32, options=disc.Options(threads=1))
    two, start = dropout[2:]
    dropout[0].load_state_dict(start[0])
    dropout[1].load_state_dict(start[2])
    runs = []
    for step in (one, two):
        step.seed(3)
        runs.append(torch.stack([step(*model.data(shape, i)) for i, shape in enumerate(cycle(model, 5))]))
    torch.testing.assert_close(*runs, rtol=1e-5, atol=1e-6)
