// RUN: disc-opt %s -split-input-file -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// @state has its own memory, in which the new value is computed; x is read after its new value is known, so that value
// is copied at the end. The part that "insert" changes is written to the cache itself, twice.

// CHECK-LABEL: disc_rt.entry @main
// CHECK-SAME: name = "x", type = tensor<4xf32>, dims = <[4]>, updated = true>
// CHECK-SAME: name = "cache", type = tensor<4xf32>, dims = <[4]>, updated = true>]
// CHECK-SAME: outputs = [#disc_rt.tensor<name = "output0", type = tensor<4xf32>, dims = <[4]>>]
// CHECK: %[[OUT:.*]] = disc_rt.output
// CHECK-DAG: %[[STATE:.*]] = disc_rt.parameter %{{.*}} "state" as tensor<4xf32> updated
// CHECK-DAG: %[[CACHE:.*]] = disc_rt.input %{{.*}}[1]
// CHECK-DAG: %[[X:.*]] = disc_rt.input %{{.*}}[0]
// CHECK: disc_rt.launch %{{.*}} @add(%[[STATE]], %[[X]], %[[STATE]])
// CHECK: disc_rt.launch %{{.*}} @add(%[[X]], %[[X]], %[[NEW:.*]])
// CHECK: disc_rt.launch %{{.*}} @insert(%[[CACHE]], %[[X]], %[[CACHE]])
// CHECK: disc_rt.launch %{{.*}} @insert(%[[CACHE]], %[[X]], %[[CACHE]])
// CHECK: disc_rt.launch %{{.*}} @add(%[[X]], %[[CACHE]], %[[OUT]])
// CHECK: disc_rt.copy %[[X]], %[[NEW]], %{{.*}}
// CHECK-NOT: disc_rt.copy
// CHECK: disc_rt.return
#id = affine_map<(d0) -> (d0)>
disc_plan.kernel_func loop @add attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4xf32>, %q: tensor<4xf32>):
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p, %q : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %z = arith.addf %x, %y : f32
    linalg.yield %z : f32
  } -> tensor<4xf32>
  disc_plan.yield %r : tensor<4xf32>
}
disc_plan.kernel_func call @insert attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4xf32>, %q: tensor<4xf32>):
  %c = arith.constant 1 : index
  %r = disc_tensor.call "insert"(%p, %q) tasks %c scratch %c "" in_place
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  disc_plan.yield %r : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {disc_shape.dims = #disc_shape.dims<[4]>, disc_shape.name = "x"},
                %cache: tensor<4xf32> {disc_shape.dims = #disc_shape.dims<[4]>, disc_shape.name = "cache"},
                %state: tensor<4xf32> {disc_shape.dims = #disc_shape.dims<[4]>, disc_tensor.state = "state"})
    -> (tensor<4xf32>, tensor<4xf32> {disc_tensor.updates = 0 : i64}, tensor<4xf32> {disc_tensor.updates = 1 : i64},
        tensor<4xf32> {disc_tensor.updates = 2 : i64}) {
  %s = disc_plan.call @add(%state, %x) result_dims [#disc_shape.dims<[4]>]
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %n = disc_plan.call @add(%x, %x) result_dims [#disc_shape.dims<[4]>]
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %a = disc_plan.call @insert(%cache, %x) result_dims [#disc_shape.dims<[4]>]
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b = disc_plan.call @insert(%a, %x) result_dims [#disc_shape.dims<[4]>]
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = disc_plan.call @add(%x, %b) result_dims [#disc_shape.dims<[4]>]
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y, %n, %b, %s : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
