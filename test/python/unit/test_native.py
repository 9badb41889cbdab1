"""disc._native without the compiler's stages: modules, pipelines, and a hand-written model over DLPack."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import copy_model
import disc
from disc import _native

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def weight():
    return torch.arange(4.0)


@pytest.fixture(scope="module")
def model(weight):
    executable = _native.jit(_native.Module.parse(copy_model.text()), torch.Tensor, threads=2)
    executable.init([weight])
    return executable


def test_runs(model, weight):
    for n in (0, 1, 7, 100):
        x = torch.randn(n, 4)
        y, w = model.run((x,))
        assert torch.equal(y, x)
        assert torch.equal(w, weight)
        assert y.data_ptr() % 64 == 0


def test_strided_inputs_are_made_contiguous(model):
    for x in (torch.randn(4, 9).T, torch.randn(9, 8)[:, ::2], torch.randn(1, 4).expand(9, 4), torch.randn(10, 4)[1:]):
        assert torch.equal(model.run([x])[0], x)


def test_views_that_are_negated_when_read(model):
    x = torch.randn(9, 4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    assert torch.equal(model.run((x,))[0], x)


def test_outputs_outlive_the_inputs_and_each_other(model):
    x = torch.randn(50, 4)
    outputs = [model.run((x,))[0] for _ in range(20)]
    assert len({y.data_ptr() for y in outputs}) == 20
    expected = x.clone()
    del x
    gc.collect()
    assert all(torch.equal(y, expected) for y in outputs)


def test_inputs_that_require_grad(model):
    x = torch.randn(3, 4, requires_grad=True)
    y = model.run((x,))[0]
    assert torch.equal(y, x)
    assert not y.requires_grad


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((torch.zeros(3, 4, dtype=torch.float64),), "input 'x', dtype: expected float32, got float64"),
        ((torch.zeros(3, 4, dtype=torch.complex64),), "input 'x', dtype: expected float32, got complex64"),
        (([1.0],), "input 'x': expected a Tensor, got list"),
        ((torch.zeros(3, 4, device="meta"),), "input 'x': expected a dense tensor on cpu"),
        ((torch.zeros(3, 4).to_sparse(),), "input 'x': expected a dense tensor on cpu"),
        ((), "expected 1 tensor inputs, got 0"),
        ((torch.zeros(3, 4), torch.zeros(3, 4)), "expected 1 tensor inputs, got 2"),
    ],
)
def test_wrong_types(model, inputs, message):
    with pytest.raises(TypeError, match=message):
        model.run(inputs)
    test_runs(model, torch.arange(4.0))


def test_wrong_shapes(model):
    with pytest.raises(disc.ShapeError, match=r"input 'x', dim 0 \(n\): expected at most 100, got 101") as info:
        model.run((torch.zeros(101, 4),))
    error = info.value
    assert (error.input, error.dim, error.symbol, error.expected, error.got) == ("x", 0, "n", "at most 100", "101")
    with pytest.raises(disc.ShapeError, match=r"rank: expected 2 dims \[n, 4\], got 1 dims \[4\]") as info:
        model.run((torch.zeros(4),))
    assert (info.value.input, info.value.dim) == ("x", None)
    with pytest.raises(disc.ShapeError, match=r"input 'x', dim 1: expected 4, got 5 \(the shape is \[2, 5\]\)"):
        model.run((torch.zeros(2, 5),))
    test_runs(model, torch.arange(4.0))


def test_wrong_parameters():
    executable = _native.jit(_native.Module.parse(copy_model.text()), torch.Tensor)
    with pytest.raises(RuntimeError, match="not loaded"):
        executable.run((torch.zeros(3, 4),))
    with pytest.raises(disc.ShapeError, match=r"parameter 'w': expected shape \[4\], got \[5\]"):
        executable.init([torch.zeros(5)])
    with pytest.raises(TypeError, match="parameters must be tensors"):
        executable.init([1])


def test_parameters_stay_alive():
    executable = _native.jit(_native.Module.parse(copy_model.text()), torch.Tensor)
    executable.init([torch.full((4,), 7.0)])
    gc.collect()
    [torch.randn(4) for _ in range(100)]
    assert torch.equal(executable.run((torch.zeros(1, 4),))[1], torch.full((4,), 7.0))


def test_concurrent_callers(model):
    failures = []

    def call(seed):
        generator = torch.Generator().manual_seed(seed)
        for i in range(300):
            x = torch.randn(i % 100, 4, generator=generator)
            if not torch.equal(model.run((x,))[0], x):
                failures.append((seed, i))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_info(model):
    info = model.info()
    assert info["inputs"] == [("x", "float32", ("n", "4"))]
    assert info["symbols"] == [("n", 0, 100)]
    assert info["parameters"] == ["w"]
    assert model.threads == 2


def test_diagnostics_have_locations():
    with pytest.raises(_native.PipelineError) as info:
        _native.Module.parse("func.func @f( {")
    assert info.value.diagnostics[0][0] == "error"
    module = _native.Module.parse("""
        func.func @f() -> f32 {
          %0 = arith.constant 1.0 : f32 loc("model.py":12:3)
          return %0 : f32
        }""")
    with pytest.raises(_native.PipelineError, match="no-such-pass"):
        module.run("builtin.module(no-such-pass)")
    assert 'loc("model.py":12:3)' in module.text(locations=True)


@pytest.mark.parametrize(
    "order",
    [
        "import disc._native, torch, torch_mlir.ir as ir",
        "import torch, torch_mlir.ir as ir, disc._native",
        "import torch_mlir.ir as ir, torch_mlir.passmanager, disc._native",
    ],
)
def test_lives_beside_torch_mlir(order):
    """Two builds of MLIR in one process, loaded in any order, each with a module and passes of its own."""
    script = f"""
{order}
import disc
module = disc._native.Module.parse("func.func @f() {{ return }}")
module.run("builtin.module(canonicalize)")
with ir.Context():
    theirs = ir.Module.parse("func.func @g() {{ return }}")
    import torch_mlir.passmanager as pm
    pm.PassManager.parse("builtin.module(canonicalize)").run(theirs.operation)
    print(theirs)
print(module.text())
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "@g" in result.stdout
    assert "@f" in result.stdout


def test_stubs_name_what_there_is():
    stub = (ROOT / "python/disc/_native.pyi").read_text()
    for name in dir(_native):
        if not name.startswith("_"):
            assert any(text in stub for text in (f"class {name}", f"def {name}(", f"\n{name}: ")), name
    for cls in (_native.Module, _native.Executable):
        for name in dir(cls):
            if not name.startswith("_"):
                assert f"def {name}(" in stub, f"{cls.__name__}.{name}"


_FRAGMENTED = """
import ctypes
import mmap
import tempfile

import torch

import disc

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
NORESERVE = 0x4000


def take(size, address=None):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    return libc.mmap(address, size, 0, flags, -1, 0)


def fill():
    # Whatever is free between mappings, but for the wide gap below them all.
    ranges = [[int(x, 16) for x in line.split()[0].split("-")] for line in open("/proc/self/maps")]
    for (_, end), (begin, _) in zip(ranges, ranges[1:]):
        if 0 < begin - end < 1 << 36:
            take(begin - end, end)


def hole(size):
    # A free place of this size, and three gigabytes below it that nothing else can have.
    block = take((3 << 30) + size)
    assert block != ctypes.c_void_p(-1).value
    assert libc.munmap(block + (3 << 30), size) == 0


def net():
    layers = [torch.nn.Linear(8 + i, 9 + i) for i in range(12)]
    return torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.Softmax(-1))])


rows = torch.export.Dim("rows", min=1, max=64)
module, x = net(), torch.randn(5, 8)
disc.compile(module, (x,))  # so that what is loaded once does not come in between
fill()
# Each size fits into another gap; several of each, as others want them too.
for size in range(4 << 12, 1 << 20, 4 << 12):
    for _ in range(20):
        hole(size)
model = disc.compile(module, (x,), dynamic_shapes=({0: rows},))
assert (model(x) - module(x)).abs().max() < 1e-6
with tempfile.TemporaryDirectory() as folder:  # which runs code to pack weights
    disc.aot_compile(module, (x,), dynamic_shapes=({0: rows},), output=folder + "/libnet.so")
"""


def test_parts_of_code_stay_within_reach_of_each_other():
    # Parts of a model's code refer to each other by 32-bit distances: where each is put must not depend on which gaps
    # the process's address space has.
    result = subprocess.run([sys.executable, "-c", _FRAGMENTED], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-2000:]
