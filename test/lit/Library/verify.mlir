// RUN: disc-opt %s -disc-library-verify -split-input-file -verify-diagnostics

func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %0 = linalg.exp ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32> // expected-error {{no library claimed 'linalg.exp' and no kernel computes it}}
  %1 = tensor.cast %0 : tensor<4x8xf32> to tensor<?x8xf32> // expected-error {{no library claimed 'tensor.cast'}}
  %2 = tensor.cast %1 : tensor<?x8xf32> to tensor<4x8xf32> // expected-error {{no library claimed 'tensor.cast'}}
  return %2 : tensor<4x8xf32>
}

// -----

// Ours: generics, views, attention, parameters.
func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %w = disc_tensor.parameter "w" : tensor<8xf32>
  %t = disc_tensor.permute %x [1, 0] : tensor<4x8xf32> -> tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}
