// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// The operand's memory crosses the lanes: no gathers, but tiles of 8 x 8. Whole ones without masks.
// CHECK-LABEL: func.func @transpose
// CHECK: %[[TILE:.*]] = llvm.alloca
// CHECK: scf.for
// CHECK: scf.if
// CHECK-COUNT-8: llvm.load {{.*}} -> vector<8xf32>
// CHECK-COUNT-24: vector.shuffle
// CHECK-COUNT-8: llvm.store {{.*}} : vector<8xf32>
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.store {{.*}} : vector<8xf32>
// CHECK: scf.if
// CHECK-COUNT-8: llvm.intr.masked.load
// CHECK: llvm.intr.masked.store
// CHECK-NOT: gather
disc_plan.kernel_func loop @transpose attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[B, 1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, tasks = #disc_shape.expr<(B * S + 4095) floordiv 4096>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %e = tensor.empty(%S, %B) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Rows of up to 16 elements, 8 of them at a time, in whole tiles and a part of one: the sum is one vector, and the result
// is transposed back. Longer ones one by one.
// CHECK-LABEL: func.func @short_rows
// CHECK-COUNT-2: llvm.alloca %c512_i64 x i8
// CHECK: %[[SHORT:.*]] = arith.cmpi sle
// CHECK: scf.if %[[SHORT]] {
// CHECK: scf.for
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load {{.*}} -> vector<8xf32>
// CHECK-COUNT-24: vector.shuffle
// CHECK: scf.if
// CHECK-COUNT-8: llvm.intr.masked.load
// CHECK-COUNT-24: vector.shuffle
// CHECK: scf.for {{.*}} -> (vector<8xf32>)
// CHECK: arith.addf {{.*}} : vector<8xf32>
// CHECK: scf.for
// CHECK: arith.divf {{.*}} : vector<8xf32>
// CHECK-COUNT-24: vector.shuffle
// CHECK: %[[LONG:.*]] = arith.cmpi sgt, {{.*}} : index
// CHECK: scf.if %[[LONG]] {
// CHECK: vector.extract_strided_slice
disc_plan.kernel_func row @short_rows attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.row<accumulators = 1, short_rows = 16>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.divf %a, %b : f32
    linalg.yield %d : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}
}
