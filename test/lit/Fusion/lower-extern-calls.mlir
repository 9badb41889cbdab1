// RUN: disc-opt %s -disc-fusion-lower-extern-calls | FileCheck %s

// The numbers of a call are which code, how many operands, results and numbers, and the numbers.
disc_plan.extern @region1 backend "a" table "a_table" constants [] : [] {description = "{}"}
disc_plan.extern @region0 backend "a" table "a_table" constants [] : [] {description = "{}"}
disc_shape.symbol @n
// CHECK-LABEL: @main
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}, %y: tensor<4xf32>) -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}) {
  // CHECK: %[[N:.*]] = disc_shape.dim <n>
  // CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : index
  // CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : index
  // CHECK: disc_tensor.call "region"(%arg0, %arg1) sizes(%[[N]]) config({{.*}}, %[[N]]) tasks {{.*}} scratch {{.*}} "a: aten.add"
  // CHECK-SAME: {disc_shape.dims = [#disc_shape.dims<[n]>]} : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>
  %n = disc_shape.dim <n>
  %0 = disc_plan.extern_call @region0(%x, %y) sizes(%n) numbers(%n) "a: aten.add" {disc_shape.dims = [#disc_shape.dims<[n]>]} : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
