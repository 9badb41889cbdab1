// Weights of convolutions in panels, and the chunks of images that tasks work on.
// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights -disc-schedule-kernels | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, l2_bytes = 1048576, cores = 1>} {
  disc_shape.symbol @B min 1 max 8
  disc_shape.symbol @H min 8 max 256

  // CHECK: disc_plan.global @[[PANELS:.*]] : tensor<1x2x144x32xf32>
  // CHECK: disc_plan.global @[[DEEP:.*]] : tensor<2x9x16xf32>
  // CHECK-LABEL: func.func @init
  // CHECK: disc_tensor.pack %{{.*}} batch [0] n [1] k [2, 3, 4] panel 32
  // CHECK: disc_tensor.pack %{{.*}} batch [] n [0, 1] k [2, 3, 4] panel 16
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<?x?x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 16]>}, %z: tensor<?x?x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 32]>}) -> (tensor<?x?x?x40xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 40]>}, tensor<?x?x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, H, H, 32]>}) {
    %w = disc_tensor.parameter "w" : tensor<1x40x3x3x16xf32>
    %v = disc_tensor.parameter "v" : tensor<32x1x3x3x1xf32>
    // A task has some lines of one image for one of two panels of filters.
    // CHECK: disc_plan.kernel convolution
    // CHECK-SAME: schedule = #disc_plan.convolution<rows = 14, columns = 32, chunk_images = <1>, chunk_rows = <
    // CHECK-SAME: tasks = #disc_shape.expr<{{.*}} * 2>
    // CHECK: disc_tensor.unpack %{{.*}} batch [0] n [1] k [2, 3, 4] panel 32
    // CHECK: disc_tensor.convolution
    %0 = disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x16xf32>, tensor<1x40x3x3x16xf32>) -> tensor<?x?x?x40xf32> attributes {name = "plain"} {
    ^bb0(%a: tensor<?x?x?x16xf32>, %b: tensor<1x40x3x3x16xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x16xf32>, tensor<1x40x3x3x16xf32> -> tensor<?x?x?x40xf32>
      disc_plan.yield %y : tensor<?x?x?x40xf32>
    }
    // Depthwise, it has a vector of channels, and needs no scratch memory.
    // CHECK: disc_plan.kernel convolution
    // CHECK-SAME: columns = 16
    // CHECK-SAME: scratch = #disc_shape.expr<0>
    %1 = disc_plan.kernel convolution ins(%z, %v : tensor<?x?x?x32xf32>, tensor<32x1x3x3x1xf32>) -> tensor<?x?x?x32xf32> attributes {name = "depthwise"} {
    ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<32x1x3x3x1xf32>):
      %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<32x1x3x3x1xf32> -> tensor<?x?x?x32xf32>
      disc_plan.yield %y : tensor<?x?x?x32xf32>
    }
    return %0, %1 : tensor<?x?x?x40xf32>, tensor<?x?x?x32xf32>
  }
}
