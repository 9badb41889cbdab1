// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// The arena has room for both sides of a branch, and is laid out before the branch. Where S is less than 8 the first side
// is not taken, and its temporary is empty instead of negative.
// CHECK: %[[BYTES:.*]] = disc_shape.dim <((max(S, 8) + 7) floordiv 16) * 64>
// CHECK: disc_rt.arena %{{.*}}, %[[BYTES]]
// CHECK: disc_rt.branch
disc_shape.symbol @S min 1 max 64
#one = #disc_plan.layout<<0>, <[1]>>
disc_plan.kernel_func loop @less attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S]>], layouts = [#one, #one]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <S - 8>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
disc_plan.kernel_func loop @pad attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S - 8]>], layouts = [#one, #one]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <S>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}, %p: tensor<i1>) -> tensor<?xf32> {
  %y = disc_tensor.branch %p symbols [] {disc_shape.dims = [#disc_shape.dims<[S]>]} : tensor<i1> -> (tensor<?xf32>) {
    %a = disc_plan.call @less(%x) result_dims [#disc_shape.dims<[S - 8]>] : (tensor<?xf32>) -> tensor<?xf32>
    %b = disc_plan.call @pad(%a) result_dims [#disc_shape.dims<[S]>] : (tensor<?xf32>) -> tensor<?xf32>
    disc_tensor.yield %b : tensor<?xf32>
  } else {
    disc_tensor.yield %x : tensor<?xf32>
  }
  return %y : tensor<?xf32>
}
