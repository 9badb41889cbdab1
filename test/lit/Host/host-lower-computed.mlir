// A symbol that is read from memory: the entry that tells shapes does not know it, and says so of what depends on it.
// RUN: disc-opt %s --disc-host-lower | FileCheck %s

disc_shape.symbol @B min 1 max 64
disc_shape.symbol @u0 max 64

// CHECK-LABEL: func.func @disc_shapes
// CHECK-NOT: llvm.load
// CHECK-NOT: @disc_rt_arena
// CHECK: llvm.call @disc_rt_output_shape
// CHECK: return

// CHECK-LABEL: func.func @disc_main
// CHECK: llvm.call @disc_rt_arena(%arg0, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, i64) -> !llvm.ptr
// CHECK: %[[V:.*]] = llvm.load
// CHECK: %[[U:.*]] = arith.index_cast %[[V]]
// CHECK: arith.cmpi sle, %[[U]]
// CHECK: %[[PART1:.*]] = arith.constant 1 : i64
// CHECK: llvm.call @disc_rt_arena(%arg0, %[[PART1]], %{{.*}}) : (!llvm.ptr, i64, i64) -> !llvm.ptr

// The second dim of the output is data-dependent: -2.
// CHECK: @disc_output_0
// CHECK: llvm.mlir.constant(-1 : i64)
// CHECK: llvm.mlir.constant(-2 : i64)
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?xf32>, dims = <[B]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<?x?xf32>, dims = <[B, u0]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %b = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %b
  %bytes = disc_shape.dim <B * 4>
  %arena = disc_rt.arena %call, %bytes
  %v = llvm.load %arena : !llvm.ptr -> i64
  %u = arith.index_cast %v : i64 to index
  %max = arith.constant 64 : index
  disc_rt.guard %call, %u le %max input -1 dim -1 expected "0 <= u0 <= 64", "out of range"
  disc_rt.bind_symbol @u0, %u computed
  %more = disc_shape.dim <u0 * 4>
  %part = disc_rt.arena %call, %more part 1
  %n = disc_shape.dim <u0>
  %y = disc_rt.output %call[0] (%b, %n)
  disc_rt.return
}
