// RUN: disc-opt %s -disc-library-partition | FileCheck %s

// What lies between the members moves to where the data flow allows it; results are what others use.
// CHECK-LABEL: @main
disc_shape.symbol @n
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>})
    -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}, tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}) {
  // CHECK: %[[R:.*]]:2 = disc_plan.region "a" 3 attributes {disc_shape.dims = [#disc_shape.dims<[n]>, #disc_shape.dims<[n]>]} : (tensor<?xf32>, tensor<?xf32>) {
  // CHECK-NEXT: %[[E:.*]] = disc_tensor.composite "aten.exp" 1(%arg0) {} {disc_plan.owner = #disc_plan.claim<"a", "exp", 0>
  // CHECK: %[[N:.*]] = disc_tensor.composite "aten.neg" 2(%[[E]])
  // CHECK: disc_plan.yield %[[E]], %[[N]]
  // CHECK: %[[P:.*]] = disc_tensor.permute %[[R]]#0
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"a", "exp", 0>, disc_plan.group = 3, disc_shape.dims = [#disc_shape.dims<[n]>]}
      : (tensor<?xf32>) -> tensor<?xf32> { disc_tensor.yield %x : tensor<?xf32> }
  %p = disc_tensor.permute %0 [0] {disc_shape.dims = [#disc_shape.dims<[n]>]} : tensor<?xf32> -> tensor<?xf32>
  %1 = disc_tensor.composite "aten.neg" 2 (%0) {} {disc_plan.owner = #disc_plan.claim<"a", "neg", 1>, disc_plan.group = 3, disc_shape.dims = [#disc_shape.dims<[n]>]}
      : (tensor<?xf32>) -> tensor<?xf32> { disc_tensor.yield %0 : tensor<?xf32> }
  // CHECK: return %[[P]], %[[R]]#1
  return %p, %1 : tensor<?xf32>, tensor<?xf32>
}
