// A loop asks a concatenation for its points where that is wanted; parts that are cheap are computed there.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-fusion-form-kernels{fuse-concats=true},disc-fusion-verify)' \
// RUN:   -split-input-file | FileCheck %s --check-prefixes=CHECK,FUSED
// RUN: disc-opt %s -disc-fusion-form-kernels -disc-fusion-verify -split-input-file \
// RUN:   | FileCheck %s --check-prefixes=CHECK,APART

// CHECK-LABEL: func.func @rotate
// FUSED: %[[Y:.*]] = disc_plan.kernel loop ins(
// FUSED: arith.negf
// FUSED: disc_tensor.concat
// FUSED: arith.addf
// FUSED: disc_plan.yield
// FUSED-NOT: disc_plan.kernel
// FUSED: return %[[Y]]
// APART-COUNT-3: disc_plan.kernel loop
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @rotate(%a: tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[S, 4]>},
                  %b: tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[S, 4]>},
                  %x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x8xf32> {
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.negf %l : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  %c = disc_tensor.concat %n, %a dim 1 : tensor<?x4xf32>, tensor<?x4xf32> -> tensor<?x8xf32>
  %w = tensor.empty(%s) : tensor<?x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %x : tensor<?x8xf32>, tensor<?x8xf32>) outs(%w : tensor<?x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.addf %l, %r : f32
    linalg.yield %0 : f32
  } -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A part that is not cheap is stored, and a sum does not ask for it at all.
// CHECK-LABEL: func.func @stored
// CHECK: disc_plan.kernel loop
// CHECK: math.exp
// CHECK: disc_plan.kernel loop
// CHECK: disc_tensor.concat
// CHECK: disc_plan.kernel row
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
disc_shape.symbol @S min 1
func.func @stored(%a: tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[S, 4]>},
                  %b: tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[S, 4]>}) -> tensor<?xf32> {
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = math.exp %l : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  %c = disc_tensor.concat %n, %a dim 1 : tensor<?x4xf32>, tensor<?x4xf32> -> tensor<?x8xf32>
  %zero = arith.constant 0.0 : f32
  %w = tensor.empty(%s) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%w : tensor<?xf32>) -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%c : tensor<?x8xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.addf %l, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %y : tensor<?xf32>
}
