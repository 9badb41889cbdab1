// A kind of kernel that is not in this tree (test/kind) goes through all stages. What it does not take is as ever.
// RUN: disc-opt-twice %s -disc-fusion-form-kernels -disc-schedule-kernels | FileCheck %s
// RUN: disc-opt-twice %s -disc-fusion-form-kernels -disc-schedule-kernels -disc-memory-outline-kernels | FileCheck %s --check-prefix=OUTLINED
// RUN: disc-opt-twice %s -disc-fusion-form-kernels -disc-schedule-kernels -disc-memory-outline-kernels -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-cpu-emit-kernels | FileCheck %s --check-prefix=CODE
// RUN: disc-opt-twice %s -disc-fusion-form-kernels | not disc-opt 2>&1 | FileCheck %s --check-prefix=UNKNOWN

disc_shape.symbol @B min 1 max 64

// CHECK-LABEL: func.func @main
// CHECK: %[[T:.*]] = disc_plan.kernel twice ins(%arg0 : tensor<?x3xf32>) -> tensor<?x3xf32>
// CHECK-SAME: schedule = #example.chunks
// CHECK-SAME: tasks = #disc_shape.expr<(B * 3 + 63) floordiv 64>
// CHECK: disc_plan.kernel loop ins(%[[T]] : tensor<?x3xf32>)
// CHECK-SAME: #disc_plan.loop<
// OUTLINED: disc_plan.kernel_func twice
// CODE: func.func @{{.*}}(%{{.*}}: !llvm.ptr, %[[BEGIN:.*]]: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr)
// CODE-SAME: disc_plan.kind = "twice"
// CODE: arith.muli %[[BEGIN]], %c64_i64
// CODE: scf.for
// CODE-NEXT: llvm.getelementptr
// CODE-NEXT: llvm.load
// CODE: arith.addf
// UNKNOWN: 'twice' is not a kind of kernel
#map = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<?x3xf32> {disc_shape.dims = #disc_shape.dims<[B, 3]>})
    -> (tensor<?x3xf32> {disc_shape.dims = #disc_shape.dims<[B, 3]>}) {
  %b = disc_shape.dim <B>
  %e = tensor.empty(%b) : tensor<?x3xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x3xf32>) outs(%e : tensor<?x3xf32>) {
  ^bb0(%v: f32, %o: f32):
    %s = arith.addf %v, %v : f32
    linalg.yield %s : f32
  } -> tensor<?x3xf32>
  %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<?x3xf32>) outs(%e : tensor<?x3xf32>) {
  ^bb0(%v: f32, %o: f32):
    %s = arith.mulf %v, %v : f32
    linalg.yield %s : f32
  } -> tensor<?x3xf32>
  return %1 : tensor<?x3xf32>
}
