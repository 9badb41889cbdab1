// RUN: disc-opt %s -disc-schedule-fuse-rounding -split-input-file | FileCheck %s


// A row that only a product reads, and reads rounded: nothing else is stored. Through a reshape, which is one of the
// rounded value then.
// CHECK-LABEL: func.func @only
// CHECK: %[[Y:.*]] = disc_plan.kernel row ins(%{{.*}} : tensor<?x8xf32>) -> tensor<?x8xbf16>
// CHECK: %[[V:.*]] = linalg.generic
// CHECK: math.exp
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[V]] : tensor<?x8xf32>)
// CHECK: arith.truncf %{{.*}} fastmath<afn> : f32 to bf16
// CHECK: disc_plan.yield %[[R]] : tensor<?x8xbf16>
// CHECK: %[[VIEW:.*]] = disc_tensor.reshape %[[Y]]({{.*}}) : tensor<?x8xbf16> -> tensor<?x2x4xbf16>
// CHECK-NOT: disc_plan.kernel
// CHECK: return %[[VIEW]]
#id = affine_map<(d0, d1) -> (d0, d1)>
module {
disc_shape.symbol @S min 1
func.func @only(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x2x4xbf16> {
  %y = disc_plan.kernel row ins(%x : tensor<?x8xf32>) -> tensor<?x8xf32> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x8xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x8xf32>
    %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
    ^bb0(%i: f32, %o: f32):
      %0 = math.exp %i : f32
      linalg.yield %0 : f32
    } -> tensor<?x8xf32>
    disc_plan.yield %v : tensor<?x8xf32>
  }
  %n = disc_shape.dim <S>
  %w = disc_tensor.reshape %y(%n) {disc_shape.dims = [#disc_shape.dims<[S, 2, 4]>]} : tensor<?x8xf32> -> tensor<?x2x4xf32>
  %r = disc_plan.kernel loop ins(%w : tensor<?x2x4xf32>) -> tensor<?x2x4xbf16> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x2x4xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x2x4xbf16>
    %v = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a : tensor<?x2x4xf32>) outs(%e : tensor<?x2x4xbf16>) {
    ^bb0(%i: f32, %o: bf16):
      %0 = arith.truncf %i fastmath<afn> : f32 to bf16
      linalg.yield %0 : bf16
    } -> tensor<?x2x4xbf16>
    disc_plan.yield %v : tensor<?x2x4xbf16>
  }
  return %r : tensor<?x2x4xbf16>
}
}

// -----

// Somebody else reads it as it is: the kernel stores both. What comes from outside is rounded apart, as are sums of a
// row, which are no element by element.
// CHECK-LABEL: func.func @both
// CHECK: %[[Y:.*]]:2 = disc_plan.kernel loop ins(%{{.*}} : tensor<?x8xf32>) -> tensor<?x8xf32>, tensor<?x8xbf16>
// CHECK: %[[X:.*]] = disc_plan.kernel loop ins(%arg0 : tensor<?x8xf32>) -> tensor<?x8xbf16>
// CHECK: %[[S:.*]] = disc_plan.kernel row ins(%arg0 : tensor<?x8xf32>) -> tensor<?xf32>
// CHECK: %[[T:.*]] = disc_plan.kernel loop ins(%[[S]] : tensor<?xf32>) -> tensor<?xbf16>
// CHECK: return %[[Y]]#0, %[[Y]]#1, %[[X]], %[[T]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module {
disc_shape.symbol @S min 1
func.func @both(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> (tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?xbf16>) {
  %y = disc_plan.kernel loop ins(%x : tensor<?x8xf32>) -> tensor<?x8xf32> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x8xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x8xf32>
    %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
    ^bb0(%i: f32, %o: f32):
      %0 = arith.negf %i : f32
      linalg.yield %0 : f32
    } -> tensor<?x8xf32>
    disc_plan.yield %v : tensor<?x8xf32>
  }
  %r = disc_plan.kernel loop ins(%y : tensor<?x8xf32>) -> tensor<?x8xbf16> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x8xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x8xbf16>
    %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x8xf32>) outs(%e : tensor<?x8xbf16>) {
    ^bb0(%i: f32, %o: bf16):
      %0 = arith.truncf %i : f32 to bf16
      linalg.yield %0 : bf16
    } -> tensor<?x8xbf16>
    disc_plan.yield %v : tensor<?x8xbf16>
  }
  %q = disc_plan.kernel loop ins(%x : tensor<?x8xf32>) -> tensor<?x8xbf16> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x8xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x8xbf16>
    %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x8xf32>) outs(%e : tensor<?x8xbf16>) {
    ^bb0(%i: f32, %o: bf16):
      %0 = arith.truncf %i : f32 to bf16
      linalg.yield %0 : bf16
    } -> tensor<?x8xbf16>
    disc_plan.yield %v : tensor<?x8xbf16>
  }
  %sum = disc_plan.kernel row ins(%x : tensor<?x8xf32>) -> tensor<?xf32> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x8xf32>):
    %s = disc_shape.dim <S>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%s) : tensor<?xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %v = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<?x8xf32>) outs(%f : tensor<?xf32>) {
    ^bb0(%i: f32, %o: f32):
      %0 = arith.addf %i, %o : f32
      linalg.yield %0 : f32
    } -> tensor<?xf32>
    disc_plan.yield %v : tensor<?xf32>
  }
  %t = disc_plan.kernel loop ins(%sum : tensor<?xf32>) -> tensor<?xbf16> attributes {reason = "r"} {
  ^bb0(%a: tensor<?xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?xbf16>
    %v = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]} ins(%a : tensor<?xf32>) outs(%e : tensor<?xbf16>) {
    ^bb0(%i: f32, %o: bf16):
      %0 = arith.truncf %i : f32 to bf16
      linalg.yield %0 : bf16
    } -> tensor<?xbf16>
    disc_plan.yield %v : tensor<?xbf16>
  }
  return %y, %r, %q, %t : tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?xbf16>
}
}
