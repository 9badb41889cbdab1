// RUN: disc-opt %s --disc-library-claim-functions --canonicalize | FileCheck %s

disc_shape.symbol @N min 0
disc_shape.symbol @E min 0

// Updates are put in order, rows of 8 elements are not: the index is repeated along them.
// CHECK-LABEL: func.func @rows
// CHECK: %[[MEMORY:.*]] = disc_shape.dim <E * 4>
// CHECK: %[[R:.*]]:2 = disc_tensor.call "scatter"(%arg0, %arg1, %{{.*}}) sizes(%{{.*}}, %[[MEMORY]])
// CHECK-SAME: in_place on_device ordered [0]
// CHECK-SAME: -> (tensor<?x8xf32>, tensor<?xi64>)
// CHECK: return %[[R]]#0
func.func @rows(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[N, 8]>},
                %v: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[E, 8]>},
                %i: tensor<?xi64> {disc_shape.dims = #disc_shape.dims<[E]>}) -> tensor<?x8xf32> {
  %n = disc_shape.dim <N>
  %e = disc_shape.dim <E>
  %none = arith.constant -1 : index
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %2 = arith.constant 2 : index
  %f32 = arith.constant 544 : index
  %index = disc_tensor.broadcast %i(%e) [0] : tensor<?xi64> -> tensor<?x8xi64>
  %r = disc_tensor.call "scatter"(%x, %v, %index) sizes(%n) config(%f32, %1, %1, %0, %0, %1, %2, %1, %none, %1, %0)
      tasks %1 scratch %0 "aten.index_add at model.py:3" in_place : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xi64>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// Without an old value the target begins as its fill, and the operands move up. Every element has an index.
// CHECK-LABEL: func.func @filled
// CHECK-DAG: %[[FILL:.*]] = arith.constant 7 : i8
// CHECK-DAG: %[[SELF:.*]] = arith.constant 1 : index
// CHECK: %[[X:.*]] = linalg.fill ins(%[[FILL]] : i8)
// CHECK: disc_tensor.call "scatter"(%[[X]], %arg0, %arg1)
// CHECK-SAME: unsigned [0, 1, 3] in_place on_device ordered [0]
// CHECK-SAME: -> (tensor<9xi8>, tensor<?xi64>)
func.func @filled(%v: tensor<?xi8> {disc_shape.dims = #disc_shape.dims<[E]>},
                  %i: tensor<?xi64> {disc_shape.dims = #disc_shape.dims<[E]>}) -> tensor<9xi8> {
  %none = arith.constant -1 : index
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %fill = arith.constant 7 : index
  %u8 = arith.constant 264 : index
  %r = disc_tensor.call "scatter"(%v, %i) config(%u8, %0, %0, %fill, %0, %1, %1, %1, %none, %0)
      tasks %1 scratch %0 "" unsigned [0, 2] : (tensor<?xi8>, tensor<?xi64>) -> tensor<9xi8>
  return %r : tensor<9xi8>
}

// All rows are put in order at once.
// CHECK-LABEL: func.func @sort
// CHECK: %[[MEMORY:.*]] = disc_shape.dim <N * 32>
// CHECK: %[[S:.*]]:3 = disc_tensor.call "sort"(%arg0) sizes(%{{.*}}, %{{.*}}, %[[MEMORY]])
// CHECK-SAME: on_device ordered [1]
// CHECK: return %[[S]]#0, %[[S]]#1
func.func @sort(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[N, 8]>}) -> (tensor<?x8xf32>, tensor<?x8xi64>) {
  %n = disc_shape.dim <N>
  %0 = arith.constant 0 : index
  %f32 = arith.constant 544 : index
  %v, %i = disc_tensor.call "sort"(%x) sizes(%n, %n) config(%f32, %0) tasks %n scratch %0 ""
      : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xi64>)
  return %v, %i : tensor<?x8xf32>, tensor<?x8xi64>
}

// These need no memory; what no kernels do stays as it is.
// CHECK-LABEL: func.func @others
// CHECK: disc_tensor.call "cumulative"{{.*}} on_device :
// CHECK: disc_tensor.call "digamma"{{.*}} "" :
func.func @others(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[N, 8]>}) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %n = disc_shape.dim <N>
  %1 = arith.constant 1 : index
  %f32 = arith.constant 544 : index
  %p = disc_tensor.call "cumulative"(%x) sizes(%n) config(%f32, %1) tasks %n scratch %1 "" : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %d = disc_tensor.call "digamma"(%x) sizes(%n) config(%f32) tasks %n scratch %1 "" : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %p, %d : tensor<?x8xf32>, tensor<?x8xf32>
}
