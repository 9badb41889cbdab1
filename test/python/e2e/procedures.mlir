// f(x) is 2 * x where x[0] >= 0, else x + f(x + 1).
disc_shape.symbol @S min 1 max 4096
disc_shape.symbol @a min 1
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>, disc_shape.name = "x"}) -> (tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %s = tensor.dim %x, %c0 : tensor<?xf32>
  %y = disc_tensor.invoke @f(%x) sizes(%s) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func private @f(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[a]>}) -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[a]>}) attributes {disc_tensor.procedure = [@a]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s = tensor.dim %x, %c0 : tensor<?xf32>
  %h = disc_tensor.slice %x[%c0, %c1] dim 0 step 1 : tensor<?xf32> -> tensor<1xf32>
  %hs = disc_tensor.reshape %h() : tensor<1xf32> -> tensor<f32>
  %ec = tensor.empty() : tensor<i1>
  %zero = arith.constant 0.0 : f32
  %go = linalg.generic {indexing_maps = [affine_map<()->()>, affine_map<()->()>], iterator_types=[]} ins(%hs : tensor<f32>) outs(%ec : tensor<i1>) {
    ^bb0(%u: f32, %o: i1):
      %w = arith.cmpf oge, %u, %zero : f32
      linalg.yield %w : i1
    } -> tensor<i1>
  %r = disc_tensor.branch %go {disc_shape.dims = [#disc_shape.dims<[a]>]} : tensor<i1> -> (tensor<?xf32>) {
    %e = tensor.empty(%s) : tensor<?xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(d0)->(d0)>, affine_map<(d0)->(d0)>], iterator_types=["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%u: f32, %v: f32):
      %w = arith.addf %u, %u : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    disc_tensor.yield %y : tensor<?xf32>
  } else {
    %one = arith.constant 1.0 : f32
    %e = tensor.empty(%s) : tensor<?xf32>
    %x1 = linalg.generic {indexing_maps = [affine_map<(d0)->(d0)>, affine_map<(d0)->(d0)>], iterator_types=["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%u: f32, %v: f32):
      %w = arith.addf %u, %one : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    %q = disc_tensor.invoke @f(%x1) sizes(%s) : (tensor<?xf32>) -> tensor<?xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(d0)->(d0)>, affine_map<(d0)->(d0)>, affine_map<(d0)->(d0)>], iterator_types=["parallel"]} ins(%x, %q : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%u: f32, %u2: f32, %v: f32):
      %w = arith.addf %u, %u2 : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    disc_tensor.yield %y : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
