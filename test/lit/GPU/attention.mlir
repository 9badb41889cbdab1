// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0 max 64
disc_shape.symbol @S min 0 max 512
disc_shape.symbol @P min 0 max 512

// 16 queries and 32 keys at a time: 12 elements a thread of parts of q and k in the block's memory, zeros beyond 40. Scores
// never leave the block; a thread has four queries, and of each two columns of the result.
// CHECK-DAG: llvm.mlir.global internal @masked_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<528 x f32>
// CHECK-DAG: llvm.mlir.global internal @masked_shared1() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<1056 x f32>
// CHECK-DAG: llvm.mlir.global internal @masked_shared2() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<528 x f32>
// CHECK-LABEL: gpu.func @masked(
// CHECK-SAME: known_block_size = array<i32: 128, 1, 1>
// CHECK-DAG: %[[DEPTH:.*]] = arith.constant 40 : index
// CHECK-DAG: %[[LANES:.*]] = arith.constant 32 : index
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-DAG: %[[LOW:.*]] = arith.constant 0xFF800000 : f32
// Four maxima, four sums, eight results.
// CHECK: %[[STATE:.*]]:16 = scf.for %{{.*}} to %[[KEYS:.*]] step %[[LANES]] iter_args(
// CHECK: scf.for %{{.*}} to %[[DEPTH]] step %[[LANES]] iter_args({{.*}}) -> (f32, f32, f32, f32) {
// CHECK: %[[THERE:.*]] = arith.cmpi slt, %{{.*}}, %[[DEPTH]]
// CHECK: %[[Q:.*]] = llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK: arith.select %[[THERE]], %[[Q]], %[[ZERO]]
// CHECK-COUNT-12: llvm.store %{{.*}} : f32, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK-COUNT-4: math.fma
// CHECK: gpu.barrier
// The mask hides a key from all queries; keys that there are not have no weight.
// CHECK: %[[IS_KEY:.*]] = arith.cmpi slt, %{{.*}}, %[[KEYS]]
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> i8
// CHECK: %[[SEEN:.*]] = arith.select %{{.*}}, %{{.*}}, %[[LOW]]
// CHECK: arith.select %[[IS_KEY]], %[[SEEN]], %[[LOW]]
// CHECK-COUNT-5: arith.maximumf
// CHECK: math.exp
// CHECK-COUNT-5: gpu.shuffle{{ *}}xor
// CHECK: math.exp
// CHECK: math.fma
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<3>
// CHECK: gpu.barrier
// Values of the thread's two columns, for all four queries.
// CHECK: scf.for {{.*}} -> (f32, f32, f32, f32, f32, f32, f32, f32) {
// CHECK-COUNT-2: llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK-COUNT-8: math.fma
// CHECK: gpu.barrier
// CHECK: scf.yield
// A query that sees no key gives zeros.
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[STATE]]#4, %[[ZERO]]
// CHECK: %[[INVERSE:.*]] = arith.divf
// CHECK: arith.select %[[NONE]], %[[ZERO]], %[[INVERSE]]
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
// CHECK-COUNT-7: scf.if
// CHECK-NOT: scf.if
disc_plan.kernel_func attention @masked attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 480, 40, 480, 1]>>, #disc_plan.layout<<0>, <[S * 480, 40, 480, 1]>>,
               #disc_plan.layout<<0>, <[S * 480, 40, 480, 1]>>, #disc_plan.layout<<0>, <[S, S, S, 1]>>,
               #disc_plan.layout<<0>, <[S * 480, 480, 40, 1]>>],
    arg_dims = [#disc_shape.dims<[B, 12, S, 40]>, #disc_shape.dims<[B, 12, S, 40]>, #disc_shape.dims<[B, 12, S, 40]>,
                #disc_shape.dims<[B, 1, 1, S]>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>,
    symbols = ["B", "S"]} {
^bb0(%q: tensor<?x12x?x40xf32>, %k: tensor<?x12x?x40xf32>, %v: tensor<?x12x?x40xf32>, %m: tensor<?x1x1x?xi1>):
  %r = disc_tensor.attention %q, %k, %v mask %m : tensor<?x1x1x?xi1> scale 0.25 causal false : tensor<?x12x?x40xf32>, tensor<?x12x?x40xf32>, tensor<?x12x?x40xf32> -> tensor<?x12x?x40xf32>
  %p = disc_tensor.permute %r [0, 2, 1, 3] : tensor<?x12x?x40xf32> -> tensor<?x?x12x40xf32>
  disc_plan.yield %p : tensor<?x?x12x40xf32>
}

// Keys behind the block's last query are not visited, and each query is compared with its keys. Halves are widened.
// CHECK-LABEL: gpu.func @causal(
// CHECK-DAG: %[[QUERIES:.*]] = arith.constant 16 : index
// CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %[[QUERIES]]
// CHECK: %[[BEHIND:.*]] = arith.addi %[[FIRST]], %[[QUERIES]]
// CHECK: %[[END:.*]] = arith.minsi %{{.*}}, %[[BEHIND]]
// CHECK: scf.for %{{.*}} to %[[END]] step
// CHECK: llvm.load {{.*}} -> i16
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: gpu.barrier
// CHECK: gpu.barrier
// CHECK: %[[IS_KEY:.*]] = arith.cmpi slt
// CHECK: %[[SEES:.*]] = arith.cmpi slt
// CHECK: arith.andi %[[IS_KEY]], %[[SEES]]
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: llvm.store {{.*}} : i16, !llvm.ptr<1>
disc_plan.kernel_func attention @causal attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[S * 32, 32, 1]>>,
               #disc_plan.layout<<0>, <[S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[S * 32, 32, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 32]>, #disc_shape.dims<[B, S, 32]>, #disc_shape.dims<[B, S, 32]>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>,
    symbols = ["B", "S"]} {
^bb0(%q: tensor<?x?x32xf16>, %k: tensor<?x?x32xf16>, %v: tensor<?x?x32xf16>):
  %r = disc_tensor.attention %q, %k, %v scale 0.25 causal true : tensor<?x?x32xf16>, tensor<?x?x32xf16>, tensor<?x?x32xf16> -> tensor<?x?x32xf16>
  disc_plan.yield %r : tensor<?x?x32xf16>
}

// A past and a new key, joined: all blocks write the longer tensor together. What it is read from are the parts.
// CHECK-LABEL: gpu.func @step(
// CHECK-SAME: %[[PAST:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[NEW:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[Q:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[JOINED:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[R:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %{{[a-z0-9]+}}: i64, %{{[a-z0-9]+}}: i64)
// CHECK: scf.for
// CHECK: %[[FROM_PAST:.*]] = llvm.getelementptr %[[PAST]]
// CHECK: llvm.load %[[FROM_PAST]]
// CHECK: %[[FROM_NEW:.*]] = llvm.getelementptr %[[NEW]]
// CHECK: llvm.load %[[FROM_NEW]]
// CHECK: gpu.barrier
// CHECK: %[[GRID:.*]] = gpu.grid_dim
// CHECK: scf.for
// CHECK: %[[TO:.*]] = llvm.getelementptr %[[JOINED]]
// CHECK: llvm.store %{{.*}}, %[[TO]]
// CHECK: llvm.getelementptr %[[R]]
disc_plan.kernel_func attention @step attributes {
    layouts = [#disc_plan.layout<<0>, <[P * 128, P * 64, 64, 1]>>, #disc_plan.layout<<0>, <[128, 64, 64, 1]>>,
               #disc_plan.layout<<0>, <[128, 64, 64, 1]>>,
               #disc_plan.layout<<0>, <[P * 128 + 128, P * 64 + 64, 64, 1]>>, #disc_plan.layout<<0>, <[128, 64, 64, 1]>>],
    arg_dims = [#disc_shape.dims<[B, 2, P, 64]>, #disc_shape.dims<[B, 2, 1, 64]>, #disc_shape.dims<[B, 2, 1, 64]>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>,
    symbols = ["B", "P"]} {
^bb0(%pk: tensor<?x2x?x64xf32>, %k: tensor<?x2x1x64xf32>, %q: tensor<?x2x1x64xf32>):
  %c = disc_tensor.concat %pk, %k dim 2 : tensor<?x2x?x64xf32>, tensor<?x2x1x64xf32> -> tensor<?x2x?x64xf32>
  %r = disc_tensor.attention %q, %c, %c scale 0.25 causal false : tensor<?x2x1x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32> -> tensor<?x2x1x64xf32>
  disc_plan.yield %c, %r : tensor<?x2x?x64xf32>, tensor<?x2x1x64xf32>
}
}
