// RUN: disc-opt %s --disc-host-lower | FileCheck %s

disc_shape.symbol @B min 1 max 64
disc_shape.symbol @S min 2 max 512
disc_plan.global @packed : tensor<12x384x32xf32>

// What is always tiny is called directly: no pool, no scratch.
func.func @k0_tiny(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<1>, disc_plan.cost = #disc_shape.expr<B * 10>} {
  return
}

// CHECK-LABEL: func.func @k1_rows
// CHECK-NOT: disc_plan.tasks
func.func @k1_rows(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = ["B", "S"], disc_plan.tasks = #disc_shape.expr<B * S>,
                disc_plan.cost = #disc_shape.expr<500>, disc_plan.scratch = #disc_shape.expr<S * 4>} {
  return
}

// CHECK-LABEL: func.func @disc_init(%arg0: !llvm.ptr) -> i32
// CHECK: llvm.call @disc_rt_parameter(%arg0, %{{.*}}) : (!llvm.ptr, i64) -> !llvm.ptr
// CHECK: %[[BYTES:.*]] = arith.constant 589824 : i64
// CHECK: llvm.call @disc_rt_global(%arg0, %{{.*}}, %[[BYTES]])
disc_rt.entry @init attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %w = disc_rt.parameter %call "dense.weight" as tensor<384x384xf32>
  %g = disc_rt.global %call @packed bytes 589824
  disc_rt.return
}

// The checks without the work.
// CHECK-LABEL: func.func @disc_shapes(%arg0: !llvm.ptr) -> i32
// CHECK: llvm.call @disc_rt_check_inputs(%arg0)
// CHECK-NOT: @disc_rt_input(
// CHECK-NOT: @disc_rt_arena
// CHECK: llvm.call @disc_rt_output_shape(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, i64, !llvm.ptr) -> i32
// CHECK-NOT: @disc_rt_parallel_for(%arg0
// CHECK: return
// CHECK: llvm.call @disc_rt_guard_failed

// CHECK-LABEL: func.func @disc_main(%arg0: !llvm.ptr) -> i32
// One array serves all launches and outputs.
// CHECK: %[[SLOTS:.*]] = llvm.alloca {{.*}} x !llvm.array<4 x i64>
// CHECK-NOT: llvm.alloca
// CHECK: %[[STATUS:.*]] = llvm.call @disc_rt_check_inputs(%arg0)
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^[[EXIT:.*]](%[[STATUS]] : i32)
// CHECK: %[[B:.*]] = arith.index_cast
// CHECK: arith.cmpi sge, %[[B]]
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^[[COLD:bb[0-9]+]]{{$}}
// A null pointer leaves with a status of its own; the runtime knows why.
// CHECK: %[[X:.*]] = llvm.call @disc_rt_input
// CHECK: llvm.icmp "ne" %[[X]]
// The product is computed once, for the arena, the launch and the output.
// CHECK: %[[BS:.*]] = arith.muli %[[B]], %[[S:.*]] : index
// CHECK: llvm.call @disc_rt_arena
// CHECK: llvm.getelementptr inbounds
// CHECK: llvm.call @disc_rt_output
// CHECK: call @k0_tiny(%[[SLOTS]]
// CHECK: %[[K:.*]] = constant @k1_rows
// CHECK: %[[P:.*]] = builtin.unrealized_conversion_cast %[[K]]
// CHECK-NOT: arith.muli %[[B]], %[[S]]
// CHECK: %[[TASKS:.*]] = arith.index_cast %[[BS]]
// CHECK: llvm.call @disc_rt_parallel_for(%arg0, %[[P]], %[[SLOTS]], %[[TASKS]],
// CHECK: return
// CHECK: ^[[EXIT]](%[[R:.*]]: i32):
// CHECK: return %[[R]]
// CHECK: ^[[COLD]]:
// CHECK: llvm.call @disc_rt_guard_failed
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?xf32>, dims = <[B, S]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<?x?xi1>, dims = <[B, S]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %c1 = arith.constant 1 : index
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  disc_rt.guard %call, %B ge %c1 input 0 dim 0 expected "1", "B is at least 1"
  %S = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @S, %S
  %x = disc_rt.input %call[0]
  %w = disc_rt.parameter %call "bias" as tensor<384xf32>
  %g = disc_rt.global %call @packed bytes 589824
  %bytes = disc_shape.dim <B * S * 4>
  %arena = disc_rt.arena %call, %bytes
  %c64 = arith.constant 64 : index
  %t = disc_rt.offset %arena, %c64
  %y = disc_rt.output %call[0] (%B, %S)
  disc_rt.launch %call @k0_tiny(%x)
  disc_rt.launch %call @k1_rows(%x, %y)
  disc_rt.return
}

// CHECK-DAG: llvm.mlir.global private constant @{{.*}}("dense.weight\00")
// CHECK-DAG: llvm.mlir.global external constant @disc_model_info()
// CHECK-DAG: llvm.mlir.global private constant @disc_parameters() {{.*}}!llvm.array<2 x struct<(ptr, i64, i64, ptr, i64, i64)>>
// CHECK-NOT: disc_shape.symbol
// CHECK-NOT: disc_plan.global
