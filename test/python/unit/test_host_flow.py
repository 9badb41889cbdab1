"""Host code of hand-written entry functions: arithmetic on symbols, guards, launches, names for perf."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import disc
from disc import _native

PASSES = (
    "builtin.module(disc-host-lower,canonicalize,cse,convert-scf-to-cf,convert-arith-to-llvm,convert-index-to-llvm,"
    "convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts,disc-codegen-verify)"
)

SCALE = """
disc_shape.symbol @B min 1 max 64
disc_shape.symbol @S min 2 max 512
func.func @k0_add(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = ["S"], disc_plan.tasks = #disc_shape.expr<B>,
                disc_plan.cost = #disc_shape.expr<S * COST>, disc_plan.scratch = #disc_shape.expr<SCRATCH>} {
  %px = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %a1 = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %py = llvm.load %a1 : !llvm.ptr -> !llvm.ptr
  %a2 = llvm.getelementptr %args[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %s = llvm.load %a2 : !llvm.ptr -> i64
  %one = arith.constant 1.0 : f32
  %c1 = arith.constant 1 : i64
  %lo = arith.muli %begin, %s : i64
  %hi = arith.muli %end, %s : i64
  scf.for %i = %lo to %hi step %c1 : i64 {
    %pxi = llvm.getelementptr %px[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %pyi = llvm.getelementptr %py[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %x = llvm.load %pxi : !llvm.ptr -> f32
    %y = arith.addf %x, %one : f32
    llvm.store %y, %pyi : f32, !llvm.ptr
  }
  return
}
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?xf32>, dims = <[B, S]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<?x?xf32>, dims = <[B, S]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %S = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @S, %S
  %c64 = arith.constant 64 : index
  %c2 = arith.constant 2 : index
  disc_rt.guard %call, %B le %c64 input 0 dim 0 expected "64", ""
  disc_rt.guard %call, %S ge %c2 input 0 dim 1 expected "2", ""
  disc_rt.guard %call, %S divisible %c2 input 0 dim 1 expected "2", ""
  %x = disc_rt.input %call[0]
  %bytes = disc_shape.dim <B * S * 4>
  %size = disc_shape.dim <B * S * 4 + 64>
  %arena = disc_rt.arena %call, %size
  %t = disc_rt.offset %arena, %c64
  %y = disc_rt.output %call[0] (%B, %S)
  disc_rt.launch %call @k0_add(%x, %t)
  disc_rt.launch %call @k0_add(%t, %t)
  disc_rt.copy %y, %t, %bytes
  disc_rt.return
}
"""


def load(text: str, **options: object) -> _native.Executable:
    """The hand-written module, lowered and loaded."""
    module = _native.Module.parse(text)
    module.run(PASSES)
    executable = _native.jit(module, torch.Tensor, **options)
    executable.init([])
    return executable


@pytest.mark.parametrize("cost, scratch", [("1000", "64"), ("1", "0")], ids=["pool", "direct"])
def test_launches(cost: str, scratch: str) -> None:
    model = load(SCALE.replace("COST", cost).replace("SCRATCH", scratch), threads=2)
    for shape in ((1, 2), (3, 8), (64, 512)):
        x = torch.randn(shape)
        assert torch.equal(model.run((x,))[0], x + 1 + 1)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((65, 2), "expected at most 64, got 65"),
        ((1, 0), "expected at least 2, got 0"),
        ((1, 7), "multiple of 2, got 7"),
    ],
)
def test_guards(shape: tuple[int, int], message: str) -> None:
    model = load(SCALE.replace("COST", "1").replace("SCRATCH", "0"))
    with pytest.raises(disc.ShapeError, match=message):
        model.run((torch.zeros(shape),))
    assert torch.equal(model.run((torch.zeros(2, 2),))[0], torch.full((2, 2), 2.0))


def test_many_kernels_compile_in_parts() -> None:
    """Enough code that compile threads share it: parts call each other and read one table."""
    head, main = SCALE.replace("COST", "1000").replace("SCRATCH", "64").split("disc_rt.entry")
    start = head.index("func.func")
    count = 200
    kernels = "".join(head[start:].replace("@k0_add", f"@k{i}_add").replace("1.0", f"{i}.0") for i in range(count))
    launch = "  disc_rt.launch %call @k0_add(%t, %t)\n"
    assert launch in main
    launches = "".join(launch.replace("@k0", f"@k{i}") for i in range(1, count))
    text = head[:start] + kernels + "disc_rt.entry" + main.replace(launch, launches)
    x = torch.randint(0, 100, (3, 8)).float()
    assert torch.equal(load(text).run((x,))[0], x + sum(range(count)))


def test_missing_symbols_are_named() -> None:
    text = (
        SCALE.replace("COST", "1")
        .replace("SCRATCH", "0")
        .replace("  return\n", "  llvm.call @absent() : () -> ()\n  return\n")
    )
    module = _native.Module.parse("llvm.func @absent()\n" + text)
    module.run(PASSES.replace(",disc-codegen-verify", ""))
    with pytest.raises(RuntimeError, match=r"Symbols not found: \[ absent \]"):
        _native.jit(module, torch.Tensor)


def test_perf_map_names_kernels() -> None:
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    before = path.read_text() if path.exists() else ""
    try:
        load(SCALE.replace("COST", "1000").replace("SCRATCH", "64"), symbols=1)
        lines = path.read_text()[len(before) :].splitlines()
    finally:
        path.unlink()
    symbols = {name: (int(start, 16), int(size, 16)) for start, size, name in map(str.split, lines)}
    assert {"k0_add", "disc_main", "disc_init"} <= symbols.keys()
    assert all(start > 0 and size > 0 for start, size in symbols.values())


def _expressions() -> st.SearchStrategy[str]:
    """Texts that both Python and disc_shape read, once the operators are spelled their way."""
    leaf = st.sampled_from(["A", "B"]) | st.integers(-9, 9).map(lambda v: f"({v})")

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        binary = st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        division = st.tuples(inner, st.sampled_from(["//", "%"]), st.integers(1, 7)).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        )
        choice = st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})")
        return binary | division | choice

    return st.recursive(leaf, extend, max_leaves=8)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(_expressions(), min_size=8, max_size=8),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=3),
)
def test_symbolic_arithmetic(texts: list[str], points: list[tuple[int, int]]) -> None:
    """Extents of outputs are expressions; Python computes the same numbers."""
    dims = "\n".join(
        f"%e{i} = disc_shape.dim <max({t.replace('//', 'floordiv').replace('%', 'mod')}, 0)>\n"
        f"%one{i} = disc_shape.dim <min({t.replace('//', 'floordiv').replace('%', 'mod')}, 0) * -1>\n"
        f"%o{i} = disc_rt.output %call[{i}] (%e{i}, %one{i})"
        for i, t in enumerate(texts)
    )
    outputs = ", ".join(
        f'#disc_rt.tensor<name = "o{i}", type = tensor<?x?xi1>, dims = <[A, B]>>' for i in range(len(texts))
    )
    model = load(f"""
        disc_shape.symbol @A
        disc_shape.symbol @B min 1
        disc_rt.entry @main attributes {{
            inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?xf32>, dims = <[A, B]>>],
            outputs = [{outputs}]}} {{
        ^bb0(%call: !llvm.ptr):
          disc_rt.check_inputs %call
          %A = disc_rt.extent %call[0, 0]
          disc_rt.bind_symbol @A, %A
          %B = disc_rt.extent %call[0, 1]
          disc_rt.bind_symbol @B, %B
          {dims}
          disc_rt.return
        }}""")
    for a, b in points:
        got = [tuple(y.shape) for y in model.run((torch.zeros(a, b),))]
        want = [eval(t, {"A": a, "B": b, "min": min, "max": max}) for t in texts]
        assert got == [(max(v, 0), max(-v, 0)) for v in want]


def test_runs_through_disc_opt(tmp_path: Path) -> None:
    """The same text gives the same code outside Python."""
    build = os.environ.get("DISC_BUILD", Path(__file__).resolve().parents[3] / "build")
    tool = Path(build) / "tools/disc-opt/disc-opt"
    if not tool.exists():
        pytest.skip("disc-opt is not built")
    text = SCALE.replace("COST", "1000").replace("SCRATCH", "64")
    result = subprocess.run([tool, f"--pass-pipeline={PASSES}"], input=text, capture_output=True, text=True)
    assert "llvm.func @disc_main" in result.stdout, result.stderr


def test_code_for_a_lesser_machine() -> None:
    """Every level of x86-64 that this machine has computes the same, in vectors of its own width."""
    if not _native.host_target()["triple"].startswith("x86_64"):
        pytest.skip("levels of x86-64")
    model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.GELU(), torch.nn.LayerNorm(40)).eval()
    x = torch.randn(5, 20)
    for cpu, bits in (("x86-64", 128), ("x86-64-v3", 256), ("x86-64-v4", 512)):
        if bits > _native.host_target()["vector_bits"]:
            break
        with torch.no_grad():
            compiled = disc.compile(model, (x,), options=disc.Options(cpu=cpu))
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
        # 256 is what a target has that says nothing.
        assert bits == 256 or f"vector_bits = {bits}" in compiled.ir("schedule")


def test_unknown_cpus() -> None:
    module = _native.Module.parse("")
    with pytest.raises(ValueError, match="no CPU is called 'pdp11'"):
        module.set_host_target("pdp11")
