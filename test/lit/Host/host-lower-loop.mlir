// RUN: disc-opt %s --disc-host-lower | FileCheck %s

disc_shape.symbol @T min 1 max 64
disc_shape.symbol @i

func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = ["T", "i"], disc_plan.tasks = #disc_shape.expr<T>,
                disc_plan.cost = #disc_shape.expr<5000>} {
  return
}

// A loop of the code, not unrolled; a failed launch leaves it. What is computed inside is not used after: T * 64 is
// computed again.
// CHECK-LABEL: func.func @disc_main
// CHECK: cf.br ^[[HEAD:bb[0-9]+]](%{{.*}}, %[[IN:.*]] : index, !llvm.ptr)
// CHECK: ^[[HEAD]](%[[STEP:.*]]: index, %[[P:.*]]: !llvm.ptr):
// CHECK: %[[MORE:.*]] = arith.cmpi slt, %[[STEP]], %[[T:.*]] : index
// CHECK: cf.cond_br %[[MORE]], ^[[BODY:bb[0-9]+]], ^[[AFTER:bb[0-9]+]]
// CHECK: ^[[BODY]]:
// CHECK: %[[LAST:.*]] = arith.subi %[[T]], %{{.*}} : index
// CHECK: %[[I:.*]] = arith.subi %[[LAST]], %[[STEP]] : index
// CHECK: %[[ROW:.*]] = llvm.getelementptr inbounds
// CHECK: arith.index_cast %[[I]]
// CHECK: %[[STATUS:.*]] = llvm.call @disc_rt_parallel_for
// CHECK: cf.cond_br %{{.*}}, ^[[LATCH:bb[0-9]+]], ^{{.*}}(%[[STATUS]] : i32)
// CHECK: ^[[LATCH]]:
// CHECK: %[[NEXT:.*]] = arith.addi %[[STEP]]
// The call's first field counts the steps until the runtime asks whether the run should end.
// CHECK: %[[STEPS:.*]] = llvm.load %[[CALL:.*]] : !llvm.ptr -> i64
// CHECK: %[[LEFT:.*]] = arith.subi %[[STEPS]]
// CHECK: llvm.store %[[LEFT]], %[[CALL]]
// CHECK: %[[DUE:.*]] = arith.cmpi slt, %[[LEFT]]
// CHECK: cf.cond_br %[[DUE]], ^[[ASK:bb[0-9]+]], ^[[GO:bb[0-9]+]]
// CHECK: ^[[ASK]]:
// CHECK: %[[POLLED:.*]] = llvm.call @disc_rt_poll(%[[CALL]])
// CHECK: cf.cond_br %{{.*}}, ^[[ASKED:bb[0-9]+]], ^{{.*}}(%[[POLLED]] : i32)
// CHECK: ^[[ASKED]]:
// CHECK: cf.br ^[[GO]]
// CHECK: ^[[GO]]:
// CHECK: cf.br ^[[HEAD]](%[[NEXT]], %[[ROW]] : index, !llvm.ptr)
// CHECK: ^[[AFTER]]:
// CHECK: arith.muli %[[T]]
// CHECK: getelementptr inbounds %[[P]]
// The index is no symbol of the interface: one is, T.
// CHECK-NOT: "i\00"
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?xf32>, dims = <[T]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %T = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @T, %T
  %x = disc_rt.input %call[0]
  %last, %trips = disc_rt.loop @i reverse below %T carries(%x) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%p: !llvm.ptr):
    %o = disc_shape.dim <i * 64 + T * 64>
    %q = disc_rt.offset %x, %o
    disc_rt.launch %call @k(%p, %q)
    disc_rt.next %q : !llvm.ptr
  }
  %o = disc_shape.dim <T * 64>
  %y = disc_rt.offset %last, %o
  disc_rt.return
}
