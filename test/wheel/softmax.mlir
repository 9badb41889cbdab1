// The model of runtime.py as the import stage writes it: softmax(2 * x, -1).sum(0).
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d1)>
module {
  disc_shape.symbol @n min 1 max 64
  func.func @main(%arg0: tensor<?x5xf32> {disc_shape.dims = #disc_shape.dims<[n, 5]>, disc_shape.name = "x"}) -> (tensor<5xf32> {disc_shape.name = "output_0"}) {
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %arg0, %c0 : tensor<?x5xf32>
    %0 = tensor.empty(%dim) : tensor<?x5xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<?x5xf32>) outs(%0 : tensor<?x5xf32>) {
    ^bb0(%in: f32, %out: f32):
      %cst_2 = arith.constant 2.000000e+00 : f32
      %15 = arith.mulf %in, %cst_2 : f32
      linalg.yield %15 : f32
    } -> tensor<?x5xf32>
    %2 = tensor.empty(%dim) : tensor<?xf32>
    %cst = arith.constant 0xFF800000 : f32
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<?xf32>) -> tensor<?xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<?x5xf32>) outs(%3 : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.maximumf %out, %in : f32
      linalg.yield %15 : f32
    } -> tensor<?xf32>
    %5 = tensor.empty(%dim) : tensor<?x5xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%1, %4 : tensor<?x5xf32>, tensor<?xf32>) outs(%5 : tensor<?x5xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %15 = arith.subf %in, %in_2 : f32
      %16 = math.exp %15 : f32
      linalg.yield %16 : f32
    } -> tensor<?x5xf32>
    %7 = tensor.empty(%dim) : tensor<?xf32>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %8 = linalg.fill ins(%cst_0 : f32) outs(%7 : tensor<?xf32>) -> tensor<?xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%6 : tensor<?x5xf32>) outs(%8 : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.addf %out, %in : f32
      linalg.yield %15 : f32
    } -> tensor<?xf32>
    %10 = tensor.empty(%dim) : tensor<?x5xf32>
    %11 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%6, %9 : tensor<?x5xf32>, tensor<?xf32>) outs(%10 : tensor<?x5xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %15 = arith.divf %in, %in_2 : f32
      linalg.yield %15 : f32
    } -> tensor<?x5xf32>
    %12 = tensor.empty() : tensor<5xf32>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %13 = linalg.fill ins(%cst_1 : f32) outs(%12 : tensor<5xf32>) -> tensor<5xf32>
    %14 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["reduction", "parallel"]} ins(%11 : tensor<?x5xf32>) outs(%13 : tensor<5xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.addf %out, %in : f32
      linalg.yield %15 : f32
    } -> tensor<5xf32>
    return %14 : tensor<5xf32>
  }
}
