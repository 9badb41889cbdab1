// Reductions that may be done in parts: whether they are follows from the number of blocks at run time.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' -split-input-file -verify-diagnostics | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0
disc_shape.symbol @S min 0

// All take the memory of the parts' values and how many parts there are.
// CHECK: disc_rt.device_kernel @sum threads 256 [reads, writes, number, number, writes, number]
// CHECK-SAME: disc_plan.split = #disc_plan.split<part = @sum_part, whole = @sum_whole, most = <(S + 16383) floordiv 16384>, values = <B>>
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<B>
// How many blocks a part's kernel has is not known here; with the bound of @sum's all of them would be the first part.
// CHECK: disc_rt.device_kernel @sum_part threads 256 {{.*}}disc_plan.tasks = #disc_shape.expr<0>
// CHECK: disc_rt.device_kernel @sum_whole threads 256 {{.*}}disc_plan.tasks = #disc_shape.expr<B>

// CHECK-LABEL: gpu.func @sum(
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>

// A part begins where the one before ends, and leaves its sum in memory.
// CHECK-LABEL: gpu.func @sum_part(
// CHECK-SAME: %[[MEMORY:[a-z0-9]+]]: !llvm.ptr<1>, %[[COUNT:[a-z0-9]+]]: i64)
// CHECK: %[[PARTS:.*]] = arith.index_cast %[[COUNT]]
// CHECK: %[[PART:.*]] = arith.remui %{{.*}}, %[[PARTS]]
// CHECK: %[[SIZE:.*]] = arith.divui %{{.*}}, %[[PARTS]]
// CHECK: scf.for
// CHECK: llvm.getelementptr %[[MEMORY]]
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>

// Threads share the parts, and the block adds up what they have.
// CHECK-LABEL: gpu.func @sum_whole(
// CHECK: scf.for {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}) -> (f32)
// CHECK: %[[OTHER:.*]] = llvm.load
// CHECK: arith.addf %[[SUM]], %[[OTHER]]
// CHECK: gpu.barrier
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
disc_plan.kernel_func row @sum attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>], tasks = #disc_shape.expr<B>,
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 1, part = 16384>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%B) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}
}

// -----

// What has one value for each element has no parts.
disc_shape.symbol @B min 0
// expected-error@+1 {{has a schedule with parts, but cannot be split}}
disc_plan.kernel_func row @normalize attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 64]>], tasks = #disc_shape.expr<B>,
    layouts = [#disc_plan.layout<<0>, <[64, 1]>>, #disc_plan.layout<<0>, <[64, 1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 1, part = 16>} {
^bb0(%x: tensor<?x64xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%B) : tensor<?xf32>
  %f = tensor.empty(%B) : tensor<?x64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x64xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %r : tensor<?x64xf32>, tensor<?xf32>) outs(%f : tensor<?x64xf32>) {
  ^bb0(%a: f32, %t: f32, %o: f32):
    %s = arith.divf %a, %t : f32
    linalg.yield %s : f32
  } -> tensor<?x64xf32>
  disc_plan.yield %y : tensor<?x64xf32>
}
