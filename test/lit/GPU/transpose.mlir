// An operand that lies along another dimension than the result is read in tiles of 32 x 32, along its own lines.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// CHECK: llvm.mlir.global internal @transpose_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<1056 x f32>
// CHECK-LABEL: gpu.func @transpose
// CHECK: scf.for
// 256 threads have four rows of a tile each.
// CHECK-COUNT-4: llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK: gpu.barrier
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// CHECK: arith.addf
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
// CHECK: gpu.barrier
// CHECK: gpu.return
disc_plan.kernel_func loop @transpose attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[B, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %e = tensor.empty(%S, %B) : tensor<?x?xf32>
  %t = disc_tensor.permute %x [1, 0] : tensor<?x?xf32> -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}
}
