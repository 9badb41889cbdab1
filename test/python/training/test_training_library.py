"""Training steps as libraries: through disc.load and through a program in C, beside eager PyTorch."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import disc
from disc.errors import ArgumentValueError

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))

import build_trainer  # noqa: E402

SHAPES = ({0: "rows"}, {0: "rows"})


def eager_steps(batches, lr=None):
    """The trained module, and the loss of each step."""
    module = build_trainer.network()
    optimizer = build_trainer.make_optimizer(module)
    losses = []
    for i, (x, y) in enumerate(batches):
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr(i)
        optimizer.zero_grad()
        value = build_trainer.loss(module, x, y)
        value.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(value.item())
    return module, losses


def same(state, module):
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(torch.from_numpy(state[name]), parameter.detach(), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    build_trainer.install(folder)
    return folder


@pytest.fixture
def library(prefix):
    return disc.load(prefix / "lib" / "libtrainer.so")


# The order of the numbers in hyper_parameters, as the header names them.
CLIP_NORM, LR = 0, 1
NUMBERS = [1.0, 1e-2, 0.9, 0.999, 1e-8, 1e-2]


def run(library, batches, lr=None):
    losses = []
    for i, (x, y) in enumerate(batches):
        numbers = np.array(NUMBERS)
        if lr is not None:
            numbers[LR] = lr(i)
        losses.append(float(library(x.numpy(), y.numpy(), numbers)[0]))
    return losses


def test_steps_are_those_of_eager(library):
    """Batches of other sizes at each step, and another learning rate."""
    batches = build_trainer.batches(10, seed=1)
    rate = lambda i: 1e-2 * 0.9**i  # noqa: E731
    module, losses = eager_steps(batches, rate)
    np.testing.assert_allclose(run(library, batches, rate), losses, rtol=1e-4)
    same(library.state(), module)


def test_state_is_that_of_the_optimizer_too(library):
    run(library, build_trainer.batches(3))
    state = library.state()
    assert set(state) == {
        name
        for parameter in ("0.weight", "0.bias", "2.weight", "2.bias")
        for name in (parameter, *(f"optimizer.{parameter}.{x}" for x in ("step", "exp_avg", "exp_avg_sq")))
    }
    assert state["optimizer.0.weight.step"] == 3
    assert np.abs(state["optimizer.0.weight.exp_avg"]).max() > 0
    library.reset()
    same(library.state(), build_trainer.network())


def test_resumed_runs_are_the_same(library, prefix, tmp_path):
    """To the last bit; also from a file that PyTorch's users can read."""
    batches = build_trainer.batches(10, seed=2)
    without = run(library, batches)
    expected = library.state()
    library.reset()
    first = run(library, batches[:4])
    library.save_state(tmp_path / "state.safetensors")
    other = disc.load(prefix / "lib" / "libtrainer.so", threads=1)
    other.load_state(tmp_path / "state.safetensors")
    assert first + run(other, batches[4:]) == without
    found = other.state()
    assert all((found[name] == value).all() for name, value in expected.items())
    size = int.from_bytes((tmp_path / "state.safetensors").read_bytes()[:8], "little")
    header = json.loads((tmp_path / "state.safetensors").read_bytes()[8 : 8 + size])
    assert header["0.weight"]["shape"] == [32, 6] and header["0.weight"]["dtype"] == "F32"


def test_failed_steps_change_nothing(library):
    before = library.state()
    x, y = build_trainer.batches(1)[0]
    with pytest.raises(disc.ShapeError):
        library(x.numpy(), y.numpy()[:-1] if len(y) > 1 else np.zeros((2, 3), np.float32), np.array(NUMBERS))
    after = library.state()
    assert all((after[name] == value).all() for name, value in before.items())


def test_files_that_do_not_fit(library, tmp_path):
    with pytest.raises(FileNotFoundError):
        library.load_state(tmp_path / "none")
    with pytest.raises(OSError, match="cannot create"):
        library.save_state(tmp_path / "none" / "state")
    (tmp_path / "text").write_text("this is no such file")
    with pytest.raises(disc.LibraryError):
        library.load_state(tmp_path / "text")


# -- C


@pytest.fixture(scope="module")
def program(prefix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    for name in ("train.c", "Makefile"):
        shutil.copy(ROOT / "examples" / "c" / name, folder)
    subprocess.run(["make", "-s", "-C", folder, f"PREFIX={prefix}", "train"], check=True)
    return folder / "train"


def trained(program, batches, state, *rate):
    build_trainer.write_batches(state.parent / "batches.bin", batches)
    done = subprocess.run([program, state.parent / "batches.bin", state, *rate], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [float(line.split()[1]) for line in done.stdout.splitlines()]


def test_c_program(program, library, tmp_path):
    """Trains as eager does, also in two runs; its file is one for Python, too."""
    batches = build_trainer.batches(10, seed=3)
    module, losses = eager_steps(batches)
    once = trained(program, batches, tmp_path / "once.safetensors")
    np.testing.assert_allclose(once, losses, rtol=1e-4)
    library.load_state(tmp_path / "once.safetensors")
    same(library.state(), module)
    twice = trained(program, batches[:6], tmp_path / "twice.safetensors")
    twice += trained(program, batches[6:], tmp_path / "twice.safetensors")
    assert twice == once
    assert (tmp_path / "twice.safetensors").read_bytes() == (tmp_path / "once.safetensors").read_bytes()


def test_c_program_changes_the_learning_rate(program, library, tmp_path):
    batches = build_trainer.batches(5, seed=4)
    module, _ = eager_steps(batches, lambda _: 1e-3)
    trained(program, batches, tmp_path / "state.safetensors", "0.001")
    library.load_state(tmp_path / "state.safetensors")
    same(library.state(), module)


# -- other steps


def small(**options):
    torch.manual_seed(0)
    module = nn.Linear(4, 2)
    return module, torch.optim.SGD(module.parameters(), **options), (torch.randn(3, 4), torch.randn(3, 2))


def squares(module, x, y):
    return F.mse_loss(module(x), y)


def test_first_step_that_differs(tmp_path):
    module, optimizer, batch = small(lr=0.1, momentum=0.9, dampening=0.5)

    def build():
        return disc.aot_compile_training(
            module, optimizer, batch, loss=squares, dynamic_shapes=SHAPES, output=tmp_path / "libsgd.so"
        )

    with pytest.raises(ArgumentValueError, match="first step of SGD with these options differs"):
        build()
    squares(module, *batch).backward()
    optimizer.step()
    build()
    library = disc.load(tmp_path / "libsgd.so")
    x, y = torch.randn(5, 4), torch.randn(5, 2)
    library(x, y, torch.tensor([0.1, 0.9, 0.5], dtype=torch.float64))
    optimizer.zero_grad()
    squares(module, x, y).backward()
    optimizer.step()
    same(library.state(), module)


def test_skipped_steps(tmp_path):
    module, optimizer, batch = small(lr=0.1)
    paths = {"output": tmp_path / "libskips.so", "header": tmp_path / "skips.h"}
    arguments = {"loss": squares, "dynamic_shapes": SHAPES, **paths}
    with pytest.raises(ArgumentValueError, match="a library raises nothing"):
        disc.aot_compile_training(module, optimizer, batch, non_finite="raise", **arguments)
    disc.aot_compile_training(module, optimizer, batch, non_finite="skip", **arguments)
    assert "SKIPS_HYPER_PARAMETERS_LR = 0," in (tmp_path / "skips.h").read_text()
    library = disc.load(tmp_path / "libskips.so")
    x, y = batch
    rate = torch.tensor([0.1], dtype=torch.float64)
    before = library.state()
    assert not library(x * float("inf"), y, rate)[1]
    assert all((value == before[name]).all() for name, value in library.state().items())
    assert library(x, y, rate)[1]
    assert (library.state()["weight"] != before["weight"]).any()


def test_dropout_resumes(tmp_path):
    """The numbers of a resumed run go on where the saved one stopped."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    disc.aot_compile_training(
        module, optimizer, (x, y), loss=squares, dynamic_shapes=SHAPES, output=tmp_path / "libdropout.so"
    )
    rate = torch.tensor([0.1], dtype=torch.float64)
    library, other = (disc.load(tmp_path / "libdropout.so") for _ in range(2))
    library.seed(5)
    library(x, y, rate)
    library.save_state(tmp_path / "state")
    expected = [float(library(x, y, rate)) for _ in range(3)]
    assert len(set(expected)) == 3
    other.load_state(tmp_path / "state")
    assert [float(other(x, y, rate)) for _ in range(3)] == expected


def test_targets_are_cpus(tmp_path):
    module, optimizer, batch = small(lr=0.1)
    with pytest.raises(ArgumentValueError, match="compiled for CPUs"):
        disc.aot_compile_training(module, optimizer, batch, loss=squares, output=tmp_path / "x.so", target="cuda")
