// RUN: disc-opt %s -disc-memory-plan-arena -split-input-file -verify-diagnostics

disc_shape.symbol @i
disc_shape.symbol @T min 1 max 64
disc_plan.kernel_func loop @k attributes {symbols = ["i"], arg_dims = [], layouts = [#disc_plan.layout<<0>, <[1]>>]} {
  %n = disc_shape.dim <i>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
disc_plan.kernel_func loop @sum attributes {symbols = ["i"], arg_dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[i]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4xf32>, %q: tensor<?xf32>):
  disc_plan.yield %p : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>, %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>}) -> tensor<?x4xf32> {
  %t = disc_shape.dim <T>
  %h, %ys = disc_tensor.scan @i below %t carries(%x) {disc_shape.dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[T, 4]>]}
      : (tensor<4xf32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{the size of a temporary depends on the step of the loop: ((i + 15) floordiv 16) * 64}}
    %e = disc_plan.call @k() result_dims [#disc_shape.dims<[i]>] : () -> tensor<?xf32>
    %n = disc_plan.call @sum(%a, %e) result_dims [#disc_shape.dims<[4]>] : (tensor<4xf32>, tensor<?xf32>) -> tensor<4xf32>
    disc_tensor.next %n, %n : tensor<4xf32>, tensor<4xf32>
  }
  return %ys : tensor<?x4xf32>
}
