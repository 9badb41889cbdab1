// RUN: disc-opt %s -disc-fusion-form-kernels -disc-fusion-merge-products -disc-fusion-verify -split-input-file | FileCheck %s

// Two products of %x with weights become one kernel: each keeps its own columns, epilogue and result. The third one
// needs the result of the first: it cannot run with it.
// CHECK-LABEL: func.func @siblings
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>
// CHECK-DAG: %[[W:.*]] = disc_tensor.parameter "w"
// CHECK-DAG: %[[V:.*]] = disc_tensor.parameter "v"
// CHECK: %[[P:.*]]:2 = disc_plan.kernel contraction ins(%[[X]], %[[W]], %[[V]] :
// CHECK-SAME: -> tensor<?x4xf32>, tensor<?x6xf32>
// CHECK-SAME: reason = "{{.*}}; with a product of the same input: {{.*}}"
// CHECK: linalg.generic
// CHECK: linalg.generic
// CHECK: %[[Y:.*]] = linalg.generic
// CHECK: math.exp
// CHECK: disc_plan.yield %{{.*}}, %[[Y]]
// CHECK: disc_plan.kernel contraction ins(%[[X]], %{{.*}}, %[[P]]#0
// CHECK-NOT: disc_plan.kernel
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @siblings(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>})
    -> (tensor<?x4xf32>, tensor<?x6xf32>, tensor<?x4xf32>) {
  %w = disc_tensor.parameter "w" : tensor<4x8xf32>
  %v = disc_tensor.parameter "v" : tensor<6x8xf32>
  %u = disc_tensor.parameter "u" : tensor<4x8xf32>
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e4 = tensor.empty(%s) : tensor<?x4xf32>
  %e6 = tensor.empty(%s) : tensor<?x6xf32>
  %f4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f4 : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %v : tensor<?x8xf32>, tensor<6x8xf32>) outs(%f6 : tensor<?x6xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x6xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<?x6xf32>) outs(%e6 : tensor<?x6xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = math.exp %l : f32
    linalg.yield %0 : f32
  } -> tensor<?x6xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e4 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %u : tensor<?x8xf32>, tensor<4x8xf32>) outs(%sum : tensor<?x4xf32>) {
  ^bb0(%l: f32, %rr: f32, %o: f32):
    %0 = arith.mulf %l, %rr : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  // The neighbours in a row make this depend on all of %p, so that it stays an epilogue of %r only.
  %shifted = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> (d0, 0)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r, %p : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e4 : tensor<?x4xf32>) {
  ^bb0(%l: f32, %rr: f32, %o: f32):
    %0 = arith.addf %l, %rr : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  return %p, %exp, %shifted : tensor<?x4xf32>, tensor<?x6xf32>, tensor<?x4xf32>
}

// -----

// The epilogue of one product reads the other at the same point: one part with two products.
// CHECK-LABEL: func.func @gated
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT: disc_plan.kernel
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @gated(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x4xf32> {
  %w = disc_tensor.parameter "w" : tensor<4x8xf32>
  %v = disc_tensor.parameter "v" : tensor<4x8xf32>
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %v : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %q : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %t = math.tanh %l : f32
    %0 = arith.mulf %t, %r : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
