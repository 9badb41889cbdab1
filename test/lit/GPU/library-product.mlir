// What a library may do in a kernel's place, and the kernel of what is left.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (n, k)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
#id = affine_map<(b, s, n) -> (b, s, n)>
#n = affine_map<(b, s, n) -> (n)>
#l2 = affine_map<(s, n, k) -> (s, k)>
#r2 = affine_map<(s, n, k) -> (n, k)>
#o2 = affine_map<(s, n, k) -> (s, n)>
#id2 = affine_map<(s, n) -> (s, n)>
#n2 = affine_map<(s, n) -> (n)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0 max 64
disc_shape.symbol @S min 0 max 512

// The right side lies by columns. A row that is added is the library's as well: nothing is left to do.
// CHECK: disc_rt.device_kernel @bias threads 256
// CHECK-SAME: disc_plan.library = #disc_plan.library_product<operands = [0, 1, 3, 2], extents = <[1, B * S, 1536, 384, 0, 0, B * S * 1536]>, dtype = 544, when = <S - 7>, a_columns = false, b_columns = true>
// CHECK-NOT: @bias_epilogue
// What else follows is a kernel over the sums, which lie where its results go; vectors of them, as rows are whole ones.
// CHECK: disc_rt.device_kernel @tanh threads 256
// CHECK-SAME: disc_plan.library = #disc_plan.library_product<operands = [0, 1, 3], extents = <[1, B * S, 1536, 384, 0, 0, B * S * 1536]>, dtype = 544, when = <S - 7>, a_columns = false, b_columns = true, epilogue = @tanh_epilogue>
// CHECK: disc_rt.device_kernel @tanh_epilogue threads 256
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<B * S + (B * S + 1) floordiv 2>
// Half floats come out of it rounded, after the row; GELU by tanh is the library's too, whose parts may be in any order.
// CHECK: disc_rt.device_kernel @half threads 256
// CHECK-SAME: disc_plan.library = #disc_plan.library_product<operands = [0, 1, 3, 2], extents = <[1, S, 64, 32, 0, 0, S * 64]>, dtype = 1040, when = <S - 7>, a_columns = false, b_columns = true, gelu_tanh = true>
// CHECK-NOT: @half_epilogue
// CHECK: disc_rt.device_kernel @rounded threads 256
// CHECK-SAME: operands = [0, 1, 2], {{.*}}dtype = 528, when = <S - 7>, {{.*}}epilogue = @rounded_epilogue>
// Sums that are not rounded, of operands that are, no library gives.
// CHECK: disc_rt.device_kernel @wide threads 256
// CHECK-NOT: disc_plan.library
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
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4, library = <S - 7>>,
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
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4, library = <S - 7>>,
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

disc_plan.kernel_func contraction @half attributes {
    layouts = [#disc_plan.layout<<0>, <[32, 1]>>, #disc_plan.layout<<0>, <[32, 1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[64, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 32]>, #disc_shape.dims<[64, 32]>, #disc_shape.dims<[64]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4, library = <S - 7>>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x32xbf16>, %w: tensor<64x32xbf16>, %bias: tensor<64xbf16>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x64xf32>
  %h = tensor.empty(%s) : tensor<?x64xbf16>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
  %c = linalg.generic {indexing_maps = [#l2, #r2, #o2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x32xbf16>, tensor<64x32xbf16>) outs(%f : tensor<?x64xf32>) {
  ^bb0(%l: bf16, %r: bf16, %o: f32):
    %lw = arith.extf %l : bf16 to f32
    %rw = arith.extf %r : bf16 to f32
    %m = arith.mulf %lw, %rw : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x64xf32>
  %y = linalg.generic {indexing_maps = [#id2, #n2, #id2], iterator_types = ["parallel", "parallel"]} ins(%c, %bias : tensor<?x64xf32>, tensor<64xbf16>) outs(%h : tensor<?x64xbf16>) {
  ^bb0(%l: f32, %r: bf16, %o: bf16):
    %rw = arith.extf %r : bf16 to f32
    %a = arith.addf %l, %rw : f32
    %n = arith.truncf %a : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<?x64xbf16>
  %cube = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<?x64xbf16>) outs(%h : tensor<?x64xbf16>) {
  ^bb0(%in: bf16, %o: bf16):
    %v = arith.extf %in : bf16 to f32
    %factor = arith.constant 4.471500e-02 : f32
    %p0 = arith.mulf %v, %factor : f32
    %p1 = arith.mulf %v, %v : f32
    %p2 = arith.mulf %p1, %p0 : f32
    %n = arith.truncf %p2 : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<?x64xbf16>
  %g = linalg.generic {indexing_maps = [#id2, #id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%cube, %y : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%h : tensor<?x64xbf16>) {
  ^bb0(%in3: bf16, %in: bf16, %o: bf16):
    %v3 = arith.extf %in3 : bf16 to f32
    %v = arith.extf %in : bf16 to f32
    %half = arith.constant 5.000000e-01 : f32
    %one = arith.constant 1.000000e+00 : f32
    %scale = arith.constant 0.797884583 : f32
    %sum = arith.addf %v3, %v : f32
    %scaled = arith.mulf %scale, %sum : f32
    %t = math.tanh %scaled : f32
    %t1 = arith.addf %one, %t : f32
    %p = arith.mulf %t1, %v : f32
    %q = arith.mulf %p, %half : f32
    %n = arith.truncf %q : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<?x64xbf16>
  disc_plan.yield %g : tensor<?x64xbf16>
}

disc_plan.kernel_func contraction @rounded attributes {
    layouts = [#disc_plan.layout<<0>, <[32, 1]>>, #disc_plan.layout<<0>, <[32, 1]>>, #disc_plan.layout<<0>, <[64, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 32]>, #disc_shape.dims<[64, 32]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4, library = <S - 7>>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x32xf16>, %w: tensor<64x32xf16>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x64xf32>
  %h = tensor.empty(%s) : tensor<?x64xf16>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
  %c = linalg.generic {indexing_maps = [#l2, #r2, #o2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x32xf16>, tensor<64x32xf16>) outs(%f : tensor<?x64xf32>) {
  ^bb0(%l: f16, %r: f16, %o: f32):
    %lw = arith.extf %l : f16 to f32
    %rw = arith.extf %r : f16 to f32
    %m = arith.mulf %lw, %rw : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x64xf32>
  %y = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%c : tensor<?x64xf32>) outs(%h : tensor<?x64xf16>) {
  ^bb0(%l: f32, %o: f16):
    %n = arith.truncf %l : f32 to f16
    linalg.yield %n : f16
  } -> tensor<?x64xf16>
  %z = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<?x64xf16>) outs(%h : tensor<?x64xf16>) {
  ^bb0(%l: f16, %o: f16):
    %n = arith.negf %l : f16
    linalg.yield %n : f16
  } -> tensor<?x64xf16>
  disc_plan.yield %z : tensor<?x64xf16>
}

disc_plan.kernel_func contraction @wide attributes {
    layouts = [#disc_plan.layout<<0>, <[32, 1]>>, #disc_plan.layout<<0>, <[32, 1]>>, #disc_plan.layout<<0>, <[64, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 32]>, #disc_shape.dims<[64, 32]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4, library = <S - 7>>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x32xf16>, %w: tensor<64x32xf16>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x64xf32>
  %h = tensor.empty(%s) : tensor<?x64xf16>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
  %c = linalg.generic {indexing_maps = [#l2, #r2, #o2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x32xf16>, tensor<64x32xf16>) outs(%f : tensor<?x64xf32>) {
  ^bb0(%l: f16, %r: f16, %o: f32):
    %lw = arith.extf %l : f16 to f32
    %rw = arith.extf %r : f16 to f32
    %m = arith.mulf %lw, %rw : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x64xf32>
  disc_plan.yield %c : tensor<?x64xf32>
}

disc_plan.kernel_func contraction @gaps attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 512, 512, 1]>>, #disc_plan.layout<<0>, <[384, 1]>>,
               #disc_plan.layout<<0>, <[S * 1536, 1536, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 384]>, #disc_shape.dims<[1536, 384]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4, library = <S - 7>>,
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
