// A task is two vectors of queries of one head; scratch holds the scores of a run of keys, however many there are.
// RUN: disc-opt %s -disc-schedule-kernels | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, l1d_bytes = 49152>} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @S min 2 max 512

  // Up to 4 queries are done row by row: a task is then a head of keys.
  // CHECK-LABEL: func.func @attention
  // CHECK: #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <4096>, out_scratch = <min(S, 252) * 128 + 4096>,
  // CHECK-SAME: few = <queries = 4, shared_dims = [], keys = 128, large = {{[0-9]*}}, query_scratch = <0>
  // CHECK-SAME: tasks = #disc_shape.expr<B * ((S + 31) floordiv 32) * min(S floordiv 5, 1) * 12 - B * min(S floordiv 5, 1) * 12 + B * 12>
  func.func @attention(%q: tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>}) -> (tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>}) {
    %0 = disc_plan.kernel attention ins(%q : tensor<?x12x?x32xf32>) -> tensor<?x12x?x32xf32> attributes {name = "attention"} {
    ^bb0(%a: tensor<?x12x?x32xf32>):
      %r = disc_tensor.attention %a, %a, %a scale 0.25 causal false : tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32> -> tensor<?x12x?x32xf32>
      disc_plan.yield %r : tensor<?x12x?x32xf32>
    }
    return %0 : tensor<?x12x?x32xf32>
  }

  // One query of each of 6 heads, over 2 heads of keys and values that 3 share.
  // CHECK-LABEL: func.func @decode
  // CHECK: few = <queries = 8, shared_dims = [2]
  // CHECK-SAME: tasks = #disc_shape.expr<B * 2>
  func.func @decode(%q: tensor<?x2x3x1x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 3, 1, 32]>}, %k: tensor<?x2x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, S, 32]>}) -> (tensor<?x2x3x1x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 2, 3, 1, 32]>}) {
    %b = disc_shape.dim <B>
    %s = disc_shape.dim <S>
    %w = disc_tensor.broadcast %k(%b, %s) [0, 1, 3, 4] : tensor<?x2x?x32xf32> -> tensor<?x2x3x?x32xf32>
    %0 = disc_plan.kernel attention ins(%q, %w : tensor<?x2x3x1x32xf32>, tensor<?x2x3x?x32xf32>) -> tensor<?x2x3x1x32xf32> attributes {name = "attention"} {
    ^bb0(%a: tensor<?x2x3x1x32xf32>, %c: tensor<?x2x3x?x32xf32>):
      %r = disc_tensor.attention %a, %c, %c scale 0.25 causal false : tensor<?x2x3x1x32xf32>, tensor<?x2x3x?x32xf32>, tensor<?x2x3x?x32xf32> -> tensor<?x2x3x1x32xf32>
      disc_plan.yield %r : tensor<?x2x3x1x32xf32>
    }
    return %0 : tensor<?x2x3x1x32xf32>
  }
}
