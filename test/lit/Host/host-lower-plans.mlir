// RUN: disc-opt %s --disc-host-lower="memory-budget=4096" | FileCheck %s

// A call without a budget tests one field. With one, the first plan that fits runs; all of that is in cold blocks.

disc_shape.symbol @B min 1 max 64

// The plan, and its size.
// CHECK-LABEL: func.func private @disc_procedure_main.plan1(
// CHECK-SAME: passthrough = ["optnone", "noinline"]
// CHECK: llvm.call @disc_rt_arena
disc_rt.procedure @main.plan1 attributes {plan_of = @main, sym_visibility = "private"} {
^bb0(%call: !llvm.ptr, %b: index):
  disc_rt.bind_symbol @B, %b
  %bytes = disc_shape.dim <B * 128>
  %arena = disc_rt.arena %call, %bytes
  disc_rt.return
}
// CHECK-LABEL: func.func private @disc_procedure_main.plan1.bytes(
disc_rt.procedure @main.plan1.bytes attributes {plan_of = @main, sym_visibility = "private"} {
^bb0(%call: !llvm.ptr, %b: index):
  disc_rt.bind_symbol @B, %b
  %bytes = disc_shape.dim <B * 128>
  disc_rt.return %bytes
}

// CHECK-LABEL: func.func @disc_shapes
// CHECK-NOT: disc_rt_budget
// CHECK-LABEL: func.func @disc_main
// CHECK: llvm.getelementptr %{{.*}}[8] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK: %[[BUDGETED:.*]] = arith.cmpi ne
// CHECK: cf.cond_br %[[BUDGETED]], ^[[CHECK:.*]], ^[[NEXT:.*]]
// CHECK: ^[[NEXT]]:
// CHECK: llvm.call @disc_rt_arena
// CHECK: return
// CHECK: ^[[CHECK]]:
// CHECK: %[[ROOM:.*]] = llvm.call @disc_rt_budget(%{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, !llvm.ptr) -> i64
// CHECK: %[[FITS:.*]] = arith.cmpi sle, %{{.*}}, %[[ROOM]]
// CHECK: cf.cond_br %[[FITS]], ^[[TAKE:.*]], ^[[OTHER:.*]]
// CHECK: ^[[TAKE]]:
// CHECK: %[[S:.*]] = llvm.call @disc_rt_begin_plan
// CHECK: cf.cond_br %{{.*}}, ^[[NEXT]]
// CHECK: ^[[OTHER]]:
// CHECK: call @disc_procedure_main.plan1.bytes
// CHECK: call @disc_procedure_main.plan1(
// CHECK: llvm.call @disc_rt_over_budget
disc_rt.entry @main attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<?xf32>, dims = <[B]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %b = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %b
  %bytes = disc_shape.dim <B * 256>
  disc_rt.fit %call, %bytes scratch [#disc_shape.expr<B * 4>] outputs [] plans [@main.plan1] sizes [@main.plan1.bytes] of %b
  %arena = disc_rt.arena %call, %bytes
  disc_rt.return
}

// The default budget, at the end of the model's table.
// CHECK: llvm.mlir.global external constant @disc_model_info
// CHECK: llvm.mlir.constant(4096 : i64)
