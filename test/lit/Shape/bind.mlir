// RUN: disc-opt %s -split-input-file -verify-diagnostics -disc-shape-propagate -disc-shape-discharge -disc-shape-verify | FileCheck %s

disc_shape.symbol @N min 1 max 64
disc_shape.symbol @u0 max 64

// A requirement on a computed symbol is checked behind its bind; one that its range proves is not.
// CHECK-LABEL: func.func @main
// CHECK-NOT: disc_shape.guard
// CHECK: disc_shape.bind @u0, %{{.*}} "aten.nonzero at model.py:3" : tensor<i64>
// CHECK-NEXT: disc_shape.guard <u0> le <N> "slice is out of bounds"
// CHECK-NEXT: disc_tensor.slice
// CHECK-SAME: disc_shape.dims = [#disc_shape.dims<[u0]>]
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[N]>}, %n: tensor<i64>) -> tensor<?xf32> {
  %zero = arith.constant 0 : index
  %max = arith.constant 64 : index
  %u = disc_shape.bind @u0, %n "aten.nonzero at model.py:3" : tensor<i64>
  disc_shape.require le %u, %max
  %y = disc_tensor.slice %x[%zero, %u] dim 0 step 1 : tensor<?xf32> -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

disc_shape.symbol @N min 1
disc_shape.symbol @u0 min 2

// A guard on a computed symbol says nothing of the others, and replaces nothing: it is checked late.
// CHECK-LABEL: func.func @late
// CHECK-NOT: disc_shape.guard
// CHECK: disc_shape.bind
// CHECK-NEXT: disc_shape.guard <u0> eq <N> "sizes differ"
// CHECK: tensor.empty(%{{.*}}) {disc_shape.dims = [#disc_shape.dims<[u0]>]}
func.func @late(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[N]>}, %n: tensor<i64>) -> tensor<?xf32> {
  %zero = arith.constant 0 : index
  %u = disc_shape.bind @u0, %n : tensor<i64>
  %N = tensor.dim %x, %zero : tensor<?xf32>
  disc_shape.require eq %u, %N "sizes differ"
  %y = tensor.empty(%u) : tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

disc_shape.symbol @u0

func.func @twice(%n: tensor<i64>) {
  %0 = disc_shape.bind @u0, %n : tensor<i64>
  // expected-error@+1 {{(V8) symbol 'u0' has a value already}}
  %1 = disc_shape.bind @u0, %n : tensor<i64>
  return
}

// -----

disc_shape.symbol @N

func.func @argument(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[N]>}, %n: tensor<i64>) {
  // expected-error@+1 {{(V8) symbol 'N' has a value already}}
  %0 = disc_shape.bind @N, %n : tensor<i64>
  return
}

// -----

disc_shape.symbol @N min 1
disc_shape.symbol @u0
disc_shape.symbol @u1

// Guards keep the order of their requirements, each behind the last bind that it needs.
// CHECK-LABEL: func.func @order
// CHECK: disc_shape.bind @u0
// CHECK-NEXT: disc_shape.guard <u0> le <N> "first"
// CHECK-NEXT: disc_shape.guard <u0> divisible <2> "second"
// CHECK-NEXT: disc_shape.bind @u1
// CHECK-NEXT: disc_shape.guard <u0> eq <u1> "third"
func.func @order(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[N]>}, %n: tensor<i64>) {
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %N = tensor.dim %x, %zero : tensor<?xf32>
  %u = disc_shape.bind @u0, %n : tensor<i64>
  disc_shape.require le %u, %N "first"
  %v = disc_shape.bind @u1, %n : tensor<i64>
  disc_shape.require divisible %u, %two "second"
  disc_shape.require eq %u, %v "third"
  return
}
