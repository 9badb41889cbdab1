// RUN: disc-opt %s -disc-library-merge="backends=a" -split-input-file | FileCheck %s

// Neighbours are one group, but not around an operation of others: %3 needs %2, which needs %0.
// CHECK-LABEL: @around
func.func @around(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: "aten.exp" 1{{.*}}disc_plan.group = 0
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"a", "exp", 0>}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %x : tensor<4xf32> }
  // CHECK: "aten.neg" 2{{.*}}disc_plan.group = 0
  %1 = disc_tensor.composite "aten.neg" 2 (%0) {} {disc_plan.owner = #disc_plan.claim<"a", "neg", 1>}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %0 : tensor<4xf32> }
  // CHECK: "aten.sin" 3
  // CHECK-NOT: disc_plan.group
  %2 = disc_tensor.composite "aten.sin" 3 (%0) {} : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %0 : tensor<4xf32> }
  // CHECK: "aten.add" 4{{.*}}disc_plan.group = 1
  %3 = disc_tensor.composite "aten.add" 4 (%1, %2) {} {disc_plan.owner = #disc_plan.claim<"a", "add", 2>}
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %1 : tensor<4xf32> }
  return %3 : tensor<4xf32>
}

// -----

// Back ends that do not merge have a group for each match, and two back ends never share one.
// CHECK-LABEL: @others
func.func @others(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: "aten.exp" 1{{.*}}disc_plan.group = 0
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"b", "exp", 0>}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %x : tensor<4xf32> }
  // CHECK: "aten.neg" 2{{.*}}disc_plan.group = 1
  %1 = disc_tensor.composite "aten.neg" 2 (%0) {} {disc_plan.owner = #disc_plan.claim<"b", "neg", 1>}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %0 : tensor<4xf32> }
  // CHECK: "aten.sin" 3{{.*}}disc_plan.group = 2
  %2 = disc_tensor.composite "aten.sin" 3 (%1) {} {disc_plan.owner = #disc_plan.claim<"a", "sin", 0>}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %1 : tensor<4xf32> }
  return %2 : tensor<4xf32>
}

// -----

// A match that is left and entered again is nobody's.
// CHECK-LABEL: @not_convex
func.func @not_convex(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: "aten.exp" 1
  // CHECK-NOT: disc_plan.owner
  // CHECK-SAME: disc_plan.refusals = [#disc_plan.refusal<"a", "exp_add", "an operation outside of the match uses one part of it and is used by another">]
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"a", "exp_add", 0>}
      : (tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %x : tensor<4xf32> }
  %1 = disc_tensor.permute %0 [0] : tensor<4xf32> -> tensor<4xf32>
  // CHECK: "aten.add" 2
  // CHECK-NOT: disc_plan.owner
  %2 = disc_tensor.composite "aten.add" 2 (%0, %1) {} {disc_plan.owner = #disc_plan.claim<"a", "exp_add", 0>}
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> { disc_tensor.yield %1 : tensor<4xf32> }
  return %2 : tensor<4xf32>
}

// -----

// The order of a bind and what mentions its symbol is an edge that no value shows.
// CHECK-LABEL: @bound
disc_shape.symbol @u
func.func @bound(%x: tensor<i64>, %y: tensor<4xf32>) -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[u]>}) {
  // CHECK: "count" 1{{.*}}disc_plan.group = 0
  %0 = disc_tensor.composite "count" 1 (%x) {} {disc_plan.owner = #disc_plan.claim<"a", "count", 0>}
      : (tensor<i64>) -> tensor<i64> { disc_tensor.yield %x : tensor<i64> }
  %u = disc_shape.bind @u, %0 : tensor<i64>
  %n = disc_shape.dim <u>
  // CHECK: "take" 2{{.*}}disc_plan.group = 1
  %1 = disc_tensor.composite "take" 2 (%0, %y) {} {disc_plan.owner = #disc_plan.claim<"a", "take", 1>, disc_shape.dims = [#disc_shape.dims<[u]>]}
      : (tensor<i64>, tensor<4xf32>) -> tensor<?xf32> {
    %e = tensor.empty(%n) : tensor<?xf32>
    disc_tensor.yield %e : tensor<?xf32>
  }
  return %1 : tensor<?xf32>
}
