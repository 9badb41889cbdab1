// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// Three passes; the exponentials are kept in scratch memory between the last two.
// CHECK-LABEL: func.func @softmax
// CHECK-SAME: %[[SCRATCH:[a-z0-9]+]]: !llvm.ptr)
// CHECK: scf.for {{.*}} iter_args
// Two vectors at a time in two accumulators, then one, then part of one; then the lanes.
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (vector<8xf32>, vector<8xf32>)
// CHECK-COUNT-2: arith.maximumf {{.*}} : vector<8xf32>
// CHECK: scf.for
// CHECK: scf.if
// CHECK: llvm.intr.masked.load
// CHECK: arith.select
// CHECK: vector.extract_strided_slice {{.*}} vector<8xf32> to vector<4xf32>
// CHECK: arith.maximumf {{.*}} : vector<4xf32>
// CHECK: arith.maximumf {{.*}} : vector<2xf32>
// CHECK: arith.maximumf {{.*}} : vector<1xf32>
// CHECK: vector.extract {{.*}} : f32 from vector<1xf32>
// CHECK: scf.for
// CHECK: math.exp
// CHECK: llvm.store
// CHECK: arith.addf {{.*}} : vector<8xf32>
// CHECK: math.exp
// CHECK: llvm.intr.masked.store
// CHECK: %[[SUM:.*]] = arith.addf {{.*}} : f32
// CHECK: scf.for
// CHECK-NOT: math.exp
// CHECK: arith.divf
disc_plan.kernel_func row @softmax attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>],
    schedule = #disc_plan.row<accumulators = 2>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Two results that depend on each other have no single combiner: point by point, with scalars.
// CHECK-LABEL: func.func @argmax
// CHECK: scf.for {{.*}} -> (f32, i64)
// CHECK-NOT: vector<
// CHECK: llvm.store {{.*}} : f32
// CHECK: llvm.store {{.*}} : i64
disc_plan.kernel_func row @argmax attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>],
    schedule = #disc_plan.row<accumulators = 2>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0 : i64
  %low = arith.constant 0xFF800000 : f32
  %ei = tensor.empty(%B) : tensor<?xi64>
  %ev = tensor.empty(%B) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : i64) outs(%ei : tensor<?xi64>) -> tensor<?xi64>
  %lows = linalg.fill ins(%low : f32) outs(%ev : tensor<?xf32>) -> tensor<?xf32>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                          affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows, %zeros : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%a: f32, %v: f32, %i: i64):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i64
    %more = arith.cmpf ogt, %a, %v : f32
    %nv = arith.select %more, %a, %v : f32
    %ni = arith.select %more, %k, %i : i64
    linalg.yield %nv, %ni : f32, i64
  } -> (tensor<?xf32>, tensor<?xi64>)
  disc_plan.yield %r#0, %r#1 : tensor<?xf32>, tensor<?xi64>
}
}
