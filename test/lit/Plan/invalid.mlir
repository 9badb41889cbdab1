// RUN: disc-opt %s -split-input-file -verify-diagnostics

func.func @p1(%x: tensor<4xf32>) {
  // expected-error @+1 {{region arguments do not have the types of the inputs (P1)}}
  %0 = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%a: tensor<5xf32>):
    disc_plan.yield %a : tensor<5xf32>
  }
  return
}

// -----

func.func @p2(%x: tensor<4xf32>) {
  // expected-error @+1 {{yielded values do not have the types of the results (P2)}}
  %0 = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @p3(%x: tensor<4xf32>) {
  // expected-error @+1 {{cannot hold 'disc_tensor.parameter' (P3)}}
  %0 = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %w = disc_tensor.parameter "w" : tensor<4xf32>
    disc_plan.yield %w : tensor<4xf32>
  }
  return
}

// -----

// expected-error @+1 {{needs a layout with a stride per dimension for each argument and result (P4)}}
disc_plan.kernel_func loop @p4 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{cannot hold 'disc_tensor.parameter' (P5)}}
disc_plan.kernel_func loop @p5 attributes {symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
  %w = disc_tensor.parameter "w" : tensor<4xf32>
  disc_plan.yield %w : tensor<4xf32>
}

// -----

// expected-error @+1 {{needs the extents of each argument (P6)}}
disc_plan.kernel_func loop @p6 attributes {symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

func.func @p7(%x: tensor<4xf32>) {
  // expected-error @+1 {{does not fit a disc_plan.kernel_func of that name (P7)}}
  %0 = "disc_plan.call"(%x) {callee = @missing, result_dims = [#disc_shape.dims<[4]>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
