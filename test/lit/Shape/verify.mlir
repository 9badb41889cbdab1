// RUN: disc-opt %s --disc-shape-verify --split-input-file --verify-diagnostics

disc_shape.symbol @S
func.func @dim(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}) {
  %c0 = arith.constant 0 : index
  // expected-error @below {{(V1) tensor.dim is left of an extent that is known}}
  %0 = tensor.dim %x, %c0 : tensor<?xf32>
  return
}

// -----

func.func @require(%n: index) {
  // expected-error @below {{(V2) a requirement is neither proved nor guarded}}
  disc_shape.require eq %n, %n
  return
}

// -----

func.func @data(%x: tensor<4xi64>) {
  %c0 = arith.constant 0 : index
  %e = tensor.extract %x[%c0] : tensor<4xi64>
  %n = arith.index_cast %e : i64 to index
  // expected-error @below {{(V4) a size is neither disc_shape.dim nor a constant}}
  // expected-error @below {{(V3) 'tensor.empty' has a result whose extents depend on data}}
  %0 = tensor.empty(%n) : tensor<?xf32>
  return
}

// -----

disc_shape.symbol @S
func.func @twice() {
  %0 = disc_shape.dim <S + 1>
  // expected-error @below {{(V5) a second disc_shape.dim of S + 1}}
  %1 = disc_shape.dim <S + 1>
  return
}

// -----

// expected-error @below {{(V6) argument 0 has dynamic extents without names}}
func.func @argument(%x: tensor<?xf32>) {
  return
}

// -----

disc_shape.symbol @S
disc_shape.symbol @T
func.func @reshape(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}) {
  %0 = disc_shape.dim <T>
  // expected-error @below {{(V7) reshape changes the number of elements: S and T}}
  %1 = disc_tensor.reshape %x(%0) {disc_shape.dims = [#disc_shape.dims<[T]>]} : tensor<?xf32> -> tensor<?xf32>
  return
}
