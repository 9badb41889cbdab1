// What a library may do in a kernel's place, and the kernel of what is left.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (n, k)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
#id = affine_map<(b, s, n) -> (b, s, n)>
#n = affine_map<(b, s, n) -> (n)>
module attributes {disc_plan.target = {device = "cuda", warp = 32 : i64}} {
disc_shape.symbol @B min 0 max 64
disc_shape.symbol @S min 0 max 512

// The right side lies by columns. A row that is added is the library's as well: nothing is left to do.
// CHECK: disc_rt.device_kernel @bias threads 256
// CHECK-SAME: disc_plan.library = {a_columns = false, b_columns = true, dtype = 544 : i64, extents = #disc_shape.dims<[1, B * S, 1536, 384, 0, 0, B * S * 1536]>, operands = array<i64: 0, 1, 3, 2>}
// CHECK-NOT: @bias_epilogue
// What else follows is a kernel over the sums, which lie where its results go; vectors of them, as rows are whole ones.
// CHECK: disc_rt.device_kernel @tanh threads 256
// CHECK-SAME: disc_plan.library = {a_columns = false, b_columns = true, dtype = 544 : i64, epilogue = @tanh_epilogue, extents = #disc_shape.dims<[1, B * S, 1536, 384, 0, 0, B * S * 1536]>, operands = array<i64: 0, 1, 3>}
// CHECK: disc_rt.device_kernel @tanh_epilogue threads 256
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<B * S + (B * S + 1) floordiv 2>
// Rows with gaps are none of a library's.
// CHECK: disc_rt.device_kernel @gaps threads 256
// CHECK-NOT: disc_plan.library
// CHECK: gpu.module
// CHECK: gpu.func @tanh_epilogue
// CHECK: scf.for
// CHECK: %[[SUM:.*]] = llvm.load %[[AT:.*]] {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: arith.addf %[[SUM]]
// CHECK: math.tanh
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
disc_plan.kernel_func contraction @bias attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 384, 384, 1]>>, #disc_plan.layout<<0>, <[384, 1]>>,
               #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S * 1536, 1536, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 384]>, #disc_shape.dims<[1536, 384]>, #disc_shape.dims<[1536]>],
    schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, tile_depth = 16 : i64,
                thread_rows = 4 : i64, thread_columns = 4 : i64},
    symbols = ["B", "S"]} {
^bb0(%x: tensor<?x?x384xf32>, %w: tensor<1536x384xf32>, %bias: tensor<1536xf32>):
  %zero = arith.constant 0.0 : f32
  %b = disc_shape.dim <B>
  %s = disc_shape.dim <S>
  %e = tensor.empty(%b, %s) : tensor<?x?x1536xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x1536xf32>) -> tensor<?x?x1536xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x?x384xf32>, tensor<1536x384xf32>) outs(%f : tensor<?x?x1536xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x?x1536xf32>
  %y = linalg.generic {indexing_maps = [#id, #n, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%c, %bias : tensor<?x?x1536xf32>, tensor<1536xf32>) outs(%e : tensor<?x?x1536xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %a = arith.addf %l, %r : f32
    linalg.yield %a : f32
  } -> tensor<?x?x1536xf32>
  disc_plan.yield %y : tensor<?x?x1536xf32>
}

disc_plan.kernel_func contraction @tanh attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 384, 384, 1]>>, #disc_plan.layout<<0>, <[384, 1]>>,
               #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S * 1536, 1536, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 384]>, #disc_shape.dims<[1536, 384]>, #disc_shape.dims<[1536]>],
    schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, tile_depth = 16 : i64,
                thread_rows = 4 : i64, thread_columns = 4 : i64},
    symbols = ["B", "S"]} {
^bb0(%x: tensor<?x?x384xf32>, %w: tensor<1536x384xf32>, %bias: tensor<1536xf32>):
  %zero = arith.constant 0.0 : f32
  %b = disc_shape.dim <B>
  %s = disc_shape.dim <S>
  %e = tensor.empty(%b, %s) : tensor<?x?x1536xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x1536xf32>) -> tensor<?x?x1536xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x?x384xf32>, tensor<1536x384xf32>) outs(%f : tensor<?x?x1536xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x?x1536xf32>
  %y = linalg.generic {indexing_maps = [#id, #n, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%c, %bias : tensor<?x?x1536xf32>, tensor<1536xf32>) outs(%e : tensor<?x?x1536xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %a = arith.addf %l, %r : f32
    %t = math.tanh %a : f32
    linalg.yield %t : f32
  } -> tensor<?x?x1536xf32>
  disc_plan.yield %y : tensor<?x?x1536xf32>
}

disc_plan.kernel_func contraction @gaps attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 512, 512, 1]>>, #disc_plan.layout<<0>, <[384, 1]>>,
               #disc_plan.layout<<0>, <[S * 1536, 1536, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 384]>, #disc_shape.dims<[1536, 384]>],
    schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, tile_depth = 16 : i64,
                thread_rows = 4 : i64, thread_columns = 4 : i64},
    symbols = ["B", "S"]} {
^bb0(%x: tensor<?x?x384xf32>, %w: tensor<1536x384xf32>):
  %zero = arith.constant 0.0 : f32
  %b = disc_shape.dim <B>
  %s = disc_shape.dim <S>
  %e = tensor.empty(%b, %s) : tensor<?x?x1536xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x1536xf32>) -> tensor<?x?x1536xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x?x384xf32>, tensor<1536x384xf32>) outs(%f : tensor<?x?x1536xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x?x1536xf32>
  disc_plan.yield %c : tensor<?x?x1536xf32>
}
}
