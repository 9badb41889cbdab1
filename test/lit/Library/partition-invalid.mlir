// What partitioning takes for granted of groups.
// RUN: disc-opt %s -disc-library-partition -verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{is in a group, but has no owner}}
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} {disc_plan.group = 3}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %x : tensor<4xf32> }
  return %0 : tensor<4xf32>
}
