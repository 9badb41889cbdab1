// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// A procedure takes pointers to its arguments and to memory for its results, and the values of its symbols. What it
// needs for itself is its activation's.
// CHECK: disc_rt.entry @main
// CHECK: %[[Y:.*]] = disc_rt.output %[[CALL:.*]][0]
// CHECK: disc_rt.invoke %[[CALL]] @f(%{{.*}}, %[[Y]], %{{.*}}) : (!llvm.ptr, !llvm.ptr, index) -> ()
// CHECK: disc_rt.procedure @f
// CHECK: ^bb0(%[[CALL:.*]]: !llvm.ptr, %[[X:.*]]: !llvm.ptr, %[[R:.*]]: !llvm.ptr, %[[N:.*]]: index):
// CHECK: %[[SLOT:.*]], %[[MARK:.*]] = disc_rt.enter %[[CALL]] slots 0
// CHECK: disc_rt.guard %[[CALL]], %[[N]] ge
// CHECK: disc_rt.bind_symbol @n, %[[N]] computed
// CHECK: %[[ARENA:.*]] = disc_rt.arena %[[CALL]], %{{.*}} activation
// CHECK: %[[T:.*]] = disc_rt.offset %[[ARENA]]
// CHECK: disc_rt.launch %[[CALL]] @neg(%[[X]], %[[T]])
// CHECK: disc_rt.invoke %[[CALL]] @f(%[[T]], %[[R]], %{{.*}})
// CHECK: disc_rt.leave %[[CALL]], %[[SLOT]], %[[MARK]]
disc_shape.symbol @S min 1 max 64
disc_shape.symbol @n min 1
#one = #disc_plan.layout<<0>, <[1]>>
disc_plan.kernel_func loop @neg attributes {symbols = ["n"], arg_dims = [#disc_shape.dims<[n]>], layouts = [#one, #one]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <n>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}) -> tensor<?xf32> {
  %s = disc_shape.dim <S>
  %y = disc_tensor.invoke @f(%x) sizes(%s) {disc_shape.dims = [#disc_shape.dims<[S]>]} : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func private @f(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>})
    -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}) attributes {disc_tensor.procedure = [@n]} {
  %s = disc_shape.dim <n>
  %t = disc_plan.call @neg(%x) result_dims [#disc_shape.dims<[n]>] : (tensor<?xf32>) -> tensor<?xf32>
  %y = disc_tensor.invoke @f(%t) sizes(%s) {disc_shape.dims = [#disc_shape.dims<[n]>]} : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
