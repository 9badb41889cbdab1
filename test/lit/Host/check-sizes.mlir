// RUN: disc-opt %s --disc-host-lower | FileCheck %s

disc_shape.symbol @B min 1
disc_shape.symbol @S

// CHECK-LABEL: func.func @disc_shapes
// CHECK: arith.cmpf ole
// CHECK: llvm.call @disc_rt_size_failed

// CHECK-LABEL: func.func @disc_main
// CHECK: %[[B:.*]] = arith.index_cast %{{.*}} : i64 to index
// CHECK: %[[S:.*]] = arith.index_cast %{{.*}} : i64 to index
// B is at least 1, S counts as at least 1: a size of 0 hides nothing.
// CHECK: %[[BI:.*]] = arith.index_cast %[[B]] : index to i64
// CHECK: %[[BF:.*]] = arith.sitofp %[[BI]] : i64 to f64
// CHECK: %[[SM:.*]] = arith.maxsi %[[S]], %{{.*}} : index
// CHECK: %[[SI:.*]] = arith.index_cast %[[SM]] : index to i64
// CHECK: %[[SF:.*]] = arith.sitofp %[[SI]] : i64 to f64
// CHECK: %[[BS:.*]] = arith.mulf %[[BF]], %[[SF]] : f64
// CHECK: %[[SUM:.*]] = arith.mulf %[[BS]], %{{.*}} : f64
// CHECK: arith.cmpf ole, %[[SUM]], %{{.*}} : f64
// CHECK: arith.cmpf ole
// CHECK: arith.cmpf oge
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^[[COLD:bb[0-9]+]]{{$}}
// CHECK: return
// CHECK: ^[[COLD]]:
// CHECK: llvm.call @disc_rt_size_failed(%arg0, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, i64, i64, !llvm.ptr) -> i32
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?xf32>, dims = <[B, S]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %S = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @S, %S
  disc_rt.check_sizes %call [#disc_shape.expr<4 * B * S>] of [#disc_shape.expr<4 * B * S>] as ["x"] numbers [#disc_shape.expr<3 * S floordiv B>] as ["n"]
  disc_rt.return
}
