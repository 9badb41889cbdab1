// RUN: disc-opt %s --split-input-file --verify-diagnostics --disc-cpu-emit-kernels

disc_shape.symbol @B min 1

disc_plan.kernel_func loop @unwritten attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
  // expected-error @+1 {{reads a tensor that nothing has written}}
  %e = tensor.empty() : tensor<4xf32>
  disc_plan.yield %e : tensor<4xf32>
}

// -----

disc_plan.kernel_func loop @table attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
  // expected-error @+1 {{cannot evaluate a tensor constant that is not one repeated value}}
  %e = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  disc_plan.yield %e : tensor<2xf32>
}

// -----

disc_shape.symbol @B min 1

// expected-error @+1 {{uses symbol B but is not given its value}}
disc_plan.kernel_func loop @symbols attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = [], arg_dims = [#disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%x: tensor<?xf32>):
  disc_plan.yield %x : tensor<?xf32>
}

// -----

// expected-error @+1 {{a kernel of this kind needs a reduction}}
disc_plan.kernel_func row @row attributes {schedule = #disc_plan.row<accumulators = 1>, symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%x: tensor<4xf32>):
  disc_plan.yield %x : tensor<4xf32>
}
