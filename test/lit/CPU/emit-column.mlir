// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// Two vectors of columns side by side, summed over the middle dimension; 48 is three such pairs. The sum over an unknown
// number of rows is made of blocks of 64 rows, and of 64 such blocks, which start from zero.
// CHECK-LABEL: func.func @sum
// CHECK-DAG: %[[C64:.*]] = arith.constant 64 : index
// CHECK-DAG: %[[C4096:.*]] = arith.constant 4096 : index
// CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<8xf32>
// CHECK: scf.for {{.*}} step %[[C4096]] iter_args
// CHECK: scf.for {{.*}} step %[[C64]] iter_args(%[[S:.*]] = %[[ZERO]], %[[T:.*]] = %[[ZERO]])
// CHECK: arith.minsi
// CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %[[ZERO]], %[[B:.*]] = %[[ZERO]]) -> (vector<8xf32>, vector<8xf32>)
// CHECK: %[[X:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: arith.addf %[[X]], %[[A]]
// CHECK: %[[Y:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: arith.addf %[[Y]], %[[B]]
// CHECK: arith.addf %[[S]], %{{.*}} : vector<8xf32>
// CHECK: arith.addf %[[T]], %{{.*}} : vector<8xf32>
// CHECK-COUNT-2: llvm.store {{.*}} : vector<8xf32>
// CHECK-NOT: masked
disc_plan.kernel_func column @sum attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S, 48]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S * 48, 48, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[48, 1]>>],
    schedule = #disc_plan.column<blocks = 2>} {
^bb0(%x: tensor<?x?x48xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%B) : tensor<?x48xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?x48xf32>) -> tensor<?x48xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, k)>],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<?x?x48xf32>) outs(%zeros : tensor<?x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?x48xf32>
  disc_plan.yield %r : tensor<?x48xf32>
}
}
