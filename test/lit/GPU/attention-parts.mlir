// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0 max 64
disc_shape.symbol @S min 0 max 4096

// The second kernel follows the first one, with as many blocks as there are results where there are parts, and none where
// there are not.
// CHECK: disc_rt.device_kernel @decode_parts threads 128
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<B * min(S floordiv 128, 8)>
// CHECK: disc_rt.device_kernel @decode threads 128
// CHECK-SAME: disc_plan.next = @decode_whole
// CHECK-SAME: disc_plan.variants = [#disc_plan.kernel_variant<kernel = @decode_parts, when = <S - 511>>]
// CHECK: disc_rt.device_kernel @decode_whole threads 128
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<{{.*}}((B + 3) floordiv 4) * min(max(S, 511), 512){{.*}}>

// A variant for many keys: a block has a part of them, of whole steps, and leaves what it has in memory. Four heads share
// keys, and are queries of one.
// CHECK-LABEL: gpu.func @decode_parts(
// CHECK: %[[BLOCK:.*]] = gpu.block_id x
// CHECK: %[[PART:.*]] = arith.remui %[[BLOCK]], %[[COUNT:.*]] : index
// CHECK: %[[HEAD:.*]] = arith.divui %[[BLOCK]], %[[COUNT]] : index
// CHECK: %[[BEGIN:.*]] = arith.muli %[[PART]], %[[SIZE:.*]] : index
// CHECK: %[[BEHIND:.*]] = arith.addi %[[BEGIN]], %[[SIZE]]
// CHECK: %[[END:.*]] = arith.minsi %{{.*}}, %[[BEHIND]]
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]] step
// CHECK: scf.if
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<1>
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<1>
// CHECK: scf.if
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<1>
// CHECK-NOT: arith.divf

// The kernel for all other shapes does not use that memory.
// CHECK-LABEL: gpu.func @decode(
// CHECK: arith.divf

// An element of the result in each thread: the maximum of the parts, then their sums.
// CHECK-LABEL: gpu.func @decode_whole(
// CHECK: scf.if
// CHECK: scf.for
// CHECK: arith.maximumf
// CHECK: scf.for
// CHECK: math.exp
// CHECK-COUNT-2: math.fma
// CHECK: arith.divf

disc_plan.kernel_func attention @decode attributes {
    layouts = [#disc_plan.layout<<0>, <[160, 40, 40, 1]>>, #disc_plan.layout<<0>, <[S * 40, 0, 40, 1]>>,
               #disc_plan.layout<<0>, <[S * 40, 0, 40, 1]>>, #disc_plan.layout<<0>, <[160, 40, 40, 1]>>,
               #disc_plan.layout<<0>, <[1]>>],
    arg_dims = [#disc_shape.dims<[B, 4, 1, 40]>, #disc_shape.dims<[B, 4, S, 40]>, #disc_shape.dims<[B, 4, S, 40]>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>,
    variants = [#disc_plan.variant<#disc_plan.device_attention<threads = 128, queries = 16, keys = 32, parts = <min(8,
        S floordiv 128)>, shared = 1>, when = <S - 511>, tasks = <B * min(8, S floordiv 128)>>],
    tasks = #disc_shape.expr<B * 4>,
    symbols = ["B", "S"]} {
^bb0(%q: tensor<?x4x1x40xf32>, %k: tensor<?x4x?x40xf32>, %v: tensor<?x4x?x40xf32>):
  %r = disc_tensor.attention %q, %k, %v scale 0.25 causal false : tensor<?x4x1x40xf32>, tensor<?x4x?x40xf32>, tensor<?x4x?x40xf32> -> tensor<?x4x1x40xf32>
  %n = disc_shape.dim <B * 168 * min(8, S floordiv 128) * min(max(S - 511, 0), 1)>
  %m = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %r, %m : tensor<?x4x1x40xf32>, tensor<?xf32>
}
}
