// RUN: disc-opt %s -disc-shape-propagate -disc-shape-discharge -disc-shape-verify -split-input-file | FileCheck %s

// The index lies below the count, so a slice at it needs no check; carried tensors and stacks have extents.
// CHECK-LABEL: func.func @slices
// CHECK-NOT: disc_shape.guard
// CHECK: %[[T:.*]] = disc_shape.dim <T>
// CHECK: %[[I:.*]] = disc_shape.dim <i>
// CHECK: disc_tensor.loop @i below %[[T]] carries(%{{.*}}) {disc_shape.dims = [#disc_shape.dims<[B, 8]>, #disc_shape.dims<[T, B, 8]>]}
// CHECK: disc_tensor.slice %{{.*}}[%[[I]], %{{.*}}] dim 0 step 1 {disc_shape.dims = [#disc_shape.dims<[1, B, 8]>]}
disc_shape.symbol @i
disc_shape.symbol @T min 1 max 64
disc_shape.symbol @B min 1
func.func @slices(%x: tensor<?x?x8xf32> {disc_shape.dims = #disc_shape.dims<[T, B, 8]>},
                  %h: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[B, 8]>}) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %b = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %last, %ys = disc_tensor.loop @i below %t carries(%h) : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x?x8xf32>) {
  ^bb0(%a: tensor<?x8xf32>):
    %i = disc_shape.dim <i>
    %s = disc_tensor.slice %x[%i, %c1] dim 0 step 1 : tensor<?x?x8xf32> -> tensor<1x?x8xf32>
    %r = disc_tensor.reshape %s(%b) : tensor<1x?x8xf32> -> tensor<?x8xf32>
    disc_tensor.next %r, %r : tensor<?x8xf32>, tensor<?x8xf32>
  }
  return %ys : tensor<?x?x8xf32>
}

// -----

// T may be 0, and stays so: that there is a step is known inside the body only.
// CHECK-LABEL: func.func @empty
// CHECK-NOT: disc_shape.guard
// CHECK: disc_shape.dim <max(T, 1)>
disc_shape.symbol @i
disc_shape.symbol @T
func.func @empty(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[T, 8]>}, %h: tensor<8xf32>) -> (tensor<8xf32>, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %last = disc_tensor.loop @i below %t carries(%h) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %i = disc_shape.dim <i>
    %s = disc_tensor.slice %x[%i, %c1] dim 0 step 1 : tensor<?x8xf32> -> tensor<1x8xf32>
    %r = disc_tensor.reshape %s() : tensor<1x8xf32> -> tensor<8xf32>
    disc_tensor.next %r : tensor<8xf32>
  }
  %m = arith.maxsi %t, %c1 : index
  return %last, %m : tensor<8xf32>, index
}

// -----

// That the loop's slices lie in x says that B >= 1 if there is a step: behind the loop it is still to be checked.
// CHECK-LABEL: func.func @bounded
// CHECK-NEXT: disc_shape.guard <min(B, 1)> eq <1> "too small"
// CHECK: disc_tensor.loop
// CHECK: disc_shape.guard <i * 2 + 1> le <B> "slice is out of bounds"
disc_shape.symbol @i
disc_shape.symbol @B
func.func @bounded(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[B, 8]>}, %h: tensor<8xf32>,
                   %more: tensor<i1>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %x, %c0 : tensor<?x8xf32>
  %last = disc_tensor.loop @i while %more : tensor<i1> carries(%h) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %i = disc_shape.dim <i>
    %at = arith.muli %i, %c2 : index
    %s = disc_tensor.slice %x[%at, %c1] dim 0 step 1 : tensor<?x8xf32> -> tensor<1x8xf32>
    %r = disc_tensor.reshape %s() : tensor<1x8xf32> -> tensor<8xf32>
    disc_tensor.next %r : tensor<8xf32> while %more : tensor<i1>
  }
  %m = arith.minsi %b, %c1 : index
  disc_shape.require eq %m, %c1 "too small"
  return %last : tensor<8xf32>
}
