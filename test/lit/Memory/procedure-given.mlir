// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// Who invokes a procedure whose result has an extent that it finds out passes the number of a slot, gets the extent, and
// copies what lies in the slot to where it is to be.
// CHECK: disc_rt.entry @main
// CHECK: disc_rt.fit
// CHECK: %[[SLOT:.*]] = disc_shape.dim <0>
// CHECK: %[[M:.*]] = disc_rt.invoke %[[CALL:.*]] @f(%{{.*}}, %[[SLOT]], %{{.*}}) : (!llvm.ptr, index, index) -> index
// CHECK: disc_rt.bind_symbol @m, %[[M]] computed
// CHECK: %[[DATA:.*]] = disc_rt.slot %[[CALL]][%[[SLOT]]]
// CHECK: %[[OUT:.*]] = disc_rt.output
// CHECK: disc_rt.copy %[[OUT]], %[[DATA]]
// CHECK: disc_rt.procedure @f
// CHECK: ^bb0(%[[CALL:.*]]: !llvm.ptr, %[[X:.*]]: !llvm.ptr, %[[R:.*]]: index, %[[N:.*]]: index):
// CHECK: %[[FIRST:.*]], %{{.*}} = disc_rt.enter %[[CALL]] slots 1
// CHECK: %[[NUMBER:.*]] = arith.addi %[[FIRST]]
// CHECK: %[[K:.*]] = disc_rt.invoke %[[CALL]] @f(%[[X]], %[[NUMBER]], %{{.*}}) : (!llvm.ptr, index, index) -> index
// CHECK: disc_rt.slot %[[CALL]][%[[NUMBER]]]
// CHECK: disc_rt.slot %[[CALL]][%[[R]]]
// CHECK: disc_rt.leave
// CHECK: %[[GIVEN:.*]] = disc_shape.dim <k>
// CHECK: disc_rt.return %[[GIVEN]]
disc_shape.symbol @S min 1 max 64
disc_shape.symbol @n min 1
disc_shape.symbol @m min 0
disc_shape.symbol @k min 0
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}) -> tensor<?xf32> {
  %s = disc_shape.dim <S>
  %y = disc_tensor.invoke @f(%x) sizes(%s) symbols [@m] {disc_shape.dims = [#disc_shape.dims<[m]>]}
    : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func private @f(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>})
    -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[k]>})
    attributes {disc_tensor.procedure = [@n], disc_tensor.given = array<i64: 0, 0>} {
  %s = disc_shape.dim <n>
  %y = disc_tensor.invoke @f(%x) sizes(%s) symbols [@k] {disc_shape.dims = [#disc_shape.dims<[k]>]}
    : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
