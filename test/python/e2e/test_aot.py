"""Models compiled ahead of time, loaded by disc.load, against eager PyTorch in float64 at many shapes."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import disc
from aot_cases import CASES, check

PYTHON = Path(disc.__file__).resolve().parents[1]


@pytest.mark.parametrize("name", CASES)
def test_results(libraries, name):
    library = libraries(name)
    for point in library.case.points:
        inputs = library.case.inputs(*point)
        check(library.loaded(*inputs), library.module, inputs, library.case.tolerance)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "unpacked"])
@pytest.mark.parametrize("weights", ["embed", "weights.safetensors"])
@pytest.mark.parametrize("name", ["mlp", "attention", "softmax"])
def test_weights_wherever_they_are(libraries, name, weights, packed):
    library = libraries(name, weights=weights, packed=packed)
    external = library.folder / "weights.safetensors"
    assert external.exists() == (weights != "embed" and name != "softmax")
    assert library.artifact.weights == (external if external.exists() else None)
    for point in library.case.points[:3]:
        inputs = library.case.inputs(*point)
        check(library.loaded(*inputs), library.module, inputs, library.case.tolerance)


def test_what_a_library_is(libraries):
    library = libraries("pairs")
    loaded = library.loaded
    assert loaded.name == library.artifact.name == "pairs"
    assert [str(spec) for spec in loaded.inputs] == ["x: float32[n * 2, 3]", "y: float32[n, 3]"]
    assert [(spec.dtype, spec.dims) for spec in loaded.outputs] == [("float32", ("n", 3))]
    assert [(s.name, s.min, s.max) for s in loaded.symbols] == [("n", 1, 50)]
    assert list(library.artifact.interface.inputs) == list(loaded.inputs)
    assert list(library.artifact.interface.outputs) == list(loaded.outputs)
    assert loaded.parameters == ()
    # The machine's own name, which says something elsewhere too.
    assert (loaded.cpu,) == library.artifact.variants and loaded.cpu != "host"
    assert loaded.version == disc.__version__
    assert loaded.threads == 2
    assert repr(loaded).startswith("disc.Library(pairs(x: float32[n * 2, 3], y: float32[n, 3]) -> ")
    assert {spec.name for spec in libraries("mlp").loaded.parameters} == set(
        dict(libraries("mlp").module.named_parameters())
    )
    assert libraries("mlp").artifact.size == libraries("mlp").path.stat().st_size


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_variants(libraries, cpu):
    try:
        # Packing runs the code, which not every machine can.
        library = libraries("attention", target=cpu, packed=cpu == "x86-64-v2")
    except disc.LibraryError as error:
        assert error.reason == "target" and cpu in str(error)
        pytest.skip(f"this machine is no {cpu}")
    assert library.loaded.cpu == cpu
    for point in library.case.points:
        inputs = library.case.inputs(*point)
        check(library.loaded(*inputs), library.module, inputs, library.case.tolerance)


def test_the_best_variant_is_chosen(libraries):
    library = libraries("mlp", target=["x86-64-v2", "x86-64-v4", "x86-64-v3"], packed=False)
    assert sorted(library.artifact.variants) == ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    best = "x86-64-v4" if "avx512vl" in flags else "x86-64-v3" if "avx2" in flags else "x86-64-v2"
    assert library.loaded.cpu == best
    inputs = library.case.inputs(11)
    check(library.loaded(*inputs), library.module, inputs, library.case.tolerance)


def test_two_libraries_in_one_process(libraries):
    first, second = libraries("mlp"), libraries("attention")
    for a, b in zip(first.case.points, second.case.points, strict=False):
        for library, point in ((first, a), (second, b)):
            inputs = library.case.inputs(*point)
            check(library.loaded(*inputs), library.module, inputs, library.case.tolerance)


def test_one_library_with_different_weights(libraries, tmp_path):
    from safetensors.torch import save_file

    library = libraries("mlp")
    other = library.case.make()
    for parameter in other.parameters():
        parameter.data.mul_(1.5)
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(disc.WeightsError):
        disc.load(library.path, weights=tmp_path / "other.safetensors")
    second = disc.load(library.path, threads=1)
    second.swap_weights(tmp_path / "other.safetensors")
    inputs = library.case.inputs(13)
    check(second(*inputs), other, inputs, library.case.tolerance)
    check(library.loaded(*inputs), library.module, inputs, library.case.tolerance)


def test_threads_at_once(libraries):
    library = libraries("attention")
    jobs = [library.case.inputs(*point) for point in library.case.points]
    expected = [library.loaded(*inputs) for inputs in jobs]
    wrong = []

    def work(start):
        for i in range(3 * len(jobs)):
            at = (start + i) % len(jobs)
            if not torch.equal(library.loaded(*jobs[at]), expected[at]):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_python_threads_go_on(libraries):
    library = libraries("attention")
    x = library.case.inputs(9, 100)
    stop, count = threading.Event(), [0]

    def counting():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=counting)
    switch = sys.getswitchinterval()
    # The counting thread only ever gets in where a run lets go of the interpreter.
    sys.setswitchinterval(1000)
    try:
        thread.start()
        before = count[0]
        # A run may be over before the other thread has woken up: as many as it takes, within reason.
        patience = time.monotonic() + 60
        while count[0] == before and time.monotonic() < patience:
            library.loaded(*x)
        assert count[0] > before
    finally:
        sys.setswitchinterval(switch)
        stop.set()
        thread.join()


WITHOUT_TORCH = """
import json, sys
sys.path.insert(0, sys.argv[1])
for name in ("torch", "torch_mlir", "tqdm", "sympy", "disc._native"):
    sys.modules[name] = None
import numpy as np, disc
library = disc.load(sys.argv[2])
x = np.linspace(-1, 1, 5 * 24, dtype=np.float32).reshape(5, 24)
result = library(x)
assert type(result) is np.ndarray and "disc.compiler" not in sys.modules
print(json.dumps(result.tolist()))
"""


def test_numpy_is_all_that_is_needed(libraries):
    library = libraries("mlp")
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, PYTHON, library.path], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    x = torch.linspace(-1, 1, 5 * 24).reshape(5, 24)
    check(torch.tensor(json.loads(result.stdout)), library.module, (x,), 1e-5)


FORK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, disc
library = disc.load(sys.argv[2], threads=2)
x = np.ones((300, 24), np.float32)
expected = library(x)
child = os.fork()
if child == 0:
    # Its threads did not come along, the weights did.
    same = all(np.array_equal(library(x), expected) for _ in range(5))
    os._exit(0 if same else 1)
assert np.array_equal(library(x), expected)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_fork(libraries):
    result = subprocess.run(
        [sys.executable, "-c", FORK, PYTHON, libraries("mlp").path], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_disc_compile_and_disc_run(tmp_path):
    case = CASES["mlp"]
    module = case.make()
    program = torch.export.export(module, case.inputs(4), dynamic_shapes=case.dynamic_shapes)
    torch.export.save(program, tmp_path / "mlp.pt2")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PYTHON), os.environ.get("PYTHONPATH", "")])}

    def run(command, *args):
        return subprocess.run(
            [sys.executable, "-m", f"disc.cli.{command}", *args],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )

    result = run("compile", "mlp.pt2", "--prefix", "there", "--weights", "mlp.safetensors", "--dims", "x=rows,")
    assert result.returncode == 0, result.stderr
    assert "symbol  rows: 1 to 300" in result.stdout
    library = disc.load(tmp_path / "there/lib/libmlp.so")
    inputs = case.inputs(9)
    check(library(*inputs), module, inputs, case.tolerance)
    for file in ("include/disc.h", "include/mlp.h", "lib/mlp.safetensors", "lib/pkgconfig/mlp.pc"):
        assert (tmp_path / "there" / file).is_file()

    result = run("run", "there/lib/libmlp.so", "rows=17", "--repeat", "2")
    assert result.returncode == 0, result.stderr
    assert "float32[17, 24]" in result.stdout and "float32[17, 10]" in result.stdout
    assert run("run", "there/lib/libmlp.so", "--input", "300x24xf32", "--repeat", "1").returncode == 0
    info = " ".join(run("run", "there/lib/libmlp.so", "--info").stdout.split())
    assert "rows: 1 to 300" in info and "weights 5 tensors, 12.0 kB" in info
    for flags, status, message in (
        (["rows=301"], 1, "rows"),
        (["columns=1"], 2, "the model has no symbol 'columns'"),
        (["--input", "3x4xf31"], 2, "expected a shape and a dtype"),
        (["--threads", "0"], 2, "threads"),
    ):
        result = run("run", "there/lib/libmlp.so", *flags)
        assert (result.returncode, len(result.stderr.splitlines())) == (status, 1), result.stderr
        assert message in result.stderr
    result = run("run", "mlp.pt2")
    assert result.returncode == 1 and "mlp.pt2" in result.stderr and "Traceback" not in result.stderr


class Named(torch.nn.Module):
    def forward(self, x):
        return {"plus": x + 1, "pair": (x * 2, x.sum())}


def test_results_by_name(tmp_path):
    rows = torch.export.Dim("rows", max=64)
    disc.aot_compile(Named(), (torch.ones(3),), dynamic_shapes=({0: rows},), output=tmp_path / "libnamed.so")
    library = disc.load(tmp_path / "libnamed.so")
    for size in (1, 17, 64):
        x = torch.randn(size)
        results = library(x)
        plus, double, total = results
        assert results.keys() == ("plus", "pair_0", "pair_1") and isinstance(results, tuple)
        assert torch.equal(plus, x + 1) and torch.equal(results["pair_0"], double) and results[2] is total
        assert dict(results)["pair_1"] is total and results[1:] == (double, total)
        copy = pickle.loads(pickle.dumps(results))
        assert torch.equal(copy["plus"], plus)
        with pytest.raises(KeyError, match="the results are: plus, pair_0, pair_1"):
            results["other"]


def test_numpy_and_torch_give_the_same(libraries):
    library = libraries("select")
    mask, x = library.case.inputs(7)
    first, second = library.loaded(mask.numpy(), x=x.numpy())
    assert isinstance(first, np.ndarray) and second.dtype == np.bool_
    expected = library.loaded(mask, x)
    assert torch.equal(torch.from_numpy(first), expected[0])
    assert torch.equal(torch.from_numpy(second), expected[1])


def test_a_c_program_beside_the_header(tmp_path):
    disc.aot_compile(
        torch.nn.Linear(4, 3),
        (torch.ones(2, 4),),
        dynamic_shapes=({0: "rows"},),
        output=tmp_path / "libsmall.so",
        header=tmp_path / "small.h",
    )
    main = '#include "small.h"\nint main(void) { disc_model *m; return small_open(NULL, &m) || (disc_free(m), 0); }\n'
    (tmp_path / "main.c").write_text(main)
    command = ["cc", "main.c", "-I.", "-L.", "-lsmall", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], check=True)
