// Queries run along the lanes: scale and transpose them; for each run of keys multiply them in place, rescale what is
// there if a maximum has grown, take exponentials, multiply values in place; transpose back. A block of at most one
// vector of queries has code of its own.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s
// RUN: disc-opt %s -disc-cpu-emit-kernels -canonicalize -cse -disc-lower-math -convert-vector-to-llvm -convert-scf-to-cf -convert-arith-to-llvm -convert-index-to-llvm -convert-math-to-llvm -convert-func-to-llvm -convert-cf-to-llvm -reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @S min 2 max 512

  // CHECK-LABEL: func.func @masked(
  // CHECK: scf.for
  // Some of the next head's keys and values.
  // CHECK-COUNT-2: llvm.intr.prefetch
  // CHECK: scf.if
  // One vector of queries, times scale and log2(e).
  // CHECK: %[[SCALE:.*]] = arith.constant dense<0.360673755> : vector<16xf32>
  // CHECK: arith.mulf %{{.*}}, %[[SCALE]]
  // CHECK: vector.shuffle
  // Runs of keys, with the maxima and the sums. The mask of keys is looked at; it is where the scores start from.
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, i1)
  // CHECK: %[[ADD:.*]] = vector.reduction <or>
  // CHECK: %[[SEEN:.*]] = vector.reduction <or>
  // CHECK: scf.if %[[SEEN]] -> (vector<16xf32>, vector<16xf32>, i1)
  // CHECK: scf.if %[[ADD]] {
  // CHECK: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
  // CHECK: llvm.call @disc_product_f32_f32_f32_x16_r2to14({{.*}}, %[[ADD]], %{{.*}})
  // CHECK: arith.cmpf ogt
  // CHECK: vector.reduction <or>
  // CHECK: scf.if {{.*}} -> (vector<16xf32>)
  // CHECK: arith.mulf
  // CHECK: math.fma %{{.*}} : vector<16xf32>
  // CHECK: arith.shli %{{.*}} : vector<16xi32>
  // CHECK: arith.cmpf uge
  // Values of a static size of 32 split in tiles of 11, 11 and 10.
  // CHECK: llvm.call @disc_product_f32_f32_f32_x16_r10to11(
  // CHECK: arith.divf
  // Two vectors of queries.
  // CHECK: else
  // CHECK: llvm.call @disc_product_f32_f32_f32_x32_r2to14(
  // CHECK: llvm.call @disc_product_f32_f32_f32_x32_r10to11(
  disc_plan.kernel_func attention @masked attributes {
      layouts = [#disc_plan.layout<<0>, <[S * 384, 32, 384, 1]>>, #disc_plan.layout<<0>, <[S * 384, 32, 384, 1]>>,
                 #disc_plan.layout<<0>, <[S * 384, 32, 384, 1]>>, #disc_plan.layout<<0>, <[S, S, S, 1]>>,
                 #disc_plan.layout<<0>, <[S * 384, 384, 32, 1]>>],
      arg_dims = [#disc_shape.dims<[B, 12, S, 32]>, #disc_shape.dims<[B, 12, S, 32]>, #disc_shape.dims<[B, 12, S, 32]>,
                  #disc_shape.dims<[B, 1, 1, S]>],
      schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <4096>,
          out_scratch = <S * 128 + 4096>>,
      symbols = ["B", "S"]} {
  ^bb0(%q: tensor<?x12x?x32xf32>, %k: tensor<?x12x?x32xf32>, %v: tensor<?x12x?x32xf32>, %m: tensor<?x1x1x?xi1>):
    %r = disc_tensor.attention %q, %k, %v mask %m : tensor<?x1x1x?xi1> scale 0.25 causal false : tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32> -> tensor<?x12x?x32xf32>
    %p = disc_tensor.permute %r [0, 2, 1, 3] : tensor<?x12x?x32xf32> -> tensor<?x?x12x32xf32>
    disc_plan.yield %p : tensor<?x?x12x32xf32>
  }

  // Keys past the last query of the block are not even multiplied; the others are compared with each query.
  // CHECK-LABEL: func.func @causal(
  // CHECK: arith.minsi
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, i1)
  // CHECK: %[[ADD:.*]] = arith.constant false
  // CHECK: llvm.call @disc_product_f16_f32_f32_x16_r1to14({{.*}}, %[[ADD]], %{{.*}})
  // Only runs that reach past the first query compare.
  // CHECK: scf.if
  // CHECK: arith.cmpi sge, %{{.*}} : vector<16xi32>
  // CHECK: arith.truncf %{{.*}} : vector<16xf32> to vector<16xf16>
  disc_plan.kernel_func attention @causal attributes {
      layouts = [#disc_plan.layout<<0>, <[S * 40, 40, 1]>>, #disc_plan.layout<<0>, <[S * 40, 40, 1]>>,
                 #disc_plan.layout<<0>, <[S * 40, 40, 1]>>, #disc_plan.layout<<0>, <[S * 40, 40, 1]>>],
      arg_dims = [#disc_shape.dims<[B, S, 40]>, #disc_shape.dims<[B, S, 40]>, #disc_shape.dims<[B, S, 40]>],
      schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <5120>,
          out_scratch = <S * 128 + 5120>>,
      symbols = ["B", "S"]} {
  ^bb0(%q: tensor<?x?x40xf16>, %k: tensor<?x?x40xf16>, %v: tensor<?x?x40xf16>):
    %r = disc_tensor.attention %q, %k, %v scale 0.25 causal true : tensor<?x?x40xf16>, tensor<?x?x40xf16>, tensor<?x?x40xf16> -> tensor<?x?x40xf16>
    disc_plan.yield %r : tensor<?x?x40xf16>
  }
}
// LLVM-NOT: unrealized_conversion_cast
// LLVM: llvm.func @masked(
// LLVM-NOT: scf.
