// A linear layer over packed weights, with its bias: tasks are chunks of rows by panels of columns; tiles of even
// heights; the product in place on x; the epilogue on whole vectors, as 1536 is a multiple of the panel.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s
// The right operand of @batched is not packed yet: each panel goes to scratch first.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s --check-prefix=BATCHED
// Everything lowers.
// RUN: disc-opt %s -disc-cpu-emit-kernels -canonicalize -cse -disc-lower-math -convert-vector-to-llvm -convert-scf-to-cf -convert-arith-to-llvm -convert-index-to-llvm -convert-math-to-llvm -convert-func-to-llvm -convert-cf-to-llvm -reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (n, k)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
#id = affine_map<(b, s, n) -> (b, s, n)>
#n = affine_map<(b, s, n) -> (n)>
#bx = affine_map<(b, m, n, k) -> (b, m, k)>
#bw = affine_map<(b, m, n, k) -> (b, n, k)>
#by = affine_map<(b, m, n, k) -> (b, m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @S min 2 max 512

  // CHECK-LABEL: func.func @linear(
  // CHECK-SAME: %[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %[[SCRATCH:.*]]: !llvm.ptr)
  // CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} iter_args
  // CHECK: scf.for
  // CHECK: llvm.call @disc_product_f32_f32_f32_x32_p_r2to14(
  // CHECK-SAME: %[[SCRATCH]]
  // CHECK: scf.for
  // CHECK: %[[SUM:.*]] = llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
  // CHECK: arith.addf %[[SUM]], %{{.*}} : vector<16xf32>
  // CHECK: llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
  // CHECK-NOT: masked
  // CHECK: return
  disc_plan.kernel_func contraction @linear attributes {
      layouts = [#disc_plan.layout<<0>, <[S * 384, 384, 1]>>, #disc_plan.layout<<0>, <[12288, 32, 1]>>,
                 #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S * 1536, 1536, 1]>>],
      arg_dims = [#disc_shape.dims<[B, S, 384]>, #disc_shape.dims<[48, 384, 32]>, #disc_shape.dims<[1536]>],
      schedule = #disc_plan.product<rows = 14, columns = [32], k_block = 2048, row_tiles = <24>, lhs_scratch = <1792>,
          rhs_scratch = <539392>>,
      symbols = ["B", "S"]} {
  ^bb0(%x: tensor<?x?x384xf32>, %p: tensor<48x384x32xf32>, %bias: tensor<1536xf32>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 32 : tensor<48x384x32xf32> -> tensor<1536x384xf32>
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

  // BATCHED-LABEL: func.func @batched(
  // A panel is packed only when the task before used another one.
  // BATCHED: %[[NEW:.*]] = arith.cmpi ne
  // BATCHED: scf.if %[[NEW]]
  // Keys run along memory: squares are read down and transposed in registers.
  // BATCHED: vector.shuffle
  // BATCHED: llvm.call @disc_product_f32_f32_f32_x32_r2to14
  // The last panel may be cut.
  // BATCHED: masked
  disc_plan.kernel_func contraction @batched attributes {
      layouts = [#disc_plan.layout<<0>, <[S * 40, 40, 1]>>, #disc_plan.layout<<0>, <[S * 40, 40, 1]>>,
                 #disc_plan.layout<<0>, <[S * S, S, 1]>>],
      arg_dims = [#disc_shape.dims<[B, S, 40]>, #disc_shape.dims<[B, S, 40]>],
      schedule = #disc_plan.product<rows = 14, columns = [32], k_block = 2048, row_tiles = <24>, lhs_scratch = <1792>,
          rhs_scratch = <53760>>,
      symbols = ["B", "S"]} {
  ^bb0(%x: tensor<?x?x40xbf16>, %w: tensor<?x?x40xbf16>):
    %zero = arith.constant 0.0 : f32
    %b = disc_shape.dim <B>
    %s = disc_shape.dim <S>
    %e = tensor.empty(%b, %s, %s) : tensor<?x?x?xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %c = linalg.generic {indexing_maps = [#bx, #bw, #by], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x?x40xbf16>, tensor<?x?x40xbf16>) outs(%f : tensor<?x?x?xf32>) {
    ^bb0(%l: bf16, %r: bf16, %o: f32):
      %lx = arith.extf %l : bf16 to f32
      %rx = arith.extf %r : bf16 to f32
      %m = arith.mulf %lx, %rx : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<?x?x?xf32>
    disc_plan.yield %c : tensor<?x?x?xf32>
  }
}
// One function per height, and one that chooses.
// CHECK-DAG: llvm.func internal @disc_product_f32_f32_f32_x32_p_r14(
// CHECK-DAG: llvm.func internal @disc_product_f32_f32_f32_x32_p_r2(
// CHECK-DAG: llvm.func internal @disc_product_f32_f32_f32_x32_p_r2to14(
// LLVM-NOT: unrealized_conversion_cast
// LLVM: llvm.func @linear(
// LLVM-NOT: scf.
