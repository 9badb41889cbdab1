"""The real sentence-embedding model: one compilation, every batch and length, against eager."""

import random

import pytest
import torch

import disc
from minilm import compile_model, load_model, random_inputs
from shapes import MINILM_BATCHES, MINILM_LENGTHS, shuffled_pairs

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def eager():
    return load_model()


@pytest.fixture(scope="module")
def compiled(eager):
    return compile_model(eager)


def difference(compiled, eager, inputs):
    with torch.inference_mode():
        expected = eager(*inputs)
    return (compiled(*inputs) - expected).abs().max().item()


@pytest.mark.parametrize("most", [260, pytest.param(64 * 512, marks=pytest.mark.nightly)])
def test_every_shape_in_random_order(compiled, eager, most):
    """All sizes up to so many tokens."""
    worst = {}
    for batch, length in shuffled_pairs(MINILM_BATCHES, MINILM_LENGTHS):
        if batch * length > most:
            continue
        # The largest shapes take seconds in eager mode: one run each, padded for every other one.
        masks = [True, False] if batch * length <= 4096 else [(batch + length) % 2 == 0]
        for padded in masks:
            inputs = random_inputs(batch, length, padded=padded)
            worst[batch, length, padded] = difference(compiled, eager, inputs)
    too_large = {shape: value for shape, value in worst.items() if not value <= TOLERANCE}
    assert not too_large, f"of {len(worst)} cases"


def test_layers_share_their_kernels(compiled):
    """What a call launches grows with depth; what was compiled does not."""
    text = compiled.ir("memory")
    main = text[text.index("disc_rt.entry @main") :]
    assert main.count("disc_rt.launch") <= 50  # 7 in each of 6 layers, and what is before and after them
    assert text.count("disc_plan.kernel_func") <= 17


def test_no_check_is_left_inside(compiled):
    assert "disc_shape.require" not in compiled.ir("shape")


def test_identical_inputs_give_identical_results(compiled):
    inputs = random_inputs(3, 47, padded=True)
    first = compiled(*inputs)
    for batch, length in [(1, 2), (8, 64), (3, 47)]:
        compiled(*random_inputs(batch, length))
    assert torch.equal(compiled(*inputs), first)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.nightly), 4])
def test_results_do_not_depend_on_threads(compiled, eager, threads):
    other = compile_model(eager, threads)
    for shape in [(1, 2), (5, 33), (16, 128)]:
        inputs = random_inputs(*shape, padded=True)
        assert torch.equal(other(*inputs), compiled(*inputs))


def test_concurrent_callers(compiled):
    from concurrent.futures import ThreadPoolExecutor

    cases = [random_inputs(batch, length, padded=True) for batch in (1, 3, 8) for length in (2, 17, 64, 129)]
    expected = [compiled(*inputs) for inputs in cases]

    def caller(seed):
        order = list(range(len(cases))) * 5
        random.Random(seed).shuffle(order)
        return all(torch.equal(compiled(*cases[i]), expected[i]) for i in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(caller, range(4)))


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_calls(compiled):
    generator = random.Random(1)
    shapes = [(generator.randint(1, 3), generator.randint(2, 24)) for _ in range(1000)]
    compiled(*random_inputs(3, 24))
    for shape in shapes[:100]:
        compiled(*random_inputs(*shape))
    before = resident_kib()
    for shape in shapes:
        compiled(*random_inputs(*shape))
    assert resident_kib() - before < 4096


def ids(*shape):
    return torch.ones(shape, dtype=torch.int64)


@pytest.mark.parametrize(
    ("inputs", "mentions"),
    [
        (lambda: (torch.zeros(2, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)), ["input_ids"]),
        (
            lambda: (torch.zeros(2, 4, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)),
            ["attention_mask", "length"],
        ),
        (
            lambda: (torch.zeros(3, 4, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)),
            ["attention_mask", "batch"],
        ),
        (lambda: random_inputs(65, 4), ["batch", "64", "65"]),
        (lambda: random_inputs(2, 513), ["length", "512", "513"]),
        (lambda: random_inputs(2, 1), ["length", "2", "1"]),
        (lambda: random_inputs(0, 4), ["batch", "0"]),
    ],
    ids=["rank", "length differs", "batch differs", "batch too large", "too long", "too short", "empty"],
)
def test_wrong_shapes(compiled, inputs, mentions):
    with pytest.raises(disc.ShapeError) as error:
        compiled(*inputs())
    for word in mentions:
        assert word in str(error.value)
    assert compiled(*random_inputs(2, 4)).shape == (2, 384)


def test_wrong_dtype_and_structure(compiled):
    tokens, mask = random_inputs(2, 4)
    with pytest.raises((disc.ShapeError, TypeError), match="input_ids"):
        compiled(tokens.to(torch.int32), mask)
    with pytest.raises((disc.ShapeError, TypeError)):
        compiled(tokens.to("meta"), mask)
    with pytest.raises((disc.ShapeError, TypeError, ValueError)):
        compiled(tokens)
    with pytest.raises((disc.ShapeError, TypeError)):
        compiled(tokens, "mask")
    assert compiled(tokens, mask).shape == (2, 384)


def test_inputs_need_not_be_contiguous(compiled, eager):
    tokens, mask = random_inputs(14, 6)
    inputs = (tokens.t(), mask.t())
    assert not inputs[0].is_contiguous()
    assert difference(compiled, eager, inputs) <= TOLERANCE
    assert difference(compiled, eager, (tokens[::2, 1:], mask[::2, 1:])) <= TOLERANCE
