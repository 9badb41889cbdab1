// Products by registers of tiles, with few weights: a chunk is so small that its results stay in the second-level cache.
// RUN: disc-opt %s -disc-schedule-kernels | FileCheck %s

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, l2_bytes = 2097152, cores = 1, bf16_tiles = true>} {
  disc_shape.symbol @M min 4096 max 8192

  // A tile has 4 KiB of rows, and 64 KiB of results and of what may be added to them: 18 such are 5/8 of the cache.
  // CHECK-LABEL: func.func @packed
  // CHECK: disc_plan.kernel
  // CHECK-SAME: schedule = #disc_plan.product<rows = 32, columns = [32]
  // CHECK-SAME: row_tiles = <{{[^>]*}}18{{[^>]*}}>
  func.func @packed(%x: tensor<?x64xbf16> {disc_shape.dims = #disc_shape.dims<[M, 64]>}, %p: tensor<8x32x64xbf16>) -> (tensor<?x256xf32> {disc_shape.dims = #disc_shape.dims<[M, 256]>}) {
    %0 = disc_plan.kernel contraction ins(%x, %p : tensor<?x64xbf16>, tensor<8x32x64xbf16>) -> tensor<?x256xf32> attributes {name = "linear"} {
    ^bb0(%a: tensor<?x64xbf16>, %b: tensor<8x32x64xbf16>):
      %w = disc_tensor.unpack %b batch [] n [0] k [1] panel 32 together 2 : tensor<8x32x64xbf16> -> tensor<256x64xbf16>
      %zero = arith.constant 0.0 : f32
      %m = disc_shape.dim <M>
      %e = tensor.empty(%m) : tensor<?x256xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x256xf32>) -> tensor<?x256xf32>
      %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %w : tensor<?x64xbf16>, tensor<256x64xbf16>) outs(%f : tensor<?x256xf32>) {
      ^bb0(%l: bf16, %r: bf16, %o: f32):
        %lx = arith.extf %l : bf16 to f32
        %rx = arith.extf %r : bf16 to f32
        %p1 = arith.mulf %lx, %rx : f32
        %s = arith.addf %o, %p1 : f32
        linalg.yield %s : f32
      } -> tensor<?x256xf32>
      disc_plan.yield %c : tensor<?x256xf32>
    }
    return %0 : tensor<?x256xf32>
  }
}
