// RUN: disc-opt %s --disc-shape-propagate | FileCheck %s

disc_shape.symbol @B min 1 max 64
disc_shape.symbol @S min 2 max 512
disc_shape.symbol @T min 2 max 512

// Index arithmetic of every kind, down to one value per expression.
// CHECK-LABEL: func.func @indices(
// CHECK-NEXT:    %[[BS:.*]] = disc_shape.dim <B * S>
// CHECK-NEXT:    %[[DIV:.*]] = disc_shape.dim <(S + 15) floordiv 16>
// CHECK-NEXT:    %[[MOD:.*]] = disc_shape.dim <S mod 16>
// CHECK-NEXT:    %[[MIN:.*]] = disc_shape.dim <min(B, S)>
// CHECK-NEXT:    return %[[BS]], %[[DIV]], %[[DIV]], %[[MOD]], %[[MIN]], %[[BS]]
func.func @indices(%x: tensor<?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, S, 64]>})
    -> (index, index, index, index, index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c15 = arith.constant 15 : index
  %c16 = arith.constant 16 : index
  %c0_i64 = arith.constant 0 : i64
  %b = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %s = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %e = tensor.dim %x, %c2 : tensor<?x?x64xf32>
  %bs64 = arith.muli %b, %s : index
  %bse = arith.muli %bs64, %e : index
  %bs = arith.divsi %bse, %e : index
  %s15 = arith.addi %s, %c15 : index
  %div = arith.floordivsi %s15, %c16 : index
  %ceil = arith.ceildivsi %s, %c16 : index
  %mod = arith.remsi %s, %c16 : index
  // A negative index, made positive the way Python does.
  %b_i64 = arith.index_cast %b : index to i64
  %s_i64 = arith.index_cast %s : index to i64
  %less = arith.cmpi slt, %b_i64, %s_i64 : i64
  %min_i64 = arith.select %less, %b_i64, %s_i64 : i64
  %min = arith.index_cast %min_i64 : i64 to index
  %negative = arith.cmpi slt, %s_i64, %c0_i64 : i64
  %wrapped = arith.addi %bs, %s : index
  %same = arith.select %negative, %wrapped, %bs : index
  return %bs, %div, %ceil, %mod, %min, %same : index, index, index, index, index, index
}

// Other integer types are casts of the extent; data stays.
// CHECK-LABEL: func.func @integers(
// CHECK-SAME:    %[[X:.*]]: tensor<?xi64>
// CHECK:         %[[S:.*]] = disc_shape.dim <S>
// CHECK:         %[[I:.*]] = arith.index_cast %[[S]] : index to i64
// CHECK:         %[[D:.*]] = tensor.extract %[[X]]
// CHECK:         %[[SUM:.*]] = arith.addi %[[D]], %[[I]] : i64
// CHECK:         return %[[I]], %[[SUM]]
func.func @integers(%x: tensor<?xi64> {disc_shape.dims = #disc_shape.dims<[S]>}) -> (i64, i64) {
  %c0 = arith.constant 0 : index
  %s = tensor.dim %x, %c0 : tensor<?xi64>
  %i = arith.index_cast %s : index to i64
  %data = tensor.extract %x[%c0] : tensor<?xi64>
  %sum = arith.addi %data, %i : i64
  return %i, %sum : i64, i64
}

// Extents of tensors, through every kind of operation.
// CHECK-LABEL: func.func @tensors(
// CHECK-SAME:    -> (tensor<?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[S, B, 64]>}
// CHECK-DAG:     %[[BS:.*]] = disc_shape.dim <B * S>
// CHECK-DAG:     %[[S:.*]] = disc_shape.dim <S>
// CHECK:         disc_tensor.reshape %{{.*}}(%[[BS]]) {disc_shape.dims = [#disc_shape.dims<[B * S, 64]>]}
// CHECK:         tensor.empty(%[[BS]]) {disc_shape.dims = [#disc_shape.dims<[B * S, 64]>]}
// CHECK:         linalg.generic
// CHECK-SAME:      attrs = {disc_shape.dims = [#disc_shape.dims<[B * S, 64]>]}
// CHECK:         disc_tensor.permute
// CHECK-SAME:      {disc_shape.dims = [#disc_shape.dims<[S, B, 64]>]}
// CHECK:         disc_tensor.concat
// CHECK-SAME:      {disc_shape.dims = [#disc_shape.dims<[S * 2, B, 64]>]}
// CHECK-NOT:     disc_shape.require
func.func @tensors(%x: tensor<?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, S, 64]>})
    -> (tensor<?x?x64xf32>, tensor<?x?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %s = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %n = arith.muli %b, %s : index
  %flat = disc_tensor.reshape %x(%n) : tensor<?x?x64xf32> -> tensor<?x64xf32>
  %m = tensor.dim %flat, %c0 : tensor<?x64xf32>
  %init = tensor.empty(%m) : tensor<?x64xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]
    } ins(%flat : tensor<?x64xf32>) outs(%init : tensor<?x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %z = arith.negf %a : f32
    linalg.yield %z : f32
  } -> tensor<?x64xf32>
  %k = tensor.dim %y, %c0 : tensor<?x64xf32>
  %rows = arith.divui %k, %s : index
  %back = disc_tensor.reshape %y(%rows, %s) : tensor<?x64xf32> -> tensor<?x?x64xf32>
  %t = disc_tensor.permute %back [1, 0, 2] : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  %c = disc_tensor.concat %t, %t dim 0 : tensor<?x?x64xf32>, tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return %t, %c : tensor<?x?x64xf32>, tensor<?x?x64xf32>
}

// What an operation needs and nothing proves.
// CHECK-LABEL: func.func @requirements(
// CHECK-DAG:     %[[S:.*]] = disc_shape.dim <S>
// CHECK-DAG:     %[[T:.*]] = disc_shape.dim <T>
// CHECK-DAG:     %[[BS:.*]] = disc_shape.dim <B * S>
// CHECK-DAG:     %[[T64:.*]] = disc_shape.dim <T * 64>
// CHECK:         disc_shape.require eq %[[BS]], %[[T64]] "reshape changes the number of elements"
// CHECK:         disc_tensor.reshape
// CHECK:         disc_shape.require le %[[S]], %[[T]] "slice is out of bounds"
// CHECK:         disc_tensor.slice
// CHECK:         disc_shape.require eq %[[T]], %[[S]] "sizes of the operands differ"
// CHECK:         linalg.generic
func.func @requirements(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>},
                        %y: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>},
                        %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>})
    -> (tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s = tensor.dim %x, %c1 : tensor<?x?xf32>
  %t = tensor.dim %y, %c0 : tensor<?xf32>
  %0 = disc_tensor.reshape %x(%t) : tensor<?x?xf32> -> tensor<?x64xf32>
  %1 = disc_tensor.slice %y[%c0, %s] dim 0 step 1 : tensor<?xf32> -> tensor<?xf32>
  %init = tensor.empty(%t) : tensor<?xf32>
  %2 = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]
    } ins(%y, %z : tensor<?xf32>, tensor<?xf32>) outs(%init : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %sum = arith.addf %a, %b : f32
    linalg.yield %sum : f32
  } -> tensor<?xf32>
  return %0, %1, %2 : tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>
}

// A requirement needs extents that had been written for scalars, which are gone by then.
// CHECK-LABEL: func.func @halves(
// CHECK:         disc_shape.require le %{{.*}}, %{{.*}} "slice is out of bounds"
func.func @halves(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %s = tensor.dim %x, %c0 : tensor<?xf32>
  %more = arith.addi %s, %c1 : index
  %half = arith.floordivsi %more, %c2 : index
  %rest = arith.subi %s, %half : index
  %0 = disc_tensor.slice %x[%c0, %half] dim 0 step 1 : tensor<?xf32> -> tensor<?xf32>
  %1 = disc_tensor.slice %x[%half, %rest] dim 0 step 1 : tensor<?xf32> -> tensor<?xf32>
  return %0, %1 : tensor<?xf32>, tensor<?xf32>
}
