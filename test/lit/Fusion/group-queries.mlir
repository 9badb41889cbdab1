// Repeated heads of keys and values stay broadcast views; the result is permuted before its heads are merged.
// RUN: disc-opt %s -disc-fusion-group-queries | FileCheck %s

module {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @L min 1 max 512

  // CHECK-LABEL: func.func @repeated
  // CHECK: %[[K:.*]] = disc_tensor.broadcast %arg1
  // CHECK: %[[Q:.*]] = disc_tensor.reshape %arg0({{.*}}) : tensor<?x6x?x16xf32> -> tensor<?x2x3x?x16xf32>
  // CHECK: %[[M:.*]] = disc_tensor.reshape %arg2({{.*}}) : tensor<?x1x1x?xi1> -> tensor<?x1x1x1x?xi1>
  // CHECK: %[[Y:.*]] = disc_tensor.attention %[[Q]], %[[K]], %[[K]] mask %[[M]] : tensor<?x1x1x1x?xi1> scale 2.500000e-01 causal true
  // CHECK: %[[P:.*]] = disc_tensor.permute %[[Y]] [0, 3, 1, 2, 4] {{.*}} -> tensor<?x?x2x3x16xf32>
  // CHECK: %[[R:.*]] = disc_tensor.reshape %[[P]]({{.*}}) : tensor<?x?x2x3x16xf32> -> tensor<?x?x6x16xf32>
  // CHECK: return %[[R]]
  func.func @repeated(%q: tensor<?x6x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 6, L, 16]>}, %k: tensor<?x2x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, L, 16]>}, %m: tensor<?x1x1x?xi1> {disc_shape.dims = #disc_shape.dims<[B, 1, 1, L]>}) -> tensor<?x?x6x16xf32> {
    %b = disc_shape.dim <B>
    %l = disc_shape.dim <L>
    %w = disc_tensor.broadcast %k(%b, %l) [0, 1, 3, 4] : tensor<?x2x?x16xf32> -> tensor<?x2x3x?x16xf32>
    %r = disc_tensor.reshape %w(%b, %l) : tensor<?x2x3x?x16xf32> -> tensor<?x6x?x16xf32>
    %y = disc_tensor.attention %q, %r, %r mask %m : tensor<?x1x1x?xi1> scale 0.25 causal true : tensor<?x6x?x16xf32>, tensor<?x6x?x16xf32>, tensor<?x6x?x16xf32> -> tensor<?x6x?x16xf32>
    %p = disc_tensor.permute %y [0, 2, 1, 3] : tensor<?x6x?x16xf32> -> tensor<?x?x6x16xf32>
    return %p : tensor<?x?x6x16xf32>
  }

  // Only keys are repeated: values decide as well.
  // CHECK-LABEL: func.func @keys_only
  // CHECK: disc_tensor.attention %arg0, %{{.*}}, %arg2 scale
  func.func @keys_only(%q: tensor<?x6x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 6, L, 16]>}, %k: tensor<?x2x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, L, 16]>}, %v: tensor<?x6x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 6, L, 16]>}) -> tensor<?x6x?x16xf32> {
    %b = disc_shape.dim <B>
    %l = disc_shape.dim <L>
    %w = disc_tensor.broadcast %k(%b, %l) [0, 1, 3, 4] : tensor<?x2x?x16xf32> -> tensor<?x2x3x?x16xf32>
    %r = disc_tensor.reshape %w(%b, %l) : tensor<?x2x3x?x16xf32> -> tensor<?x6x?x16xf32>
    %y = disc_tensor.attention %q, %r, %v scale 0.25 causal false : tensor<?x6x?x16xf32>, tensor<?x6x?x16xf32>, tensor<?x6x?x16xf32> -> tensor<?x6x?x16xf32>
    return %y : tensor<?x6x?x16xf32>
  }
}
