// RUN: disc-opt %s -disc-fusion-form-kernels -disc-fusion-verify -split-input-file | FileCheck %s

// The sum of another product reads codes, and widens them itself.
// CHECK-LABEL: func.func @epilogue
// CHECK: %[[Q:.*]] = disc_plan.kernel contraction {{.*}} -> tensor<?x4xi8>
// CHECK: disc_plan.kernel contraction ins({{.*}}%[[Q]]{{.*}}) -> tensor<?x4xf32>
// CHECK: linalg.generic
// CHECK: arith.sitofp
// CHECK: disc_plan.yield
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @epilogue(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>},
                    %z: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>},
                    %w: tensor<4x8xf32>) -> (tensor<?x4xf32>, tensor<?x4xi8>) {
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x4xf32>
  %codes = tensor.empty(%s) : tensor<?x4xi8>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x4xf32>) outs(%codes : tensor<?x4xi8>) {
  ^bb0(%l: f32, %o: i8):
    %0 = arith.fptosi %l : f32 to i8
    linalg.yield %0 : i8
  } -> tensor<?x4xi8>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<?x4xi8>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: i8, %o: f32):
    %half = arith.constant 0.5 : f32
    %0 = arith.sitofp %l : i8 to f32
    %1 = arith.mulf %0, %half : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %p2 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z, %w : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p2, %wide : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.addf %l, %r : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  return %y, %q : tensor<?x4xf32>, tensor<?x4xi8>
}

// -----

// A read at a point of the reader's choice is widened there.
// CHECK-LABEL: func.func @body
// CHECK: %[[Q:.*]] = disc_plan.kernel contraction {{.*}} -> tensor<?x4xi8>
// CHECK: disc_plan.kernel loop ins(%[[Q]] : tensor<?x4xi8>) -> tensor<?x4xf32>
// CHECK: ^bb0(%[[IN:.*]]: tensor<?x4xi8>):
// CHECK: %[[CODE:.*]] = tensor.extract %[[IN]]
// CHECK-NEXT: arith.uitofp %[[CODE]] : i8 to f32
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @body(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}, %w: tensor<4x8xf32>) -> tensor<?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x4xf32>
  %codes = tensor.empty(%s) : tensor<?x4xi8>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x4xf32>) outs(%codes : tensor<?x4xi8>) {
  ^bb0(%l: f32, %o: i8):
    %0 = arith.fptosi %l : f32 to i8
    linalg.yield %0 : i8
  } -> tensor<?x4xi8>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<?x4xi8>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%l: i8, %o: f32):
    %0 = arith.uitofp %l : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x4xf32>) {
  ^bb0(%o: f32):
    %c1 = arith.constant 1 : index
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.xori %j, %c1 : index
    %0 = tensor.extract %wide[%i, %k] : tensor<?x4xf32>
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// A product reads its operand wide, in panels.
// CHECK-LABEL: func.func @kept
// CHECK: %[[K:.*]]:2 = disc_plan.kernel loop {{.*}} -> tensor<?x8xi8>, tensor<?x8xf32>
// CHECK: disc_plan.kernel contraction ins(%[[K]]#1,
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @kept(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}, %w: tensor<4x8xf32>)
    -> (tensor<?x4xf32>, tensor<?x8xi8>) {
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x4xf32>
  %line = tensor.empty(%s) : tensor<?x8xf32>
  %codes = tensor.empty(%s) : tensor<?x8xi8>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x8xf32>) outs(%codes : tensor<?x8xi8>) {
  ^bb0(%l: f32, %o: i8):
    %d = arith.divf %l, %l : f32
    %0 = arith.fptosi %d : f32 to i8
    linalg.yield %0 : i8
  } -> tensor<?x8xi8>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<?x8xi8>) outs(%line : tensor<?x8xf32>) {
  ^bb0(%l: i8, %o: f32):
    %0 = arith.sitofp %l : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%wide, %w : tensor<?x8xf32>, tensor<4x8xf32>) outs(%f : tensor<?x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x4xf32>
  return %p, %q : tensor<?x4xf32>, tensor<?x8xi8>
}
