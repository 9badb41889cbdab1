// RUN: disc-opt %s -disc-fusion-fold-views -split-input-file | FileCheck %s

// A permutation and a broadcast become indexing maps.
// CHECK-DAG: #[[$T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[$ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[$ROW:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @operands
// CHECK-SAME: %[[X:.*]]: tensor<8x?xf32>
// CHECK-SAME: %[[B:.*]]: tensor<8xf32>
// CHECK-NOT: disc_tensor
// CHECK: linalg.generic {indexing_maps = [#[[$T]], #[[$ROW]], #[[$ID]]]
// CHECK-SAME: ins(%[[X]], %[[B]] :
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @operands(%x: tensor<8x?xf32> {disc_shape.dims = #disc_shape.dims<[8, S]>},
                    %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %s = disc_shape.dim <S>
  %t = disc_tensor.permute %x [1, 0] : tensor<8x?xf32> -> tensor<?x8xf32>
  %w = disc_tensor.broadcast %b(%s) [1] : tensor<8xf32> -> tensor<?x8xf32>
  %e = tensor.empty(%s) : tensor<?x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %w : tensor<?x8xf32>, tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// The permutation of a computation's only use folds into its result; unit dimensions that come and go fold too.
// CHECK-DAG: #[[$T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[$U:.*]] = affine_map<(d0, d1) -> (d0, 0, d1)>
// CHECK-LABEL: func.func @result
// CHECK-SAME: %[[X:.*]]: tensor<?x1x8xf32>
// CHECK: %[[Y:.*]] = linalg.generic {indexing_maps = [#[[$U]], #[[$T]]]
// CHECK-SAME: ins(%[[X]] :
// CHECK: return %[[Y]] : tensor<8x?xf32>
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @result(%x: tensor<?x1x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 1, 8]>}) -> tensor<8x?xf32> {
  %s = disc_shape.dim <S>
  %r = disc_tensor.reshape %x(%s) : tensor<?x1x8xf32> -> tensor<?x8xf32>
  %e = tensor.empty(%s) : tensor<?x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<?x8xf32>
  %t = disc_tensor.permute %y [1, 0] : tensor<?x8xf32> -> tensor<8x?xf32>
  return %t : tensor<8x?xf32>
}

// -----

// No strides express a reshape of transposed data: it is copied once. A returned view is a buffer of its own.
// CHECK-LABEL: func.func @copies
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>
// CHECK: %[[C:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK: %[[R:.*]] = disc_tensor.reshape %[[C]]
// CHECK-NOT: linalg.generic
// CHECK: return %[[R]]
disc_shape.symbol @S min 1
func.func @copies(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?xf32> {
  %n = disc_shape.dim <8 * S>
  %t = disc_tensor.permute %x [1, 0] : tensor<?x8xf32> -> tensor<8x?xf32>
  %r = disc_tensor.reshape %t(%n) : tensor<8x?xf32> -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// CHECK-LABEL: func.func @attention
// CHECK: %[[A:.*]] = disc_tensor.attention
// CHECK: %[[P:.*]] = disc_tensor.permute %[[A]]
// CHECK: %[[R:.*]] = disc_tensor.reshape %[[P]]
// CHECK: return %[[R]]
disc_shape.symbol @S min 1
func.func @attention(%q: tensor<4x?x8xf32> {disc_shape.dims = #disc_shape.dims<[4, S, 8]>}) -> tensor<?x32xf32> {
  %s = disc_shape.dim <S>
  %a = disc_tensor.attention %q, %q, %q scale 1.0 causal false
      : tensor<4x?x8xf32>, tensor<4x?x8xf32>, tensor<4x?x8xf32> -> tensor<4x?x8xf32>
  %p = disc_tensor.permute %a [1, 0, 2] : tensor<4x?x8xf32> -> tensor<?x4x8xf32>
  %r = disc_tensor.reshape %p(%s) : tensor<?x4x8xf32> -> tensor<?x32xf32>
  return %r : tensor<?x32xf32>
}

// -----

// Dot products per row whose results are stored in another order: the loops take that order.
// CHECK-DAG: #[[$X:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG: #[[$Y:.*]] = affine_map<(d0, d1, d2, d3) -> (d1, d3, d2)>
// CHECK-DAG: #[[$R:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @dots
// CHECK: %[[D:.*]] = linalg.generic {indexing_maps = [#[[$X]], #[[$Y]], #[[$R]]], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
// CHECK: return %[[D]] : tensor<?x6x1xf32>
disc_shape.symbol @B min 1
func.func @dots(%x: tensor<?x6x4xf32> {disc_shape.dims = #disc_shape.dims<[B, 6, 4]>}, %y: tensor<6x4x1xf32>) -> tensor<?x6x1xf32> {
  %b = disc_shape.dim <B>
  %zero = arith.constant 0.0 : f32
  %p = disc_tensor.permute %x [1, 0, 2] : tensor<?x6x4xf32> -> tensor<6x?x4xf32>
  %e = tensor.empty(%b) : tensor<6x?x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x?x1xf32>) -> tensor<6x?x1xf32>
  %d = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %y : tensor<6x?x4xf32>, tensor<6x4x1xf32>) outs(%f : tensor<6x?x1xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x?x1xf32>
  %t = disc_tensor.permute %d [1, 0, 2] : tensor<6x?x1xf32> -> tensor<?x6x1xf32>
  return %t : tensor<?x6x1xf32>
}

// -----

// Groups of codes that share a scale: the reshape is of the codes, and the conversion fuses with the product.
// CHECK-LABEL: func.func @groups
// CHECK: %[[W:.*]] = disc_tensor.parameter "w" : tensor<20x64xi8>
// CHECK: %[[G:.*]] = disc_tensor.reshape %[[W]]() : tensor<20x64xi8> -> tensor<20x2x32xi8>
// CHECK: linalg.generic {{.*}} ins(%[[G]] : tensor<20x2x32xi8>)
// CHECK: arith.sitofp
// CHECK-NOT: disc_tensor.reshape
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @groups() -> tensor<20x2x32xf32> {
  %w = disc_tensor.parameter "w" : tensor<20x64xi8>
  %e = tensor.empty() : tensor<20x64xf32>
  %f = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<20x64xi8>) outs(%e : tensor<20x64xf32>) {
  ^bb0(%p: i8, %o: f32):
    %0 = arith.sitofp %p : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<20x64xf32>
  %r = disc_tensor.reshape %f() : tensor<20x64xf32> -> tensor<20x2x32xf32>
  return %r : tensor<20x2x32xf32>
}

// -----

// Columns of a product that end up apart: the permutation stays, and a copy at the end moves them.
// CHECK-LABEL: func.func @columns
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<2x?x16xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<2x?x16xf32>, tensor<16xf32>) outs(%{{.*}} : tensor<2x?x16xf32>)
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<2x16x?xf32>)
#id = affine_map<(b, m, n) -> (b, m, n)>
disc_shape.symbol @S min 1
func.func @columns(%x: tensor<2x?x8xf32> {disc_shape.dims = #disc_shape.dims<[2, S, 8]>}, %w: tensor<16x8xf32>,
                   %b: tensor<16xf32>) -> tensor<2x16x?xf32> {
  %s = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s) : tensor<2x?x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<2x?x8xf32>, tensor<16x8xf32>) outs(%f : tensor<2x?x16xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x?x16xf32>
  %e1 = tensor.empty(%s) : tensor<2x?x16xf32>
  %y = linalg.generic {indexing_maps = [#id, affine_map<(b, m, n) -> (n)>, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %b : tensor<2x?x16xf32>, tensor<16xf32>) outs(%e1 : tensor<2x?x16xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x16xf32>
  %t = disc_tensor.permute %y [0, 2, 1] : tensor<2x?x16xf32> -> tensor<2x16x?xf32>
  return %t : tensor<2x16x?xf32>
}
