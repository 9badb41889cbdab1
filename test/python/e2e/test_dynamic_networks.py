"""Dynamic networks as one writes them: every edge of their branches is taken, and each way equals eager's.

Quick by default; DISC_ALL_MODELS=1 runs 1,000 inputs of each.
"""

import os

import pytest
import torch
from torch.utils import _pytree as pytree

import disc
from branch_edges import Edges, Margins
from dynamic import NETWORKS, generation, load, path_of, recurrent

pytestmark = pytest.mark.share(3)

COUNT = 1000 if "DISC_ALL_MODELS" in os.environ else 40
LEAST = 0.2
# How near to a tie eager's own decision may be where outputs differ, and how many inputs may have such a one.
TIE, TIES = 1e-6, 0.005
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def single_thread():
    """Small operators: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def same(actual, expected):
    """Whether two results are: numbers, shapes and integers equal, floats within the tolerance of their scale."""
    found, spec = pytree.tree_flatten(actual)
    wanted, other = pytree.tree_flatten(expected)
    return spec == other and all(map(same_leaf, found, wanted))


def same_leaf(a, e):
    if not isinstance(e, torch.Tensor):
        return type(a) is type(e) and a == e
    if a.shape != e.shape or a.dtype != e.dtype:
        return False
    if not e.is_floating_point() or e.numel() == 0:
        return torch.equal(a, e)
    return float((a - e).abs().max()) <= TOLERANCE * max(1.0, float(e.abs().max()))


def decided_narrowly(model, inputs):
    with Margins() as margins:
        model(*inputs)
    return margins.least < TIE


def example(source):
    """Arguments whose extents are larger than one and differ from each other: no other meaning."""
    axes = source.dynamic_shapes[0]
    for inputs in source.inputs(100, 9):
        if min(inputs[0].shape[axis] for axis in axes) > 1 and len(set(inputs[0].shape)) == inputs[0].dim():
            return inputs
    raise AssertionError("no input to compile with")


def check(source, model, count=COUNT):
    """One compilation; it gives what the module gives, for all inputs."""
    compiled = disc.compile(model, example(source), dynamic_shapes=source.dynamic_shapes)
    wrong, ties = [], 0
    with torch.inference_mode():
        for i, inputs in enumerate(source.inputs(count, 0)):
            if not same(compiled(*inputs), model(*inputs)):
                if decided_narrowly(model, inputs):
                    ties += 1
                else:
                    wrong.append((i, inputs[0].shape))
    assert not wrong, f"{len(wrong)} of {count}"
    assert ties <= TIES * count


@pytest.mark.parametrize("name", NETWORKS)
def test_edges(name):
    """Both ways of each test are taken by a fifth of what runs it, so that comparing outputs says something of both."""
    edges = Edges(path_of(name))
    model = edges.module.make_model(0)
    edges.reset()
    with torch.inference_mode():
        for inputs in edges.module.inputs(COUNT, 0):
            model(*inputs)
    shares = edges.shares()
    assert shares
    assert all(min(ways) >= LEAST for ways in shares.values()), shares


# Decoding with a draft compiles two models: `make nightly`.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.nightly) if n == "speculative" else n for n in NETWORKS]
)
def test_compiled(name):
    source = load(name)
    check(source, source.make_model(0))


@pytest.mark.parametrize("kind", generation.KINDS)
def test_generation(kind):
    check(generation, generation.make_model(0, kind), COUNT // 4)


@pytest.mark.parametrize("kind", recurrent.KINDS)
def test_looped_layers(kind):
    """Small cells, lengths from 1 to 512."""
    model = recurrent.make_model(0, kind, 12, 20)
    compiled = disc.compile(model, (torch.randn(3, 5, 12),), dynamic_shapes=recurrent.dynamic_shapes)
    with torch.inference_mode():
        for length in (1, 2, 3, 7, 64, 129, 512, 5):
            for batch in (1, 4, 16):
                x = torch.randn(batch, length, 12)
                assert same(compiled(x), model(x)), (batch, length)
