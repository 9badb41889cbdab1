"""Sanitized models: faults that are put into compiled programs are reported, and programs without faults are not."""

import re

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc import _native

SANITIZED = disc.Options(sanitize=True)


class Chain(nn.Module):
    """Several kernels, whose temporaries share memory: a product, a function of the runtime, rows, a product."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 17)

    def forward(self, x):
        h = torch.sort(self.first(x), 1)[0]
        return self.second(h.softmax(1) @ h.t() @ h), h[:, 1:] - h[:, :1]


@pytest.fixture(scope="module")
def planned():
    """The memory stage of a sanitized model, to put faults into; where the lines come from is in its locations."""
    torch.manual_seed(0)
    module = Chain()
    options = disc.Options(sanitize=True, stop_after="memory")
    shapes = ({0: Dim("n", min=1, max=300)},)
    model = disc.compile(module, (torch.randn(5, 24),), dynamic_shapes=shapes, options=options)
    return module, model.ir("memory")


def run(module, text, x):
    """Calls what a text of the memory stage becomes."""
    compiled = _native.Module.parse(text)
    compiled.run(SANITIZED.stages["codegen"].text)
    executable = _native.jit(compiled, torch.Tensor, threads=2)
    parameters = dict(module.named_parameters())
    executable.init([parameters[name].detach() for name in executable.info()["parameters"]])
    return executable.run((x,))


def kernel(text, name):
    """The text of one kernel."""
    return next(k for k in re.split(r"(?=  disc_plan\.kernel_func)", text) if f"@{name}" in k.split("attributes")[0])


def edited(text, name, old, new, count=1):
    """The text with something replaced in a kernel."""
    before = kernel(text, name)
    assert old in before
    return text.replace(before, before.replace(old, new, count))


def launch(text, number):
    """The line of a launch in the main entry."""
    return re.findall(r"^ *disc_rt\.launch .*\n", text.split("@main")[1], re.M)[number]


def test_without_faults(planned):
    module, text = planned
    for n in (1, 7, 64, 300):
        x = torch.randn(n, 24)
        for got, wanted in zip(run(module, text, x), module(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def last_loop(text):
    """The name of the kernel that computes the differences."""
    return re.findall(r"kernel_func loop @(\w+)", text)[-1]


def test_store_beyond_the_buffer(planned):
    """A kernel that writes one element beyond its result."""
    module, text = planned
    name = last_loop(text)
    before = kernel(text, name)
    layouts = re.search(r"layouts = \[(.*?)\](?=, (?:reason|schedule|symbols))", before)[1]
    moved = layouts[::-1].replace(">0<<", ">1<<", 1)[::-1]
    assert moved != layouts
    with pytest.raises(disc.SanitizerError) as error:
        run(module, text.replace(before, before.replace(layouts, moved)), torch.randn(7, 24))
    message = str(error.value)
    assert f"kernel '{name}'" in message
    size = 7 * 39 * 4
    assert re.search(rf"writes \d+ bytes at offset \d+ of output 'output_?1', which has {size} bytes", message), message


def test_load_beyond_the_buffer(planned):
    """A kernel that reads one element beyond its operand."""
    module, text = planned
    name = last_loop(text)
    before = kernel(text, name)
    layouts = re.search(r"layouts = \[(.*?)\](?=, (?:reason|schedule|symbols))", before)[1]
    moved = re.sub(r"layout<<(\d+)>", lambda m: f"layout<<{int(m[1]) + 64}>", layouts, count=1)
    with pytest.raises(disc.SanitizerError, match=rf"kernel '{name}'.* reads \d+ bytes at offset \d+ of .*, which has"):
        run(module, text.replace(before, before.replace(layouts, moved)), torch.randn(7, 24))


def test_product_beyond_its_operand(planned):
    """The functions that products share know the bounds of what they are called with."""
    module, text = planned
    line = launch(text, 0)
    # How many bytes packed weights have depends on the processor: whole panels of its widest vectors.
    size = int(re.search(r"checked #disc_shape\.dims<\[[^,]*, (\d+), ", line)[1])
    assert size >= 24 * 40 * 4
    less = size - 64
    with pytest.raises(disc.SanitizerError, match=rf"reads .* of packed weights 'packed0', which has {less} bytes"):
        run(module, text.replace(line, line.replace(f", {size}, ", f", {less}, ")), torch.randn(64, 24))


def test_function_beyond_its_operand(planned):
    """Operands of the runtime's functions are checked as a whole."""
    module, text = planned
    name = re.search(r"kernel_func call @(\w*sort\w*)", text)[1]
    with pytest.raises(disc.SanitizerError, match=r"passes operand 0 of .* bytes to a function"):
        run(module, edited(text, name, "layout<<0>", "layout<<4>"), torch.randn(7, 24))


def test_memory_that_was_never_written(planned):
    """A kernel that is not launched."""
    module, text = planned
    with pytest.raises(disc.SanitizerError, match=r"reads .*: its memory from offset 0 to .* was never written"):
        run(module, text.replace(launch(text, 0), ""), torch.randn(7, 24))


def test_use_after_the_end_of_life(planned):
    """A temporary whose last use is planned too early."""
    module, text = planned
    lines = re.findall(r"^ *disc_rt\.launch .*\n", text.split("@main")[1], re.M)
    early = next(line for line in lines if '"rs ' in line)
    with pytest.raises(disc.SanitizerError, match=r"was poisoned after the last planned use"):
        run(module, text.replace(early, early.replace('"rs ', '"rsl ')), torch.randn(7, 24))


def test_temporaries_that_overlap(planned):
    """A plan that puts all temporaries at one place."""
    module, text = planned
    pointers = re.findall(r"(%\w+) = disc_rt\.offset (%\w+), (%\w+)", text.split("@main")[1])
    first = pointers[0][2]
    broken = text
    for result, base, offset in pointers[1:]:
        broken = broken.replace(
            f"{result} = disc_rt.offset {base}, {offset}\n", f"{result} = disc_rt.offset {base}, {first}\n"
        )
    # The first offset may be defined after the others are used.
    with pytest.raises(disc.SanitizerError, match=r"was reused for|was poisoned|red zone"):
        run(module, broken, torch.randn(7, 24))


@pytest.mark.parametrize("target", ["cuda-emulated", "cuda"])
def test_other_targets_say_what_to_do(target):
    with pytest.raises(ValueError, match=r"sanitize=True is for CPUs"):
        _ = disc.Options(sanitize=True, target=target).stages


def test_nothing_changes_without_it():
    """The option is off by default, and then no stage knows of it."""
    assert disc.Options().stages == disc.pipeline.default()
    assert "sanitize" not in str(disc.Options().stages)


def test_library(tmp_path):
    """Ahead of time, too; errors have a class of their own."""
    module = Chain()
    shapes = ({0: Dim("n", min=1, max=300)},)
    library = disc.aot_compile(
        module, (torch.randn(5, 24),), dynamic_shapes=shapes, output=tmp_path / "libchain.so", options=SANITIZED
    )
    loaded = disc.load(library.path)
    x = torch.randn(33, 24)
    for got, wanted in zip(loaded(x), module(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), wanted, rtol=1e-4, atol=1e-4)
