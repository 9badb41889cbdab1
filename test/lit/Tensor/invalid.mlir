// RUN: disc-opt %s -split-input-file -verify-diagnostics

func.func @t1(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{permutation must name each source dimension once (T1)}}
  %0 = disc_tensor.permute %x [0, 0] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}

// -----

func.func @t2(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{result type does not match the permuted source (T2)}}
  %0 = disc_tensor.permute %x [1, 0] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}

// -----

func.func @t3(%x: tensor<?x4xf32>) {
  // expected-error @+1 {{has 0 sizes for 1 dynamic extents of 'tensor<?xf32>' (T3)}}
  %0 = disc_tensor.reshape %x() : tensor<?x4xf32> -> tensor<?xf32>
  return
}

// -----

func.func @t4(%x: tensor<8x4xf32>) {
  // expected-error @+1 {{element types of source and result differ (T4)}}
  %0 = disc_tensor.reshape %x() : tensor<8x4xf32> -> tensor<32xf64>
  return
}

// -----

func.func @t5(%x: tensor<3x4xf32>) {
  // expected-error @+1 {{dims must map the source dimensions to increasing result dimensions (T5)}}
  %0 = disc_tensor.broadcast %x() [1, 0] : tensor<3x4xf32> -> tensor<4x3xf32>
  return
}

// -----

func.func @t6(%x: tensor<4xf32>) {
  // expected-error @+1 {{has 0 sizes for 1 dynamic extents of 'tensor<?x4xf32>' (T6)}}
  %0 = disc_tensor.broadcast %x() [1] : tensor<4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @t7(%x: tensor<3xf32>) {
  // expected-error @+1 {{source extent 3 is neither 1 nor the result's 4 (T7)}}
  %0 = disc_tensor.broadcast %x() [1] : tensor<3xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @t8(%x: tensor<8x4xf32>, %o: index, %s: index) {
  // expected-error @+1 {{dim must be a dimension of the source and step positive (T8)}}
  %0 = disc_tensor.slice %x[%o, %s] dim 2 step 1 : tensor<8x4xf32> -> tensor<8x4xf32>
  return
}

// -----

func.func @t9(%x: tensor<8x4xf32>, %o: index, %s: index) {
  // expected-error @+1 {{result type does not match the sliced source (T9)}}
  %0 = disc_tensor.slice %x[%o, %s] dim 0 step 1 : tensor<8x4xf32> -> tensor<?x5xf32>
  return
}

// -----

func.func @t10(%q: tensor<2x5x8xf32>, %k: tensor<2x7x9xf32>, %v: tensor<2x7x8xf32>) {
  // expected-error @+1 {{query, key, value and result do not fit each other (T10)}}
  %0 = disc_tensor.attention %q, %k, %v scale 1.0 causal false : tensor<2x5x8xf32>, tensor<2x7x9xf32>, tensor<2x7x8xf32> -> tensor<2x5x8xf32>
  return
}

// -----

func.func @t11(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>, %m: tensor<5x7xi1>) {
  // expected-error @+1 {{mask must have the result's rank (T11)}}
  %0 = disc_tensor.attention %q, %k, %v mask %m : tensor<5x7xi1> scale 1.0 causal false : tensor<2x5x8xf32>, tensor<2x7x8xf32>, tensor<2x7x8xf32> -> tensor<2x5x8xf32>
  return
}

// -----

func.func @t12(%a: tensor<2x3xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{inputs do not fit the result, or dim is out of range (T12)}}
  %0 = disc_tensor.concat %a, %b dim 0 : tensor<2x3xf32>, tensor<3xf32> -> tensor<3x3xf32>
  return
}

// -----

func.func @running_sum(%x: tensor<?x4xf32>) {
  // expected-error @+1 {{result differs from the source, or dim is out of range (T15)}}
  %0 = disc_tensor.running_sum %x dim 2 : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @t13(%w: tensor<64x32xf32>) {
  // expected-error @+1 {{dims must name each dimension once (T13)}}
  %0 = disc_tensor.pack %w batch [] n [0] k [0] panel 16 : tensor<64x32xf32> -> tensor<4x32x16xf32>
  return
}

// -----

func.func @t14(%w: tensor<4x32x16xf32>) {
  // expected-error @+1 {{dims must name each dimension once (T14)}}
  %0 = disc_tensor.unpack %w batch [] n [0, 2] k [1] panel 16 : tensor<4x32x16xf32> -> tensor<64x32xf32>
  return
}

// -----

func.func @call_sizes(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{has 1 sizes for 2 dynamic extents of its results (T16)}}
  %0:2 = disc_tensor.call "f"(%x) sizes(%n) tasks %n scratch %n "" : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi64>)
  return
}

// -----

func.func @call_name(%x: tensor<4xf32>, %n: index) {
  // expected-error@+1 {{calls 'so rt', which is not an identifier (T17)}}
  %0 = disc_tensor.call "so rt"(%x) tasks %n scratch %n "" : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @call_without_results(%x: tensor<4xf32>, %n: index) {
  // expected-error@+1 {{has no result (T18)}}
  "disc_tensor.call"(%x, %n, %n) <{function = "f", what = "", operandSegmentSizes = array<i32: 1, 0, 0, 1, 1>}> : (tensor<4xf32>, index, index) -> ()
  return
}

// -----

func.func @t20(%x: tensor<2x9x8xf32>, %w: tensor<1x4x3x3x8xf32>) {
  // expected-error @+1 {{input, weight and result do not have one to three spatial dimensions (T20)}}
  %0 = disc_tensor.convolution %x, %w strides [1] low [0] high [0] dilations [1] input_dilations [1] : tensor<2x9x8xf32>, tensor<1x4x3x3x8xf32> -> tensor<2x7x4xf32>
  return
}

// -----

func.func @t21(%x: tensor<2x9x8xf32>, %w: tensor<1x4x3x8xf32>) {
  // expected-error @+1 {{strides and dilations must be positive (T21)}}
  %0 = disc_tensor.convolution %x, %w strides [0] low [0] high [0] dilations [1] input_dilations [1] : tensor<2x9x8xf32>, tensor<1x4x3x8xf32> -> tensor<2x7x4xf32>
  return
}

// -----

func.func @t22(%x: tensor<2x9x8xf32>, %w: tensor<2x4x3x8xf32>) {
  // expected-error @+1 {{channels, groups or element types do not fit each other (T22)}}
  %0 = disc_tensor.convolution %x, %w strides [1] low [0] high [0] dilations [1] input_dilations [1] : tensor<2x9x8xf32>, tensor<2x4x3x8xf32> -> tensor<2x7x8xf32>
  return
}

// -----

func.func @t23(%x: tensor<2x9x9x8xf32>, %w: tensor<16x4x6xf32>) {
  // expected-error @+1 {{input, weight and result do not fit each other (T23)}}
  %0 = disc_tensor.winograd %x, %w low [0, 0] high [0, 0] dilations [1, 1] : tensor<2x9x9x8xf32>, tensor<16x4x6xf32> -> tensor<2x7x7x4xf32>
  return
}

// -----

func.func @t24(%p: tensor<2xi1>, %x: tensor<4xf32>) {
  // expected-error @+1 {{the condition must be a tensor<i1> (T24)}}
  %0 = disc_tensor.branch %p : tensor<2xi1> -> (tensor<4xf32>) {
    disc_tensor.yield %x : tensor<4xf32>
  } else {
    disc_tensor.yield %x : tensor<4xf32>
  }
  return
}

// -----

disc_shape.symbol @n
func.func @t25(%p: tensor<i1>, %x: tensor<4xf32>, %s: index) {
  // expected-error @+1 {{the numbers of symbols and sizes differ (T25)}}
  %0 = disc_tensor.branch %p symbols [@n] : tensor<i1> -> (tensor<4xf32>) {
    disc_tensor.yield %x : tensor<4xf32> sizes(%s)
  } else {
    disc_tensor.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @t26(%p: tensor<i1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{the values of a region do not have the types of the results (T26)}}
  %0 = disc_tensor.branch %p : tensor<i1> -> (tensor<4xf32>) {
    disc_tensor.yield %x : tensor<4xf32>
  } else {
    disc_tensor.yield %y : tensor<5xf32>
  }
  return
}

// -----

disc_shape.symbol @i
func.func @t27(%p: tensor<i1>, %x: tensor<4xf32>) {
  // expected-error @+1 {{needs a count, or conditions before and in the body; a reverse loop needs only a count (T27)}}
  %0 = disc_tensor.loop @i while %p : tensor<i1> carries(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_tensor.next %a : tensor<4xf32>
  }
  return
}

// -----

func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func @t28(%x: tensor<4xf32>) {
  // expected-error @+1 {{does not fit a procedure of this name (T28)}}
  %0 = disc_tensor.invoke @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

disc_shape.symbol @m
func.func private @f(%x: tensor<4xf32>) -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[m]>})
    attributes {disc_tensor.procedure = [], disc_tensor.given = array<i64: 0, 0>} {
  %c = arith.constant 4 : index
  %y = tensor.empty(%c) : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @t28_given(%x: tensor<4xf32>) {
  // expected-error @+1 {{does not fit a procedure of this name (T28)}}
  %y = disc_tensor.invoke @f(%x) : (tensor<4xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @t30(%n: index, %x: tensor<4xf32>) {
  // expected-error @+1 {{'i' is not a declared symbol (T30)}}
  %0 = disc_tensor.loop @i below %n carries(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_tensor.next %a : tensor<4xf32>
  }
  return
}

// -----

disc_shape.symbol @i
func.func @t31(%n: index, %x: tensor<4xf32>) {
  // expected-error @+1 {{region arguments and carried results do not have the types of the first values (T31)}}
  %0 = disc_tensor.loop @i below %n carries(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<5xf32>):
    disc_tensor.next %x : tensor<4xf32>
  }
  return
}

// -----

disc_shape.symbol @i
func.func @t32(%n: index, %x: tensor<4xf32>) {
  // expected-error @+1 {{the values of a step do not fit the results (T32)}}
  %0:2 = disc_tensor.loop @i below %n carries(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<?x5xf32>) {
  ^bb0(%a: tensor<4xf32>):
    disc_tensor.next %a, %a : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @call_in_place(%x: tensor<4xf32>, %n: index) {
  // expected-error@+1 {{is in place, so its first operand must have the type of its first result (T19)}}
  %0 = disc_tensor.call "insert"(%x) tasks %n scratch %n "" in_place : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @call_ordered(%x: tensor<4xf32>, %n: index) {
  // expected-error@+1 {{is ordered, so it must be on a device, and its last of two or more results a vector of i64 (T33)}}
  %0 = disc_tensor.call "sort"(%x) tasks %n scratch %n "" on_device ordered [0] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @t13_panel(%w: tensor<64x32xf32>) {
  // expected-error @+1 {{the panel must have from 1 to 1024 elements, not 0 (T13)}}
  %0 = disc_tensor.pack %w batch [] n [0] k [1] panel 0 : tensor<64x32xf32> -> tensor<4x32x16xf32>
  return
}

// -----

func.func @t14_panel(%w: tensor<4x32x16xf32>) {
  // expected-error @+1 {{the panel must have from 1 to 1024 elements, not 2048 (T14)}}
  %0 = disc_tensor.unpack %w batch [] n [0, 2] k [1] panel 2048 : tensor<4x32x16xf32> -> tensor<64x32xf32>
  return
}

// -----

// expected-error @+1 {{'disc_tensor.procedure' must be a list of symbols on a function (T34)}}
func.func private @t34() attributes {disc_tensor.procedure = [1]}

// -----

// expected-error @+1 {{is a procedure, but the extents of a 'tensor<?xf32>' are unknown (T34)}}
func.func private @t34_extents() -> tensor<?xf32> attributes {disc_tensor.procedure = []}

// -----

disc_shape.symbol @m
// expected-error @+1 {{'disc_tensor.given' must be pairs of a result and its dynamic dim, not array<i64: 0, 1> (T35)}}
func.func private @t35() -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[m]>})
    attributes {disc_tensor.procedure = [], disc_tensor.given = array<i64: 0, 1>}

// -----

// expected-error @+1 {{'disc_tensor.given' must be pairs of a result and its dynamic dim, not array<i64: 0, -1> (T35)}}
disc_rt.procedure @t35_after attributes {disc_tensor.given = array<i64: 0, -1>} {
^bb0(%call: !llvm.ptr):
  disc_rt.return
}

// -----

func.func @t36(%x: tensor<4xf32>) {
  // expected-error @+1 {{the yielded values do not have the types of the results (T36)}}
  %0 = disc_tensor.composite "aten.exp" 1 (%x) {} : (tensor<4xf32>) -> tensor<8xf32> {
    disc_tensor.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @t38(%w: tensor<64x32xf32>) {
  // expected-error @+1 {{with nibbles needs panels of i32 without `together` (T38)}}
  %0 = disc_tensor.pack %w batch [] n [0] k [1] panel 16 nibbles : tensor<64x32xf32> -> tensor<4x16x16xf32>
  return
}

// -----

func.func @t41(%x: tensor<1x8x4xi8>, %w: tensor<1x2x3x4xi8>) {
  // expected-error @+1 {{only undilated bytes may be unsigned or have a code outside, one of theirs (T41)}}
  %0 = disc_tensor.convolution %x, %w strides [1] low [0] high [0] dilations [1] input_dilations [1] outside 200 : tensor<1x8x4xi8>, tensor<1x2x3x4xi8> -> tensor<1x6x2xi32>
  return
}

// -----

func.func @t40(%w: tensor<64x32xi16>) {
  // expected-error @+1 {{puts 4 values of k together, not 1, 2, or 4 bytes (T40)}}
  %0 = disc_tensor.pack %w batch [] n [0] k [1] panel 16 together 4 : tensor<64x32xi16> -> tensor<4x8x64xi16>
  return
}

// -----

func.func @t40_shift(%p: tensor<4x9x64xi8>) {
  // expected-error @+1 {{shifts by 64, not by 128 or -128, with 4 values of k together (T40)}}
  %0 = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 together 4 left_shift 64 : tensor<4x9x64xi8> -> tensor<64x32xi8>
  return
}

// -----

func.func @t42_scales(%p: tensor<4x32x16xbf16>) {
  // expected-error @+1 {{with `as_halves` needs scales (T42)}}
  %0 = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 as_halves : tensor<4x32x16xbf16> -> tensor<64x32xbf16>
  return
}

// -----

func.func @t42_odd(%w: tensor<4x33x16xi8>, %s: tensor<4x3x16xf32>) {
  // expected-error @+1 {{with `as_halves` needs an even number of values of k for each scale (T42)}}
  %0 = disc_tensor.unpack %w scales %s : tensor<4x3x16xf32> batch [] n [0] k [1] panel 16 as_halves
      : tensor<4x33x16xi8> -> tensor<64x33xf32>
  return
}

// -----

func.func @t37(%w: tensor<4x32x16xi8>, %s: tensor<4x3x16xf32>) {
  // expected-error @+1 {{needs scales and zeros whose shapes and types fit its panels (T37)}}
  %0 = disc_tensor.unpack %w scales %s : tensor<4x3x16xf32> batch [] n [0] k [1] panel 16
      : tensor<4x32x16xi8> -> tensor<64x32xf32>
  return
}

// -----

func.func @t37_zeros(%w: tensor<4x32x16xi8>, %z: tensor<4x1x16xf32>) {
  // expected-error @+1 {{has zeros without scales (T37)}}
  %0 = disc_tensor.unpack %w zeros %z : tensor<4x1x16xf32> batch [] n [0] k [1] panel 16
      : tensor<4x32x16xi8> -> tensor<64x32xf32>
  return
}

// -----

func.func @t38_depth(%w: tensor<64x12xi8>) {
  // expected-error @+1 {{with nibbles needs a multiple of 8 values of k (T38)}}
  %0 = disc_tensor.pack %w batch [] n [0] k [1] panel 16 nibbles : tensor<64x12xi8> -> tensor<4x1x16xi32>
  return
}

// -----

func.func @t38_signed(%w: tensor<4x4x16xi32>, %s: tensor<4x1x16xf32>) {
  // expected-error @+1 {{with nibbles needs scales and unsigned codes (T38)}}
  %0 = disc_tensor.unpack %w scales %s : tensor<4x1x16xf32> batch [] n [0] k [1] panel 16 nibbles
      : tensor<4x4x16xi32> -> tensor<64x32xf32>
  return
}

// -----

func.func @t39_dims(%c: tensor<8x4x128xi32>, %s: tensor<1x64xf32>) {
  // expected-error @+1 {{dims must name each dimension once (T39)}}
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<1x64xf32> zero 8 bits 4 batch [] n [0] k [0]
      : tensor<8x4x128xi32> -> tensor<64x512xf32>
  return
}

// -----

func.func @t39_bits(%c: tensor<8x4x128xi32>, %s: tensor<1x64xf32>) {
  // expected-error @+1 {{needs codes of 4 or 8 bits (T39)}}
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<1x64xf32> zero 8 bits 2 batch [] n [0] k [1]
      : tensor<8x4x128xi32> -> tensor<64x512xf32>
  return
}

// -----

func.func @t39_floats(%c: tensor<8x4x128xi32>, %s: tensor<1x64xf32>) {
  // expected-error @+1 {{must result in floats with a static shape (T39)}}
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<1x64xf32> zero 8 bits 4 batch [] n [0] k [1]
      : tensor<8x4x128xi32> -> tensor<64x512xi32>
  return
}

// -----

func.func @t39_codes(%c: tensor<8x4x128xi32>, %s: tensor<1x64xf32>) {
  // expected-error @+1 {{needs codes, scales and zeros whose shapes and types fit the result (T39)}}
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<1x64xf32> zero 8 bits 8 batch [] n [0] k [1]
      : tensor<8x4x128xi32> -> tensor<64x512xf32>
  return
}

// -----

func.func @t39_scales(%c: tensor<8x4x128xi32>, %s: tensor<1x60xf32>) {
  // expected-error @+1 {{needs codes, scales and zeros whose shapes and types fit the result (T39)}}
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<1x60xf32> zero 8 bits 4 batch [] n [0] k [1]
      : tensor<8x4x128xi32> -> tensor<60x512xf32>
  return
}

// -----

func.func @t39_groups(%c: tensor<8x4x128xi32>, %s: tensor<32x64xf32>) {
  // expected-error @+1 {{needs one group, or groups of a multiple of 32 values of k (T39)}}
  %0 = disc_tensor.unpack_fragments %c scales %s : tensor<32x64xf32> zero 8 bits 4 batch [] n [0] k [1]
      : tensor<8x4x128xi32> -> tensor<60x512xf32>
  return
}
