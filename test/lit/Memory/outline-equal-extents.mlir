// RUN: disc-opt %s -disc-memory-outline-kernels | FileCheck %s

// A guard makes an extent that is computed from a number of data a constant: the kernel has that, as its code has no
// guards. Of two expressions for one extent it has the first.
// CHECK: disc_plan.kernel_func loop @k0_add attributes
// CHECK-SAME: arg_dims = [#disc_shape.dims<[N * 4, 8]>, #disc_shape.dims<[N * 4, 8]>]
// CHECK-SAME: symbols = ["N"]
// CHECK: tensor.empty
// CHECK-NOT: u0
// CHECK: func.func @main
// CHECK: disc_plan.call @k0_add
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @N min 1
disc_shape.symbol @u0 min 0
func.func @main(%n: tensor<i64>, %x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[N * 4, (u0 * 8) floordiv N]>}, %y: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[u0, 8]>}) -> tensor<?x8xf32> {
  %u = disc_shape.bind @u0, %n : tensor<i64>
  disc_shape.guard <N * 4> eq <u0> "sizes differ"
  disc_shape.guard <(u0 * 8) floordiv N> eq <8> "sizes differ"
  %r = disc_plan.kernel loop ins(%x, %y : tensor<?x?xf32>, tensor<?x8xf32>) -> tensor<?x8xf32> attributes {name = "add", reason = "r"} {
  ^bb0(%p: tensor<?x?xf32>, %q: tensor<?x8xf32>):
    %s = disc_shape.dim <u0>
    %e = tensor.empty(%s) {disc_shape.dims = [#disc_shape.dims<[u0, 8]>]} : tensor<?x8xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%p, %q : tensor<?x?xf32>, tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
    ^bb0(%l: f32, %k: f32, %o: f32):
      %1 = arith.addf %l, %k : f32
      linalg.yield %1 : f32
    } -> tensor<?x8xf32>
    disc_plan.yield %0 : tensor<?x8xf32>
  }
  return %r : tensor<?x8xf32>
}
