//===- Tensor.td - the disc_tensor dialect -----------------------*- tablegen -*-===//
//
// What linalg lacks: parameters by reference, views that never compute, and the few tensor computations that are
// kept whole because splitting them would lose what makes them fast.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_TENSOR
#define DISC_DIALECTS_TENSOR

include "dialects/Shape/ShapeInterfaces.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tensor_Dialect : Dialect {
  let name = "disc_tensor";
  let cppNamespace = "::mlir::disc";
  let summary = "Tensor operations that linalg lacks";
  let description = [{
    Values are ranked tensors; every operation is pure. *Views* (`permute`, `reshape`, `broadcast`, `slice`) only
    change how a buffer is addressed. *Computations* (`attention`, `convolution`, `concat`, `running_sum`, `pack`,
    `call`)
    become kernels. `loop` and `branch` are control: their bodies stay a part of the host flow.

    A function with the attribute `disc_tensor.procedure` is a procedure (see `invoke`); `disc_tensor.given` names the
    extents that it hands back.

    (T34) `disc_tensor.procedure` is a list of symbol names on a function, whose tensors with dynamic dims have
    `disc_shape.dims`.
    (T35) `disc_tensor.given` is a list of pairs of numbers: of a result, and of one of its dynamic dims.
  }];
  let hasOperationAttrVerify = 1;
}

class Tensor_Op<string mnemonic, list<Trait> traits = []>
    : Op<Tensor_Dialect, mnemonic, !listconcat(traits, [Pure])>;

// The operation tells the extents of its result (DimsOps.cpp).
def Tensor_KnownDims : DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>;

def Tensor_ParameterOp : Tensor_Op<"parameter"> {
  let summary = "a parameter, buffer or constant of the model, by name";
  let description = [{
    The data never enters the IR: the runtime binds the name to memory when the model is loaded. The shape is static.

    ```mlir
    %w = disc_tensor.parameter "encoder.weight" : tensor<384x384xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$name attr-dict `:` type($result)";
}

def Tensor_PermuteOp : Tensor_Op<"permute", [Tensor_KnownDims]> {
  let summary = "a view with its dimensions reordered";
  let description = [{
    Result dimension `i` is source dimension `permutation[i]`.

    (T1) `permutation` is a permutation of the source's dimensions.
    (T2) the static extents of the result are those of the source, permuted.
  }];
  let arguments = (ins AnyRankedTensor:$source, DenseI64ArrayAttr:$permutation);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source $permutation attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Tensor_ReshapeOp : Tensor_Op<"reshape", [Tensor_KnownDims]> {
  let summary = "a view with other extents over the same elements in row-major order";
  let description = [{
    `sizes` holds one index for each dynamic extent of the result, in order.

    (T3) there is one size for each dynamic extent of the result.
    (T4) element types agree.
    That the number of elements is kept is proved or guarded by the shape stage.
  }];
  let arguments = (ins AnyRankedTensor:$source, Variadic<Index>:$sizes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source `(` $sizes `)` attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Tensor_BroadcastOp : Tensor_Op<"broadcast", [Tensor_KnownDims]> {
  let summary = "a view that repeats elements along new or unit dimensions";
  let description = [{
    Source dimension `j` is result dimension `dims[j]`; where the source's extent is statically 1 and the result's is
    not, and in result dimensions that no source dimension maps to, the elements repeat.

    (T5) `dims` is strictly increasing, one per source dimension, within the result's rank.
    (T6) there is one size for each dynamic extent of the result.
    (T7) a static source extent is 1 or the result's.
  }];
  let arguments = (ins AnyRankedTensor:$source, Variadic<Index>:$sizes, DenseI64ArrayAttr:$dims);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source `(` $sizes `)` $dims attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tensor_SliceOp : Tensor_Op<"slice", [Tensor_KnownDims]> {
  let summary = "a view of every `step`-th index of one dimension";
  let description = [{
    (T8) `dim` is a dimension of the source and `step` is positive.
    (T9) all other extents agree.
  }];
  let arguments = (ins AnyRankedTensor:$source, Index:$offset, Index:$size, I64Attr:$dim, I64Attr:$step);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $source `[` $offset `,` $size `]` `dim` $dim `step` $step attr-dict `:` type($source) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tensor_AttentionOp : Tensor_Op<"attention", [Tensor_KnownDims]> {
  let summary = "scaled dot-product attention";
  let description = [{
    `softmax(scale * query @ key^T + mask) @ value` over query `[..., L, E]`, key `[..., S, E]`, value `[..., S, Ev]`.
    The mask broadcasts to `[..., L, S]` by unit extents; a boolean mask keeps where it is true, a float mask is added.
    With `is_causal`, query `i` sees keys `j <= i` only. A query that sees no key gives zeros, with `nan_rows` NaN.

    (T10) query, key and value have one rank >= 2 and one element type; E and S agree where static.
    (T11) the mask has the result's rank.
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Optional<AnyRankedTensor>:$mask, F64Attr:$scale, BoolAttr:$is_causal,
                       UnitAttr:$nan_rows);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $query `,` $key `,` $value (`mask` $mask^ `:` type($mask))? `scale` $scale `causal` $is_causal attr-dict
    `:` type($query) `,` type($key) `,` type($value) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tensor_ConvolutionOp : Tensor_Op<"convolution", [Tensor_KnownDims]> {
  let summary = "convolution over one to three spatial dimensions, channels last";
  let description = [{
    Over input `[N, s..., C]` and weight `[G, O/G, k..., C/G]`, with result `[N, o..., O]`:
    `y[n, o, f] = sum over k, c of x[n, o * stride + k * dilation - low, c] * w[f, k, c]`, in G groups of channels apart.
    Positions outside the input count as zero. With an input dilation of `d` the input's elements are taken to lie `d`
    apart, with zeros between: this is how a transposed convolution is said, with its weight mirrored. `low` and `high`
    are what is added at both ends of each dimension, taken away if negative. Sums have the result's element type.

    Bytes are multiplied exactly, in i32: `unsigned_input` and `unsigned_weight` say which are unsigned. Positions outside
    of the input then count as the code `outside`.

    (T20) input, weight and result have one to three spatial dimensions, and an entry of each attribute for each.
    (T21) strides and dilations are positive.
    (T22) channels, groups and element types of input, weight and result fit each other.
    (T41) only bytes are unsigned or have a code outside, which is one of theirs; they are not dilated.
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$input_dilations, UnitAttr:$unsigned_input, UnitAttr:$unsigned_weight,
                       DefaultValuedAttr<I64Attr, "0">:$outside);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight `strides` $strides `low` $low `high` $high `dilations` $dilations `input_dilations`
    $input_dilations (`outside` $outside^)? (`unsigned_input` $unsigned_input^)? (`unsigned_weight` $unsigned_weight^)?
    attr-dict `:` type($input) `,` type($weight) `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getSpatialRank() { return getStrides().size(); }
    /// How many neighbouring positions of dimension `d` one result depends on, for a kernel extent.
    SymExpr getWindow(int64_t d, const SymExpr &kernel);
    /// The extent of dimension `d` with its zeros.
    SymExpr getPadded(int64_t d, const SymExpr &input);
  }];
}

def Tensor_WinogradOp : Tensor_Op<"winograd", [Tensor_KnownDims]> {
  let summary = "convolution by kernels of 3 x 3 in 16 products for each 2 x 2 results";
  let description = [{
    Over input `[N, H, W, C]` and weight `[16, O, C]`, the kernels as Winograd's F(2 x 2, 3 x 3) transforms them:
    `G k G^T`, row-major. The result `[N, H + low + high - 2 * dilation, ..., O]` is that of `disc_tensor.convolution` with
    steps of one, but for rounding.

    (T23) input and result have two spatial dimensions, and channels fit the weight.
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight, DenseI64ArrayAttr:$low,
                       DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$dilations);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight `low` $low `high` $high `dilations` $dilations attr-dict
    `:` type($input) `,` type($weight) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tensor_ConcatOp : Tensor_Op<"concat", [Tensor_KnownDims]> {
  let summary = "tensors put one after the other along a dimension";
  let description = [{
    (T12) there is at least one input; all have the result's rank and element type; `dim` is one of its dimensions.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, I64Attr:$dim);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$inputs `dim` $dim attr-dict `:` type($inputs) `->` type($result)";
  let hasVerifier = 1;
}

def Tensor_RunningSumOp : Tensor_Op<"running_sum", [Tensor_KnownDims, SameOperandsAndResultElementType]> {
  let summary = "for each element the sum of those up to it along a dimension";
  let description = [{
    (T15) the result has the source's type; `dim` is one of its dimensions.
  }];
  let arguments = (ins AnyRankedTensor:$source, I64Attr:$dim);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source `dim` $dim attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tensor_PackOp : Tensor_Op<"pack", [Tensor_KnownDims]> {
  let summary = "a contraction's right-hand side in panels";
  let description = [{
    Gives `[batch..., ceil(N / panel), K, panel]`, zero padded, from a right-hand side whose dimensions are, in the
    source, `batch_dims` (outermost first), `n_dims` and `k_dims` (each flattened row-major in the order given).
    With `together`, 2 or 4, as many values of k are side by side, for instructions that sum as many products:
    `[batch..., ceil(N / panel), K / 2, 2 * panel]`, where the last of `k_dims` counts as rounded up to a multiple of that.
    Integers are zero there; floats need such a multiple. With
    `nibbles`, eight values of k of 4 bits each share an i32, the first in its lowest bits:
    `[batch..., ceil(N / panel), K / 8, panel]`; 8 divides K.

    With `left_shift`, 128 or -128, the products read bytes of the left operand with that added, modulo 256, which is
    the sign that the instructions want. Each panel then starts with one more row: for each column, as an i32, the sum
    over k times -`left_shift`. `unsigned_codes` says how bytes are summed.

    (T13) `batch_dims`, `n_dims` and `k_dims` together name each source dimension once.
    (T38) `nibbles` need panels of i32 without `together`.
    (T40) `together` is 1, 2 or 4, with 4 the panels are of bytes, and a shift is 128 or -128 and needs 4.
  }];
  let arguments = (ins AnyRankedTensor:$source, DenseI64ArrayAttr:$batch_dims, DenseI64ArrayAttr:$n_dims,
                       DenseI64ArrayAttr:$k_dims, I64Attr:$panel, DefaultValuedAttr<I64Attr, "1">:$together,
                       DefaultValuedAttr<I64Attr, "0">:$left_shift, UnitAttr:$nibbles, UnitAttr:$unsigned_codes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $source `batch` $batch_dims `n` $n_dims `k` $k_dims `panel` $panel (`together` $together^)?
    (`left_shift` $left_shift^)? (`nibbles` $nibbles^)? (`unsigned` $unsigned_codes^)? attr-dict `:` type($source)
    `->` type($result)
  }];
  let extraClassDeclaration = [{
    /// Values of k that one row of a panel holds.
    int64_t getSide() { return getNibbles() ? 8 : getTogether(); }
    /// Rows before those of values of k.
    int64_t getExtraRows() { return getLeftShift() != 0; }
  }];
  let hasVerifier = 1;
}

def Tensor_CallFunctionOp : Tensor_Op<"call", [Tensor_KnownDims, AttrSizedOperandSegments]> {
  let summary = "a native function of the runtime";
  let description = [{
    For what is neither a map nor a reduction, such as a sort: the kernel's code is `disc_fn_NAME` of
    `lib/Runtime/Functions`, which says what operands and `config` mean. `sizes` holds one index for each dynamic extent
    of the results, in order. `config` holds numbers for the function; floats are the bits of a double. The work falls
    into `tasks` independent pieces, and each thread has `scratch` bytes. `what` names the operation and the user's line
    for messages at run time. `unsigned` lists the operands (inputs, then results) whose elements are unsigned.
    With `in_place` the first result may lie where the first operand does: the function then changes only what differs.
    With `on_device` a device's own kernels do the work. With `ordered` they put things in order first, one for each
    point of the loops that it lists, and the last result is memory for that.

    ```mlir
    %v, %i = disc_tensor.call "sort" (%x) sizes(%s) config(%one) tasks %b scratch %n "aten.sort at model.py:3"
        : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xi64>)
    ```

    (T16) there is one size for each dynamic extent of the results.
    (T17) the function's name is an identifier.
    (T18) there is a result.
    (T19) with `in_place` the first operand and the first result have one type.
    (T33) with `ordered` there are `on_device` and two results or more, and the last is a vector of i64.
  }];
  let arguments = (ins StrAttr:$function, Variadic<AnyRankedTensor>:$inputs, Variadic<Index>:$sizes,
                       Variadic<Index>:$config, Index:$tasks, Index:$scratch,
                       DefaultValuedAttr<StrAttr, "\"\"">:$what, OptionalAttr<DenseI64ArrayAttr>:$unsigned_operands,
                       UnitAttr:$in_place, UnitAttr:$on_device,
                       OptionalAttr<DenseI64ArrayAttr>:$ordered);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = [{
    $function `(` $inputs `)` (`sizes` `(` $sizes^ `)`)? (`config` `(` $config^ `)`)? `tasks` $tasks `scratch` $scratch
    $what (`unsigned` $unsigned_operands^)? (`in_place` $in_place^)? (`on_device` $on_device^)?
    (`ordered` $ordered^)? attr-dict `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

def Tensor_CheckIndexOp : Tensor_Op<"check_index", [AllTypesMatch<["index", "extent", "result"]>]> {
  let summary = "an index into a dimension, checked when the kernel runs";
  let description = [{
    In the body of a `linalg.generic`. The result is the index, which lies in `[0, extent)`; with `wrap`, one from
    `[-extent, 0)` counts from the end. Any other index fails the call: no result is seen, and no memory outside the
    tensor is touched on the way there. `what` names the operation and the user's line for the message.

    Pure all the same: a check whose result nobody uses may go.
  }];
  let arguments = (ins I64:$index, I64:$extent, UnitAttr:$wrap, StrAttr:$what);
  let results = (outs I64:$result);
  let assemblyFormat = "$index `below` $extent (`wrap` $wrap^)? $what attr-dict";
}

def Tensor_UnpackOp : Tensor_Op<"unpack", [Tensor_KnownDims, AttrSizedOperandSegments]> {
  let summary = "the right-hand side that `pack` put in panels, as it was";
  let description = [{
    The inverse of `pack` with the same attributes. Inside a kernel it says what panels mean; it is never computed:
    contractions read the panels.

    With `scales`, the panels contain codes of a quantised tensor, and the result is the tensor,
    `(code - zero) * scale`. Scales and zeros are f32 and are stored in panels, too: `[batch..., ceil(N / panel), groups,
    panel]`, one for each column and each of `groups` runs of neighbouring values of k. With `unsigned` the codes are
    unsigned integers. With `as_halves` a product with many rows may round the tensor to bf16; its other operand is bf16, too.

    ```mlir
    %w = disc_tensor.unpack %p scales %s : tensor<12x4x32xf32> batch [] n [0] k [1] panel 32
        : tensor<12x384x32xi8> -> tensor<384x384xf32>
    ```

    (T14) `batch_dims`, `n_dims` and `k_dims` together name each result dimension once.
    (T37) with `scales` the panels contain bytes, or `nibbles`, and the result floats, and there is one scale (and one zero) for each
    column of each panel and each group; the number of groups divides K.
    (T38) `nibbles` need panels of i32 without `together`; they are unsigned, and their zero is 8 where none are given.
    (T40) `together` is 1, 2 or 4, with 4 the panels are of bytes, and a shift is 128 or -128 and needs 4.
    (T42) `as_halves` needs scales, each for an even number of values of k.
  }];
  let arguments = (ins AnyRankedTensor:$source, Optional<AnyRankedTensor>:$scales, Optional<AnyRankedTensor>:$zeros,
                       DenseI64ArrayAttr:$batch_dims, DenseI64ArrayAttr:$n_dims, DenseI64ArrayAttr:$k_dims,
                       I64Attr:$panel, DefaultValuedAttr<I64Attr, "1">:$together,
                       DefaultValuedAttr<I64Attr, "0">:$left_shift, UnitAttr:$nibbles, UnitAttr:$unsigned_codes,
                       UnitAttr:$as_halves);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $source (`scales` $scales^ `:` type($scales))? (`zeros` $zeros^ `:` type($zeros))?
    `batch` $batch_dims `n` $n_dims `k` $k_dims `panel` $panel (`together` $together^)?
    (`left_shift` $left_shift^)? (`nibbles` $nibbles^)? (`unsigned` $unsigned_codes^)?
    (`as_halves` $as_halves^)? attr-dict `:` type($source) `->` type($result)
  }];
  let builders = [OpBuilder<(ins "Type":$type, "Value":$source, "ArrayRef<int64_t>":$batch, "ArrayRef<int64_t>":$n,
                                 "ArrayRef<int64_t>":$k, "int64_t":$panel, CArg<"int64_t", "1">:$together,
                                 CArg<"int64_t", "0">:$left_shift),
                            [{ build($_builder, $_state, type, source, Value(), Value(), batch, n, k, panel, together,
                                     left_shift, /*nibbles=*/false, /*unsigned_codes=*/false, /*as_halves=*/false); }]>];
  let extraClassDeclaration = [{
    /// Values of k that one row of a panel holds.
    int64_t getSide() { return getNibbles() ? 8 : getTogether(); }
    /// Rows before those of values of k.
    int64_t getExtraRows() { return getLeftShift() != 0; }
    /// Runs of k with scales of their own; 0 without scales.
    int64_t getGroups();
  }];
  let hasVerifier = 1;
}

def Tensor_UnpackFragmentsOp : Tensor_Op<"unpack_fragments", [Tensor_KnownDims]> {
  let summary = "quantised weights in the order in which the threads of a matrix unit read them";
  let description = [{
    The result is `(code - zero) * scale`, rounded to its element type. Inside a kernel the operation says what its
    operands mean; it is never computed: a contraction reads the codes.

    Codes are unsigned integers of `bits` bits (4 or 8) in words of 32 bits: `[batch..., ceil(N / 8), ceil(K / block),
    128]`, where a block is 512 / `bits` values of k. Of eight columns and a block each of 32 threads has four words, one
    after the other: thread `4 * g + t` those of column g and of the values `32 * s + 8 * t + i` of k, for all
    s and for i from 0 to 7. Of 4 bits, word s has the eight codes; code i is in the bits from
    `i % 2 * 16 + i / 2 * 4` on. Of 8 bits, words `2 * s` and `2 * s + 1` have four each; code i is in the bits from
    `i % 2 * 16 + i % 4 / 2 * 8` on. So pairs of neighbours are in both halves of a word after a shift.

    Scales and zeros are f32, `[batch..., groups, 8 * ceil(N / 8)]`: one for each column and each of `groups` runs of
    neighbouring values of k. Without zeros, `zero` is that of all.

    ```mlir
    %w = disc_tensor.unpack_fragments %c scales %s : tensor<16x64xf32> zero 8 bits 4 batch [] n [0] k [1]
        : tensor<8x4x128xi32> -> tensor<60x512xbf16>
    ```

    (T39) `batch_dims`, `n_dims` and `k_dims` together name each result dimension once; the result is of floats and its
    shape is static; codes, scales and zeros have the shapes above; there is one group, or groups of a multiple of 32
    values of k.
  }];
  let arguments = (ins AnyRankedTensor:$source, AnyRankedTensor:$scales, Optional<AnyRankedTensor>:$zeros,
                       I64Attr:$zero, I64Attr:$bits, DenseI64ArrayAttr:$batch_dims, DenseI64ArrayAttr:$n_dims,
                       DenseI64ArrayAttr:$k_dims);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $source `scales` $scales `:` type($scales) (`zeros` $zeros^ `:` type($zeros))? `zero` $zero `bits` $bits
    `batch` $batch_dims `n` $n_dims `k` $k_dims attr-dict `:` type($source) `->` type($result)
  }];
  let extraClassDeclaration = [{
    /// Values of k in four words of a thread and its three neighbours.
    int64_t getBlock() { return 512 / static_cast<int64_t>(getBits()); }
    /// Runs of k with scales of their own.
    int64_t getGroups();
    /// The product of the result's extents.
    int64_t extent(::llvm::ArrayRef<int64_t> dims);
  }];
  let hasVerifier = 1;
}

def Tensor_SymbolsAttr : TypedArrayAttrBase<FlatSymbolRefAttr, "names of symbols"> {
  let constBuilderCall = "$_builder.getArrayAttr($0)";
}

// Operations with blocks of the host flow inside. One that gives symbols their values is not dead without users.
class Tensor_ControlOp<string mnemonic, list<Trait> traits = []> : Op<Tensor_Dialect, mnemonic, !listconcat(traits, [
    RecursiveMemoryEffects, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>])>;

def Tensor_LoopOp : Tensor_ControlOp<"loop", [
    SingleBlock, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims", "getRegionArgDims"]>]> {
  let summary = "a loop of the host flow, whose step is a symbol";
  let description = [{
    Runs the region for the steps 0, 1, ... as long as the step is below `count`, if there is one, and `condition` is
    true, if there is one; with `reverse` for `count - 1`, ..., 0. That the step is a symbol, `index`, makes slices at
    it views like others: their layouts have an offset of `index` times a stride.

    The region's arguments are the carried tensors: `inits` at first, then what the step before gave. `next` ends a
    step with the carried tensors, the *stacked* ones, of which the results hold the step's at row `index` of a new
    leading dimension, the condition for another step, and sizes. The results are the carried tensors after the last
    step (`inits` if there is none), then the stacks. Tensors from outside may be used as they are.

    ```mlir
    %h, %ys = disc_tensor.loop @i below %T carries(%h0) : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x?x8xf32>) {
    ^bb0(%a: tensor<?x8xf32>):
      %x = disc_tensor.slice %xs[%i, %c1] dim 0 step 1 : ...     // %i = disc_shape.dim <i>
      ...
      disc_tensor.next %b, %b : tensor<?x8xf32>, tensor<?x8xf32>
    }
    ```

    Extents that change from step to step are `symbols`, which have in the body the values of `sizes` at first, then
    those of `next`; `arg_dims` says the extents of the region's arguments with them. After the loop the values are
    those of `last_symbols`. `trips` is the number of steps, for a loop with a condition.

    ```mlir
    %y = disc_tensor.loop @i while %go carries(%x) sizes(%n) symbols [@L] last [@M] {
           arg_dims = [#disc_shape.dims<[L]>], disc_shape.dims = [#disc_shape.dims<[M]>]}
         : (tensor<i1>, tensor<?xf32>) -> (tensor<?xf32>) {
    ^bb0(%a: tensor<?xf32>):
      %b = disc_tensor.concat %a, %one ...
      disc_tensor.next %b while %more sizes(%longer) : tensor<?xf32>, tensor<i1>       // %longer = disc_shape.dim <L + 1>
    }
    ```

    (T24) a condition is a tensor<i1>.
    (T25) `symbols`, `last_symbols`, `sizes` and the sizes of `next` are equally many.
    (T27) there is a count or a condition; `next` has a condition if the loop has one; a reversed loop has only a count.
    (T30) `index`, `symbols`, `last_symbols` and `trips` are declared symbols.
    (T31) the region's arguments, and as many first results, have the types of `inits`, and `arg_dims` is as long.
    (T32) `next` has one value per result: carried ones of the result's type, stacked ones of its type without the
    leading dimension, which is `count` where both are static.
    That carried tensors have the extents that are said of them is proved or guarded by the shape stage.
  }];
  let arguments = (ins FlatSymbolRefAttr:$index, Optional<Index>:$count, Optional<AnyRankedTensor>:$condition,
                       Variadic<AnyRankedTensor>:$inits, Variadic<Index>:$sizes,
                       DefaultValuedAttr<Tensor_SymbolsAttr, "{}">:$symbols,
                       DefaultValuedAttr<Tensor_SymbolsAttr, "{}">:$last_symbols,
                       OptionalAttr<FlatSymbolRefAttr>:$trips, OptionalAttr<ArrayAttr>:$arg_dims, UnitAttr:$reverse);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $index (`reverse` $reverse^)? (`below` $count^)? (`while` $condition^ `:` type($condition))?
    `carries` `(` $inits `)` (`sizes` `(` $sizes^ `)`)? (`symbols` $symbols^)? (`last` $last_symbols^)?
    (`trips` $trips^)? attr-dict `:` functional-type($inits, $outputs) $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    unsigned getNumCarried() { return getInits().size(); }
    /// The terminator of the body.
    NextOp getNext();
    SymExpr getIndexExpr() { return SymExpr::symbol(getIndex()); }
    /// True if the extents of this carried tensor change from step to step.
    bool isVarying(unsigned carried);
  }];
}

def Tensor_NextOp : Tensor_Op<"next", [Terminator, AttrSizedOperandSegments, HasParent<"LoopOp">]> {
  let summary = "the values after a step of a loop";
  let arguments = (ins Variadic<AnyRankedTensor>:$values, Optional<AnyRankedTensor>:$condition,
                       Variadic<Index>:$sizes);
  let assemblyFormat = [{
    ($values^ `:` type($values))? (`while` $condition^ `:` type($condition))? (`sizes` `(` $sizes^ `)`)? attr-dict
  }];
}

def Tensor_BranchOp : Tensor_ControlOp<"branch", [DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>]> {
  let summary = "one of two blocks of the host flow, as data decides";
  let description = [{
    Runs the first region if `condition` is true, else the second. The results are the
    operands of that region's `yield`. An extent of a result that differs between the regions, and a number that an extent
    is computed from, is one of `symbols`: their values are the `sizes` of the region that ran.

    ```mlir
    %y = disc_tensor.branch %p symbols [@n] {disc_shape.dims = [#disc_shape.dims<[n]>]} : tensor<i1> -> (tensor<?xf32>) {
      ...
      disc_tensor.yield %a sizes(%na) : tensor<?xf32>
    } else {
      disc_tensor.yield %x sizes(%nx) : tensor<?xf32>
    }
    ```

    (T24) the condition is a tensor<i1>.
    (T25) there is one size per symbol in each region.
    (T26) the values of both regions have the types of the results.
    (T30) `symbols` are declared.
    That the values have the extents that are said of the results is proved or guarded by the shape stage.
  }];
  let arguments = (ins AnyRankedTensor:$condition, DefaultValuedAttr<Tensor_SymbolsAttr, "{}">:$symbols);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$then_region, SizedRegion<1>:$else_region);
  let assemblyFormat = [{
    $condition (`symbols` $symbols^)? attr-dict `:` type($condition) (`->` `(` type($outputs)^ `)`)?
    $then_region `else` $else_region
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The terminator of one of the two blocks.
    TensorYieldOp getYield(unsigned side);
  }];
}

def Tensor_TensorYieldOp : Tensor_Op<"yield", [
    Terminator, AttrSizedOperandSegments, ParentOneOf<["BranchOp", "CompositeOp"]>]> {
  let summary = "the results of a side of a branch, or of a composite";
  let arguments = (ins Variadic<AnyRankedTensor>:$values, Variadic<Index>:$sizes);
  let assemblyFormat = "($values^ `:` type($values))? (`sizes` `(` $sizes^ `)`)? attr-dict";
}

def Tensor_CompositeOp : Op<Tensor_Dialect, "composite", [
    RecursiveMemoryEffects, SingleBlock, DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>]> {
  let summary = "one operation of the user's program, with its lowering inside";
  let description = [{
    Keeps an operation whole until the library stage has decided who compiles it: a back end that claimed it, or DISC,
    which then inlines the body. `name` is the operator's name in the torch dialect, `id` a number that is unique in
    the module, `inputs` are its tensor operands, in order, and `arguments` its other arguments by their names. The body
    may use any value from outside.

    ```mlir
    %y = disc_tensor.composite "aten.relu" 3 (%x) {} : (tensor<?x8xf32>) -> (tensor<?x8xf32>) {
      %r = linalg.generic ... ins(%x : tensor<?x8xf32>) ...
      disc_tensor.yield %r : tensor<?x8xf32>
    }
    ```

    (T36) the yielded values have the types of the results, and there are no sizes.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$id, Variadic<AnyRankedTensor>:$inputs, DictionaryAttr:$arguments);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $name $id `(` $inputs `)` $arguments attr-dict `:` functional-type($inputs, $outputs) $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    TensorYieldOp getYield();
    /// Moves the body before the operation and replaces the results by what it yields; erases the operation.
    void inlineBody();
  }];
}

def Tensor_InvokeOp : Tensor_Op<"invoke", [
    AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>]> {
  let summary = "runs a procedure, a function of the host flow that may invoke itself";
  let description = [{
    A procedure is a private function with `disc_tensor.procedure`, the symbols of the extents of its arguments. They
    are its own: each activation has values for them, which are the `sizes` of whoever invokes it. The extents of its
    results are expressions over them, but for those that `disc_tensor.given` names, by the numbers of results and dims:
    expressions over whatever has a value at its end. These are handed back; `symbols` have their values after the
    invocation.

    ```mlir
    func.func private @f(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[n]>}) -> tensor<?xf32>
        attributes {disc_tensor.procedure = [@n]} {
      ...
      %z = disc_tensor.invoke @f(%y) sizes(%s) : (tensor<?xf32>) -> tensor<?xf32>
    ```

    (T28) the callee is a procedure, and sizes, symbols and operands are as many as its symbols, given extents and
    arguments, of their types.
    (T30) `symbols` are declared.
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyRankedTensor>:$inputs, Variadic<Index>:$sizes,
                       DefaultValuedAttr<Tensor_SymbolsAttr, "{}">:$symbols);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = [{
    $callee `(` $inputs `)` (`sizes` `(` $sizes^ `)`)? (`symbols` $symbols^)? attr-dict
    `:` functional-type($inputs, $outputs)
  }];
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral getProcedureAttrName() { return "disc_tensor.procedure"; }
    static constexpr llvm::StringLiteral getGivenAttrName() { return "disc_tensor.given"; }
    /// The extents that a procedure hands back, as numbers of results and dims.
    static ::llvm::SmallVector<std::pair<int64_t, int64_t>> givenBy(::mlir::Operation *procedure);
    /// Whether the procedure hands back an extent of a result.
    static bool isOpen(::mlir::Operation *procedure, unsigned result);
    /// The procedure, a function or what it has become.
    ::mlir::Operation *getCalleeOp();
    /// The procedure's symbols; they name the sizes.
    ::mlir::ArrayAttr getCalleeSymbols();
    /// The extents that the procedure says one of its arguments has, over its symbols; null for a static one.
    ::mlir::disc::DimsAttr getArgumentDims(unsigned index);
    ::mlir::disc::DimsAttr getCalleeResultDims(unsigned index);
  }];
}

#endif // DISC_DIALECTS_TENSOR
