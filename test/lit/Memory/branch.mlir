// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// The first result is an output whose extent is known on either side only: both write it there. The second stays where
// its side has it, in a temporary or in the input.
// CHECK: %[[P:.*]] = disc_rt.input %[[CALL:.*]][1]
// CHECK: %[[BYTE:.*]] = llvm.load
// CHECK: %[[R:.*]]:3 = disc_rt.branch %[[BYTE]] : (!llvm.ptr, !llvm.ptr, index) {
// CHECK: %[[LONG:.*]] = disc_shape.dim <S + 1>
// CHECK: %[[OUT:.*]] = disc_rt.output %[[CALL]][0] (%[[LONG]])
// CHECK: disc_rt.launch %[[CALL]] @grow(%[[X:.*]], %[[OUT]])
// CHECK: disc_rt.launch %[[CALL]] @neg(%[[X]], %[[TEMP:.*]])
// CHECK: disc_rt.give %[[OUT]], %[[TEMP]], %{{.*}}
// CHECK: } else {
// CHECK: %[[SHORT:.*]] = disc_shape.dim <S>
// CHECK: %[[OUT1:.*]] = disc_rt.output %[[CALL]][0] (%[[SHORT]])
// CHECK: disc_rt.launch %[[CALL]] @neg(%[[X]], %[[OUT1]])
// CHECK: disc_rt.give %[[OUT1]], %[[X]], %{{.*}}
// CHECK: }
// CHECK: disc_rt.bind_symbol @n, %[[R]]#2 computed
// CHECK: disc_rt.launch %[[CALL]] @neg(%[[R]]#1,
disc_shape.symbol @S min 1 max 64
disc_shape.symbol @n
#one = #disc_plan.layout<<0>, <[1]>>
disc_plan.kernel_func loop @grow attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S]>], layouts = [#one, #one]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <S + 1>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
disc_plan.kernel_func loop @neg attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S]>], layouts = [#one, #one]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <S>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}, %p: tensor<i1>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s = disc_shape.dim <S>
  %s1 = disc_shape.dim <S + 1>
  %y, %z = disc_tensor.branch %p symbols [@n] {disc_shape.dims = [#disc_shape.dims<[n]>, #disc_shape.dims<[S]>]}
      : tensor<i1> -> (tensor<?xf32>, tensor<?xf32>) {
    %a = disc_plan.call @grow(%x) result_dims [#disc_shape.dims<[S + 1]>] : (tensor<?xf32>) -> tensor<?xf32>
    %b = disc_plan.call @neg(%x) result_dims [#disc_shape.dims<[S]>] : (tensor<?xf32>) -> tensor<?xf32>
    disc_tensor.yield %a, %b : tensor<?xf32>, tensor<?xf32> sizes(%s1)
  } else {
    %a = disc_plan.call @neg(%x) result_dims [#disc_shape.dims<[S]>] : (tensor<?xf32>) -> tensor<?xf32>
    disc_tensor.yield %a, %x : tensor<?xf32>, tensor<?xf32> sizes(%s)
  }
  %w = disc_plan.call @neg(%z) result_dims [#disc_shape.dims<[S]>] : (tensor<?xf32>) -> tensor<?xf32>
  return %y, %w : tensor<?xf32>, tensor<?xf32>
}
