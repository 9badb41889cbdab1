// Tiles fit the vectors and registers that the target says it has: NEON of AArch64 and ARMv7, SVE, AVX2, SSE.
// RUN: sed 's/TARGET/vector_bits = 128, vector_registers = 32/' %s | disc-opt -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=NEON
// RUN: sed 's/TARGET/vector_bits = 128, vector_registers = 16/' %s | disc-opt -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=SHORT
// RUN: sed 's/TARGET/vector_bits = 128, vector_registers = 16, fma = false/' %s | disc-opt -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=SSE
// RUN: sed 's/TARGET/vector_bits = 256, vector_registers = 32/' %s | disc-opt -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=SVE
// RUN: sed 's/TARGET/vector_bits = 256, vector_registers = 16/' %s | disc-opt -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=AVX2

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<TARGET>} {
  disc_shape.symbol @M min 1 max 8192

  // NEON: <rows = 14, columns = [8]
  // SHORT: <rows = 4, columns = [12]
  // SSE: <rows = 6, columns = [8]
  // SVE: <rows = 14, columns = [16]
  // AVX2: <rows = 4, columns = [24]
  func.func @product(%x: tensor<?x384xf32> {disc_shape.dims = #disc_shape.dims<[M, 384]>}, %v: tensor<384x384xf32>) -> (tensor<?x384xf32> {disc_shape.dims = #disc_shape.dims<[M, 384]>}) {
    %0 = disc_plan.kernel contraction ins(%x, %v : tensor<?x384xf32>, tensor<384x384xf32>) -> tensor<?x384xf32> attributes {name = "linear"} {
    ^bb0(%a: tensor<?x384xf32>, %b: tensor<384x384xf32>):
      %zero = arith.constant 0.0 : f32
      %m = disc_shape.dim <M>
      %e = tensor.empty(%m) : tensor<?x384xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x384xf32>) -> tensor<?x384xf32>
      %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<?x384xf32>, tensor<384x384xf32>) outs(%f : tensor<?x384xf32>) {
      ^bb0(%l: f32, %r: f32, %o: f32):
        %p1 = arith.mulf %l, %r : f32
        %s = arith.addf %o, %p1 : f32
        linalg.yield %s : f32
      } -> tensor<?x384xf32>
      disc_plan.yield %c : tensor<?x384xf32>
    }
    return %0 : tensor<?x384xf32>
  }
}
