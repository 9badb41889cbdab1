// Beside precision bf16, on a target that multiplies tiles of bf16: no Winograd, panels of two channels side by side, of
// which an odd number is padded, and a schedule whose copy of the input is of bf16. Tiles go through the lines of that
// copy; weights that the second-level cache does not hold are read once for several images.
// RUN: disc-opt %s -disc-schedule-winograd=precision=bf16 -disc-schedule-hoist-parameters -disc-schedule-pack-weights=precision=bf16 -disc-schedule-kernels | FileCheck %s
// RUN: disc-opt %s -disc-schedule-winograd -disc-schedule-hoist-parameters -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=F32

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, bf16_tiles = true, cores = 1>} {
  disc_shape.symbol @B min 1 max 8
  disc_shape.symbol @H min 8 max 256
  disc_shape.symbol @S min 3 max 10

  // CHECK-LABEL: func.func @main
  // CHECK: disc_plan.kernel convolution
  // CHECK-SAME: schedule = #disc_plan.convolution<rows = 32, columns = 32, chunk_images = <1>,
  // CHECK-SAME: lines = joined>
  // CHECK: disc_tensor.convolution %{{.*}} : tensor<?x?x?x31xf32>, tensor<1x64x3x3x31xbf16> -> tensor<?x?x?x64xf32>
  // CHECK: disc_plan.kernel convolution
  // CHECK-SAME: chunk_images = <max(min({{.*}}lines = merged>
  // CHECK-SAME: tasks = #disc_shape.expr<((-B) floordiv max(min(
  // CHECK-LABEL: func.func @init
  // CHECK: disc_tensor.pack %{{.*}} batch [0] n [1] k [2, 3, 4] panel 32 together 2 : tensor<1x64x3x3x31xf32> -> tensor<1x2x144x64xbf16>
  // F32: disc_tensor.winograd
  func.func @main(%x: tensor<?x?x?x31xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 31]>}, %s: tensor<?x?x?x512xf32> {disc_shape.dims = #disc_shape.dims<[B, S, S, 512]>}) -> (tensor<?x?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 64]>}, tensor<?x?x?x512xf32> {disc_shape.dims = #disc_shape.dims<[B, S, S, 512]>}) {
    %w = disc_tensor.parameter "w" : tensor<1x64x3x3x31xf32>
    %0 = disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x31xf32>, tensor<1x64x3x3x31xf32>) -> tensor<?x?x?x64xf32> {
    ^bb0(%a: tensor<?x?x?x31xf32>, %b: tensor<1x64x3x3x31xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x31xf32>, tensor<1x64x3x3x31xf32> -> tensor<?x?x?x64xf32>
      disc_plan.yield %y : tensor<?x?x?x64xf32>
    }
    %v = disc_tensor.parameter "v" : tensor<1x512x3x3x512xf32>
    %1 = disc_plan.kernel convolution ins(%s, %v : tensor<?x?x?x512xf32>, tensor<1x512x3x3x512xf32>) -> tensor<?x?x?x512xf32> {
    ^bb0(%a: tensor<?x?x?x512xf32>, %b: tensor<1x512x3x3x512xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x512xf32>, tensor<1x512x3x3x512xf32> -> tensor<?x?x?x512xf32>
      disc_plan.yield %y : tensor<?x?x?x512xf32>
    }
    return %0, %1 : tensor<?x?x?x64xf32>, tensor<?x?x?x512xf32>
  }
  func.func @init() {
    return
  }
}
