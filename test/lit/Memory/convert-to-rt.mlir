// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// The chain x -> a -> b -> c -> y needs two slots: c takes a's. S is bound by its first extent and checked in z.
// CHECK: disc_rt.entry @main
// CHECK-SAME: inputs = [#disc_rt.tensor<name = "x", type = tensor<?x8xf32>, dims = <[S, 8]>>, #disc_rt.tensor<name = {{.*}}, dims = <[S]>>
// CHECK: ^bb0(%[[CALL:.*]]: !llvm.ptr):
// CHECK: disc_rt.check_inputs %[[CALL]]
// CHECK: %[[S:.*]] = disc_rt.extent %[[CALL]][0, 0]
// CHECK: disc_rt.guard %[[CALL]], %[[S]] ge %{{.*}} input 0 dim 0 expected "2 <= S <= 64"
// CHECK: disc_rt.guard %[[CALL]], %[[S]] le
// CHECK: disc_rt.bind_symbol @S, %[[S]]
// CHECK: %[[E1:.*]] = disc_rt.extent %[[CALL]][0, 1]
// CHECK: %[[Z0:.*]] = disc_rt.extent %[[CALL]][1, 0]
// CHECK: disc_rt.guard %[[CALL]], %[[E1]] eq %{{.*}} input 0 dim 1 expected "8"
// CHECK: disc_rt.guard %[[CALL]], %[[Z0]] eq %{{.*}} input 1 dim 0 expected "S"
// All three temporaries in one slot: each is written over the one it is made from.
// CHECK: %[[BYTES:.*]] = disc_shape.dim <S * 32>
// CHECK: disc_rt.fit %[[CALL]], %[[BYTES]] scratch [] outputs [#disc_shape.expr<S * 32>] of %[[S]]
// CHECK: %[[OUT:.*]] = disc_rt.output %[[CALL]][0] (
// CHECK: %[[ARENA:.*]] = disc_rt.arena {{.*}} in_place = 2
// CHECK: %[[A:.*]] = disc_rt.offset %[[ARENA]]
// CHECK: %[[X:.*]] = disc_rt.input %[[CALL]][0]
// CHECK: disc_rt.launch %[[CALL]] @k(%[[X]], %[[A]])
// CHECK: disc_rt.launch %[[CALL]] @k(%[[A]], %[[A]])
// CHECK: disc_rt.launch %[[CALL]] @k(%[[A]], %[[A]])
// CHECK: disc_rt.launch %[[CALL]] @k(%[[A]], %[[OUT]])
// CHECK: disc_rt.return
disc_shape.symbol @S min 2 max 64 divisor 2
disc_plan.kernel_func loop @k attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, 8]>],
    layouts = [#disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>]} {
^bb0(%p: tensor<?x8xf32>):
  disc_plan.yield %p : tensor<?x8xf32>
}
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>, disc_shape.name = "x"},
                %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>, disc_shape.name = "z"}) -> tensor<?x8xf32> {
  %a = disc_plan.call @k(%x) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = disc_plan.call @k(%a) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %c = disc_plan.call @k(%b) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = disc_plan.call @k(%c) result_dims [#disc_shape.dims<[S, 8]>] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
