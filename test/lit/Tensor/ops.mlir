// Every operation of disc_tensor prints and parses; views that change nothing fold away.
// RUN: disc-opt %s | disc-opt | FileCheck %s
// RUN: disc-opt %s -mlir-print-op-generic | disc-opt | FileCheck %s
// RUN: disc-opt %s -canonicalize | FileCheck %s --check-prefix=FOLD

// CHECK-LABEL: func @views
func.func @views(%x: tensor<?x3x4xf32>, %n: index, %o: index) -> (tensor<4x?x3xf32>, tensor<?x12xf32>, tensor<2x?x3x4xf32>, tensor<?x3x4xf32>) {
  // CHECK: disc_tensor.permute %{{.*}} [2, 0, 1] : tensor<?x3x4xf32> -> tensor<4x?x3xf32>
  %0 = disc_tensor.permute %x [2, 0, 1] : tensor<?x3x4xf32> -> tensor<4x?x3xf32>
  // CHECK: disc_tensor.reshape %{{.*}}(%{{.*}}) : tensor<?x3x4xf32> -> tensor<?x12xf32>
  %1 = disc_tensor.reshape %x(%n) : tensor<?x3x4xf32> -> tensor<?x12xf32>
  // CHECK: disc_tensor.broadcast %{{.*}}(%{{.*}}) [1, 2, 3] : tensor<?x3x4xf32> -> tensor<2x?x3x4xf32>
  %2 = disc_tensor.broadcast %x(%n) [1, 2, 3] : tensor<?x3x4xf32> -> tensor<2x?x3x4xf32>
  // CHECK: disc_tensor.slice %{{.*}}[%{{.*}}, %{{.*}}] dim 0 step 2 : tensor<?x3x4xf32> -> tensor<?x3x4xf32>
  %3 = disc_tensor.slice %x[%o, %n] dim 0 step 2 : tensor<?x3x4xf32> -> tensor<?x3x4xf32>
  return %0, %1, %2, %3 : tensor<4x?x3xf32>, tensor<?x12xf32>, tensor<2x?x3x4xf32>, tensor<?x3x4xf32>
}

// CHECK-LABEL: func @computations
func.func @computations(%q: tensor<?x?x8xf32>, %m: tensor<1x1x?xi1>) -> (tensor<?x?x8xf32>, tensor<?x?x16xf32>) {
  // CHECK: disc_tensor.attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} : tensor<1x1x?xi1> scale 2.500000e-01 causal true
  %0 = disc_tensor.attention %q, %q, %q mask %m : tensor<1x1x?xi1> scale 0.25 causal true : tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32> -> tensor<?x?x8xf32>
  // CHECK: disc_tensor.concat %{{.*}}, %{{.*}} dim 2
  %1 = disc_tensor.concat %0, %q dim 2 : tensor<?x?x8xf32>, tensor<?x?x8xf32> -> tensor<?x?x16xf32>
  return %0, %1 : tensor<?x?x8xf32>, tensor<?x?x16xf32>
}

// CHECK-LABEL: func @parameters
func.func @parameters() -> (tensor<2x384x32xf32>, tensor<64x384xf32>) {
  // CHECK: disc_tensor.parameter "encoder.weight" : tensor<64x384xf32>
  %w = disc_tensor.parameter "encoder.weight" : tensor<64x384xf32>
  // CHECK: disc_tensor.pack %{{.*}} batch [] n [0] k [1] panel 32 : tensor<64x384xf32> -> tensor<2x384x32xf32>
  %0 = disc_tensor.pack %w batch [] n [0] k [1] panel 32 : tensor<64x384xf32> -> tensor<2x384x32xf32>
  // CHECK: disc_tensor.unpack %{{.*}} batch [] n [0] k [1] panel 32 : tensor<2x384x32xf32> -> tensor<64x384xf32>
  %1 = disc_tensor.unpack %0 batch [] n [0] k [1] panel 32 : tensor<2x384x32xf32> -> tensor<64x384xf32>
  return %0, %1 : tensor<2x384x32xf32>, tensor<64x384xf32>
}

// CHECK-LABEL: func @fragments
func.func @fragments(%c: tensor<8x4x128xi32>, %s: tensor<16x64xf32>) -> (tensor<60x512xbf16>, tensor<60x512xf16>) {
  // CHECK: disc_tensor.unpack_fragments %{{.*}} scales %{{.*}} : tensor<16x64xf32> zero 8 bits 4 batch [] n [0] k [1] : tensor<8x4x128xi32> -> tensor<60x512xbf16>
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<16x64xf32> zero 8 bits 4 batch [] n [0] k [1]
      : tensor<8x4x128xi32> -> tensor<60x512xbf16>
  // CHECK: disc_tensor.unpack_fragments %{{.*}} scales %{{.*}} : tensor<16x64xf32> zeros %{{.*}} : tensor<16x64xf32> zero 0 bits 4
  %1 = disc_tensor.unpack_fragments %c scales %s : tensor<16x64xf32> zeros %s : tensor<16x64xf32> zero 0 bits 4
      batch [] n [0] k [1] : tensor<8x4x128xi32> -> tensor<60x512xf16>
  return %0, %1 : tensor<60x512xbf16>, tensor<60x512xf16>
}

// FOLD-LABEL: func @identities
func.func @identities(%x: tensor<?x4xf32>, %n: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  // FOLD-NEXT: return %arg0, %arg0
  %0 = disc_tensor.permute %x [0, 1] : tensor<?x4xf32> -> tensor<?x4xf32>
  %1 = disc_tensor.reshape %x(%n) : tensor<?x4xf32> -> tensor<?x4xf32>
  return %0, %1 : tensor<?x4xf32>, tensor<?x4xf32>
}

// Two dynamic extents may trade places, so equal types prove nothing.
// FOLD-LABEL: func @not_an_identity
func.func @not_an_identity(%x: tensor<?x?xf32>, %n: index, %m: index) -> tensor<?x?xf32> {
  // FOLD: disc_tensor.reshape
  %0 = disc_tensor.reshape %x(%m, %n) : tensor<?x?xf32> -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @call
// CHECK: disc_tensor.call "sort"(%{{.*}}) sizes(%[[S:.*]], %[[S]]) config(%{{.*}}) tasks %{{.*}} scratch %[[S]] "aten.sort at model.py:3"
// CHECK: disc_tensor.call "draw"() tasks %{{.*}} scratch %{{.*}} "" unsigned [0]
func.func @call(%x: tensor<?x8xf32>, %s: index) -> (tensor<?x8xf32>, tensor<?x8xi64>, tensor<4xi8>) {
  %c1 = arith.constant 1 : index
  %v, %i = disc_tensor.call "sort"(%x) sizes(%s, %s) config(%c1) tasks %s scratch %s "aten.sort at model.py:3"
      : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xi64>)
  %d = disc_tensor.call "draw"() tasks %c1 scratch %c1 "" unsigned [0] : () -> tensor<4xi8>
  return %v, %i, %d : tensor<?x8xf32>, tensor<?x8xi64>, tensor<4xi8>
}

disc_shape.symbol @i
// CHECK-LABEL: func @scan
func.func @scan(%n: index, %x: tensor<?x4xf32>) -> tensor<?x?x4xf32> {
  // CHECK: disc_tensor.loop @i reverse below %{{.*}} carries(%{{.*}}) : (tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x?x4xf32>)
  // CHECK: disc_tensor.next %{{.*}}, %{{.*}} : tensor<?x4xf32>, tensor<?x4xf32>
  %h, %ys = disc_tensor.loop @i reverse below %n carries(%x) : (tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x?x4xf32>) {
  ^bb0(%a: tensor<?x4xf32>):
    disc_tensor.next %a, %a : tensor<?x4xf32>, tensor<?x4xf32>
  }
  return %ys : tensor<?x?x4xf32>
}
