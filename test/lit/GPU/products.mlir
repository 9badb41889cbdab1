// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (n, k)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
#id = affine_map<(b, s, n) -> (b, s, n)>
#n = affine_map<(b, s, n) -> (n)>
#bx = affine_map<(b, m, n, k) -> (b, m, k)>
#bw = affine_map<(b, m, n, k) -> (b, n, k)>
#by = affine_map<(b, m, n, k) -> (b, m, n)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0 max 64
disc_shape.symbol @S min 0 max 512

// A tile of 64 x 64 results in steps of 16 along the sum; 16 sums a thread. Rows and columns beyond the last are the last
// again, steps beyond the end are zeros. The epilogue is computed at the thread's points, those that there are.
// CHECK-DAG: #[[UNROLL:.*]] = #llvm.loop_unroll<disable = true>
// CHECK-DAG: #[[$ROLLED:.*]] = #llvm.loop_annotation<unroll = #[[UNROLL]]>
// CHECK-DAG: llvm.mlir.global internal @linear_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<1040 x f32>
// CHECK-DAG: llvm.mlir.global internal @linear_shared1() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<1040 x f32>
// CHECK-LABEL: gpu.func @linear(
// CHECK-SAME: %[[X:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[W:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[BIAS:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[Y:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[B:[a-z0-9]+]]: i64, %[[S:[a-z0-9]+]]: i64)
// CHECK-DAG: %[[LAST:.*]] = arith.constant 383 : index
// CHECK-DAG: %[[DEPTH:.*]] = arith.constant 384 : index
// CHECK-DAG: %[[STEP:.*]] = arith.constant 16 : index
// CHECK-DAG: %[[N:.*]] = arith.constant 1536 : index
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[ROWS:.*]] = arith.muli
// CHECK: %[[SUMS:.*]]:16 = scf.for %[[START:.*]] = %{{.*}} to %[[DEPTH]] step %[[STEP]] iter_args(
// CHECK: %[[K:.*]] = arith.addi %[[START]]
// CHECK: arith.minsi
// CHECK: arith.minsi %[[K]], %[[LAST]]
// CHECK: %[[V:.*]] = llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[K]], %[[DEPTH]]
// CHECK: arith.select %[[INSIDE]], %[[V]], %[[ZERO]]
// Four elements of each operand a thread.
// CHECK-COUNT-8: llvm.store %{{.*}} : f32, !llvm.ptr<3>
// CHECK-NOT: llvm.store
// CHECK: gpu.barrier
// CHECK: scf.for {{.*}} to %[[STEP]]
// CHECK-COUNT-8: llvm.load %{{.*}} : !llvm.ptr<3> -> f32
// CHECK-COUNT-16: math.fma
// CHECK-NOT: math.fma
// The next step's elements go where all have read these.
// CHECK: gpu.barrier
// CHECK: scf.yield
// Few steps would be unrolled, and all their loads be in registers at once.
// CHECK-NEXT: {loop_annotation = #[[$ROLLED]]}
// CHECK: %[[IN_ROWS:.*]] = arith.cmpi slt, %{{.*}}, %[[ROWS]]
// CHECK: %[[IN_COLUMNS:.*]] = arith.cmpi slt, %{{.*}}, %[[N]]
// CHECK: %[[IN:.*]] = arith.andi %[[IN_ROWS]], %[[IN_COLUMNS]]
// CHECK: scf.if %[[IN]] {
// CHECK: %[[TERM:.*]] = llvm.load
// CHECK: arith.addf %[[SUMS]]#0, %[[TERM]]
// CHECK: math.tanh
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
// CHECK-COUNT-15: scf.if
// CHECK-NOT: scf.if
disc_plan.kernel_func contraction @linear attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 384, 384, 1]>>, #disc_plan.layout<<0>, <[384, 1]>>,
               #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S * 1536, 1536, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 384]>, #disc_shape.dims<[1536, 384]>, #disc_shape.dims<[1536]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4>,
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

// One row a thread. Halves are widened as they are read. 384 elements of the left operand are one for each of 256 threads, and
// one more for half of them. The right operand's neighbouring elements are columns: so are those of neighbouring threads.
// CHECK-LABEL: gpu.func @batched(
// CHECK-DAG: %[[WIDTH:.*]] = arith.constant 64 : index
// CHECK-DAG: %[[COUNT:.*]] = arith.constant 384 : index
// CHECK-DAG: %[[STEP:.*]] = arith.constant 24 : index
// CHECK: %[[THREAD:.*]] = gpu.thread_id
// CHECK: scf.for {{.*}} step %[[STEP]] iter_args({{.*}}) -> (f32, f32, f32, f32) {
// CHECK: llvm.load {{.*}} -> i16
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %{{.*}}, %[[COUNT]]
// CHECK: scf.if %[[SOME]] {
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: }
// CHECK: %[[COLUMN:.*]] = arith.remui %[[THREAD]], %[[WIDTH]]
// CHECK: gpu.barrier
// CHECK-COUNT-4: math.fma
// CHECK-NOT: math.fma
// CHECK: gpu.barrier
disc_plan.kernel_func contraction @batched attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 40, 40, 1]>>, #disc_plan.layout<<0>, <[S * 40, 1, S]>>,
               #disc_plan.layout<<0>, <[S * S, S, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, 40]>, #disc_shape.dims<[B, S, 40]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 16, tile_columns = 64, tile_depth = 24,
        thread_rows = 1, thread_columns = 4>,
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

// int8 is summed in int32.
// CHECK-LABEL: gpu.func @integers(
// CHECK: llvm.load {{.*}} -> i8
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK-COUNT-4: arith.muli %{{.*}} : i32
// CHECK-NOT: math.fma
// CHECK: llvm.store {{.*}} : i32, !llvm.ptr<1>
disc_plan.kernel_func contraction @integers attributes {
    layouts = [#disc_plan.layout<<0>, <[0, S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[0, 8, 1]>>],
    arg_dims = [#disc_shape.dims<[1, 8, S]>, #disc_shape.dims<[8, S]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 16, tile_columns = 64, tile_depth = 16,
        thread_rows = 1, thread_columns = 4>,
    symbols = ["S"]} {
^bb0(%x: tensor<1x8x?xi8>, %w: tensor<8x?xi8>):
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<1x8x8xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<1x8x8xi32>) -> tensor<1x8x8xi32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<1x8x?xi8>, tensor<8x?xi8>) outs(%f : tensor<1x8x8xi32>) {
  ^bb0(%l: i8, %r: i8, %o: i32):
    %lx = arith.extsi %l : i8 to i32
    %rx = arith.extsi %r : i8 to i32
    %m = arith.muli %lx, %rx : i32
    %a = arith.addi %o, %m : i32
    linalg.yield %a : i32
  } -> tensor<1x8x8xi32>
  disc_plan.yield %c : tensor<1x8x8xi32>
}

// The left operand is read where the taps are, inside the image alone: an image without pixels is not read at all.
// CHECK-LABEL: gpu.func @padded(
// CHECK-DAG: %[[DEPTH:.*]] = arith.constant 144 : index
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: scf.for %{{.*}} to %[[DEPTH]] step
// CHECK: %[[INSIDE:.*]] = scf.if %{{.*}} -> (f32) {
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK: } else {
// CHECK: scf.yield %[[ZERO]]
// CHECK: arith.select %{{.*}}, %[[INSIDE]], %[[ZERO]]
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK-COUNT-16: math.fma
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
disc_plan.kernel_func convolution @padded attributes {
    layouts = [#disc_plan.layout<<0>, <[S * S * 32, S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[11520, 144, 48, 16, 1]>>,
               #disc_plan.layout<<0>, <[S * S * 160, S * 160, 160, 1]>>],
    arg_dims = [#disc_shape.dims<[B, S, S, 32]>, #disc_shape.dims<[2, 80, 3, 3, 16]>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16,
        thread_rows = 4, thread_columns = 4>,
    symbols = ["B", "S"]} {
^bb0(%x: tensor<?x?x?x32xf32>, %w: tensor<2x80x3x3x16xf32>):
  %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, S, S, 160]>]} : tensor<?x?x?x32xf32>, tensor<2x80x3x3x16xf32> -> tensor<?x?x?x160xf32>
  disc_plan.yield %y : tensor<?x?x?x160xf32>
}
}
