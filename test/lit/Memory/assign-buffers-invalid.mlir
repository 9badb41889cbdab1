// RUN: disc-opt %s -split-input-file -disc-memory-assign-buffers -verify-diagnostics

#four = #disc_shape.dims<[4]>
disc_shape.symbol @i
func.func @main(%x: tensor<4xf32> {disc_shape.dims = #four}) -> tensor<3x4xf32> {
  %n = arith.constant 3 : index
  %rows = disc_tensor.loop @i below %n carries() {disc_shape.dims = [#disc_shape.dims<[3, 4]>]} : () -> tensor<3x4xf32> {
    // expected-error @+1 {{value 0 is stacked, but no operation of the loop computes it in its row}}
    disc_tensor.next %x : tensor<4xf32>
  }
  return %rows : tensor<3x4xf32>
}
