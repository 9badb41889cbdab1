// RUN: disc-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{'disc_plan.temporaries' does not fit the operation (P19)}}
func.func @p19_temporaries() attributes {disc_plan.temporaries = 3 : i64} {
  return
}

// -----

func.func @p19_buffers() {
  // expected-error @+1 {{'disc_plan.buffers' does not fit the operation (P19)}}
  %w = disc_tensor.parameter "w" {disc_plan.buffers = [#disc_plan.buffer<output[0]>]} : tensor<4xf32>
  return
}

// -----

func.func @p19_last_uses() {
  // expected-error @+1 {{'disc_plan.last_uses' does not fit the operation (P19)}}
  %w = disc_tensor.parameter "w" {disc_plan.last_uses = array<i64: 0>} : tensor<4xf32>
  return
}

// -----

func.func @p20(%x: tensor<4xf32>) -> tensor<4xf32> attributes {disc_plan.temporaries = #disc_shape.dims<[64]>} {
  // expected-error @+1 {{cannot have result 0 in 'temporary' 1 (P20)}}
  %y = disc_plan.copy %x to <temporary[1]> dims <[4]> : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @p20_row(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{cannot have result 0 in 'row' 0 (P20)}}
  %y = disc_plan.copy %x to <row[0]> dims <[4]> : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @p20_yielded(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{cannot have result 0 in 'yielded' -1 (P20)}}
  %y = disc_plan.copy %x to <yielded> dims <[4]> : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @p21(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{does not have the type of its input, or extents that the type cannot have (P21)}}
  %y = disc_plan.copy %x to <output[0]> dims <[5]> : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @p22(%n: index) {
  // expected-error @+1 {{needs an offset and an entry of the plan for each temporary (P22)}}
  disc_plan.arena_part 0 bytes %n temporaries [0, 1] at(%n)
      plan #disc_rt.arena_plan<bytes = <[64]>, first = [0], last = [1], in_place = 0, orders = [array<i64: 0>]>
  return
}
