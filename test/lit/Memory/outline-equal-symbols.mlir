// RUN: disc-opt %s -disc-memory-outline-kernels | FileCheck %s

// A guard makes two sizes that depend on data equal: the kernel has one of them, as its code has no guards.
// CHECK: disc_plan.kernel_func loop @k0_add attributes
// CHECK-SAME: arg_dims = [#disc_shape.dims<[u0]>, #disc_shape.dims<[u0]>]
// CHECK-SAME: symbols = ["u0"]
// CHECK: tensor.empty
// CHECK-NOT: u1
// CHECK: func.func @main
// CHECK: disc_shape.guard <u0> eq <u1>
// CHECK: disc_plan.call @k0_add
#id = affine_map<(d0) -> (d0)>
disc_shape.symbol @N min 0
disc_shape.symbol @u0 min 0
disc_shape.symbol @u1 min 0
func.func @main(%n: tensor<i64>, %m: tensor<i64>, %x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[N]>}) -> tensor<?xf32> {
  %u = disc_shape.bind @u0, %n : tensor<i64>
  %v = disc_shape.bind @u1, %m : tensor<i64>
  disc_shape.guard <u0> eq <u1> "sizes differ"
  %c0 = arith.constant 0 : index
  %a = disc_tensor.slice %x[%c0, %u] dim 0 step 1 : tensor<?xf32> -> tensor<?xf32>
  %b = disc_tensor.slice %x[%c0, %v] dim 0 step 1 : tensor<?xf32> -> tensor<?xf32>
  %r = disc_plan.kernel loop ins(%a, %b : tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32> attributes {name = "add", reason = "r"} {
  ^bb0(%p: tensor<?xf32>, %q: tensor<?xf32>):
    %s = disc_shape.dim <u1>
    %e = tensor.empty(%s) {disc_shape.dims = [#disc_shape.dims<[u1]>]} : tensor<?xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
        ins(%p, %q : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%l: f32, %k: f32, %o: f32):
      %1 = arith.addf %l, %k : f32
      linalg.yield %1 : f32
    } -> tensor<?xf32>
    disc_plan.yield %0 : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
