"""Kernels of a GPU on the emulated device, from text: barriers, shuffles, shared memory, and what checks find."""

import pytest
import torch

import disc
from disc import _native

PASSES = (
    "builtin.module(disc-emulate-kernels{{check={check}}},disc-host-lower,canonicalize,cse,convert-vector-to-llvm,"
    "convert-scf-to-cf,convert-arith-to-llvm,convert-index-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,"
    "reconcile-unrealized-casts,canonicalize,disc-codegen-verify)"
)

# A block sums a row: each thread some of its elements, warps by shuffles, the block through shared memory. `EARLY` and
# `BARRIER` are there to be left out.
ROW_SUM = """
module attributes {disc_plan.target = #disc_plan.target<device = "emulated", warp = WARP>} {
disc_shape.symbol @B min 0 max 1000
disc_shape.symbol @S min 0 max 100000
gpu.module @kernels {
  llvm.mlir.global internal @parts() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<32 x f32>
  gpu.func @row_sum(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %s: i64) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %zero = arith.constant 0 : index
    %none = arith.constant 0.0 : f32
    %warp = arith.constant WARP : i32
    %warpIndex = arith.constant WARP : index
    %t = gpu.thread_id x
    %row = gpu.block_id x
    %threads = gpu.block_dim x
    %n = arith.index_cast %s : i64 to index
    %begin = arith.muli %row, %n : index
    %sum = scf.for %i = %t to %n step %threads iter_args(%acc = %none) -> (f32) {
      %at = arith.addi %begin, %i : index
      %k = arith.index_cast %at : index to i64
      %p = llvm.getelementptr %x[%k] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      %v = llvm.load %p : !llvm.ptr<1> -> f32
      %next = arith.addf %acc, %v : f32
      scf.yield %next : f32
    }
    %half = arith.constant HALF : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %whole, %last = scf.while (%acc = %sum, %d = %half) : (f32, index) -> (f32, index) {
      %more = arith.cmpi ugt, %d, %zero : index
      scf.condition(%more) %acc, %d : f32, index
    } do {
    ^bb0(%acc: f32, %d: index):
      %distance = arith.index_cast %d : index to i32
      %other, %valid = gpu.shuffle down %acc, %distance, %warp : f32
      %both = arith.addf %acc, %other : f32
      %kept = arith.select %valid, %both, %acc : f32
      %rest = arith.divui %d, %two : index
      scf.yield %kept, %rest : f32, index
    }
    %parts = llvm.mlir.addressof @parts : !llvm.ptr<3>
    %lane = arith.remui %t, %warpIndex : index
    %number = arith.divui %t, %warpIndex : index
    %first = arith.cmpi eq, %lane, %zero : index
    scf.if %first {
      %k = arith.index_cast %number : index to i64
      %p = llvm.getelementptr %parts[%k] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
      llvm.store %whole, %p : f32, !llvm.ptr<3>
    }
    BARRIER
    %leader = arith.cmpi eq, %t, %zero : index
    scf.if %leader {
      %warps = arith.divui %threads, %warpIndex : index
      %all = scf.for %i = %zero to %warps step %one iter_args(%acc = %none) -> (f32) {
        %k = arith.index_cast %i : index to i64
        %p = llvm.getelementptr %parts[%k] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
        %v = llvm.load %p : !llvm.ptr<3> -> f32 loc("model.py":21:3)
        %next = arith.addf %acc, %v : f32
        scf.yield %next : f32
      }
      %k = arith.index_cast %row : index to i64
      %p = llvm.getelementptr %r[%k] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      llvm.store %all, %p : f32, !llvm.ptr<1>
    }
    gpu.return
  }
}
disc_rt.device_kernel @row_sum threads 128 [reads, writes, number] {
  disc_plan.symbols = ["S"], disc_plan.tasks = #disc_shape.expr<B>, disc_plan.kind = "row"}
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?xf32>, dims = <[B, S]>>],
    outputs = [#disc_rt.tensor<name = "r", type = tensor<?xf32>, dims = <[B]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %S = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @S, %S
  %x = disc_rt.input %call[0]
  %r = disc_rt.output %call[0] (%B)
  disc_rt.launch %call @row_sum(%x, %r)
  disc_rt.return
}
}
"""


def load(warp: int = 32, check: bool = False, barrier: str = "gpu.barrier") -> _native.Executable:
    """The row sum, for the emulated device."""
    text = ROW_SUM.replace("WARP", str(warp)).replace("HALF", str(warp // 2)).replace("BARRIER", barrier)
    module = _native.Module.parse(text)
    module.run(PASSES.format(check=str(check).lower()))
    executable = _native.jit(module, torch.Tensor, threads=2)
    executable.init([])
    return executable


@pytest.mark.parametrize("warp", [32, 64])
@pytest.mark.parametrize("check", [False, True])
def test_sums_rows(warp: int, check: bool) -> None:
    executable = load(warp, check)
    for shape in ((1, 1), (3, 128), (17, 1000), (5, 0), (0, 7)):
        x = torch.randint(-100, 100, shape).float()
        (r,) = executable.run([x])
        assert torch.equal(r, x.sum(1))


def test_missing_barrier_is_found() -> None:
    x = torch.ones(2, 300)
    # What a missing barrier does depends on the order that threads run in, which is not that of a GPU.
    with pytest.raises(
        RuntimeError,
        match=r"block 0, thread 0 at model.py:21: reads byte 4 of an array "
        r"in shared memory, which its block has not written",
    ):
        load(check=True, barrier="").run([x])


def test_divergent_barrier_is_found() -> None:
    text = 'scf.if %first { gpu.barrier loc("model.py":20:3) }'
    for check in (False, True):
        with pytest.raises(
            RuntimeError,
            match=r"block 0, thread 0 at model.py:20: waits for its block at "
            r"a barrier, but thread 1 has left the kernel",
        ):
            load(check=check, barrier=text).run([torch.ones(2, 300)])


@pytest.mark.parametrize("first", [0, 1, 3])
def test_results_may_begin_anywhere(tmp_path, first):
    """Kernels of a device write vectors of 16 bytes; a caller's own memory may begin at any element."""

    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    n = torch.export.Dim("n", min=1, max=300)
    path = tmp_path / "libdouble.so"
    disc.aot_compile(Double(), (torch.ones(5),), dynamic_shapes=({0: n},), output=path, target="cuda-emulated")
    model = disc.load(path)
    x, memory = torch.arange(64.0), torch.full((80,), -1.0)
    start = -(memory.data_ptr() // 4) % 4 + first
    out = memory[start : start + 64]
    assert out.data_ptr() % 16 == 4 * first
    assert model(x, out=out) is out
    assert torch.equal(out, 2 * x)
    assert int((memory == -1).sum()) == 16
