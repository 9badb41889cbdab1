// RUN: disc-opt %s -disc-fusion-form-kernels -disc-fusion-verify -split-input-file | FileCheck %s

// A contraction takes the elementwise operations on its result.
// CHECK-LABEL: func.func @epilogue
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32> {{.*}}, %[[W:[a-z0-9]+]]: tensor<4x8xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK: %[[Y:.*]] = disc_plan.kernel contraction ins(%[[X]], %[[W]], %[[B]] :
// CHECK-SAME: reason = "domain [S, 4, 8], reduces 8; with its consumer over [S, 4]"
// CHECK: linalg.fill
// CHECK: linalg.generic
// CHECK: linalg.generic
// CHECK: disc_plan.yield
// CHECK-NOT: linalg
// CHECK: return %[[Y]]
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
disc_shape.symbol @S min 1
func.func @epilogue(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}, %w: tensor<4x8xf32>,
                    %b: tensor<4xf32>) -> tensor<?x4xf32> {
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
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %b : tensor<?x4xf32>, tensor<4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.addf %l, %r : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// A mean, and the difference from it: one row kernel.
// CHECK-LABEL: func.func @row
// CHECK: disc_plan.kernel row ins(%{{.*}} : tensor<?x?xf32>) -> tensor<?x?xf32>
// CHECK-NOT: disc_plan.kernel
#id = affine_map<(d0, d1) -> (d0, d1)>
#p = affine_map<(d0, d1) -> (d0)>
#id1 = affine_map<(d0) -> (d0)>
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1
func.func @row(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>}) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %b = disc_shape.dim <B>
  %s = disc_shape.dim <S>
  %e = tensor.empty(%b) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [#id, #p], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.addf %o, %l : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %i = arith.index_cast %s : index to i64
  %n = arith.sitofp %i : i64 to f32
  %mean = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%sum : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.divf %l, %n : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %g = tensor.empty(%b, %s) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#id, #p, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : tensor<?x?xf32>, tensor<?xf32>) outs(%g : tensor<?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.subf %l, %r : f32
    linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// Equal ranks are not equal extents: nothing proves S = T, so a sum over S stays apart from work over T.
// CHECK-LABEL: func.func @unequal
// CHECK: disc_plan.kernel row
// CHECK: disc_plan.kernel loop
#id = affine_map<(d0, d1) -> (d0, d1)>
#p = affine_map<(d0, d1) -> (d0)>
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1
disc_shape.symbol @T min 1
func.func @unequal(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>},
                   %z: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, T]>}) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %b = disc_shape.dim <B>
  %t = disc_shape.dim <T>
  %e = tensor.empty(%b) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [#id, #p], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.addf %o, %l : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %g = tensor.empty(%b, %t) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#id, #p, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z, %sum : tensor<?x?xf32>, tensor<?xf32>) outs(%g : tensor<?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.subf %l, %r : f32
    linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// A sum over the middle dimension with what feeds it.
// CHECK-LABEL: func.func @column
// CHECK: disc_plan.kernel column
// CHECK-NOT: disc_plan.kernel
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#p = affine_map<(d0, d1, d2) -> (d0, d2)>
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1
func.func @column(%x: tensor<?x?x8xf32> {disc_shape.dims = #disc_shape.dims<[B, S, 8]>}) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %b = disc_shape.dim <B>
  %s = disc_shape.dim <S>
  %g = tensor.empty(%b, %s) : tensor<?x?x8xf32>
  %sq = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.mulf %l, %l : f32
    linalg.yield %0 : f32
  } -> tensor<?x?x8xf32>
  %e = tensor.empty(%b) : tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %sum = linalg.generic {indexing_maps = [#id, #p], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%sq : tensor<?x?x8xf32>) outs(%f : tensor<?x8xf32>) {
  ^bb0(%l: f32, %o: f32):
    %0 = arith.addf %o, %l : f32
    linalg.yield %0 : f32
  } -> tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

// -----

// What parameters alone decide is a kernel of its own, which is hoisted to load, unless it would be larger than what it
// reads.
// CHECK-LABEL: func.func @load
// CHECK: %[[SUM:.*]] = disc_plan.kernel loop ins(%{{.*}}, %{{.*}} : tensor<8xf32>, tensor<8xi64>) -> tensor<8xf32>
// CHECK: disc_plan.kernel loop ins(%{{.*}}, %{{.*}}, %[[SUM]] : tensor<8xi8>, tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>
disc_shape.symbol @S min 1
func.func @load(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x8xf32> {
  %s = disc_shape.dim <S>
  %a = disc_tensor.parameter "a" : tensor<8xf32>
  %b = disc_tensor.parameter "b" : tensor<8xi64>
  %c = disc_tensor.parameter "c" : tensor<8xi8>
  %e = tensor.empty() : tensor<8xf32>
  %sum = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]} ins(%a, %b : tensor<8xf32>, tensor<8xi64>) outs(%e : tensor<8xf32>) {
  ^bb0(%i: f32, %j: i64, %o: f32):
    %0 = arith.sitofp %j : i64 to f32
    %1 = arith.addf %i, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  %e1 = tensor.empty() : tensor<8xf32>
  %wide = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%c : tensor<8xi8>) outs(%e1 : tensor<8xf32>) {
  ^bb0(%i: i8, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %e2 = tensor.empty(%s) : tensor<?x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum, %wide : tensor<?x8xf32>, tensor<8xf32>, tensor<8xf32>) outs(%e2 : tensor<?x8xf32>) {
  ^bb0(%i: f32, %j: f32, %k: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    %1 = arith.mulf %0, %k : f32
    linalg.yield %1 : f32
  } -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
