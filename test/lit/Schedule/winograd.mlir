// Weights as 16 sums, formed at load; chunks of 2 x 2 results for groups of panels.
// RUN: disc-opt %s -disc-schedule-winograd | FileCheck %s
// RUN: disc-opt %s -disc-schedule-winograd -disc-schedule-hoist-parameters -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s --check-prefix=SCHEDULE

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, l2_bytes = 1048576, l3_bytes = 4194304, cores = 1>} {
  disc_shape.symbol @B min 1 max 8
  disc_shape.symbol @H min 8 max 256

  // SCHEDULE: disc_plan.global @[[PANELS:.*]] : tensor<16x2x32x32xf32>
  // SCHEDULE-LABEL: func.func @init
  // SCHEDULE: %[[SUMS:.*]] = disc_plan.kernel loop {{.*}} -> tensor<16x64x32xf32>
  // SCHEDULE: disc_tensor.pack %{{.*}} batch [0] n [1] k [2] panel 32 : tensor<16x64x32xf32> -> tensor<16x2x32x32xf32>
  // CHECK-LABEL: func.func @main
  // SCHEDULE-LABEL: func.func @main
  func.func @main(%x: tensor<?x?x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 32]>}, %k: tensor<1x64x3x3x32xf32>) -> (tensor<?x?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 64]>}, tensor<?x?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 64]>}, tensor<?x?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, (H + 1) floordiv 2, (H + 1) floordiv 2, 64]>}, tensor<?x?x?x512xf32> {disc_shape.dims = #disc_shape.dims<[B, H - 2, H - 2, 512]>}) {
    %w = disc_tensor.parameter "w" : tensor<1x64x3x3x32xf32>
    %v = disc_tensor.parameter "v" : tensor<1x512x3x3x32xf32>
    // CHECK: %[[SUMS:.*]] = disc_plan.kernel loop ins(%{{.*}} : tensor<1x64x3x3x32xf32>) -> tensor<16x64x32xf32>
    // CHECK: disc_plan.kernel convolution ins(%{{.*}}, %[[SUMS]] : tensor<?x?x?x32xf32>, tensor<16x64x32xf32>)
    // CHECK: disc_tensor.winograd %{{.*}}, %{{.*}} low [1, 1] high [1, 1] dilations [1, 1]
    // SCHEDULE: disc_plan.kernel convolution
    // SCHEDULE-SAME: schedule = #disc_plan.winograd<rows = 14, columns = 32, chunk_tiles = <
    // SCHEDULE-SAME: sums_scratch = 28672>
    %0 = disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x32xf32>, tensor<1x64x3x3x32xf32>) -> tensor<?x?x?x64xf32> {
    ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<1x64x3x3x32xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<1x64x3x3x32xf32> -> tensor<?x?x?x64xf32>
      disc_plan.yield %y : tensor<?x?x?x64xf32>
    }
    // Not where weights are inputs, where steps are longer, or where the weights' sums would fill the cache.
    // CHECK-NOT: disc_tensor.winograd
    %1 = disc_plan.kernel convolution ins(%x, %k : tensor<?x?x?x32xf32>, tensor<1x64x3x3x32xf32>) -> tensor<?x?x?x64xf32> {
    ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<1x64x3x3x32xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<1x64x3x3x32xf32> -> tensor<?x?x?x64xf32>
      disc_plan.yield %y : tensor<?x?x?x64xf32>
    }
    %2 = disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x32xf32>, tensor<1x64x3x3x32xf32>) -> tensor<?x?x?x64xf32> {
    ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<1x64x3x3x32xf32>):
      %y = disc_tensor.convolution %a, %b strides [2, 2] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<1x64x3x3x32xf32> -> tensor<?x?x?x64xf32>
      disc_plan.yield %y : tensor<?x?x?x64xf32>
    }
    %3 = disc_plan.kernel convolution ins(%x, %v : tensor<?x?x?x32xf32>, tensor<1x512x3x3x32xf32>) -> tensor<?x?x?x512xf32> {
    ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<1x512x3x3x32xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [0, 0] high [0, 0] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<1x512x3x3x32xf32> -> tensor<?x?x?x512xf32>
      disc_plan.yield %y : tensor<?x?x?x512xf32>
    }
    return %0, %1, %2, %3 : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x512xf32>
  }
}
