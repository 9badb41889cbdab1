// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// Loops of one count have one name for their index. A temporary whose size depends on it has memory in its own loop.
// CHECK: disc_rt.entry @main
// CHECK: disc_rt.loop @i
// CHECK: %[[FIRST:.*]] = disc_rt.arena {{.*}} part 1
// CHECK: %[[A:.*]] = disc_rt.offset %[[FIRST]]
// CHECK: disc_rt.launch %[[CALL:.*]] @k(%{{.*}}, %[[A]])
// CHECK: disc_rt.launch %[[CALL]] @k2(%[[A]],
// CHECK: disc_rt.loop @i
// CHECK: %[[SECOND:.*]] = disc_rt.arena {{.*}} part 2
// CHECK: %[[B:.*]] = disc_rt.offset %[[SECOND]]
// CHECK: disc_rt.launch %[[CALL]] @k(%{{.*}}, %[[B]])
// CHECK: disc_rt.launch %[[CALL]] @k2(%[[B]],
disc_shape.symbol @i
disc_shape.symbol @T min 1 max 64
#all = #disc_shape.dims<[T]>
#part = #disc_shape.dims<[i + 1]>
#none = #disc_shape.dims<[]>
#dense = #disc_plan.layout<<0>, <[1]>>
#scalar = #disc_plan.layout<<0>, <[]>>
disc_plan.kernel_func loop @k attributes {symbols = ["T", "i"], arg_dims = [#all], layouts = [#dense, #dense]} {
^bb0(%p: tensor<?xf32>):
  %0 = disc_shape.dim <0>
  %1 = disc_shape.dim <i + 1>
  %2 = disc_tensor.slice %p[%0, %1] dim 0 step 1 {disc_shape.dims = [#part]} : tensor<?xf32> -> tensor<?xf32>
  disc_plan.yield %2 : tensor<?xf32>
}
disc_plan.kernel_func loop @k2 attributes {symbols = ["i"], arg_dims = [#part, #none], layouts = [#dense, #scalar, #scalar]} {
^bb0(%p: tensor<?xf32>, %q: tensor<f32>):
  disc_plan.yield %q : tensor<f32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #all}, %s: tensor<f32> {disc_shape.dims = #none}) -> tensor<f32> {
  %t = disc_shape.dim <T>
  %a = disc_tensor.loop @i below %t carries(%s) {disc_shape.dims = [#none]} : (tensor<f32>) -> tensor<f32> {
  ^bb0(%b: tensor<f32>):
    %n = disc_plan.call @k(%x) result_dims [#part] : (tensor<?xf32>) -> tensor<?xf32>
    %m = disc_plan.call @k2(%n, %b) result_dims [#none] : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
    disc_tensor.next %m : tensor<f32>
  }
  %c = disc_tensor.loop @i below %t carries(%a) {disc_shape.dims = [#none]} : (tensor<f32>) -> tensor<f32> {
  ^bb0(%b: tensor<f32>):
    %n = disc_plan.call @k(%x) result_dims [#part] : (tensor<?xf32>) -> tensor<?xf32>
    %m = disc_plan.call @k2(%n, %b) result_dims [#none] : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
    disc_tensor.next %m : tensor<f32>
  }
  return %c : tensor<f32>
}
