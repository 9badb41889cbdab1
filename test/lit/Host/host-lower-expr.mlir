// RUN: disc-opt %s --disc-host-lower | FileCheck %s

// Divisions of what can't be negative are unsigned; equal parts are shared.
disc_shape.symbol @S min 2 max 512
disc_shape.symbol @T

// CHECK-LABEL: func.func @disc_main
// CHECK: %[[S:.*]] = arith.index_cast
// CHECK: %[[T:.*]] = arith.index_cast
// CHECK: %[[UP:.*]] = arith.addi %[[S]], %{{.*}} : index
// CHECK: %[[DIV:.*]] = arith.divui %[[UP]]
// CHECK: %[[SUM:.*]] = arith.addi %[[DIV]]
// CHECK-NOT: arith.divui
// CHECK: arith.subi %[[S]], %[[T]]
// CHECK: arith.floordivsi
// CHECK: arith.maxsi
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %s = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @S, %s
  %t = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @T, %t
  %0 = disc_shape.dim <(S + 15) floordiv 16 + 1>
  %a = disc_rt.arena %call, %0
  %1 = disc_shape.dim <(S + 15) floordiv 16>
  %b = disc_rt.offset %a, %1
  %2 = disc_shape.dim <max((S - T) floordiv 2, 0)>
  %c = disc_rt.offset %a, %2
  disc_rt.return
}
