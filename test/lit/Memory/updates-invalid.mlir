// RUN: disc-opt %s -split-input-file -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -verify-diagnostics

func.func @main(%x: tensor<4xf32> {disc_shape.dims = #disc_shape.dims<[4]>})
    -> (tensor<4xf32> {disc_tensor.updates = 1 : i64}) {
  // expected-error @+1 {{result 0 updates no argument of its type}}
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{argument 0 is state and comes before an input}}
func.func @main(%x: tensor<4xf32> {disc_shape.dims = #disc_shape.dims<[4]>, disc_tensor.state = "x"},
                %y: tensor<4xf32> {disc_shape.dims = #disc_shape.dims<[4]>}) {
  return
}
