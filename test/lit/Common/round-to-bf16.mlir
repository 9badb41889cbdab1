// RUN: disc-opt %s -disc-lower-math | FileCheck %s

// Rounding that may make denormals 0 is an instruction where the CPU multiplies tiles, or pairs, of bf16.
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, bf16_tiles = true>} {
// CHECK-LABEL: func.func @round
// CHECK-NEXT: llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"(%{{.*}}) : (vector<16xf32>) -> vector<16xbf16>
// CHECK-NEXT: return
func.func @round(%x: vector<16xf32>) -> vector<16xbf16> {
  %r = arith.truncf %x fastmath<afn> : vector<16xf32> to vector<16xbf16>
  return %r : vector<16xbf16>
}

// CHECK-LABEL: func.func @exact
// CHECK-NOT: call_intrinsic
// CHECK: arith.trunci
func.func @exact(%x: vector<16xf32>) -> vector<16xbf16> {
  %r = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %r : vector<16xbf16>
}
}
