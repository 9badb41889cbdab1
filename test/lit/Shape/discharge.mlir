// RUN: disc-opt %s --disc-shape-discharge --split-input-file --verify-diagnostics | FileCheck %s

// A requirement that always holds vanishes, one that may hold becomes a guard,
// and what the guard says is used from there on: B * T is B * S.
// CHECK-LABEL: func.func @guards(
// CHECK-NEXT:    disc_shape.guard <T> eq <S> "sizes of x and y differ"
// CHECK-NEXT:    disc_shape.guard <B> le <S> "fewer rows than columns"
// CHECK-NEXT:    disc_shape.guard <S> divisible <8> "uneven heads"
// CHECK-NEXT:    %[[BS:.*]] = disc_shape.dim <B * S>
// CHECK-NEXT:    tensor.empty(%[[BS]]) {disc_shape.dims = [#disc_shape.dims<[B * S]>]}
// CHECK-NEXT:    tensor.empty(%[[BS]]) {disc_shape.dims = [#disc_shape.dims<[B * S]>]}
// CHECK-NEXT:    return
disc_shape.symbol @B min 1 max 64
disc_shape.symbol @S min 2 max 512
disc_shape.symbol @T min 2 max 512
func.func @guards() -> (tensor<?xf32>, tensor<?xf32>) {
  %b = disc_shape.dim <B>
  %s = disc_shape.dim <S>
  %t = disc_shape.dim <T>
  %bs = disc_shape.dim <B * S>
  %bt = disc_shape.dim <B * T>
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  disc_shape.require eq %t, %s "sizes of x and y differ"
  disc_shape.require eq %s, %t "the same again"
  disc_shape.require eq %bs, %bt "the same, times B"
  disc_shape.require le %b, %s "fewer rows than columns"
  disc_shape.require le %b, %t "fewer rows than columns"
  disc_shape.require le %c0, %s "sizes are not negative"
  disc_shape.require le %s, %bt "B is at least 1"
  disc_shape.require divisible %s, %c8 "uneven heads"
  disc_shape.require divisible %bt, %c8 "so are the tokens"
  %x = tensor.empty(%bs) {disc_shape.dims = [#disc_shape.dims<[B * S]>]} : tensor<?xf32>
  %y = tensor.empty(%bt) {disc_shape.dims = [#disc_shape.dims<[B * T]>]} : tensor<?xf32>
  return %x, %y : tensor<?xf32>, tensor<?xf32>
}

// -----

// An equality between products proves reshapes.
// CHECK-LABEL: func.func @products(
// CHECK-NEXT:    disc_shape.guard <B * S> eq <H * W> "tokens are not pixels"
// CHECK-NEXT:    return
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1
disc_shape.symbol @H min 1
disc_shape.symbol @W min 1
func.func @products() {
  %bs = disc_shape.dim <B * S>
  %hw = disc_shape.dim <H * W>
  %bs64 = disc_shape.dim <B * S * 64>
  %hw64 = disc_shape.dim <H * W * 64>
  disc_shape.require eq %bs, %hw "tokens are not pixels"
  disc_shape.require eq %bs64, %hw64 "reshape changes the number of elements"
  return
}

// -----

disc_shape.symbol @S min 2 max 512
func.func @never() {
  %s = disc_shape.dim <S>
  %c1 = arith.constant 1 : index
  // expected-error @below {{sizes differ: requires S == 1, which never holds}}
  disc_shape.require eq %s, %c1 "sizes differ"
  %c513 = arith.constant 513 : index
  // expected-error @below {{requires 513 <= S, which never holds}}
  disc_shape.require le %c513, %s
  %odd = disc_shape.dim <S * 8 + 4>
  %c8 = arith.constant 8 : index
  // expected-error @below {{requires S * 8 + 4 divisible by 8, which never holds}}
  disc_shape.require divisible %odd, %c8
  return
}

// -----

disc_shape.symbol @S min 2 max 512
func.func @data(%x: tensor<4xi64>) {
  %s = disc_shape.dim <S>
  %c0 = arith.constant 0 : index
  %e = tensor.extract %x[%c0] : tensor<4xi64>
  %n = arith.index_cast %e : i64 to index
  // expected-error @below {{sizes differ: requires S == ?0, which depends on data}}
  disc_shape.require eq %s, %n "sizes differ"
  return
}

// -----

disc_shape.symbol @S min 2 max 512
disc_shape.symbol @T min 2 max 512
func.func @branch(%taken: i1) {
  %s = disc_shape.dim <S>
  %t = disc_shape.dim <T>
  scf.if %taken {
    disc_shape.require eq %s, %s "always holds"
    // expected-error @below {{sizes differ: requires S == T, which cannot be checked on entry}}
    disc_shape.require eq %s, %t "sizes differ"
  }
  return
}

// -----

// Where min(N, 4) must be 4, N is 4 at least: what follows from that needs no guard of its own.
// CHECK-LABEL: func.func @least(
// CHECK-NEXT:    disc_shape.guard <min(N, 4)> eq <4> "four rows"
// CHECK-NEXT:    return
disc_shape.symbol @N min 0
func.func @least() {
  %least = disc_shape.dim <min(N, 4)>
  %n = disc_shape.dim <N>
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  disc_shape.require eq %least, %c4 "four rows"
  disc_shape.require le %c3, %n "three rows"
  disc_shape.require eq %c4, %least "the same again"
  return
}

// -----

// What is left of min(N, 1) within N is 1 at least, for which N must be 2: the slice starts at 1.
// CHECK-LABEL: func.func @rest(
// CHECK-NEXT:    disc_shape.guard <min(N, 1) + 1> le <N> "a slice"
// CHECK-NEXT:    return
disc_shape.symbol @N min 0
func.func @rest() {
  %end = disc_shape.dim <min(N, 1) + 1>
  %n = disc_shape.dim <N>
  %c2 = arith.constant 2 : index
  disc_shape.require le %end, %n "a slice"
  disc_shape.require le %c2, %n "two rows"
  return
}
