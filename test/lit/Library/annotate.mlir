// RUN: disc-opt %s -disc-library-annotate="backends=a,b" | FileCheck %s --check-prefixes=CHECK,AB
// RUN: disc-opt %s -disc-library-annotate="backends=b,a" | FileCheck %s --check-prefixes=CHECK,BA
// RUN: disc-opt %s -disc-library-annotate="backends=b" | FileCheck %s --check-prefixes=CHECK,B

// The first back end chooses first; its larger match goes before its smaller one.
// CHECK-LABEL: @main
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: "aten.exp" 1
  // AB-SAME: disc_plan.owner = #disc_plan.claim<"a", "exp_neg", 7>
  // AB-SAME: disc_plan.refusals = [#disc_plan.refusal<"b", "exp", "back end 'a' takes it with pattern 'exp_neg'">]
  // BA-SAME: disc_plan.owner = #disc_plan.claim<"b", "exp", 0>
  // BA-SAME: disc_plan.refusals = [#disc_plan.refusal<"a", "exp_neg", "back end 'b' takes it with pattern 'exp'">, #disc_plan.refusal<"a", "exp", "back end 'b' takes it with pattern 'exp'">]
  // B-SAME: disc_plan.owner = #disc_plan.claim<"b", "exp", 0>
  // B-SAME: #disc_plan.refusal<"a", "exp_neg", "the back end is not in use">
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} {disc_plan.claims = [#disc_plan.claim<"a", "exp_neg", 7>, #disc_plan.claim<"a", "exp", 6>, #disc_plan.claim<"b", "exp", 0>]}
      : (tensor<4xf32>) -> tensor<4xf32> {
    disc_tensor.yield %x : tensor<4xf32>
  }
  // CHECK: "aten.neg" 2
  // AB-SAME: disc_plan.owner = #disc_plan.claim<"a", "exp_neg", 7>
  // BA-SAME: disc_plan.refusals = [#disc_plan.refusal<"a", "exp_neg", "another match takes a part of this one">]
  // B-SAME: disc_plan.refusals = [#disc_plan.refusal<"a", "exp_neg", "the back end is not in use">]
  %1 = disc_tensor.composite "aten.neg" 2 (%0) {} {disc_plan.claims = [#disc_plan.claim<"a", "exp_neg", 7>]}
      : (tensor<4xf32>) -> tensor<4xf32> {
    disc_tensor.yield %0 : tensor<4xf32>
  }
  return %1 : tensor<4xf32>
}
