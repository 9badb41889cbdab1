// Tasks and scratch are the operation's; the cost is shared by the tasks.
// RUN: disc-opt %s -split-input-file -verify-diagnostics -disc-schedule-kernels | FileCheck %s

disc_shape.symbol @S min 1

// CHECK-LABEL: func.func @main
// CHECK: disc_plan.kernel call
// CHECK-SAME: cost = #disc_shape.expr<108>
// CHECK-SAME: schedule = #disc_plan.pieces
// CHECK-SAME: scratch = #disc_shape.expr<S * 8>
// CHECK-SAME: tasks = #disc_shape.expr<S>
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}) -> tensor<?xf32> {
  %0 = disc_plan.kernel call ins(%x : tensor<?xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?xf32>):
    %s = disc_shape.dim <S>
    %n = disc_shape.dim <8 * S>
    %r = disc_tensor.call "sort"(%a) sizes(%s) tasks %s scratch %n "" : (tensor<?xf32>) -> tensor<?xf32>
    disc_plan.yield %r : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+2 {{a call kernel must yield the results of one disc_tensor.call}}
  // expected-error@+1 {{no schedule for this call kernel}}
  %0 = disc_plan.kernel call ins(%x : tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
