// RUN: disc-opt %s -disc-library-select -disc-library-verify -split-input-file | FileCheck %s

// Code for all sizes, with a constant that only init gets.
// CHECK: disc_plan.extern @region0 backend "a" table "a_table" constants ["w"] : [tensor<4xf32>] {description = "{}"}
// CHECK-LABEL: @call
disc_shape.symbol @n
func.func @call(%x: tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[n, 4]>}) -> (tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[n, 4]>}) {
  %w = disc_tensor.parameter "w" : tensor<4xf32>
  // CHECK: %[[N:.*]] = disc_shape.dim <n>
  // CHECK: %[[H:.*]] = disc_shape.dim <n floordiv 2>
  // CHECK: %[[R:.*]] = disc_plan.extern_call @region0(%arg0) sizes(%[[N]]) numbers(%[[H]]) "a: aten.mul at model.py:7"
  %0 = disc_plan.region "a" 0 attributes {table = "a_table", description = "{}", constants = ["w"], numbers = [#disc_shape.expr<n floordiv 2>], disc_shape.dims = [#disc_shape.dims<[n, 4]>]} : (tensor<?x4xf32>) {
    %1 = disc_tensor.composite "aten.mul" 1 (%x, %w) {} {disc_plan.owner = #disc_plan.claim<"a", "mul", 0>, disc_shape.dims = [#disc_shape.dims<[n, 4]>]}
        : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> { disc_tensor.yield %x : tensor<?x4xf32> } loc("model.py":7:0)
    disc_plan.yield %1 : tensor<?x4xf32>
  }
  // CHECK: return %[[R]]
  return %0 : tensor<?x4xf32>
}

// -----

// Both, and a choice in each call.
// CHECK-LABEL: @choice
disc_shape.symbol @n
func.func @choice(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}) -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}) {
  // CHECK: %[[D:.*]] = disc_shape.dim <n - 32>
  // CHECK: %[[GO:.*]] = linalg.generic
  // CHECK: arith.cmpi sge, %[[D]]
  // CHECK: disc_tensor.branch %[[GO]]
  // CHECK: disc_plan.extern_call @region1(%arg0)
  // CHECK: } else {
  // CHECK: disc_tensor.permute %arg0 [0]
  %0 = disc_plan.region "a" 1 attributes {table = "a_table", when = [#disc_shape.expr<n - 32>], disc_shape.dims = [#disc_shape.dims<[n]>]} : (tensor<?xf32>) {
    %1 = disc_tensor.composite "aten.id" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"a", "id", 0>, disc_shape.dims = [#disc_shape.dims<[n]>]} : (tensor<?xf32>) -> tensor<?xf32> {
      %p = disc_tensor.permute %x [0] {disc_shape.dims = [#disc_shape.dims<[n]>]} : tensor<?xf32> -> tensor<?xf32>
      disc_tensor.yield %p : tensor<?xf32>
    }
    disc_plan.yield %1 : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// -----

// The host's: a veto, a region without code, a composite that nobody took.
// CHECK-LABEL: @host
// CHECK-NOT: disc_plan
// CHECK-NOT: composite
// CHECK: %[[A:.*]] = disc_tensor.permute %arg0 [1, 0]
// CHECK: %[[B:.*]] = disc_tensor.permute %[[A]] [1, 0]
// CHECK: %[[C:.*]] = disc_tensor.permute %[[B]] [1, 0]
// CHECK: return %[[C]]
func.func @host(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %0 = disc_plan.region "a" 0 attributes {veto = "too small", table = "a_table"} : (tensor<8x4xf32>) {
    %1 = disc_tensor.composite "aten.t" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"a", "t", 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32> {
      %p = disc_tensor.permute %x [1, 0] : tensor<4x8xf32> -> tensor<8x4xf32>
      disc_tensor.yield %p : tensor<8x4xf32>
    }
    disc_plan.yield %1 : tensor<8x4xf32>
  }
  %2 = disc_plan.region "a" 1 : (tensor<4x8xf32>) {
    %3 = disc_tensor.composite "aten.t" 2 (%0) {} {disc_plan.owner = #disc_plan.claim<"a", "t", 1>} : (tensor<8x4xf32>) -> tensor<4x8xf32> {
      %p = disc_tensor.permute %0 [1, 0] : tensor<8x4xf32> -> tensor<4x8xf32>
      disc_tensor.yield %p : tensor<4x8xf32>
    }
    disc_plan.yield %3 : tensor<4x8xf32>
  }
  %4 = disc_tensor.composite "aten.t" 3 (%2) {} : (tensor<4x8xf32>) -> tensor<8x4xf32> {
    %p = disc_tensor.permute %2 [1, 0] : tensor<4x8xf32> -> tensor<8x4xf32>
    disc_tensor.yield %p : tensor<8x4xf32>
  }
  return %4 : tensor<8x4xf32>
}
