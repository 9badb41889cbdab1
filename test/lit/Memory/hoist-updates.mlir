// RUN: disc-opt %s -disc-memory-hoist-updates | FileCheck %s

// The update of @w comes right behind its gradient, with the number of steps that it needs. That of @v stays behind the
// last step that reads @v. That of @t, which comes before a step that reads @t, moves to behind it. Nothing moves up past a kernel that checks indices of which nothing before has read any.

// CHECK-LABEL: func.func @main
// CHECK: %[[G:.*]] = disc_plan.call @one(%{{.*}})
// CHECK: %[[STEP:.*]] = disc_plan.call @count
// CHECK: disc_plan.call @update(%{{.*}}, %[[G]], %[[STEP]])
// CHECK: %[[H:.*]] = disc_plan.call @one(%{{.*}})
// CHECK: disc_plan.call @one(%[[V:[a-z0-9]+]])
// CHECK: disc_plan.call @update(%[[V]], %[[H]], %[[STEP]])
// CHECK: %[[READ:.*]] = disc_plan.call @one(%[[T:[a-z0-9]+]])
// CHECK: disc_plan.call @update(%[[T]], %{{.*}}, %[[STEP]])
// CHECK: %[[I:.*]] = disc_plan.call @one(%{{.*}})
// CHECK: disc_plan.call @checked
// CHECK: disc_plan.call @update(%{{.*}}, %[[I]], %[[STEP]])
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#at0 = affine_map<(d0) -> ()>
#none = affine_map<() -> ()>
disc_plan.kernel_func loop @one attributes {symbols = [], arg_dims = [#disc_shape.dims<[4096]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4096xf32>):
  %e = tensor.empty() : tensor<4096xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%p : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%x: f32, %o: f32):
    %z = arith.negf %x : f32
    linalg.yield %z : f32
  } -> tensor<4096xf32>
  disc_plan.yield %r : tensor<4096xf32>
}
disc_plan.kernel_func loop @checked attributes {symbols = [], arg_dims = [#disc_shape.dims<[4096]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4096xi64>):
  %e = tensor.empty() : tensor<4096xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%p : tensor<4096xi64>) outs(%e : tensor<4096xf32>) {
  ^bb0(%i: i64, %o: f32):
    %n = arith.constant 7 : i64
    %c = disc_tensor.check_index %i below %n wrap "aten.index at model.py:3"
    %z = arith.sitofp %c : i64 to f32
    linalg.yield %z : f32
  } -> tensor<4096xf32>
  disc_plan.yield %r : tensor<4096xf32>
}
disc_plan.kernel_func loop @count attributes {symbols = [], arg_dims = [#disc_shape.dims<[]>],
    layouts = [#disc_plan.layout<<0>, <[]>>, #disc_plan.layout<<0>, <[]>>]} {
^bb0(%p: tensor<f32>):
  %e = tensor.empty() : tensor<f32>
  %r = linalg.generic {indexing_maps = [#none, #none], iterator_types = []}
      ins(%p : tensor<f32>) outs(%e : tensor<f32>) {
  ^bb0(%x: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %z = arith.addf %x, %one : f32
    linalg.yield %z : f32
  } -> tensor<f32>
  disc_plan.yield %r : tensor<f32>
}
disc_plan.kernel_func loop @update attributes {symbols = [],
    arg_dims = [#disc_shape.dims<[4096]>, #disc_shape.dims<[4096]>, #disc_shape.dims<[]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[]>>,
               #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%w: tensor<4096xf32>, %g: tensor<4096xf32>, %s: tensor<f32>):
  %e = tensor.empty() : tensor<4096xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #at0, #id], iterator_types = ["parallel"]}
      ins(%w, %g, %s : tensor<4096xf32>, tensor<4096xf32>, tensor<f32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%x: f32, %y: f32, %t: f32, %o: f32):
    %a = arith.mulf %y, %t : f32
    %z = arith.addf %x, %a : f32
    linalg.yield %z : f32
  } -> tensor<4096xf32>
  disc_plan.yield %r : tensor<4096xf32>
}
func.func @main(%x: tensor<4096xf32> {disc_shape.dims = #disc_shape.dims<[4096]>, disc_shape.name = "x"},
                %ids: tensor<4096xi64> {disc_shape.dims = #disc_shape.dims<[4096]>, disc_shape.name = "ids"},
                %w: tensor<4096xf32> {disc_shape.dims = #disc_shape.dims<[4096]>, disc_tensor.state = "w"},
                %v: tensor<4096xf32> {disc_shape.dims = #disc_shape.dims<[4096]>, disc_tensor.state = "v"},
                %u: tensor<4096xf32> {disc_shape.dims = #disc_shape.dims<[4096]>, disc_tensor.state = "u"},
                %t: tensor<4096xf32> {disc_shape.dims = #disc_shape.dims<[4096]>, disc_tensor.state = "t"},
                %steps: tensor<f32> {disc_shape.dims = #disc_shape.dims<[]>, disc_tensor.state = "steps"})
    -> (tensor<4096xf32>, tensor<4096xf32> {disc_tensor.updates = 2 : i64},
        tensor<4096xf32> {disc_tensor.updates = 3 : i64}, tensor<4096xf32> {disc_tensor.updates = 4 : i64},
        tensor<4096xf32> {disc_tensor.updates = 5 : i64},
        tensor<f32> {disc_tensor.updates = 6 : i64}, tensor<4096xf32>) {
  %g = disc_plan.call @one(%x) result_dims [#disc_shape.dims<[4096]>] : (tensor<4096xf32>) -> tensor<4096xf32>
  %h = disc_plan.call @one(%x) result_dims [#disc_shape.dims<[4096]>] : (tensor<4096xf32>) -> tensor<4096xf32>
  %y = disc_plan.call @one(%v) result_dims [#disc_shape.dims<[4096]>] : (tensor<4096xf32>) -> tensor<4096xf32>
  %n = disc_plan.call @count(%steps) result_dims [#disc_shape.dims<[]>] : (tensor<f32>) -> tensor<f32>
  %w1 = disc_plan.call @update(%w, %g, %n) result_dims [#disc_shape.dims<[4096]>]
      : (tensor<4096xf32>, tensor<4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %v1 = disc_plan.call @update(%v, %h, %n) result_dims [#disc_shape.dims<[4096]>]
      : (tensor<4096xf32>, tensor<4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %t1 = disc_plan.call @update(%t, %y, %n) result_dims [#disc_shape.dims<[4096]>]
      : (tensor<4096xf32>, tensor<4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %r = disc_plan.call @one(%t) result_dims [#disc_shape.dims<[4096]>] : (tensor<4096xf32>) -> tensor<4096xf32>
  %i = disc_plan.call @one(%x) result_dims [#disc_shape.dims<[4096]>] : (tensor<4096xf32>) -> tensor<4096xf32>
  %c = disc_plan.call @checked(%ids) result_dims [#disc_shape.dims<[4096]>] : (tensor<4096xi64>) -> tensor<4096xf32>
  %u1 = disc_plan.call @update(%u, %i, %n) result_dims [#disc_shape.dims<[4096]>]
      : (tensor<4096xf32>, tensor<4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %c, %w1, %v1, %u1, %t1, %n, %r
      : tensor<4096xf32>, tensor<4096xf32>, tensor<4096xf32>, tensor<4096xf32>, tensor<4096xf32>, tensor<f32>,
        tensor<4096xf32>
}
