// Half floats for a device whose library does one product at a time: only those of few rows are one kernel.
// RUN: disc-opt %s -disc-fusion-form-kernels -disc-fusion-merge-products=only-f32=true -disc-fusion-verify | FileCheck %s

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
disc_shape.symbol @S min 1 max 127
disc_shape.symbol @L min 1 max 128

// CHECK-LABEL: func.func @few
// CHECK: disc_plan.kernel contraction {{.*}} -> tensor<?x4xbf16>, tensor<?x6xbf16>
// CHECK-NOT: disc_plan.kernel
func.func @few(%x: tensor<?x8xbf16> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> (tensor<?x4xbf16>, tensor<?x6xbf16>) {
  %w = disc_tensor.parameter "w" : tensor<4x8xbf16>
  %v = disc_tensor.parameter "v" : tensor<6x8xbf16>
  %zero = arith.constant 0.0 : bf16
  %s = disc_shape.dim <S>
  %e4 = tensor.empty(%s) : tensor<?x4xbf16>
  %e6 = tensor.empty(%s) : tensor<?x6xbf16>
  %f4 = linalg.fill ins(%zero : bf16) outs(%e4 : tensor<?x4xbf16>) -> tensor<?x4xbf16>
  %f6 = linalg.fill ins(%zero : bf16) outs(%e6 : tensor<?x6xbf16>) -> tensor<?x6xbf16>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xbf16>, tensor<4x8xbf16>) outs(%f4 : tensor<?x4xbf16>) {
  ^bb0(%l: bf16, %r: bf16, %o: bf16):
    %0 = arith.mulf %l, %r : bf16
    %1 = arith.addf %o, %0 : bf16
    linalg.yield %1 : bf16
  } -> tensor<?x4xbf16>
  %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %v : tensor<?x8xbf16>, tensor<6x8xbf16>) outs(%f6 : tensor<?x6xbf16>) {
  ^bb0(%l: bf16, %r: bf16, %o: bf16):
    %0 = arith.mulf %l, %r : bf16
    %1 = arith.addf %o, %0 : bf16
    linalg.yield %1 : bf16
  } -> tensor<?x6xbf16>
  return %p, %q : tensor<?x4xbf16>, tensor<?x6xbf16>
}

// CHECK-LABEL: func.func @many
// CHECK: disc_plan.kernel contraction {{.*}} -> tensor<?x4xbf16>
// CHECK: disc_plan.kernel contraction {{.*}} -> tensor<?x6xbf16>
func.func @many(%x: tensor<?x8xbf16> {disc_shape.dims = #disc_shape.dims<[L, 8]>}) -> (tensor<?x4xbf16>, tensor<?x6xbf16>) {
  %w = disc_tensor.parameter "w" : tensor<4x8xbf16>
  %v = disc_tensor.parameter "v" : tensor<6x8xbf16>
  %zero = arith.constant 0.0 : bf16
  %s = disc_shape.dim <L>
  %e4 = tensor.empty(%s) : tensor<?x4xbf16>
  %e6 = tensor.empty(%s) : tensor<?x6xbf16>
  %f4 = linalg.fill ins(%zero : bf16) outs(%e4 : tensor<?x4xbf16>) -> tensor<?x4xbf16>
  %f6 = linalg.fill ins(%zero : bf16) outs(%e6 : tensor<?x6xbf16>) -> tensor<?x6xbf16>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xbf16>, tensor<4x8xbf16>) outs(%f4 : tensor<?x4xbf16>) {
  ^bb0(%l: bf16, %r: bf16, %o: bf16):
    %0 = arith.mulf %l, %r : bf16
    %1 = arith.addf %o, %0 : bf16
    linalg.yield %1 : bf16
  } -> tensor<?x4xbf16>
  %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %v : tensor<?x8xbf16>, tensor<6x8xbf16>) outs(%f6 : tensor<?x6xbf16>) {
  ^bb0(%l: bf16, %r: bf16, %o: bf16):
    %0 = arith.mulf %l, %r : bf16
    %1 = arith.addf %o, %0 : bf16
    linalg.yield %1 : bf16
  } -> tensor<?x6xbf16>
  return %p, %q : tensor<?x4xbf16>, tensor<?x6xbf16>
}
