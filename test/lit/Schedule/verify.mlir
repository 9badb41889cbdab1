// RUN: disc-opt %s -disc-schedule-verify -split-input-file -verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{kernel has no schedule}}
  // expected-error @below {{kernel has no expression for 'tasks'}}
  // expected-error @below {{kernel has no expression for 'scratch'}}
  // expected-error @below {{kernel has no expression for 'cost'}}
  %y = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<4xf32> attributes {reason = "r"} {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'tasks' uses 'S', which is no symbol of the module}}
  %y = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<4xf32> attributes {reason = "r", schedule = #disc_plan.loop<chunk = 1, unroll = 1>,
      tasks = #disc_shape.expr<S>, scratch = #disc_shape.expr<0>, cost = #disc_shape.expr<1>} {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
