// Indices that sums and constant multiples make of coordinates are like coordinates: of the windows x[b, 2 * i + k, j] of
// three rows, whose elements are the innermost dimension, the lanes run over j and k, in a pattern that is known.
// RUN: disc-opt %s --disc-cpu-emit-kernels | FileCheck %s

#map = affine_map<(b, i, j, k) -> (b, i, j, k)>
disc_shape.symbol @B min 1

// CHECK-LABEL: func.func @windows
// CHECK-DAG: arith.constant dense<[0, 32, 64, 1, 33, 65, 2, 34]> : vector<8xindex>
// CHECK: scf.for %{{.*}} step %c6
disc_plan.kernel_func loop @windows attributes {
    arg_dims = [#disc_shape.dims<[B, 9, 32]>],
    layouts = [#disc_plan.layout<<0>, <[288, 32, 1]>>, #disc_plan.layout<<0>, <[384, 96, 3, 1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"], tasks = #disc_shape.expr<B>} {
^bb0(%x: tensor<?x9x32xf32>):
  %b = disc_shape.dim <B>
  %e = tensor.empty(%b) : tensor<?x4x32x3xf32>
  %y = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      outs(%e : tensor<?x4x32x3xf32>) {
  ^bb0(%o: f32):
    %0 = linalg.index 0 : index
    %1 = linalg.index 1 : index
    %2 = linalg.index 2 : index
    %3 = linalg.index 3 : index
    %i = arith.index_cast %1 : index to i64
    %k = arith.index_cast %3 : index to i64
    %two = arith.constant 2 : i64
    %first = arith.muli %i, %two : i64
    %row = arith.addi %first, %k : i64
    %r = arith.index_cast %row : i64 to index
    %v = tensor.extract %x[%0, %r, %2] : tensor<?x9x32xf32>
    linalg.yield %v : f32
  } -> tensor<?x4x32x3xf32>
  disc_plan.yield %y : tensor<?x4x32x3xf32>
}
