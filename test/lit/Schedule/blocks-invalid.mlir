// What cannot be mapped to blocks of threads.
// RUN: disc-opt %s -disc-schedule-blocks -split-input-file -verify-diagnostics

func.func @main(%p: tensor<16x16xf32>) -> tensor<1x16x16xf32> {
  // expected-error @below {{kernels of this kind are for the CPU}}
  %0 = disc_plan.kernel pack ins(%p : tensor<16x16xf32>) -> tensor<1x16x16xf32> {
  ^bb0(%a: tensor<16x16xf32>):
    %r = disc_tensor.pack %a batch [] n [0] k [1] panel 16 : tensor<16x16xf32> -> tensor<1x16x16xf32>
    disc_plan.yield %r : tensor<1x16x16xf32>
  }
  return %0 : tensor<1x16x16xf32>
}

// -----

func.func @main(%p: tensor<16x16xf32>) -> tensor<16x16xf32> {
  // expected-error @below {{an attention kernel holds no attention}}
  %0 = disc_plan.kernel attention ins(%p : tensor<16x16xf32>) -> tensor<16x16xf32> {
  ^bb0(%a: tensor<16x16xf32>):
    disc_plan.yield %a : tensor<16x16xf32>
  }
  return %0 : tensor<16x16xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{a call kernel must yield the results of one disc_tensor.call}}
  %0 = disc_plan.kernel call ins(%x : tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<8x4xf32>, %v: tensor<8x4xf32>, %w: tensor<8x4xf32>) -> tensor<8x8xf32> {
  // expected-error @below {{parts of several products are not mapped to blocks of threads}}
  %0 = disc_plan.kernel contraction ins(%x, %v, %w : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32> {
  ^bb0(%a: tensor<8x4xf32>, %b: tensor<8x4xf32>, %c: tensor<8x4xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8x8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<8x4xf32>, tensor<8x4xf32>) outs(%f : tensor<8x8xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<8x8xf32>
    %2 = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %c : tensor<8x4xf32>, tensor<8x4xf32>) outs(%f : tensor<8x8xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<8x8xf32>
    %both = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%1, %2 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %s = arith.addf %l, %r : f32
      linalg.yield %s : f32
    } -> tensor<8x8xf32>
    disc_plan.yield %both : tensor<8x8xf32>
  }
  return %0 : tensor<8x8xf32>
}
