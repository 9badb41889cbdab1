// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s
// Warps of 64.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-describe-device{device=rocm warp=64},disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s --check-prefix=WARP64

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0
disc_shape.symbol @S min 0

// A warp per row: each thread has every 32nd element, eight of them at a time; what they have is combined by five shuffles,
// and all of them have it then. The exponentials are computed again instead of being kept. Threads beyond the last row have no elements of it.
// CHECK-DAG: llvm.mlir.global internal @long_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<8 x bf16>
// CHECK-DAG: llvm.mlir.global internal @columns_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<256 x i8>
// CHECK-LABEL: gpu.func @softmax
// CHECK-SAME: (%[[X:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[R:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[B:[a-z0-9]+]]: i64, %[[S:[a-z0-9]+]]: i64)
// CHECK-DAG: %[[GROUP:.*]] = arith.constant 32 : index
// CHECK-DAG: %[[EIGHT:.*]] = arith.constant 256 : index
// CHECK-DAG: %[[NONE:.*]] = arith.constant 0 : index
// CHECK: %[[ROWS:.*]] = arith.index_cast %[[B]]
// CHECK: %[[LENGTH:.*]] = arith.index_cast %[[S]]
// CHECK: %[[LANE:.*]] = arith.remui %{{.*}}, %[[GROUP]]
// CHECK: %[[ACTIVE:.*]] = arith.cmpi slt, %{{.*}}, %[[ROWS]]
// CHECK: arith.minsi
// CHECK: %[[COUNT:.*]] = arith.select %[[ACTIVE]], %[[LENGTH]], %[[NONE]]
// CHECK: %[[MOST:.*]]:2 = scf.for %{{.*}} = %[[LANE]] to %{{.*}} step %[[EIGHT]] iter_args({{.*}}) -> (f32, index) {
// CHECK-COUNT-8: arith.maximumf
// CHECK: scf.for %{{.*}} = %[[MOST]]#1 to %[[COUNT]] step %[[GROUP]] iter_args(%{{.*}} = %[[MOST]]#0) -> (f32) {
// CHECK: arith.maximumf
// CHECK-COUNT-5: gpu.shuffle{{ *}}xor %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK-NOT: gpu.shuffle
// CHECK: scf.for {{.*}} -> (f32, index) {
// CHECK: math.exp
// CHECK: arith.addf
// CHECK-COUNT-5: gpu.shuffle{{ *}}xor
// CHECK-NOT: gpu.shuffle
// CHECK: scf.for
// CHECK: math.exp
// CHECK: arith.divf
// CHECK: llvm.store
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
// WARP64-LABEL: gpu.func @softmax
// A group is half a warp here: its shuffles stay within it.
// WARP64-DAG: %[[WARP:.*]] = arith.constant 64 : i32
// WARP64-DAG: %[[HALF:.*]] = arith.constant 16 : i32
// WARP64: gpu.shuffle{{ *}}xor %{{.*}}, %[[HALF]], %[[WARP]] : f32
// WARP64-COUNT-4: gpu.shuffle
// WARP64: scf.for
disc_plan.kernel_func row @softmax attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 1>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Eight threads per row, vectors of four, three shuffles. There are rows for all groups: nothing is asked.
// CHECK-LABEL: gpu.func @short
// CHECK-NOT: arith.cmpi slt
// CHECK: scf.for {{.*}} -> (vector<4xf32>, index) {
// CHECK: scf.for {{.*}} -> (vector<4xf32>) {
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK-COUNT-4: vector.extract
// CHECK-COUNT-3: gpu.shuffle{{ *}}xor
// CHECK-NOT: gpu.shuffle
// The first thread of the group stores.
// CHECK: %[[FIRST:.*]] = arith.cmpi eq
// CHECK: scf.if %[[FIRST]] {
// CHECK: llvm.store {{.*}} : f32
disc_plan.kernel_func row @short attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[32 * B, 24]>],
    layouts = [#disc_plan.layout<<0>, <[24, 1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 8, vector = 4>} {
^bb0(%x: tensor<?x24xf32>):
  %B = disc_shape.dim <32 * B>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%B) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x24xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  disc_plan.yield %t : tensor<?xf32>
}

// The block's eight warps combine what they have through its memory, in the order of their numbers. Halves travel as
// integers of 32 bits.
// CHECK-LABEL: gpu.func @long
// CHECK: %[[MEMORY:.*]] = llvm.mlir.addressof @long_shared0 : !llvm.ptr<3>
// CHECK: scf.for {{.*}} -> (vector<4xbf16>, index) {
// CHECK: scf.for {{.*}} -> (vector<4xbf16>) {
// CHECK: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> vector<4xi16>
// CHECK-COUNT-5: gpu.shuffle{{ *}}xor %{{.*}}, %{{.*}}, %{{.*}} : i32
// CHECK-NOT: gpu.shuffle
// CHECK: scf.if
// CHECK: llvm.store %{{.*}} : bf16, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK-COUNT-8: llvm.load %{{.*}} : !llvm.ptr<3> -> bf16
// CHECK-NOT: llvm.load
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : i16, !llvm.ptr<1>
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
// WARP64-LABEL: gpu.func @long
// Four warps of 64.
// WARP64-COUNT-6: gpu.shuffle
// WARP64-NOT: gpu.shuffle
// WARP64: gpu.barrier
// WARP64-COUNT-4: llvm.load %{{.*}} : !llvm.ptr<3> -> bf16
// WARP64-NOT: llvm.load
// WARP64: gpu.return
disc_plan.kernel_func row @long attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, 4 * S]>],
    layouts = [#disc_plan.layout<<0>, <[S * 4, 1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 4>} {
^bb0(%x: tensor<?x?xbf16>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0.0 : bf16
  %e = tensor.empty(%B) : tensor<?xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%e : tensor<?xbf16>) -> tensor<?xbf16>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xbf16>) outs(%zeros : tensor<?xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %s = arith.maximumf %a, %o : bf16
    linalg.yield %s : bf16
  } -> tensor<?xbf16>
  disc_plan.yield %t : tensor<?xbf16>
}

// Two results that depend on each other have no combiner: each thread does the whole row, in order.
// CHECK-LABEL: gpu.func @argmax
// CHECK: scf.for {{.*}} -> (f32, i64)
// CHECK-NOT: gpu.shuffle
// CHECK-NOT: gpu.barrier
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : f32
// CHECK: llvm.store {{.*}} : i64
disc_plan.kernel_func row @argmax attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 1>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0 : i64
  %low = arith.constant 0xFF800000 : f32
  %ei = tensor.empty(%B) : tensor<?xi64>
  %ev = tensor.empty(%B) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : i64) outs(%ei : tensor<?xi64>) -> tensor<?xi64>
  %lows = linalg.fill ins(%low : f32) outs(%ev : tensor<?xf32>) -> tensor<?xf32>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                          affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows, %zeros : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%a: f32, %v: f32, %i: i64):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i64
    %more = arith.cmpf ogt, %a, %v : f32
    %nv = arith.select %more, %a, %v : f32
    %ni = arith.select %more, %k, %i : i64
    linalg.yield %nv, %ni : f32, i64
  } -> (tensor<?xf32>, tensor<?xi64>)
  disc_plan.yield %r#0, %r#1 : tensor<?xf32>, tensor<?xi64>
}

// Neighbouring threads have neighbouring columns, eight threads a column; booleans take a byte of the block's memory each.
// 48 columns are a block of 32 and half of one.
// CHECK-LABEL: gpu.func @columns
// CHECK-SAME: (%{{[a-z0-9]+}}: !llvm.ptr<1>{{.*}}, %{{[a-z0-9]+}}: !llvm.ptr<1>{{.*}}, %{{[a-z0-9]+}}: i64, %[[S:[a-z0-9]+]]: i64)
// CHECK-DAG: %[[WIDTH:.*]] = arith.constant 48 : index
// CHECK-DAG: %[[EIGHT:.*]] = arith.constant 8 : index
// CHECK: %[[ROW:.*]] = arith.divui
// CHECK: %[[ACTIVE:.*]] = arith.cmpi slt, %{{.*}}, %[[WIDTH]]
// CHECK: scf.for %{{.*}} = %[[ROW]] to %{{.*}} iter_args({{.*}}) -> (i1, index) {
// CHECK-COUNT-8: llvm.load {{.*}} -> i8
// CHECK: scf.for %{{.*}} to %{{.*}} step %[[EIGHT]] iter_args({{.*}}) -> (i1) {
// CHECK: llvm.load {{.*}} -> i8
// CHECK: arith.ori
// CHECK-NOT: gpu.shuffle
// CHECK: llvm.store {{.*}} : i8, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK-COUNT-8: llvm.load {{.*}} : !llvm.ptr<3> -> i8
// CHECK: arith.andi %{{.*}}, %[[ACTIVE]]
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : i8, !llvm.ptr<1>
disc_plan.kernel_func column @columns attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S, 48]>],
    layouts = [#disc_plan.layout<<0>, <[S * 48, 48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>],
    schedule = #disc_plan.device_column<threads = 256, columns = 32>} {
^bb0(%x: tensor<?x?x48xi1>):
  %B = disc_shape.dim <B>
  %false = arith.constant false
  %e = tensor.empty(%B) : tensor<?x48xi1>
  %none = linalg.fill ins(%false : i1) outs(%e : tensor<?x48xi1>) -> tensor<?x48xi1>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, k)>],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<?x?x48xi1>) outs(%none : tensor<?x48xi1>) {
  ^bb0(%a: i1, %o: i1):
    %s = arith.ori %a, %o : i1
    linalg.yield %s : i1
  } -> tensor<?x48xi1>
  disc_plan.yield %r : tensor<?x48xi1>
}

// Vectors of neighbouring columns: eight rows of four columns are on their way, and what threads have for one lane is side
// by side in the block's memory.
// CHECK-LABEL: gpu.func @column_vectors
// CHECK: scf.for {{.*}} -> (vector<4xf32>, index) {
// CHECK-COUNT-8: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: arith.addf %{{.*}} : vector<4xf32>
// CHECK: scf.for {{.*}} -> (vector<4xf32>) {
// CHECK-NOT: gpu.shuffle
// CHECK-COUNT-4: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK-COUNT-32: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// CHECK: vector.from_elements
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : vector<4xf32>, !llvm.ptr<1>
disc_plan.kernel_func column @column_vectors attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S, 48]>],
    layouts = [#disc_plan.layout<<0>, <[S * 48, 48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>],
    schedule = #disc_plan.device_column<threads = 64, columns = 32, vector = 4>} {
^bb0(%x: tensor<?x?x48xf32>):
  %B = disc_shape.dim <B>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%B) : tensor<?x48xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?x48xf32>) -> tensor<?x48xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, k)>],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<?x?x48xf32>) outs(%zeros : tensor<?x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?x48xf32>
  disc_plan.yield %r : tensor<?x48xf32>
}

// All threads read the whole row before any of them writes where it may lie.
// CHECK-LABEL: gpu.func @after_argmax
// CHECK: scf.for {{.*}} -> (f32, i64)
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: llvm.store {{.*}} : i64, !llvm.ptr<1>
disc_plan.kernel_func row @after_argmax attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 1>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0 : i64
  %low = arith.constant 0xFF800000 : f32
  %ei = tensor.empty(%B) : tensor<?xi64>
  %ev = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B, %S) : tensor<?x?xi64>
  %zeros = linalg.fill ins(%zero : i64) outs(%ei : tensor<?xi64>) -> tensor<?xi64>
  %lows = linalg.fill ins(%low : f32) outs(%ev : tensor<?xf32>) -> tensor<?xf32>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                          affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows, %zeros : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%a: f32, %v: f32, %i: i64):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i64
    %more = arith.cmpf ogt, %a, %v : f32
    %nv = arith.select %more, %a, %v : f32
    %ni = arith.select %more, %k, %i : i64
    linalg.yield %nv, %ni : f32, i64
  } -> (tensor<?xf32>, tensor<?xi64>)
  %d = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%r#1 : tensor<?xi64>) outs(%e : tensor<?x?xi64>) {
  ^bb0(%i: i64, %o: i64):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i64
    %s = arith.subi %k, %i : i64
    linalg.yield %s : i64
  } -> tensor<?x?xi64>
  disc_plan.yield %d : tensor<?x?xi64>
}
}
