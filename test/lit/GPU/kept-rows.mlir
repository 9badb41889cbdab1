// Rows that stay in the registers of their threads from the first pass to the last, and kernels for some shapes.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#whole = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 1 max 65536
disc_shape.symbol @S min 0 max 65536

// The host chooses by an expression of the symbols, the best kernel that it allows. Blocks follow from the schedule of each:
// 16 warps are for as many rows as they can keep.
// CHECK: disc_rt.device_kernel @softmax_v4_p8 threads 512
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<-((-B) floordiv max(16 floordiv max((S + 1023) floordiv 1024, 1), 1))>
// CHECK: disc_rt.device_kernel @softmax threads 256
// CHECK-SAME: disc_plan.variants = [#disc_plan.kernel_variant<kernel = @softmax_v4_p8, when = <-(S mod 4) + min(S, 1) - max(S, 16384) + 16384>>]
// CHECK: disc_rt.device_kernel @loop_v4_p2 threads 256
// CHECK: disc_rt.device_kernel @loop threads 256
// CHECK-SAME: disc_plan.variants = [#disc_plan.kernel_variant<kernel = @loop_v4_p2, when = <-(S mod 4) + 1>>]

// 192 vectors are six for each thread of a warp. Each is loaded once, before anything is computed, and its exponential is
// computed once. A warp without a row does nothing.
// CHECK-LABEL: gpu.func @kept
// CHECK-SAME: disc_plan.resident_threads = 768
// CHECK: %[[ACTIVE:.*]] = arith.cmpi slt
// CHECK: scf.if %[[ACTIVE]] {
// CHECK-COUNT-6: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK-NOT: llvm.load
// CHECK-COUNT-5: arith.maximumf %{{.*}} : vector<4xf32>
// CHECK: gpu.shuffle
// CHECK-COUNT-6: math.exp %{{.*}} : vector<4xf32>
// CHECK-NOT: math.exp
// CHECK-COUNT-6: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK-NOT: scf.for
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
disc_plan.kernel_func row @kept attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 768]>],
    layouts = [#disc_plan.layout<<0>, <[768, 1]>>, #disc_plan.layout<<0>, <[768, 1]>>], tasks = #disc_shape.expr<B>,
    schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 4, points = 6>} {
^bb0(%x: tensor<?x768xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B) : tensor<?x768xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x768xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x768xf32>, tensor<?xf32>) outs(%e : tensor<?x768xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x768xf32>
  %t = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x768xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x768xf32>, tensor<?xf32>) outs(%e : tensor<?x768xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x768xf32>
  disc_plan.yield %r : tensor<?x768xf32>
}

// As many warps for a row as its length needs. A vector that is not there is not loaded, counts for nothing and is not
// stored. Warps of a row meet in memory of the block, if there are several.
// CHECK-LABEL: gpu.func @softmax_v4_p8
// CHECK-SAME: disc_plan.resident_threads = 1024
// CHECK: %[[THERE:.*]] = arith.cmpi sgt, %{{.*}}, %{{.*}} : index
// CHECK: scf.if %[[THERE]] -> (vector<4xf32>) {
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK-COUNT-7: llvm.load %{{.*}} -> vector<4xf32>
// CHECK: arith.maximumf
// CHECK: arith.select %[[THERE]]
// CHECK: gpu.shuffle
// CHECK: scf.if %{{.*}} -> (f32) {
// CHECK: gpu.barrier
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// CHECK-COUNT-4: gpu.shuffle
// CHECK-NOT: gpu.shuffle
// CHECK: scf.if %[[THERE]] {
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK: gpu.return
// CHECK-LABEL: gpu.func @softmax(
// CHECK: scf.for
// CHECK: gpu.return
disc_plan.kernel_func row @softmax attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>], tasks = #disc_shape.expr<B>,
    schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 1>,
    variants = [#disc_plan.variant<#disc_plan.device_row<threads = 512, vector = 4, points = 8>>]} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %t = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Rows end with a vector in one kernel, and are single elements in the other.
// CHECK-LABEL: gpu.func @loop_v4_p2
// CHECK: } else {
// CHECK-COUNT-2: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK-COUNT-2: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK-LABEL: gpu.func @loop(
// CHECK-NOT: vector<4xf32>
// CHECK: gpu.return
disc_plan.kernel_func loop @loop attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[S]>], tasks = #disc_shape.expr<B>,
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4, points = 2>} {
^bb0(%x: tensor<?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#column, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}
}
