// RUN: disc-opt %s -disc-fusion-verify -split-input-file -verify-diagnostics

#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32> // expected-error {{'tensor.empty' is left outside every kernel after the fusion stage}}
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} // expected-error {{'linalg.generic' is left outside every kernel}}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%l: f32, %o: f32):
    linalg.yield %l : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{kernel records no reason for what it holds}}
  %y = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
