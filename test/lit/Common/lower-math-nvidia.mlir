// RUN: disc-opt %s --disc-lower-math=nvidia=true --canonicalize | FileCheck %s

gpu.module @kernels {

// One instruction for the power of two of what is left of the exponent, from -126 to 127 in whole steps; one product with
// 2^n, which may overflow or be denormal.
// CHECK-LABEL: gpu.func @exp
// CHECK: %[[LOW:.*]] = arith.minnumf %[[X:.*]], %{{.*}} : f32
// CHECK: %[[CLAMPED:.*]] = arith.maxnumf %[[LOW]], %{{.*}} : f32
// CHECK: %[[BIASED:.*]] = math.fma %[[CLAMPED]], %{{.*}}, %{{.*}} : f32
// CHECK: math.fma %[[X]]
// CHECK: %[[REST:.*]] = math.fma %[[X]]
// CHECK: %[[P:.*]] = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"(%[[REST]]) : (f32) -> f32
// CHECK: %[[BITS:.*]] = arith.bitcast %[[BIASED]] : f32 to i32
// CHECK: %[[SHIFTED:.*]] = arith.shli %[[BITS]]
// CHECK: %[[SCALE:.*]] = arith.bitcast %[[SHIFTED]] : i32 to f32
// CHECK: arith.mulf %[[P]], %[[SCALE]] : f32
gpu.func @exp(%x: f32, %p: !llvm.ptr<1>) kernel {
  %y = math.exp %x : f32
  llvm.store %y, %p : f32, !llvm.ptr<1>
  gpu.return
}

// Lanes one by one.
// CHECK-LABEL: gpu.func @exp2
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.nvvm.ex2.approx"
// CHECK: vector.from_elements
gpu.func @exp2(%x: vector<2xf32>, %p: !llvm.ptr<1>) kernel {
  %y = math.exp2 %x : vector<2xf32>
  llvm.store %y, %p : vector<2xf32>, !llvm.ptr<1>
  gpu.return
}

// 1 + erf, as in GELU: two polynomials and a power of two.
// CHECK-LABEL: gpu.func @gelu
// CHECK: arith.minimumf
// CHECK-COUNT-7: math.fma
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
// CHECK: arith.subf
// CHECK: arith.select
// CHECK-NOT: math.fma
// CHECK: gpu.return
gpu.func @gelu(%x: f32, %p: !llvm.ptr<1>) kernel {
  %one = arith.constant 1.0 : f32
  %e = math.erf %x : f32
  %y = arith.addf %e, %one : f32
  llvm.store %y, %p : f32, !llvm.ptr<1>
  gpu.return
}

// Quotients of exponentials, by 1 + e^x, and of half floats need not be rounded correctly; others do.
// CHECK-LABEL: gpu.func @quotients
// CHECK-COUNT-3: llvm.call_intrinsic "llvm.nvvm.div.full"
// CHECK: arith.divf %{{.*}}, %{{.*}} : f32
// CHECK-NOT: llvm.nvvm.div.full
gpu.func @quotients(%x: f32, %s: f32, %h: f16, %p: !llvm.ptr<1>, %q: !llvm.ptr<1>) kernel {
  %one = arith.constant 1.0 : f32
  %e = math.exp %x : f32
  %softmax = arith.divf %e, %s : f32
  llvm.store volatile %softmax, %p : f32, !llvm.ptr<1>
  %sum = arith.addf %e, %one : f32
  %logistic = arith.divf %one, %sum : f32
  llvm.store volatile %logistic, %p : f32, !llvm.ptr<1>
  %half = arith.divf %h, %h : f16
  llvm.store volatile %half, %q : f16, !llvm.ptr<1>
  %exact = arith.divf %x, %s : f32
  llvm.store volatile %exact, %p : f32, !llvm.ptr<1>
  gpu.return
}
}

// Only in kernels.
// CHECK-LABEL: func.func @host
// CHECK-NOT: llvm.nvvm
func.func @host(%x: f32) -> f32 {
  %y = math.exp %x : f32
  return %y : f32
}
