//===- Plan.td - the disc_plan dialect ---------------------------*- tablegen -*-===//
//
// Decisions as operations: which computations form a kernel, how it is scheduled, where its buffers lie.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN
#define DISC_DIALECTS_PLAN

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialects/Plan/KernelKind.td"
include "dialects/Shape/ShapeInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "disc_plan";
  let cppNamespace = "::mlir::disc";
  let summary = "Kernels, their schedules, and the layouts of their buffers";
  let description = [{
    The attribute `disc_plan.target` of a module is the `target` that it is for.

    The attributes of a device's kernel say what its launches need: `disc_plan.symbols` and `disc_plan.texts` are lists
    of strings, `disc_plan.order`, `split`, `update` and `library` attributes of this dialect, `disc_plan.variants` a list
    of them, and `disc_plan.next` the name of a kernel (lib/Target/Common/KernelAttrs.h).

    (P11) these attributes have the types above.

    On a `disc_tensor.composite`, `disc_plan.claims` lists the back ends that can compile it, `disc_plan.refusals` why
    others do not, `disc_plan.owner` is the claim that was chosen, and `disc_plan.group` the number of its region.

    (P18) these attributes have the types `claim` and `refusal` (lists), `claim` and i64; numbers of matches and
    groups are from 0 to 2^32 - 1.

    `disc_plan.buffers`, `disc_plan.temporaries` and `disc_plan.last_uses` say where the tensors of the host flow are
    stored; see the attribute `buffer`. The last one is for sanitized models: the temporaries that nothing reads after
    the call.
  }];
  // Attributes of the shape dialect are parameters, which may be written without its name.
  let dependentDialects = ["::mlir::disc::ShapeDialect"];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral getClaimsAttrName() { return "disc_plan.claims"; }
    static constexpr llvm::StringLiteral getRefusalsAttrName() { return "disc_plan.refusals"; }
    static constexpr llvm::StringLiteral getOwnerAttrName() { return "disc_plan.owner"; }
    static constexpr llvm::StringLiteral getGroupAttrName() { return "disc_plan.group"; }
    static constexpr llvm::StringLiteral getBuffersAttrName() { return "disc_plan.buffers"; }
    static constexpr llvm::StringLiteral getTemporariesAttrName() { return "disc_plan.temporaries"; }
    static constexpr llvm::StringLiteral getLastUsesAttrName() { return "disc_plan.last_uses"; }

    /// Registers a kind of kernel, by its word.
    void addKind(KernelKind kind) { kinds.push_back(kind); }
    /// Null if there is no such kind.
    KernelKind findKind(::llvm::StringRef word);
    /// In the order in which they were registered.
    ::llvm::ArrayRef<KernelKind> getKinds() const { return kinds; }

  private:
    ::llvm::SmallVector<KernelKind> kinds;

  public:
  }];
}

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

class Plan_Kind<string name, string word> : AttrDef<Plan_Dialect, name # "Kind", [Plan_KindInterface]> {
  let mnemonic = word # "_kernel";
  let extraClassDeclaration = [{
    ::llvm::StringRef getWord() const { return "}] # word # [{"; }
  }];
}
def Plan_LoopKind : Plan_Kind<"Loop", "loop"> {
  let summary = "every result has one domain, whose points are independent";
}
def Plan_RowKind : Plan_Kind<"Row", "row"> {
  let summary = "reductions along the innermost part of the domain, with everything element-wise around them";
}
def Plan_ColumnKind : Plan_Kind<"Column", "column"> {
  let summary = "reductions along outer dimensions: vectors run along those that are kept";
}
def Plan_ContractionKind : Plan_Kind<"Contraction", "contraction"> {
  let summary = "products of one left operand, with an element-wise epilogue";
}
def Plan_AttentionKind : Plan_Kind<"Attention", "attention"> {
  let summary = "one attention";
}
def Plan_PackKind : Plan_Kind<"Pack", "pack"> {
  let summary = "a parameter to the panels of the micro-kernel";
}
def Plan_CallKind : Plan_Kind<"Call", "call"> {
  let summary = "a function of the runtime";
}
def Plan_ConvolutionKind : Plan_Kind<"Convolution", "convolution"> {
  let summary = "one convolution, with an element-wise epilogue";
}
def Plan_KindAttr : Attr<CPred<"::llvm::isa<::mlir::disc::KernelKind>($_self)">, "a kind of kernel"> {
  let storageType = "::mlir::disc::KernelKind";
  let returnType = "::mlir::disc::KernelKind";
  let convertFromStorage = "$_self";
}

include "dialects/Plan/Schedules.td"
include "dialects/Plan/Target.td"
include "dialects/Plan/Launch.td"

def Plan_LayoutAttr : AttrDef<Plan_Dialect, "Layout"> {
  let mnemonic = "layout";
  let summary = "where the elements of a tensor lie in its buffer";
  let description = [{
    The element at indices `i` is at `offset + sum(i[d] * strides[d])`, counted in elements from the buffer's start. Both are
    symbolic expressions: a layout is known at compile time up to the values of symbols.
  }];
  let parameters = (ins "::mlir::disc::ExprAttr":$offset, "::mlir::disc::DimsAttr":$strides);
  let assemblyFormat = "`<` $offset `,` $strides `>`";
}

def Plan_ClaimAttr : AttrDef<Plan_Dialect, "Claim"> {
  let mnemonic = "claim";
  let summary = "a back end can compile this operation, as a part of one match of a pattern";
  let description = [{
    `#disc_plan.claim<"onednn", "linear_gelu", 3>`. Operations with the same back end and match belong to one match,
    which the back end takes as a whole or not at all.
  }];
  let parameters = (ins StringRefParameter<"name of the back end">:$backend,
                        StringRefParameter<"name of the pattern">:$pattern, "int64_t":$match);
  let assemblyFormat = "`<` $backend `,` $pattern `,` $match `>`";
}

def Plan_RefusalAttr : AttrDef<Plan_Dialect, "Refusal"> {
  let mnemonic = "refusal";
  let summary = "why a back end does not compile this operation";
  let parameters = (ins StringRefParameter<"name of the back end">:$backend,
                        StringRefParameter<"name of the pattern, or empty">:$pattern,
                        StringRefParameter<"the reason">:$reason);
  let assemblyFormat = "`<` $backend `,` $pattern `,` $reason `>`";
}

def Plan_Claims : TypedArrayAttrBase<Plan_ClaimAttr, "claims">;
def Plan_Refusals : TypedArrayAttrBase<Plan_RefusalAttr, "refusals">;
def Plan_Expr : Attr<CPred<"::llvm::isa<::mlir::disc::ExprAttr>($_self)">, "an expression"> {
  let storageType = "::mlir::disc::ExprAttr";
  let returnType = "::mlir::disc::ExprAttr";
  let convertFromStorage = "$_self";
}
def Plan_Exprs : TypedArrayAttrBase<Plan_Expr, "expressions">;

// What `kernel` and `kernel_func` have in common: the schedule stage writes these, the target's codegen reads them.
defvar KernelDecisions = (ins
    OptionalAttr<StrAttr>:$reason,
    OptionalAttr<Plan_ScheduleAttr>:$schedule,
    OptionalAttr<Plan_Variants>:$variants,
    OptionalAttr<Plan_Expr>:$tasks,
    OptionalAttr<Plan_Expr>:$scratch,
    OptionalAttr<Plan_Expr>:$cost);

include "dialects/Plan/Buffers.td"

def Plan_KernelOp : Plan_Op<"kernel", [
    IsolatedFromAbove, Pure, SingleBlock,
    DeclareOpInterfaceMethods<DimsOpInterface, ["getRegionArgDims"]>]> {
  let summary = "tensor computations that run as one kernel";
  let description = [{
    The region describes *what* is computed, on tensors; `schedule`, `tasks` (number of independent pieces), `scratch`
    (bytes per worker) and `cost` (estimated nanoseconds per task) say *how*. The last three are `disc_shape.expr`.
    `variants` are other schedules, for some shapes, best first.

    ```mlir
    %y = disc_plan.kernel row ins(%x : tensor<?x384xf32>) -> tensor<?xf32> attributes {reason = "..."} {
    ^bb0(%a: tensor<?x384xf32>):
      ...
      disc_plan.yield %r : tensor<?xf32>
    }
    ```

    (P1) the region's arguments have the types of the inputs.
    (P2) the yielded values have the types of the results.
    (P3) the region holds only operations that kernels are made of.
    (P8) the schedule and its variants are for kernels of this kind, for the host or for devices alike, and their numbers
    are within their bounds.
    (P9) `tasks`, `scratch` and `cost` are defined.
  }];
  let arguments = !con((ins Variadic<AnyRankedTensor>:$inputs, Plan_KindAttr:$kind,
                            OptionalAttr<StrAttr>:$name), KernelDecisions);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    custom<Kind>($kind) `ins` `(` ($inputs^ `:` type($inputs))? `)` `->` type($outputs) attr-dict-with-keyword $body
  }];
  let builders = [
    /// A kernel without a schedule, and without a body.
    OpBuilder<(ins "::mlir::TypeRange":$outputs, "::mlir::ValueRange":$inputs, "::mlir::disc::KernelKind":$kind,
                   "::mlir::StringAttr":$name, "::mlir::StringAttr":$reason), [{
      build($_builder, $_state, outputs, inputs, kind, name, reason, /*schedule=*/{}, /*variants=*/{}, /*tasks=*/{},
            /*scratch=*/{}, /*cost=*/{});
    }]>
  ];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The yield that ends the body.
    YieldOp getYield();
  }];
}

def Plan_KernelFuncOp : Plan_Op<"kernel_func", [
    IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<DimsOpInterface, ["getRegionArgDims"]>]> {
  let summary = "a kernel outlined from the host flow, with the layouts of its buffers";
  let description = [{
    `layouts` has one `disc_plan.layout` per region argument, then one per yielded value; `arg_dims` the extents of each
    region argument; `symbols` names the symbols whose values the kernel is given.

    (P4) there is a layout for each argument and each result, with a stride for each dimension; no expression in it is
    undefined.
    (P5) the region holds only operations that kernels are made of.
    (P6) there are extents for each argument, which agree with its type.
    (P12) there is a result.
    (P8) and (P9) are those of `kernel`.
  }];
  let arguments = !con((ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility,
                            Plan_KindAttr:$kind, StrArrayAttr:$symbols, ArrayAttr:$layouts,
                            ArrayAttr:$arg_dims), KernelDecisions);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "custom<Kind>($kind) $sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The yield that ends the body.
    YieldOp getYield();
    unsigned getNumInputs() { return getBody().getNumArguments(); }
    unsigned getNumResults();
    /// Layout of input `i`, or of result `i - getNumInputs()`.
    LayoutAttr getLayout(unsigned i);
  }];
}

def Plan_CallOp : Plan_Op<"call", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>, DeclareOpInterfaceMethods<DimsOpInterface>]> {
  let summary = "runs an outlined kernel on tensors that own their buffers";
  let description = [{
    Between outlining and the memory plan. The inputs are buffers, not views: the kernel's layouts say how each is
    addressed. `result_dims` are the extents of the results, which are dense.

    (P7) the callee is a `disc_plan.kernel_func` with as many inputs and results, and `result_dims` agree with the types
    of the results.
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyRankedTensor>:$inputs, ArrayAttr:$result_dims);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = [{
    $callee `(` $inputs `)` `result_dims` $result_dims attr-dict `:` functional-type($inputs, $outputs)
  }];
}

def Plan_YieldOp : Plan_Op<"yield", [Pure, Terminator, ParentOneOf<["KernelOp", "KernelFuncOp", "RegionOp"]>]> {
  let summary = "the results of a kernel or a region";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def Plan_RegionOp : Plan_Op<"region", [
    RecursiveMemoryEffects, SingleBlock, DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>]> {
  let summary = "operations that one back end may compile as a whole";
  let description = [{
    Written by `disc-library-partition`, and replaced by `disc-library-select`: by a call of the back end's code, by the
    host's lowering of its composites, or by a branch between both. In between the compiler asks the back end. Its
    answer is `veto`, why it does not take the region, or `table`, the symbol of its functions in
    `lib/Runtime/Backend.h`, with the region's `description` in JSON. `constants` are parameters that the code gets once,
    when the model is loaded, instead of as operands; `numbers` are expressions whose values it gets. The code runs where all of `when` are at least 0, and the host's
    lowering elsewhere.

    ```mlir
    %y = disc_plan.region "onednn" 0 attributes {table = "disc_region_1f"} : (tensor<?x8xf32>) {
      %a = disc_tensor.composite "aten.linear" 4 (%x, %w, %b) ...
      %c = disc_tensor.composite "aten.gelu" 5 (%a) ...
      disc_plan.yield %c : tensor<?x8xf32>
    }
    ```

    (P13) the yielded values have the types of the results.
    (P14) the body contains only composites, whose owner is the back end.
  }];
  let arguments = (ins StrAttr:$backend, I64Attr:$id, OptionalAttr<StrAttr>:$veto, OptionalAttr<StrAttr>:$table,
                       OptionalAttr<StrAttr>:$description, OptionalAttr<StrArrayAttr>:$constants,
                       OptionalAttr<Plan_Exprs>:$numbers, OptionalAttr<Plan_Exprs>:$when);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$backend $id attr-dict-with-keyword (`:` `(` type($outputs)^ `)`)? $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    YieldOp getYield();
    /// The tensors from outside that the composites have as inputs, each once, in the order of their first use.
    ::llvm::SmallVector<::mlir::Value> getOperandTensors();
    /// Moves the body before the operation and replaces the results by what it yields; erases the operation.
    void inlineBody();
  }];
}

def Plan_ExternOp : Plan_Op<"extern", [Symbol]> {
  let summary = "code of a back end for one region";
  let description = [{
    `table` is the symbol of the back end's `disc_backend_table` (lib/Runtime/Backend.h), which the JIT or the linker
    finds; `description` the region in JSON, which its `init` gets together with the parameters `constants`.

    (P15) there is a type for each constant.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility, StrAttr:$backend, StrAttr:$table,
                       StrAttr:$description, StrArrayAttr:$constants, TypeArrayAttr:$constant_types);
  let assemblyFormat = [{
    $sym_name `backend` $backend `table` $table `constants` $constants `:` $constant_types attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_ExternCallOp : Plan_Op<"extern_call", [
    Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>]> {
  let summary = "calls a back end's code for a region";
  let description = [{
    Operands may have any strides, the results are row-major without gaps; the host allocates them. `sizes` has an index
    for each dynamic extent of the results, in order. `numbers` are the values of the symbols that the code gets, in the
    order of the description. `what` names the operations and the user's lines, for messages at run time.

    ```mlir
    %y = disc_plan.extern_call @region0(%x) sizes(%s) numbers(%s) "onednn: aten.linear at model.py:3"
        : (tensor<?x8xf32>) -> (tensor<?x8xf32>)
    ```

    (P16) the callee is a `disc_plan.extern`.
    (P17) there is a size for each dynamic extent of the results, and a result.
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyRankedTensor>:$inputs, Variadic<Index>:$sizes,
                       Variadic<Index>:$numbers, StrAttr:$what, OptionalAttr<DenseI64ArrayAttr>:$unsigned_operands);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = [{
    $callee `(` $inputs `)` (`sizes` `(` $sizes^ `)`)? (`numbers` `(` $numbers^ `)`)? $what
    (`unsigned` $unsigned_operands^)? attr-dict `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

def Plan_GlobalOp : Plan_Op<"global", [Symbol]> {
  let summary = "a tensor that `init` computes from parameters once, at load";
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility, TypeAttr:$type);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
}

def Plan_GlobalStoreOp : Plan_Op<"global_store"> {
  let summary = "gives a global its value; only in `init`, once per global";
  let arguments = (ins FlatSymbolRefAttr:$global, AnyRankedTensor:$value);
  let assemblyFormat = "$global `,` $value attr-dict `:` type($value)";
}

def Plan_GlobalLoadOp : Plan_Op<"global_load", [Pure]> {
  let summary = "the value of a global";
  let arguments = (ins FlatSymbolRefAttr:$global);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$global attr-dict `:` type($result)";
}

#endif // DISC_DIALECTS_PLAN
