// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// The lanes run along a strided dimension of the source, and no other is dense: a gather.
// CHECK-LABEL: func.func @transpose
// CHECK: llvm.intr.masked.gather {{.*}} -> vector<8xf32>
disc_plan.kernel_func loop @transpose attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["S"], arg_dims = [#disc_shape.dims<[S, 48]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[96, 2]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>]} {
^bb0(%x: tensor<?x48xf32>):
  %r = disc_tensor.permute %x [1, 0] : tensor<?x48xf32> -> tensor<48x?xf32>
  disc_plan.yield %r : tensor<48x?xf32>
}

// Heads of 16: eight lanes that start at a multiple of 8 lie in one head, so one scalar division serves them all.
// CHECK-LABEL: func.func @heads
// CHECK-DAG: arith.divui %{{.*}}, %{{.*}} : index
// CHECK-DAG: arith.remui %{{.*}}, %{{.*}} : index
// CHECK-NOT: gather
// CHECK: llvm.load {{.*}} -> vector<8xf32>
disc_plan.kernel_func loop @heads attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["S"], arg_dims = [#disc_shape.dims<[3, S, 16]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S * 16, 16, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[48, 1]>>]} {
^bb0(%x: tensor<3x?x16xf32>):
  %S = disc_shape.dim <S>
  %p = disc_tensor.permute %x [1, 0, 2] : tensor<3x?x16xf32> -> tensor<?x3x16xf32>
  %r = disc_tensor.reshape %p (%S) : tensor<?x3x16xf32> -> tensor<?x48xf32>
  disc_plan.yield %r : tensor<?x48xf32>
}

// An embedding: the row's index is a scalar, its elements are contiguous.
// CHECK-LABEL: func.func @embedding
// CHECK: %[[ID:.*]] = llvm.load {{.*}} -> i64
// CHECK: arith.muli
// CHECK-NOT: gather
// CHECK: llvm.load {{.*}} -> vector<8xf32>
disc_plan.kernel_func loop @embedding attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"],
    arg_dims = [#disc_shape.dims<[B]>, #disc_shape.dims<[1000, 48]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[48, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[48, 1]>>]} {
^bb0(%ids: tensor<?xi64>, %table: tensor<1000x48xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x48xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?x48xf32>) {
  ^bb0(%id: i64, %o: f32):
    %i = arith.index_cast %id : i64 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%i, %j] : tensor<1000x48xf32>
    linalg.yield %v : f32
  } -> tensor<?x48xf32>
  disc_plan.yield %r : tensor<?x48xf32>
}

// A reversed dimension, as `flip` computes it: whole vectors, whose lanes a shuffle turns round.
// CHECK-LABEL: func.func @reversed
// CHECK-NOT: gather
// CHECK: %[[V:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: vector.shuffle %[[V]], %[[V]] [7, 6, 5, 4, 3, 2, 1, 0]
// CHECK-LABEL: func.func @after_reversed
disc_plan.kernel_func loop @reversed attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 48]>],
    layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>]} {
^bb0(%x: tensor<?x48xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x48xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%e : tensor<?x48xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %wide = arith.index_cast %j : index to i64
    %last = arith.constant 47 : i64
    %back = arith.subi %last, %wide : i64
    %at = arith.index_cast %back : i64 to index
    %v = tensor.extract %x[%i, %at] : tensor<?x48xf32>
    linalg.yield %v : f32
  } -> tensor<?x48xf32>
  disc_plan.yield %r : tensor<?x48xf32>
}
disc_plan.kernel_func loop @after_reversed attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 48]>],
    layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>]} {
^bb0(%x: tensor<?x48xf32>):
  disc_plan.yield %x : tensor<?x48xf32>
}

// Parts of a concatenation are read where they are: along rows by a branch.
// CHECK-LABEL: func.func @concat_and_more
// CHECK: scf.if {{.*}} -> (vector<8xi8>)
// CHECK: scf.if {{.*}} -> (vector<8xi8>)
disc_plan.kernel_func loop @concat_and_more attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B", "S"],
    arg_dims = [#disc_shape.dims<[B, 48]>, #disc_shape.dims<[S, 48]>],
    layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>]} {
^bb0(%x: tensor<?x48xi8>, %y: tensor<?x48xi8>):
  %c = disc_tensor.concat %x, %y dim 0 : tensor<?x48xi8>, tensor<?x48xi8> -> tensor<?x48xi8>
  %n = disc_shape.dim <B + S>
  %e = tensor.empty(%n) : tensor<?x48xi8>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]} ins(%c : tensor<?x48xi8>) outs(%e : tensor<?x48xi8>) {
  ^bb0(%a: i8, %o: i8):
    %v = arith.addi %a, %a : i8
    linalg.yield %v : i8
  } -> tensor<?x48xi8>
  disc_plan.yield %r : tensor<?x48xi8>
}

// Nothing but a concatenation: a loop for each part, over whatever of it a task covers, here of both dimensions at once.
// CHECK-LABEL: func.func @concat
// CHECK-NOT: scf.if
// CHECK: arith.minsi
// CHECK: scf.for
// CHECK-NEXT: index_cast
// CHECK-NOT: scf.if
// CHECK: llvm.store {{.*}} : vector<8xi8>
// CHECK: scf.for
// CHECK-NOT: scf.if
// CHECK: llvm.store {{.*}} : vector<8xi8>
disc_plan.kernel_func loop @concat attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B", "S"],
    arg_dims = [#disc_shape.dims<[B, 48]>, #disc_shape.dims<[S, 48]>],
    layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>]} {
^bb0(%x: tensor<?x48xi8>, %y: tensor<?x48xi8>):
  %r = disc_tensor.concat %x, %y dim 0 : tensor<?x48xi8>, tensor<?x48xi8> -> tensor<?x48xi8>
  disc_plan.yield %r : tensor<?x48xi8>
}
}
