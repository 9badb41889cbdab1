// RUN: disc-opt %s --disc-lower-math | FileCheck %s

// CHECK-LABEL: func.func @exponential
// CHECK-NOT: math.exp
// CHECK: math.fma {{.*}} : vector<16xf32>
// CHECK: arith.shli {{.*}} : vector<16xi32>
func.func @exponential(%x: vector<16xf32>) -> vector<16xf32> {
  %r = math.exp %x : vector<16xf32>
  return %r : vector<16xf32>
}

// CHECK-LABEL: func.func @scalars
// CHECK-NOT: math.{{tanh|erf|log|expm1}}
// CHECK: return
func.func @scalars(%x: f32) -> f32 {
  %0 = math.tanh %x : f32
  %1 = math.erf %0 : f32
  %2 = math.log %1 : f32
  %3 = math.expm1 %2 : f32
  return %3 : f32
}

// 1 + erf is erfc of the negative, and 1 - tanh a quotient: neither needs the function where it is small. A result that is
// used as well is computed.
// CHECK-LABEL: func.func @with_one
// CHECK-NOT: math.{{tanh|erf}}
// CHECK-COUNT-1: arith.select
// CHECK: arith.divf
// CHECK: arith.select
// CHECK: return
func.func @with_one(%x: vector<8xf32>) -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>) {
  %one = arith.constant dense<1.0> : vector<8xf32>
  %0 = math.erf %x : vector<8xf32>
  %1 = arith.addf %0, %one : vector<8xf32>
  %2 = math.tanh %x : vector<8xf32>
  %3 = arith.subf %one, %2 : vector<8xf32>
  %4 = math.erf %1 : vector<8xf32>
  %5 = arith.addf %one, %4 : vector<8xf32>
  return %1, %3, %5, %4 : vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>
}

// CHECK-LABEL: func.func @f64
// CHECK-NOT: call
// CHECK: math.fma {{.*}} : vector<4xf64>
// CHECK: return
func.func @f64(%x: vector<4xf64>) -> vector<4xf64> {
  %r = math.exp %x : vector<4xf64>
  return %r : vector<4xf64>
}

// Powers with simple exponents are multiplications.
// CHECK-LABEL: func.func @square
// CHECK-NEXT: %[[R:.*]] = arith.mulf
// CHECK-NEXT: return %[[R]]
func.func @square(%x: vector<8xf32>) -> vector<8xf32> {
  %two = arith.constant dense<2.0> : vector<8xf32>
  %r = math.powf %x, %two : vector<8xf32>
  return %r : vector<8xf32>
}

// Of f32 in f64, without libm; of f64 as well in lanes.
// CHECK-LABEL: func.func @power
// CHECK-NOT: call
// CHECK: arith.extf {{.*}} : vector<8xf32> to vector<8xf64>
// CHECK: arith.truncf {{.*}} : vector<8xf64> to vector<8xf32>
// CHECK-NOT: call
// CHECK: return
func.func @power(%x: vector<8xf32>, %y: vector<8xf32>, %z: vector<8xf64>) -> (vector<8xf32>, vector<8xf64>) {
  %r = math.powf %x, %y : vector<8xf32>
  %s = math.powf %z, %z : vector<8xf64>
  return %r, %s : vector<8xf32>, vector<8xf64>
}

// One number of f64: libm.
// CHECK-LABEL: func.func @power_of_one
// CHECK: call @pow(
func.func @power_of_one(%x: f64) -> f64 {
  %r = math.powf %x, %x : f64
  return %r : f64
}

// bf16 in f32, its conversions in integers.
// CHECK-LABEL: func.func @bf16
// CHECK: arith.shli {{.*}} : vector<8xi32>
// CHECK: arith.addf {{.*}} : vector<8xf32>
// CHECK: arith.trunci {{.*}} : vector<8xi32> to vector<8xi16>
// CHECK-NOT: truncf
func.func @bf16(%x: vector<8xbf16>) -> vector<8xbf16> {
  %r = arith.addf %x, %x : vector<8xbf16>
  return %r : vector<8xbf16>
}

// What is an instruction stays.
// CHECK-LABEL: func.func @instructions
// CHECK-NEXT: math.sqrt
// CHECK-NEXT: math.floor
// CHECK-NEXT: math.absf
func.func @instructions(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.sqrt %x : vector<8xf32>
  %1 = math.floor %0 : vector<8xf32>
  %2 = math.absf %1 : vector<8xf32>
  return %2 : vector<8xf32>
}
