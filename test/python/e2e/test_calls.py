"""Calling a compiled model: structures of arguments and results, violations, concurrency, memory."""

import gc
import os
import random
import re
import threading
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import disc
from models import MLP

N = Dim("n", min=2, max=512)


class Scale(torch.nn.Module):
    """Takes a tensor, a dictionary, and values that the export fixes."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(1.0, 2.0, 8))

    def forward(self, x, pair, factor=2.0, extra=None):
        y = x * self.weight * factor
        if extra is not None:
            y = y + extra
        return {
            "y": y + pair["shift"],
            "again": [x, self.weight, None, 3],
            "rows": x.shape[0],
            "same": y,
        }


def scale_inputs(n):
    return torch.randn(n, 8), {"shift": torch.randn(n, 8)}


@pytest.fixture(scope="module")
def scale():
    module = Scale()
    shapes = {"x": {0: N}, "pair": {"shift": {0: N}}}
    return module, disc.compile(module, scale_inputs(3), dynamic_shapes=shapes)


def same(actual, expected):
    torch.testing.assert_close(actual["y"], expected["y"])
    torch.testing.assert_close(actual["same"], expected["same"])
    assert actual["rows"] == expected["rows"]
    assert actual["again"][2:] == expected["again"][2:] == [None, 3]


def test_any_structure(scale):
    module, compiled = scale
    for n in (2, 17, 512):
        x, pair = scale_inputs(n)
        result = compiled(x, pair)
        same(result, module(x, pair))
        assert result["again"][0] is x
        assert result["again"][1] is module.weight


def test_arguments_by_name(scale):
    module, compiled = scale
    x, pair = scale_inputs(5)
    same(compiled(x=x, pair=pair), module(x, pair))
    same(compiled(x, pair=pair), module(x, pair))
    same(compiled(pair=pair, x=x, extra=None), module(x, pair))


def test_other_structures_are_type_errors(scale):
    module, compiled = scale
    x, pair = scale_inputs(5)
    for args, kwargs in [
        ((x,), {}),
        ((x, x), {}),
        ((x, {"shift": x, "more": x}), {}),
        ((x, pair), {"extra": x}),
        ((x, pair), {"unknown": x}),
        ((), {}),
    ]:
        with pytest.raises(TypeError):
            compiled(*args, **kwargs)
    same(compiled(x, pair), module(x, pair))


def test_violations_are_told_and_harmless(scale):
    module, compiled = scale
    x, pair = scale_inputs(5)
    with pytest.raises(
        disc.ShapeError, match=r"'pair_shift', dim 0.*: expected n = 5, got 6 .*n comes from input 'x'"
    ) as info:
        compiled(x, {"shift": torch.randn(6, 8)})
    assert (info.value.input, info.value.dim, info.value.symbol) == ("pair_shift", 0, "n")
    assert (info.value.expected, info.value.got) == ("n = 5", "6")
    with pytest.raises(disc.ShapeError, match=r"'x', dim 0 \(n\) is out of range: expected 2 <= n <= 512, got 1"):
        compiled(torch.randn(1, 8), {"shift": torch.randn(1, 8)})
    with pytest.raises(disc.ShapeError, match=r"'x', dim 1: expected 8, got 9"):
        compiled(torch.randn(5, 9), pair)
    with pytest.raises(disc.ShapeError, match=r"'x', rank: expected 2 dims \[n, 8\], got 3 dims \[5, 8, 1\]"):
        compiled(torch.randn(5, 8, 1), pair)
    with pytest.raises(TypeError, match=r"'x', dtype: expected float32, got float16"):
        compiled(x.half(), pair)
    with pytest.raises(TypeError, match=r"'x': expected a dense tensor on cpu"):
        compiled(x.to("meta"), pair)
    with pytest.raises(TypeError, match=r"'x': expected a Tensor, got numpy.ndarray"):
        compiled(x.numpy(), pair)
    same(compiled(x, pair), module(x, pair))


def test_example_arguments_by_name():
    module = MLP().eval()
    compiled = disc.compile(module, (), {"x": torch.randn(4, 24)}, dynamic_shapes={"x": {0: N}})
    x = torch.randn(9, 24)
    torch.testing.assert_close(compiled(x=x), module(x))
    torch.testing.assert_close(compiled(x), module(x))


def test_two_tensors_in_any_order():
    class Subtract(torch.nn.Module):
        def forward(self, a, b):
            return a - 2 * b

    compiled = disc.compile(Subtract(), (torch.ones(4), torch.ones(4)), dynamic_shapes=({0: N}, {0: N}))
    a, b = torch.randn(9), torch.randn(9)
    for result in (compiled(a, b), compiled(a, b=b), compiled(b=b, a=a)):
        torch.testing.assert_close(result, a - 2 * b)
    for args, kwargs in [((a,), {}), ((a, b, b), {}), ((a,), {"a": b}), ((a,), {"c": b}), ((), {"a": a, "c": b})]:
        with pytest.raises(TypeError):
            compiled(*args, **kwargs)


def test_divisibility_is_a_guard():
    class Pairs(torch.nn.Module):
        def forward(self, x):
            return x.view(-1, 2).sum(1)

    compiled = disc.compile(Pairs(), (torch.randn(8),), dynamic_shapes=({0: 2 * Dim("half", min=1, max=64)},))
    x = torch.randn(64)
    torch.testing.assert_close(compiled(x), Pairs()(x))
    with pytest.raises(disc.ShapeError, match="'x', dim 0"):
        compiled(torch.randn(7))
    torch.testing.assert_close(compiled(x), Pairs()(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_integer_inputs_and_results(dtype):
    class Halve(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 1, x, torch.ones_like(x)), x.to(torch.float32) * 0.5

    module = Halve()
    compiled = disc.compile(module, (torch.ones(4, dtype=dtype),), dynamic_shapes=({0: N},))
    x = torch.randint(0, 200, (37,)).to(dtype)
    for actual, expected in zip(compiled(x), module(x), strict=True):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


@pytest.fixture(scope="module")
def mlp():
    module = MLP(inputs=96, hidden=256, outputs=64, activation="gelu").eval()
    return [
        disc.compile(module, (torch.randn(4, 96),), dynamic_shapes=({0: N},), options=disc.Options(threads=threads))
        for threads in (1, 2, 4)
    ]


def test_results_do_not_depend_on_threads(mlp):
    assert [model.threads for model in mlp] == [1, 2, 4]
    for n in (2, 3, 31, 64, 333, 512):
        x = torch.randn(n, 96)
        first = mlp[0](x)
        for model in mlp:
            for _ in range(10):
                assert torch.equal(model(x), first)


def test_four_callers_at_once(mlp):
    model = mlp[1]
    cases = [torch.randn(n, 96) for n in (2, 7, 64, 200, 512)]
    expected = [model(x) for x in cases]
    wrong = []

    def caller(seed):
        choose = random.Random(seed)
        for _ in range(100):
            i = choose.randrange(len(cases))
            if not torch.equal(model(cases[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_flat_after_the_largest_call(mlp):
    model = mlp[1]
    choose = random.Random(0)

    def resident():
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    kept = [model(torch.randn(512, 96)) for _ in range(3)]
    del kept
    for _ in range(100):
        model(torch.randn(choose.randint(2, 512), 96))
    before = resident()
    for _ in range(1000):
        model(torch.randn(choose.randint(2, 512), 96))
    assert resident() - before < 2 << 20


def test_models_go_away():
    """A dropped model leaves neither its code's thread pool nor its outputs dangling."""
    x = torch.randn(5, 24)
    module = MLP().eval()
    model = disc.compile(module, (x,), options=disc.Options(threads=3))
    output = model(x)
    expected = module(x)
    before = threading.active_count()
    del model
    gc.collect()
    assert threading.active_count() == before
    torch.testing.assert_close(output, expected)


def test_kernel_names_show_in_a_profile_and_code_in_a_dump(tmp_path):
    options = disc.Options(profile=True, dump_ir=tmp_path, opt_level=1)
    model = disc.compile(MLP().eval(), (torch.randn(3, 24),), options=options)
    kernels = set(re.findall(r"kernel_func .*@(\w+)", model.ir("memory")))
    assert kernels
    names = {line.split()[2] for line in Path(f"/tmp/perf-{os.getpid()}.map").read_text().splitlines()}
    assert {"disc_main", "disc_init", *kernels} <= names
    dumped = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in dumped if name.endswith(".mlir")] == [
        f"{i:02}-{stage}.mlir" for i, stage in enumerate(("import", *disc.pipeline.default().names))
    ]
    assert any(name.endswith(".s") for name in dumped)
    os.unlink(f"/tmp/perf-{os.getpid()}.map")


def test_no_stage_needs_the_ones_before_in_memory():
    """Each stage's text, parsed again, is a valid start for the rest: what disc-opt runs is what disc.compile runs."""
    module = MLP().eval()
    model = disc.compile(module, (torch.randn(3, 24),), dynamic_shapes=({0: N},))
    stages = list(disc.pipeline.default())
    for done, stage in enumerate(stages[:-1], 1):
        again = disc._native.Module.parse(model.ir(stage.name))
        for rest in stages[done:]:
            again.run(rest.text)
        executable = disc._native.jit(again, torch.Tensor, threads=1)
        executable.init([module.get_parameter(name).detach() for name in executable.info()["parameters"]])
        x = torch.randn(7, 24)
        assert torch.equal(executable.run((x,))[0], model(x)), stage.name


class Turned(torch.nn.Module):
    def forward(self, x, turns, times: int):
        return x * turns, (turns + 1j) * times


def test_complex_arguments_and_results():
    x, turns = torch.randn(5), torch.randn(5, dtype=torch.complex64)
    shapes = {"x": {0: N}, "turns": {0: N}, "times": Dim.DYNAMIC}
    model = disc.compile(Turned(), (x, turns, 3), dynamic_shapes=shapes)
    for n in (2, 7, 64):
        args = torch.randn(n), torch.randn(n, dtype=torch.complex64), n
        torch.testing.assert_close(model(*args), Turned()(*args))
        torch.testing.assert_close(model(args[0], times=n, turns=args[1].conj()), Turned()(args[0], args[1].conj(), n))
    # Compiled code has pairs of real numbers, which such an argument is not.
    for wrong in (torch.randn(5, 2), turns.to(torch.complex128)):
        with pytest.raises(TypeError, match=r"input 'turns', dtype: expected complex64, got (float32|complex128)"):
            model(x, wrong, 3)
    with pytest.raises(TypeError, match="input 'turns': expected a Tensor, got ndarray"):
        model(x, torch.randn(5, 2).numpy(), 3)
    with pytest.raises(TypeError, match="input 'times': expected an int, got float"):
        model(x, turns, 3.0)


def test_left_out_arguments_have_their_defaults():
    """Those of numbers that are inputs, or constants of the compiled model, whose value the example gave."""

    def scaled(x, scale: float = 1.0, *, up: bool = True):
        return (x * scale).relu() if up else x * scale

    x = torch.randn(3, 4)
    model = disc.compile(scaled, (x, 2.0), {"up": True}, dynamic_shapes={"x": {0: "n"}, "scale": None, "up": None})
    for n in (1, 5, 2):
        x = torch.randn(n, 4)
        for args, kwargs in (((x,), {}), ((x, 0.5), {}), ((x,), {"scale": 3.0}), ((x,), {"up": True})):
            torch.testing.assert_close(model(*args, **kwargs), scaled(*args, **kwargs))
    with pytest.raises(TypeError, match=r"'scale': expected a float, got int; pass 3\.0"):
        model(x, 3)
    with pytest.raises(TypeError, match="up"):
        model(x, up=False)
