// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena="sanitize=true" -disc-memory-convert-to-rt="sanitize=true" -disc-memory-verify | FileCheck %s
// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s --check-prefix=OFF

// %a is read twice, and takes memory of its own between two red zones of 128 bytes.
// CHECK: disc_rt.sanitize %[[CALL:.*]]
// CHECK: %[[SIZE:.*]] = disc_shape.dim <S * 32 + 128>
// CHECK: %[[ZONE:.*]] = disc_shape.dim <128>
// CHECK: %[[BYTES:.*]] = arith.addi %[[SIZE]], %[[ZONE]]
// CHECK: %[[AT:.*]] = arith.addi %{{.*}}, %[[ZONE]]
// CHECK: %[[ARENA:.*]] = disc_rt.arena %[[CALL]], %[[BYTES]]
// CHECK: %[[A:.*]] = disc_rt.offset %[[ARENA]], %[[AT]]
// CHECK: disc_rt.launch %[[CALL]] @k(%[[X:.*]], %[[A]]) checked #disc_shape.dims<[S * 32, S * 32]> as ["r input 'x'", "ws temporary 'k'"]
// CHECK: disc_rt.launch %[[CALL]] @k(%[[A]], %{{.*}}) checked {{.*}} as ["rs temporary 'k'", "w output 'output0'"]
// CHECK: disc_rt.launch %[[CALL]] @k(%[[A]], %{{.*}}) checked {{.*}} as ["rsl temporary 'k'", "w output 'output1'"]
// CHECK: disc_rt.copy %{{.*}}, %[[X]], %{{.*}} checked %[[CALL]]

// OFF-NOT: sanitize
// OFF-NOT: checked
disc_shape.symbol @S min 2 max 64 divisor 2
disc_plan.kernel_func loop @k attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, 8]>],
    layouts = [#disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>]} {
^bb0(%p: tensor<?x8xf32>):
  disc_plan.yield %p : tensor<?x8xf32>
}
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>, disc_shape.name = "x"})
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %a = disc_plan.call @k(%x) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = disc_plan.call @k(%a) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %c = disc_plan.call @k(%a) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %b, %c, %x : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}
