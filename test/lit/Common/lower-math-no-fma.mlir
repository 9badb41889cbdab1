// RUN: disc-opt %s --disc-lower-math | FileCheck %s

// Without the instruction, fused multiply-add would be a library call per lane.
module attributes {disc_plan.target = #disc_plan.target<fma = false>} {
// CHECK-LABEL: func.func @exponential
// CHECK-NOT: math.fma
// CHECK: return
func.func @exponential(%x: vector<4xf32>) -> vector<4xf32> {
  %r = math.exp %x : vector<4xf32>
  return %r : vector<4xf32>
}
}
