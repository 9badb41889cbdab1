// A task is two vectors of queries of one head; scratch holds the scores of a run of keys, however many there are.
// RUN: disc-opt %s -disc-schedule-kernels | FileCheck %s

module attributes {disc_plan.target = {vector_bits = 512 : i64, l1d_bytes = 49152 : i64}} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @S min 2 max 512

  // CHECK-LABEL: func.func @attention
  // CHECK: schedule = {keys = 252 : i64, out_scratch = #disc_shape.expr<min(S, 252) * 128 + 4096>, query_scratch = #disc_shape.expr<0>, rows = 14 : i64, score_scratch = #disc_shape.expr<4096>}
  // CHECK-SAME: scratch = #disc_shape.expr<min(S, 252) * 128 + 8192>
  // CHECK-SAME: tasks = #disc_shape.expr<B * ((S + 31) floordiv 32) * 12>
  func.func @attention(%q: tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>}) -> (tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>}) {
    %0 = disc_plan.kernel attention ins(%q : tensor<?x12x?x32xf32>) -> tensor<?x12x?x32xf32> attributes {name = "attention"} {
    ^bb0(%a: tensor<?x12x?x32xf32>):
      %r = disc_tensor.attention %a, %a, %a scale 0.25 causal false : tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32> -> tensor<?x12x?x32xf32>
      disc_plan.yield %r : tensor<?x12x?x32xf32>
    }
    return %0 : tensor<?x12x?x32xf32>
  }
}
