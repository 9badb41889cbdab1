// RUN: disc-opt %s | FileCheck %s
// RUN: disc-opt %s --mlir-print-op-generic | disc-opt | FileCheck %s
// RUN: disc-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD

// CHECK: disc_shape.symbol @B min 1 max 64
disc_shape.symbol @B min 1 max 64
// CHECK: disc_shape.symbol @S min 8 divisor 8 likely [64, 128]
disc_shape.symbol @S min 8 divisor 8 likely [64, 128]
// The frontend writes the generic form, with what it knows in one dictionary.
// CHECK: disc_shape.symbol @T min 2 max 512
"disc_shape.symbol"() {sym_name = "T", min = 2 : i64, max = 512 : i64, divisor = 1 : i64} : () -> ()
// A name that is an operator.
// CHECK: disc_shape.symbol @mod
disc_shape.symbol @mod

// CHECK: func.func @main(%{{.*}}: tensor<?x?x384xf32> {disc_shape.dims = #disc_shape.dims<[B, S * 2 + 1, 384]>, disc_shape.name = "x"})
func.func @main(%x: tensor<?x?x384xf32> {disc_shape.dims = #disc_shape.dims<[B, 1 + 2 * S, 384]>, disc_shape.name = "x"})
    -> (index, index) {
  // CHECK: disc_shape.guard <B * S> eq <T> "tokens differ"
  disc_shape.guard <B * S> eq <T> "tokens differ"
  // CHECK: disc_shape.guard <B> le <T>
  disc_shape.guard <B> le <T>
  // CHECK: disc_shape.guard <T> divisible <8>
  disc_shape.guard <T> divisible <8>
  // CHECK: %[[A:.*]] = disc_shape.dim <B * S * 384 + 1>
  %0 = disc_shape.dim <1 + 384 * S * B>
  // CHECK: %[[D:.*]] = disc_shape.dim <(T + 15) floordiv 16>
  %1 = disc_shape.dim <T ceildiv 16>
  // CHECK: disc_shape.dim <-(T floordiv 2) - T mod 4 + min(B, S) * 3>
  %2 = disc_shape.dim <-(T floordiv 2) + 3 * min(S, B) - T mod 4>
  // CHECK: disc_shape.dim <"mod" + 1>
  %3 = disc_shape.dim <"mod" + 1>
  // FOLD: %[[C7:.*]] = arith.constant 7 : index
  // CHECK: disc_shape.dim <7>
  %4 = disc_shape.dim <max(3, 7) + S - S>
  // CHECK: disc_shape.require eq %[[A]], %[[D]] "sizes differ"
  disc_shape.require eq %0, %1 "sizes differ"
  // CHECK: disc_shape.require le %[[A]], %[[D]]
  "disc_shape.require"(%0, %1) {predicate = "le", message = ""} : (index, index) -> ()
  // FOLD: return %{{.*}}, %[[C7]]
  return %0, %4 : index, index
}
