// Attention of one query takes along the concatenations of its keys and values, and the views that repeat them.
// RUN: disc-opt %s -disc-fusion-form-kernels | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @P min 1 max 512

  // CHECK-LABEL: func.func @step
  // CHECK: disc_plan.kernel attention ins
  // CHECK-SAME: appends to keys and values as it reads them
  // CHECK: %[[C:.*]] = disc_tensor.concat
  // CHECK: %[[U:.*]] = disc_tensor.reshape %[[C]]
  // CHECK: %[[K:.*]] = disc_tensor.broadcast %[[U]]
  // CHECK: %[[V:.*]] = disc_tensor.broadcast
  // CHECK: disc_tensor.attention %{{.*}}, %[[K]], %[[V]]
  // CHECK: disc_plan.yield
  // CHECK: return
  func.func @step(%q: tensor<?x2x3x1x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 3, 1, 16]>}, %past: tensor<?x2x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, P, 16]>}, %new: tensor<?x2x1x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 1, 16]>}) -> (tensor<?x2x3x1x16xf32>, tensor<?x2x?x16xf32>) {
    %b = disc_shape.dim <B>
    %s = disc_shape.dim <P + 1>
    %c = disc_tensor.concat %past, %new dim 2 : tensor<?x2x?x16xf32>, tensor<?x2x1x16xf32> -> tensor<?x2x?x16xf32>
    %u = disc_tensor.reshape %c(%b, %s) : tensor<?x2x?x16xf32> -> tensor<?x2x1x?x16xf32>
    %k = disc_tensor.broadcast %u(%b, %s) [0, 1, 2, 3, 4] : tensor<?x2x1x?x16xf32> -> tensor<?x2x3x?x16xf32>
    %d = disc_tensor.concat %past, %new dim 2 : tensor<?x2x?x16xf32>, tensor<?x2x1x16xf32> -> tensor<?x2x?x16xf32>
    %w = disc_tensor.reshape %d(%b, %s) : tensor<?x2x?x16xf32> -> tensor<?x2x1x?x16xf32>
    %v = disc_tensor.broadcast %w(%b, %s) [0, 1, 2, 3, 4] : tensor<?x2x1x?x16xf32> -> tensor<?x2x3x?x16xf32>
    %y = disc_tensor.attention %q, %k, %v scale 0.25 causal false : tensor<?x2x3x1x16xf32>, tensor<?x2x3x?x16xf32>, tensor<?x2x3x?x16xf32> -> tensor<?x2x3x1x16xf32>
    return %y, %c : tensor<?x2x3x1x16xf32>, tensor<?x2x?x16xf32>
  }

  // Two attentions of the same keys: the first appends to them, the second reads them.
  // CHECK-LABEL: func.func @twice
  // CHECK: disc_plan.kernel attention ins(%{{.*}}, %{{.*}}, %{{.*}} :
  // CHECK: disc_tensor.concat
  // CHECK: disc_plan.kernel attention ins(%{{.*}}, %{{.*}} :
  // CHECK-NOT: disc_tensor.concat
  func.func @twice(%q: tensor<?x2x1x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 1, 16]>}, %p: tensor<?x2x1x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 1, 16]>}, %past: tensor<?x2x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, P, 16]>}, %new: tensor<?x2x1x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 1, 16]>}) -> (tensor<?x2x1x16xf32>, tensor<?x2x1x16xf32>) {
    %c = disc_tensor.concat %past, %new dim 2 : tensor<?x2x?x16xf32>, tensor<?x2x1x16xf32> -> tensor<?x2x?x16xf32>
    %y = disc_tensor.attention %q, %c, %c scale 0.25 causal false : tensor<?x2x1x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32> -> tensor<?x2x1x16xf32>
    %z = disc_tensor.attention %p, %c, %c scale 0.25 causal false : tensor<?x2x1x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32> -> tensor<?x2x1x16xf32>
    return %y, %z : tensor<?x2x1x16xf32>, tensor<?x2x1x16xf32>
  }
}
