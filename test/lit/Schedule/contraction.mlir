// Tiles, tasks and scratch memory of products.
// RUN: disc-opt %s -disc-schedule-kernels | FileCheck %s

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, l2_bytes = 1048576, cores = 1>} {
  disc_shape.symbol @M min 4096 max 8192

  // 640 KiB of rows are 30 tiles of 14; the static column count gives 12 panels.
  // CHECK-LABEL: func.func @packed
  // CHECK: disc_plan.kernel
  // CHECK-SAME: schedule = #disc_plan.product<rows = 14, columns = [32], k_block = 1536
  // CHECK-SAME: row_tiles = <{{[^>]*}}30{{[^>]*}}>, lhs_scratch = <1792>
  // CHECK-SAME: tasks = #disc_shape.expr<{{[^>]*}} * 12>
  func.func @packed(%x: tensor<?x384xf32> {disc_shape.dims = #disc_shape.dims<[M, 384]>}, %p: tensor<12x384x32xf32>) -> (tensor<?x384xf32> {disc_shape.dims = #disc_shape.dims<[M, 384]>}) {
    %0 = disc_plan.kernel contraction ins(%x, %p : tensor<?x384xf32>, tensor<12x384x32xf32>) -> tensor<?x384xf32> attributes {name = "linear"} {
    ^bb0(%a: tensor<?x384xf32>, %b: tensor<12x384x32xf32>):
      %w = disc_tensor.unpack %b batch [] n [0] k [1] panel 32 : tensor<12x384x32xf32> -> tensor<384x384xf32>
      %zero = arith.constant 0.0 : f32
      %m = disc_shape.dim <M>
      %e = tensor.empty(%m) : tensor<?x384xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x384xf32>) -> tensor<?x384xf32>
      %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %w : tensor<?x384xf32>, tensor<384x384xf32>) outs(%f : tensor<?x384xf32>) {
      ^bb0(%l: f32, %r: f32, %o: f32):
        %p1 = arith.mulf %l, %r : f32
        %s = arith.addf %o, %p1 : f32
        linalg.yield %s : f32
      } -> tensor<?x384xf32>
      disc_plan.yield %c : tensor<?x384xf32>
    }
    return %0 : tensor<?x384xf32>
  }

  // The right operand is not packed: scratch has room for a panel of it, past the rows.
  // CHECK-LABEL: func.func @dynamic
  // CHECK: <rows = 14, {{.*}}, row_tiles = <1>, {{.*}}, rhs_scratch = <9856>>
  // CHECK-SAME: scratch = #disc_shape.expr<{{[0-9]+}}>
  // CHECK-SAME: tasks = #disc_shape.expr<1>
  func.func @dynamic(%x: tensor<8x40xf64>, %w: tensor<10x40xf64>) -> tensor<8x10xf64> {
    %0 = disc_plan.kernel contraction ins(%x, %w : tensor<8x40xf64>, tensor<10x40xf64>) -> tensor<8x10xf64> attributes {name = "product"} {
    ^bb0(%a: tensor<8x40xf64>, %b: tensor<10x40xf64>):
      %zero = arith.constant 0.0 : f64
      %e = tensor.empty() : tensor<8x10xf64>
      %f = linalg.fill ins(%zero : f64) outs(%e : tensor<8x10xf64>) -> tensor<8x10xf64>
      %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<8x40xf64>, tensor<10x40xf64>) outs(%f : tensor<8x10xf64>) {
      ^bb0(%l: f64, %r: f64, %o: f64):
        %p1 = arith.mulf %l, %r : f64
        %s = arith.addf %o, %p1 : f64
        linalg.yield %s : f64
      } -> tensor<8x10xf64>
      disc_plan.yield %c : tensor<8x10xf64>
    }
    return %0 : tensor<8x10xf64>
  }

  // The transpose of a row-major matrix: its rows may be copied to panels.
  // CHECK-LABEL: func.func @transposed
  // CHECK: disc_plan.kernel
  // CHECK-SAME: lhs_panel = 14>
  func.func @transposed(%x: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[M, 40]>}, %w: tensor<?x48xf32> {disc_shape.dims = #disc_shape.dims<[M, 48]>}) -> tensor<40x48xf32> {
    %0 = disc_plan.kernel contraction ins(%x, %w : tensor<?x40xf32>, tensor<?x48xf32>) -> tensor<40x48xf32> attributes {name = "transposed"} {
    ^bb0(%a: tensor<?x40xf32>, %b: tensor<?x48xf32>):
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<40x48xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x48xf32>) -> tensor<40x48xf32>
      %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<?x40xf32>, tensor<?x48xf32>) outs(%f : tensor<40x48xf32>) {
      ^bb0(%l: f32, %r: f32, %o: f32):
        %p1 = arith.mulf %l, %r : f32
        %s = arith.addf %o, %p1 : f32
        linalg.yield %s : f32
      } -> tensor<40x48xf32>
      disc_plan.yield %c : tensor<40x48xf32>
    }
    return %0 : tensor<40x48xf32>
  }
}
