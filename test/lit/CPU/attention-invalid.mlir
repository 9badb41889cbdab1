// What attention kernels cannot be.
// RUN: disc-opt %s -disc-cpu-emit-kernels -verify-diagnostics

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @P min 1 max 512
  disc_plan.kernel_func attention @step attributes {
      layouts = [#disc_plan.layout<<0>, <[P * 128, P * 64, 64, 1]>>, #disc_plan.layout<<0>, <[128, 64, 64, 1]>>,
                 #disc_plan.layout<<0>, <[P * 128, P * 64, 64, 1]>>, #disc_plan.layout<<0>, <[128, 64, 64, 1]>>,
                 #disc_plan.layout<<0>, <[128, 64, 64, 1]>>,
                 #disc_plan.layout<<0>, <[P * 128 + 128, P * 64 + 64, 64, 1]>>,
                 #disc_plan.layout<<0>, <[P * 128 + 128, P * 64 + 64, 64, 1]>>, #disc_plan.layout<<0>, <[128, 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[B, 2, P, 64]>, #disc_shape.dims<[B, 2, 1, 64]>, #disc_shape.dims<[B, 2, P, 64]>,
                  #disc_shape.dims<[B, 2, 1, 64]>, #disc_shape.dims<[B, 2, 1, 64]>],
      schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <8192>,
          out_scratch = <40960>, few = <queries = 4, shared_dims = [], keys = 64, large = 524288, query_scratch = <0>, score_scratch = <256>, result_scratch = <512>, stat_scratch = <768>>>,
      symbols = ["B", "P"]} {
  ^bb0(%pk: tensor<?x2x?x64xf32>, %k: tensor<?x2x1x64xf32>, %pv: tensor<?x2x?x64xf32>, %v: tensor<?x2x1x64xf32>, %q: tensor<?x2x1x64xf32>):
    %ck = disc_tensor.concat %pk, %k dim 2 : tensor<?x2x?x64xf32>, tensor<?x2x1x64xf32> -> tensor<?x2x?x64xf32>
    %cv = disc_tensor.concat %pv, %v dim 2 : tensor<?x2x?x64xf32>, tensor<?x2x1x64xf32> -> tensor<?x2x?x64xf32>
    // expected-error @+1 {{keys and values must be joined from as many parts}}
    %r = disc_tensor.attention %q, %ck, %pk scale 0.25 causal false : tensor<?x2x1x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32> -> tensor<?x2x1x64xf32>
    disc_plan.yield %ck, %cv, %r : tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x1x64xf32>
  }
}
