// Kernels as blocks of threads: how many blocks, and what a thread of one does.
// RUN: disc-opt %s -disc-schedule-blocks | FileCheck %s --check-prefixes=CHECK,WARP32
// Warps of 64: longer rows for one warp.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-describe-device{device=rocm warp=64},disc-schedule-blocks)' | FileCheck %s --check-prefixes=CHECK,WARP64

#whole = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<warp = 32>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 0 max 512
disc_shape.symbol @L min 1024 max 65536
disc_shape.symbol @M min 1 max 16
disc_shape.symbol @N min 1024

// Four elements of 32 bits are 16 bytes, and a thread has four of these at a time; the host neither divides the work nor gives scratch memory.
// CHECK-LABEL: func.func @loop
// CHECK: disc_plan.kernel loop
// CHECK-SAME: cost = #disc_shape.expr<0>
// CHECK-SAME: schedule = #disc_plan.device_loop<threads = 256, vector = 4, points = 4>
// CHECK-SAME: scratch = #disc_shape.expr<0>
// CHECK-SAME: tasks = #disc_shape.expr<(B * S + 4095) floordiv 4096>
func.func @loop(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>})
    -> (tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>}) {
  %0 = disc_plan.kernel loop ins(%x : tensor<?x?xf32>) -> tensor<?x?xf32> {
  ^bb0(%a: tensor<?x?xf32>):
    %b = disc_shape.dim <B>
    %s = disc_shape.dim <S>
    %e = tensor.empty(%b, %s) : tensor<?x?xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %v : f32
      linalg.yield %w : f32
    } -> tensor<?x?xf32>
    disc_plan.yield %r : tensor<?x?xf32>
  }
  return %0 : tensor<?x?xf32>
}

// The widest buffer decides: two of f64. Narrow types are not read in more than four lanes.
// CHECK-LABEL: func.func @widths
// CHECK: disc_plan.kernel loop
// CHECK-SAME: vector = 2,
// CHECK-SAME: tasks = #disc_shape.expr<(B + 2047) floordiv 2048>
// CHECK: disc_plan.kernel loop
// CHECK-SAME: vector = 4,
func.func @widths(%x: tensor<?xi8> {disc_shape.dims = #disc_shape.dims<[B]>})
    -> (tensor<?xf64> {disc_shape.dims = #disc_shape.dims<[B]>}, tensor<?xi8> {disc_shape.dims = #disc_shape.dims<[B]>}) {
  %0 = disc_plan.kernel loop ins(%x : tensor<?xi8>) -> tensor<?xf64> {
  ^bb0(%a: tensor<?xi8>):
    %b = disc_shape.dim <B>
    %e = tensor.empty(%b) : tensor<?xf64>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%a : tensor<?xi8>) outs(%e : tensor<?xf64>) {
    ^bb0(%v: i8, %o: f64):
      %w = arith.sitofp %v : i8 to f64
      linalg.yield %w : f64
    } -> tensor<?xf64>
    disc_plan.yield %r : tensor<?xf64>
  }
  %1 = disc_plan.kernel loop ins(%x : tensor<?xi8>) -> tensor<?xi8> {
  ^bb0(%a: tensor<?xi8>):
    %b = disc_shape.dim <B>
    %e = tensor.empty(%b) : tensor<?xi8>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%a : tensor<?xi8>) outs(%e : tensor<?xi8>) {
    ^bb0(%v: i8, %o: i8):
      %w = arith.addi %v, %v : i8
      linalg.yield %w : i8
    } -> tensor<?xi8>
    disc_plan.yield %r : tensor<?xi8>
  }
  return %0, %1 : tensor<?xf64>, tensor<?xi8>
}

// Up to 8 vectors for each thread of a warp: a warp per row. Vectors of four where the row's end allows them.
// CHECK-LABEL: func.func @row
// CHECK: disc_plan.kernel row
// WARP32-SAME: schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 1>
// WARP32-SAME: tasks = #disc_shape.expr<(B + 7) floordiv 8>
// WARP32-SAME: variants = [#disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 4>>]
// WARP64-SAME: schedule = #disc_plan.device_row<threads = 256, group = 64, vector = 1>
// WARP64-SAME: tasks = #disc_shape.expr<(B + 3) floordiv 4>
// WARP64-SAME: variants = [#disc_plan.variant<#disc_plan.device_row<threads = 256, group = 64, vector = 4>>]
func.func @row(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>})
    -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[B]>}) {
  %0 = disc_plan.kernel row ins(%x : tensor<?x?xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?x?xf32>):
    %b = disc_shape.dim <B>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%b) : tensor<?xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %o : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    disc_plan.yield %t : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// 24 elements are 6 vectors: 8 threads.
// CHECK-LABEL: func.func @short_row
// CHECK: disc_plan.kernel row
// CHECK-SAME: schedule = #disc_plan.device_row<threads = 256, group = 8, vector = 4>
// CHECK-SAME: tasks = #disc_shape.expr<(B + 31) floordiv 32>
func.func @short_row(%x: tensor<?x24xf32> {disc_shape.dims = #disc_shape.dims<[B, 24]>})
    -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[B]>}) {
  %0 = disc_plan.kernel row ins(%x : tensor<?x24xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?x24xf32>):
    %b = disc_shape.dim <B>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%b) : tensor<?xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<?x24xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %o : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    disc_plan.yield %t : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// A whole block for long rows.
// CHECK-LABEL: func.func @long_row
// CHECK: disc_plan.kernel row
// CHECK-SAME: schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 1, part = 16384>
// CHECK-SAME: tasks = #disc_shape.expr<B>
// CHECK-SAME: variants = [#disc_plan.variant<#disc_plan.device_row<threads = 256, group = 256, vector = 4, part = 16384>>]
func.func @long_row(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, L]>})
    -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[B]>}) {
  %0 = disc_plan.kernel row ins(%x : tensor<?x?xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?x?xf32>):
    %b = disc_shape.dim <B>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%b) : tensor<?xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %o : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    disc_plan.yield %t : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// What softmax needs of a row of 768 fits in 24 registers of each thread of a warp (64: in 12).
// CHECK-LABEL: func.func @kept_row
// CHECK: disc_plan.kernel row
// WARP32-SAME: schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 4, points = 6>
// WARP32-SAME: tasks = #disc_shape.expr<(B + 7) floordiv 8>
// WARP64-SAME: schedule = #disc_plan.device_row<threads = 256, group = 64, vector = 4, points = 3>
func.func @kept_row(%input: tensor<?x768xf32> {disc_shape.dims = #disc_shape.dims<[B, 768]>}) -> (tensor<?x768xf32> {disc_shape.dims = #disc_shape.dims<[B, 768]>}) {
  %0 = disc_plan.kernel row ins(%input : tensor<?x768xf32>) -> tensor<?x768xf32> {
  ^bb0(%x: tensor<?x768xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B) : tensor<?x768xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x768xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x768xf32>, tensor<?xf32>) outs(%e : tensor<?x768xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x768xf32>
  %t = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x768xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x768xf32>, tensor<?xf32>) outs(%e : tensor<?x768xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x768xf32>
  disc_plan.yield %r : tensor<?x768xf32>
  }
  return %0 : tensor<?x768xf32>
}

// Longer rows take more warps, and a block has one of them.
// CHECK-LABEL: func.func @kept_long_row
// CHECK: disc_plan.kernel row
// WARP32-SAME: schedule = #disc_plan.device_row<threads = 96, group = 96, vector = 4, points = 8>
// WARP32-SAME: tasks = #disc_shape.expr<B>
func.func @kept_long_row(%input: tensor<?x3000xf32> {disc_shape.dims = #disc_shape.dims<[B, 3000]>}) -> (tensor<?x3000xf32> {disc_shape.dims = #disc_shape.dims<[B, 3000]>}) {
  %0 = disc_plan.kernel row ins(%input : tensor<?x3000xf32>) -> tensor<?x3000xf32> {
  ^bb0(%x: tensor<?x3000xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B) : tensor<?x3000xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x3000xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x3000xf32>, tensor<?xf32>) outs(%e : tensor<?x3000xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x3000xf32>
  %t = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x3000xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x3000xf32>, tensor<?xf32>) outs(%e : tensor<?x3000xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x3000xf32>
  disc_plan.yield %r : tensor<?x3000xf32>
  }
  return %0 : tensor<?x3000xf32>
}

// Too long for any block.
// CHECK-LABEL: func.func @read_again
// CHECK: disc_plan.kernel row
// CHECK-SAME: schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 4>
func.func @read_again(%input: tensor<?x65536xf32> {disc_shape.dims = #disc_shape.dims<[B, 65536]>}) -> (tensor<?x65536xf32> {disc_shape.dims = #disc_shape.dims<[B, 65536]>}) {
  %0 = disc_plan.kernel row ins(%input : tensor<?x65536xf32>) -> tensor<?x65536xf32> {
  ^bb0(%x: tensor<?x65536xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B) : tensor<?x65536xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x65536xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x65536xf32>, tensor<?xf32>) outs(%e : tensor<?x65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x65536xf32>
  %t = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x65536xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x65536xf32>, tensor<?xf32>) outs(%e : tensor<?x65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x65536xf32>
  disc_plan.yield %r : tensor<?x65536xf32>
  }
  return %0 : tensor<?x65536xf32>
}

// Up to 512 elements: two vectors of four for each thread of a warp, or as many as there may be; the same for single
// elements; and a loop, which is left for rows without elements.
// CHECK-LABEL: func.func @kept_rows
// CHECK: disc_plan.kernel row
// WARP32-SAME: schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 1>
// WARP32-SAME: variants = [#disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 4, points = 2>>,
// WARP32-SAME: #disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 4, points = 4>>,
// WARP32-SAME: #disc_plan.variant<#disc_plan.device_row<threads = 256, group = 256, vector = 4>>,
// WARP32-SAME: #disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 1, points = 2>>,
// WARP32-SAME: #disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 1, points = 16>>]
func.func @kept_rows(%input: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>}) -> (tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>}) {
  %0 = disc_plan.kernel row ins(%input : tensor<?x?xf32>) -> tensor<?x?xf32> {
  ^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %er = tensor.empty(%B) : tensor<?xf32>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %s = math.exp %d : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %t = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%p, %t : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.divf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
  }
  return %0 : tensor<?x?xf32>
}

// Vectors of 16 bytes where rows are whole ones, a warp for each row of a block; else 32 columns side by side, which are a
// cache line. Parts of 256 rows have blocks of their own, if there are few.
// CHECK-LABEL: func.func @column
// CHECK: disc_plan.kernel column
// CHECK-SAME: schedule = #disc_plan.device_column<threads = 256, columns = 32, part = 256>
// CHECK-SAME: tasks = #disc_shape.expr<B * 13>
// CHECK-SAME: variants = [#disc_plan.variant<#disc_plan.device_column<threads = 256, columns = 128, vector = 4, part = 256>>]
func.func @column(%x: tensor<?x?x400xf32> {disc_shape.dims = #disc_shape.dims<[B, S, 400]>})
    -> (tensor<?x400xf32> {disc_shape.dims = #disc_shape.dims<[B, 400]>}) {
  %0 = disc_plan.kernel column ins(%x : tensor<?x?x400xf32>) -> tensor<?x400xf32> {
  ^bb0(%a: tensor<?x?x400xf32>):
    %b = disc_shape.dim <B>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%b) : tensor<?x400xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?x400xf32>) -> tensor<?x400xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, k)>],
                         iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%a : tensor<?x?x400xf32>) outs(%zeros : tensor<?x400xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %o : f32
      linalg.yield %w : f32
    } -> tensor<?x400xf32>
    disc_plan.yield %t : tensor<?x400xf32>
  }
  return %0 : tensor<?x400xf32>
}

// Lines along memory have a block each; lines side by side have a thread each.
// CHECK-LABEL: func.func @running_sum
// CHECK: disc_plan.kernel loop
// CHECK-SAME: schedule = #disc_plan.device_sum<threads = 256, line_threads = 256>
// CHECK-SAME: tasks = #disc_shape.expr<B * 400>
// CHECK: disc_plan.kernel loop
// CHECK-SAME: schedule = #disc_plan.device_sum<threads = 256, line_threads = 1>
// CHECK-SAME: tasks = #disc_shape.expr<B + (B * 9 + 15) floordiv 16>
func.func @running_sum(%x: tensor<?x400x400xf32> {disc_shape.dims = #disc_shape.dims<[B, 400, 400]>})
    -> (tensor<?x400x400xf32> {disc_shape.dims = #disc_shape.dims<[B, 400, 400]>},
        tensor<?x400x400xf32> {disc_shape.dims = #disc_shape.dims<[B, 400, 400]>}) {
  %0 = disc_plan.kernel loop ins(%x : tensor<?x400x400xf32>) -> tensor<?x400x400xf32> {
  ^bb0(%a: tensor<?x400x400xf32>):
    %r = disc_tensor.running_sum %a dim 2 : tensor<?x400x400xf32> -> tensor<?x400x400xf32>
    disc_plan.yield %r : tensor<?x400x400xf32>
  }
  %1 = disc_plan.kernel loop ins(%x : tensor<?x400x400xf32>) -> tensor<?x400x400xf32> {
  ^bb0(%a: tensor<?x400x400xf32>):
    %r = disc_tensor.running_sum %a dim 1 : tensor<?x400x400xf32> -> tensor<?x400x400xf32>
    disc_plan.yield %r : tensor<?x400x400xf32>
  }
  return %0, %1 : tensor<?x400x400xf32>, tensor<?x400x400xf32>
}

// Tiles: 64 x 64; a row of threads where there are few rows; a column of them where there are few columns; 128 x 128
// where both are many.
// CHECK-LABEL: func.func @products
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16, thread_rows = 4, thread_columns = 4, library = <B * 4000 - 1048575>>
// CHECK-SAME: tasks = #disc_shape.expr<((B + 63) floordiv 64) * 2>
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: threads = 256, tile_rows = 16, tile_columns = 64, tile_depth = 16, thread_rows = 1, thread_columns = 4,
// CHECK-SAME: tasks = #disc_shape.expr<2>
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: threads = 256, tile_rows = 64, tile_columns = 16, tile_depth = 16, thread_rows = 4, thread_columns = 1,
// CHECK-SAME: tasks = #disc_shape.expr<(B + 63) floordiv 64>
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: threads = 256, tile_rows = 128, tile_columns = 128, tile_depth = 8, thread_rows = 8, thread_columns = 8,
// CHECK-SAME: tasks = #disc_shape.expr<((N + 127) floordiv 128) * 8>
func.func @products(%x: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[B, 40]>},
                    %m: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[M, 40]>},
                    %n: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[N, 40]>},
                    %w: tensor<100x40xf32>, %v: tensor<10x40xf32>, %u: tensor<1024x40xf32>)
    -> (tensor<?x100xf32> {disc_shape.dims = #disc_shape.dims<[B, 100]>},
        tensor<?x100xf32> {disc_shape.dims = #disc_shape.dims<[M, 100]>},
        tensor<?x10xf32> {disc_shape.dims = #disc_shape.dims<[B, 10]>},
        tensor<?x1024xf32> {disc_shape.dims = #disc_shape.dims<[N, 1024]>}) {
  %0 = disc_plan.kernel contraction ins(%x, %w : tensor<?x40xf32>, tensor<100x40xf32>) -> tensor<?x100xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<100x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <B>
    %e = tensor.empty(%d) : tensor<?x100xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<100x40xf32>) outs(%f : tensor<?x100xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x100xf32>
    disc_plan.yield %c : tensor<?x100xf32>
  }
  %1 = disc_plan.kernel contraction ins(%m, %w : tensor<?x40xf32>, tensor<100x40xf32>) -> tensor<?x100xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<100x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <M>
    %e = tensor.empty(%d) : tensor<?x100xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<100x40xf32>) outs(%f : tensor<?x100xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x100xf32>
    disc_plan.yield %c : tensor<?x100xf32>
  }
  %2 = disc_plan.kernel contraction ins(%x, %v : tensor<?x40xf32>, tensor<10x40xf32>) -> tensor<?x10xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<10x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <B>
    %e = tensor.empty(%d) : tensor<?x10xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x10xf32>) -> tensor<?x10xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<10x40xf32>) outs(%f : tensor<?x10xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x10xf32>
    disc_plan.yield %c : tensor<?x10xf32>
  }
  %3 = disc_plan.kernel contraction ins(%n, %u : tensor<?x40xf32>, tensor<1024x40xf32>) -> tensor<?x1024xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<1024x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <N>
    %e = tensor.empty(%d) : tensor<?x1024xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<1024x40xf32>) outs(%f : tensor<?x1024xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x1024xf32>
    disc_plan.yield %c : tensor<?x1024xf32>
  }
  return %0, %1, %2, %3 : tensor<?x100xf32>, tensor<?x100xf32>, tensor<?x10xf32>, tensor<?x1024xf32>
}

// A convolution's rows are all pixels, its columns the filters of a group.
// CHECK-LABEL: func.func @convolution
// CHECK: disc_plan.kernel convolution
// CHECK-SAME: tile_rows = 64, tile_columns = 64, tile_depth = 16
// CHECK-SAME: tasks = #disc_shape.expr<((B * N * N + 63) floordiv 64) * 4>
func.func @convolution(%x: tensor<?x?x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, N, N, 32]>},
                       %w: tensor<2x80x3x3x16xf32>)
    -> (tensor<?x?x?x160xf32> {disc_shape.dims = #disc_shape.dims<[B, N, N, 160]>}) {
  %0 = disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x32xf32>, tensor<2x80x3x3x16xf32>) -> tensor<?x?x?x160xf32> {
  ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<2x80x3x3x16xf32>):
    %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<2x80x3x3x16xf32> -> tensor<?x?x?x160xf32>
    disc_plan.yield %y : tensor<?x?x?x160xf32>
  }
  return %0 : tensor<?x?x?x160xf32>
}

// 16 queries of a head for each block.
// CHECK-LABEL: func.func @attention
// CHECK: disc_plan.kernel attention
// CHECK-SAME: tensor<?x12x?x32xf32>, tensor<?xf32>
// CHECK-SAME: schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>
// CHECK-SAME: tasks = #disc_shape.expr<B * ((S + 15) floordiv 16) * 12>
// CHECK-SAME: variants = [#disc_plan.variant<#disc_plan.device_attention<threads = 128, queries = 16, keys = 32,
// CHECK-SAME: parts = <min(S floordiv 64, 264 floordiv max(B * ((S + 15) floordiv 16) * 12, 1))>>,
// CHECK-SAME: when = <min(S, S floordiv 64 + 254, 264 floordiv max(B * ((S + 15) floordiv 16) * 12, 1) + 254) - 255>,
// CHECK-SAME: tasks = <B * ((S + 15) floordiv 16) * min(S floordiv 64, 264 floordiv max(B * ((S + 15) floordiv 16) * 12, 1)) * 12>
func.func @attention(%q: tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>})
    -> (tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>}) {
  %0 = disc_plan.kernel attention ins(%q : tensor<?x12x?x32xf32>) -> tensor<?x12x?x32xf32> {
  ^bb0(%a: tensor<?x12x?x32xf32>):
    %r = disc_tensor.attention %a, %a, %a scale 0.25 causal false : tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32> -> tensor<?x12x?x32xf32>
    disc_plan.yield %r : tensor<?x12x?x32xf32>
  }
  return %0 : tensor<?x12x?x32xf32>
}

// The runtime's functions run on the host, where tasks, scratch memory and costs are what they are for the CPU.
// CHECK-LABEL: func.func @call
// CHECK: disc_plan.kernel call
// CHECK-SAME: cost = #disc_shape.expr<108>
// CHECK-SAME: schedule = #disc_plan.pieces
// CHECK-SAME: scratch = #disc_shape.expr<B * 8>
// CHECK-SAME: tasks = #disc_shape.expr<B>
func.func @call(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[B]>}) -> tensor<?xf32> {
  %0 = disc_plan.kernel call ins(%x : tensor<?xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?xf32>):
    %s = disc_shape.dim <B>
    %n = disc_shape.dim <8 * B>
    %r = disc_tensor.call "sort"(%a) sizes(%s) tasks %s scratch %n "" : (tensor<?xf32>) -> tensor<?xf32>
    disc_plan.yield %r : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}
}
