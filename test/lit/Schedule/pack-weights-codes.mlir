// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights -split-input-file | FileCheck %s

// Weights of 4 bits with a scale for each 32 of a row: panels of eight codes in an i32, and of scales. The zero point of
// all, 0 of codes from -8 on, is what is meant without zeros. The codes are checked as they are packed, and floats of them
// are nowhere; nor do the bytes stay.
// CHECK-NOT: disc_plan.global @hoisted
// CHECK-DAG: disc_plan.global @packed0 : tensor<1x8x24xi32>
// CHECK-DAG: disc_plan.global @packed1 : tensor<1x2x24xf32>
// CHECK-NOT: disc_plan.global @packed2
// CHECK-LABEL: func.func @init()
// CHECK-NOT: tensor<20x2x32xf32>
// CHECK: disc_tensor.check_index %{{.*}} below %{{.*}} "the op at the line"
// CHECK: disc_tensor.pack %{{.*}} batch [] n [0] k [1, 2] panel 24 nibbles : tensor<20x2x32xi8> -> tensor<1x8x24xi32>
// CHECK: disc_tensor.pack %{{.*}} batch [] n [0] k [1] panel 24 : tensor<20x2xf32> -> tensor<1x2x24xf32>
// CHECK-LABEL: func.func @main
// CHECK: %[[C:.*]] = disc_plan.global_load @packed0
// CHECK: %[[S:.*]] = disc_plan.global_load @packed1
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %[[C]], %[[S]] :
// CHECK: disc_tensor.unpack %{{.*}} scales %{{.*}} : tensor<1x2x24xf32>
// CHECK-SAME: batch [] n [0] k [1] panel 24 nibbles unsigned : tensor<1x8x24xi32> -> tensor<20x64xf32>
#w = affine_map<(n, g, k) -> (n, g, k)>
#s = affine_map<(n, g, k) -> (n, g)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x64xf32> {disc_shape.dims = #disc_shape.dims<[S, 64]>}) -> tensor<?x20xf32> {
  %w = disc_tensor.parameter "w" : tensor<20x2x32xi8>
  %t = disc_tensor.parameter "t" : tensor<20x2xf32>
  %v = disc_plan.kernel loop ins(%w, %t : tensor<20x2x32xi8>, tensor<20x2xf32>) -> tensor<20x2x32xf32>
      attributes {reason = "r"} {
  ^bb0(%p: tensor<20x2x32xi8>, %q: tensor<20x2xf32>):
    %e = tensor.empty() : tensor<20x2x32xf32>
    %g = linalg.generic {indexing_maps = [#w, #s, #w], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%p, %q : tensor<20x2x32xi8>, tensor<20x2xf32>) outs(%e : tensor<20x2x32xf32>) {
    ^bb0(%i: i8, %j: f32, %o: f32):
      %low = arith.constant 8 : i64
      %back = arith.constant -8 : i64
      %extent = arith.constant 16 : i64
      %0 = arith.extsi %i : i8 to i64
      %1 = arith.addi %0, %low : i64
      %2 = disc_tensor.check_index %1 below %extent "the op at the line"
      %3 = arith.addi %2, %back : i64
      %4 = arith.sitofp %3 : i64 to f32
      %5 = arith.mulf %4, %j : f32
      linalg.yield %5 : f32
    } -> tensor<20x2x32xf32>
    disc_plan.yield %g : tensor<20x2x32xf32>
  }
  %r = disc_tensor.reshape %v() : tensor<20x2x32xf32> -> tensor<20x64xf32>
  %y = disc_plan.kernel contraction ins(%x, %r : tensor<?x64xf32>, tensor<20x64xf32>) -> tensor<?x20xf32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x64xf32>, %k: tensor<20x64xf32>):
    %zero = arith.constant 0.0 : f32
    %n = disc_shape.dim <S>
    %e = tensor.empty(%n) : tensor<?x20xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x20xf32>) -> tensor<?x20xf32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %k : tensor<?x64xf32>, tensor<20x64xf32>) outs(%f : tensor<?x20xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %0 = arith.mulf %i, %j : f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x20xf32>
    disc_plan.yield %p : tensor<?x20xf32>
  }
  return %y : tensor<?x20xf32>
}
}

// -----

// Codes times codes: bytes stay bytes, two values of k side by side where the target sums pairs of products.
// CHECK: disc_plan.global @packed0 : tensor<2x4x32xi8>
// CHECK: disc_tensor.pack %{{.*}} panel 16 together 2 : tensor<20x8xi8> -> tensor<2x4x32xi8>
// CHECK: disc_tensor.unpack %{{.*}} panel 16 together 2 : tensor<2x4x32xi8> -> tensor<20x8xi8>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256, i16_dot = true>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x8xi8> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x20xi32> {
  %w = disc_tensor.parameter "w" : tensor<20x8xi8>
  %y = disc_plan.kernel contraction ins(%x, %w : tensor<?x8xi8>, tensor<20x8xi8>) -> tensor<?x20xi32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x8xi8>, %r: tensor<20x8xi8>):
    %zero = arith.constant 0 : i32
    %n = disc_shape.dim <S>
    %e = tensor.empty(%n) : tensor<?x20xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<?x20xi32>) -> tensor<?x20xi32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %r : tensor<?x8xi8>, tensor<20x8xi8>) outs(%f : tensor<?x20xi32>) {
    ^bb0(%i: i8, %j: i8, %o: i32):
      %0 = arith.extsi %i : i8 to i32
      %1 = arith.extsi %j : i8 to i32
      %2 = arith.muli %0, %1 : i32
      %3 = arith.addi %o, %2 : i32
      linalg.yield %3 : i32
    } -> tensor<?x20xi32>
    disc_plan.yield %p : tensor<?x20xi32>
  }
  return %y : tensor<?x20xi32>
}
}

// -----

// Four values of k where the target sums four products of bytes; the last row is a part of one. The target multiplies
// unsigned by signed ones: the left ones are shifted, and a row of sums comes first.
// CHECK: disc_plan.global @packed0 : tensor<2x4x64xi8>
// CHECK: disc_tensor.pack %{{.*}} panel 16 together 4 left_shift 128 : tensor<20x9xi8> -> tensor<2x4x64xi8>
// CHECK: disc_tensor.unpack %{{.*}} panel 16 together 4 left_shift 128 : tensor<2x4x64xi8> -> tensor<20x9xi8>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256, i16_dot = true, i8_dot_mixed = true>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x9xi8> {disc_shape.dims = #disc_shape.dims<[S, 9]>}) -> tensor<?x20xi32> {
  %w = disc_tensor.parameter "w" : tensor<20x9xi8>
  %y = disc_plan.kernel contraction ins(%x, %w : tensor<?x9xi8>, tensor<20x9xi8>) -> tensor<?x20xi32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x9xi8>, %r: tensor<20x9xi8>):
    %zero = arith.constant 0 : i32
    %n = disc_shape.dim <S>
    %e = tensor.empty(%n) : tensor<?x20xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<?x20xi32>) -> tensor<?x20xi32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %r : tensor<?x9xi8>, tensor<20x9xi8>) outs(%f : tensor<?x20xi32>) {
    ^bb0(%i: i8, %j: i8, %o: i32):
      %0 = arith.extsi %i : i8 to i32
      %1 = arith.extsi %j : i8 to i32
      %2 = arith.muli %0, %1 : i32
      %3 = arith.addi %o, %2 : i32
      linalg.yield %3 : i32
    } -> tensor<?x20xi32>
    disc_plan.yield %p : tensor<?x20xi32>
  }
  return %y : tensor<?x20xi32>
}
}

// -----

// A target that multiplies bytes of one sign takes them as they are.
// CHECK: disc_tensor.pack %{{.*}} panel 16 together 4 unsigned : tensor<20x9xi8> -> tensor<2x3x64xi8>
// CHECK: disc_tensor.unpack %{{.*}} panel 16 together 4 : tensor<2x3x64xi8> -> tensor<20x9xi8>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256, i16_dot = true, i8_dot = true>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x9xi8> {disc_shape.dims = #disc_shape.dims<[S, 9]>}) -> tensor<?x20xi32> {
  %w = disc_tensor.parameter "w" : tensor<20x9xi8>
  %y = disc_plan.kernel contraction ins(%x, %w : tensor<?x9xi8>, tensor<20x9xi8>) -> tensor<?x20xi32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x9xi8>, %r: tensor<20x9xi8>):
    %zero = arith.constant 0 : i32
    %n = disc_shape.dim <S>
    %e = tensor.empty(%n) : tensor<?x20xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<?x20xi32>) -> tensor<?x20xi32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %r : tensor<?x9xi8>, tensor<20x9xi8>) outs(%f : tensor<?x20xi32>) {
    ^bb0(%i: i8, %j: i8, %o: i32):
      %0 = arith.extui %i : i8 to i32
      %1 = arith.extui %j : i8 to i32
      %2 = arith.muli %0, %1 : i32
      %3 = arith.addi %o, %2 : i32
      linalg.yield %3 : i32
    } -> tensor<?x20xi32>
    disc_plan.yield %p : tensor<?x20xi32>
  }
  return %y : tensor<?x20xi32>
}
}
