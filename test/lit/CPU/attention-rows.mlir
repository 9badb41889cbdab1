// Few queries: dot products with lanes along the head's size, for 4, 2 or 1 rows at a time; exponentials along keys;
// values read once for all rows. Queries of heads that share keys are rows of one task.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s
// RUN: disc-opt %s -disc-cpu-emit-kernels -canonicalize -cse -disc-lower-math -convert-vector-to-llvm -convert-scf-to-cf -convert-arith-to-llvm -convert-index-to-llvm -convert-math-to-llvm -convert-func-to-llvm -convert-cf-to-llvm -reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @L min 1 max 512
  disc_shape.symbol @S min 1 max 512

  // One query of each of 4 heads that share 2 heads of keys: 4 keys by 4 rows at a time, never fewer rows.
  // CHECK-LABEL: func.func @grouped(
  // Sixteen sums over the depth, added up by shuffles, then cut in rows.
  // CHECK-COUNT-16: math.fma
  // CHECK: vector.shuffle
  // CHECK-COUNT-4: vector.extract_strided_slice {{.*}} sizes = [4]
  // A tail of keys is hidden.
  // CHECK: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
  // CHECK: vector.reduction <maxnumf>
  // CHECK: vector.reduction <add>
  // Four rows by four vectors of values.
  // CHECK-COUNT-16: math.fma
  // CHECK: scf.yield {{.*}} : vector<16xf32>
  // CHECK-NOT: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
  // CHECK: arith.divf
  // CHECK-LABEL: func.func @either(
  disc_plan.kernel_func attention @grouped attributes {
      layouts = [#disc_plan.layout<<0>, <[512, 256, 64, 64, 1]>>, #disc_plan.layout<<0>, <[S * 128, S * 64, 0, 64, 1]>>,
                 #disc_plan.layout<<0>, <[S * 128, S * 64, 0, 64, 1]>>, #disc_plan.layout<<0>, <[512, 256, 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[B, 2, 4, 1, 64]>, #disc_shape.dims<[B, 2, 4, S, 64]>,
                  #disc_shape.dims<[B, 2, 4, S, 64]>],
      schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <8192>,
          out_scratch = <40960>, few = <queries = 8, shared_dims = [2], keys = 64, large = 262144, query_scratch = <0>, score_scratch = <1024>, result_scratch = <2048>, stat_scratch = <3072>>>,
      symbols = ["B", "S"]} {
  ^bb0(%q: tensor<?x2x4x1x64xf32>, %k: tensor<?x2x4x?x64xf32>, %v: tensor<?x2x4x?x64xf32>):
    %r = disc_tensor.attention %q, %k, %v scale 0.25 causal false : tensor<?x2x4x1x64xf32>, tensor<?x2x4x?x64xf32>, tensor<?x2x4x?x64xf32> -> tensor<?x2x4x1x64xf32>
    disc_plan.yield %r : tensor<?x2x4x1x64xf32>
  }

  // The number of queries decides at run time.
  // CHECK: scf.if
  // CHECK: llvm.call @disc_product_f16_f32_f32_x32
  // CHECK: } else {
  // CHECK: vector.reduction <maxnumf>
  disc_plan.kernel_func attention @either attributes {
      layouts = [#disc_plan.layout<<0>, <[L * 40, 40, 1]>>, #disc_plan.layout<<0>, <[S * 40, 40, 1]>>,
                 #disc_plan.layout<<0>, <[S * 40, 40, 1]>>, #disc_plan.layout<<0>, <[L * 40, 40, 1]>>],
      arg_dims = [#disc_shape.dims<[B, L, 40]>, #disc_shape.dims<[B, S, 40]>, #disc_shape.dims<[B, S, 40]>],
      schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <8192>,
          out_scratch = <40960>, few = <queries = 8, shared_dims = [], keys = 64, large = 262144, query_scratch = <0>, score_scratch = <2048>, result_scratch = <4096>, stat_scratch = <6144>>>,
      symbols = ["B", "L", "S"]} {
  ^bb0(%q: tensor<?x?x40xf16>, %k: tensor<?x?x40xf16>, %v: tensor<?x?x40xf16>):
    %r = disc_tensor.attention %q, %k, %v scale 0.25 causal true : tensor<?x?x40xf16>, tensor<?x?x40xf16>, tensor<?x?x40xf16> -> tensor<?x?x40xf16>
    disc_plan.yield %r : tensor<?x?x40xf16>
  }
}
// LLVM-NOT: unrealized_conversion_cast
// LLVM: llvm.func @grouped(
// LLVM-NOT: scf.
