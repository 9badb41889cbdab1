//===- Buffers.td - where the tensors of the host flow are stored -*- tablegen -*-===//
//
// What the memory stage decides, in the order of its passes: `disc-memory-assign-buffers` writes the attributes and the
// copies, `disc-memory-plan-arena` the other operations, and `disc-memory-convert-to-rt` reads both.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN_BUFFERS
#define DISC_DIALECTS_PLAN_BUFFERS

def Plan_BufferKind : I32EnumAttr<"BufferKind", "a kind of memory", [
    I32EnumAttrCase<"Temporary", 0, "temporary">,
    I32EnumAttrCase<"Output", 1, "output">,
    I32EnumAttrCase<"Argument", 2, "argument">,
    I32EnumAttrCase<"Global", 3, "global">,
    I32EnumAttrCase<"Slot", 4, "slot">,
    I32EnumAttrCase<"Yielded", 5, "yielded">,
    I32EnumAttrCase<"Row", 6, "row">,
    I32EnumAttrCase<"Carried", 7, "carried">,
    I32EnumAttrCase<"Alternating", 8, "alternating">,
    I32EnumAttrCase<"AlternatingSlots", 9, "alternating_slots">]> {
  let cppNamespace = "::mlir::disc";
  let genSpecializedAttr = 0;
}

def Plan_BufferAttr : AttrDef<Plan_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "where a tensor of the host flow is stored";
  let description = [{
    `disc_plan.buffers` of a call, loop, branch or invocation has a buffer for each of its results; a `disc_plan.copy`
    has one of its own.

    | buffer | memory | of |
    |---|---|---|
    | `temporary[n]` | temporary n of the arena | any result; of a carried tensor if iterations write it in place |
    | `output[n]` | output n of the function | any result |
    | `argument[n]` | argument n of the function, which the tensor replaces | results of calls, copies |
    | `global` | the global that a `disc_plan.global_store` names | results of calls |
    | `slot[n]` | slot n of the call, which grows | results of invocations whose sizes the procedure computes, stacks |
    | `yielded` | where the side that ran has it | results of branches |
    | `row[n]` | the row of this iteration in result n, a stack, of the loop around | any result in the loop's body |
    | `row[n]` | the last row of result n of the same loop | carried tensors of loops |
    | `carried[n]` | where an iteration writes carried tensor n of the loop around | any result in the loop's body |
    | `alternating[n]` | temporaries n and n + 1 in turns | carried tensors of loops |
    | `alternating_slots[n]` | slots n and n + 1 in turns | carried tensors of loops whose sizes change |

    The bytes of the temporaries are in `disc_plan.temporaries` of the function. Several tensors may be stored in one
    temporary, one after the other.

    (P19) `disc_plan.buffers` has a buffer for each result of a call, loop, branch or invocation;
    `disc_plan.temporaries` is a `disc_shape.dims` on a function; `disc_plan.last_uses` is an array of temporaries on a
    call.
    (P20) the buffer is possible for a result of the operation, and what its number names exists.
  }];
  let parameters = (ins EnumParameter<Plan_BufferKind>:$kind, DefaultValuedParameter<"int64_t", "-1">:$number);
  let assemblyFormat = "`<` $kind (`[` $number^ `]`)? `>`";
}

def Plan_Dims : Attr<CPred<"::llvm::isa<::mlir::disc::DimsAttr>($_self)">, "extents"> {
  let storageType = "::mlir::disc::DimsAttr";
  let returnType = "::mlir::disc::DimsAttr";
  let convertFromStorage = "$_self";
}
def Plan_ArenaPlan : Attr<CPred<"::llvm::isa<::mlir::disc::ArenaPlanAttr>($_self)">, "a plan of an arena"> {
  let storageType = "::mlir::Attribute";
  let returnType = "::mlir::Attribute";
  let convertFromStorage = "$_self";
}

def Plan_CopyTensorOp : Plan_Op<"copy", [DeclareOpInterfaceMethods<DimsOpInterface, ["getResultDims"]>]> {
  let summary = "copies a tensor to another buffer";
  let description = [{
    Where a tensor must be in a buffer that what computes it cannot write. The input is dense. A copy belongs to the
    step of the operation behind it.

    ```mlir
    %z = disc_plan.copy %y to <output[1]> dims <[S, 8]> : tensor<?x8xf32>
    ```

    (P21) `dims` are extents that the tensor may have.
  }];
  let arguments = (ins AnyRankedTensor:$input, Plan_BufferAttr:$buffer, Plan_Dims:$dims);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "$input `to` $buffer `dims` $dims attr-dict `:` type($input) `->` type($output)";
  let hasVerifier = 1;
}

def Plan_ArenaPartOp : Plan_Op<"arena_part"> {
  let summary = "the part of the arena for temporaries whose sizes are known here";
  let description = [{
    Part `part` has `bytes` bytes; the temporaries of these numbers are at `offsets`. Part 0 is for sizes that are known
    when the function begins. Behind each operation that binds symbols, and in the body of a loop, there may be another
    part for the sizes that mention these symbols.

    (P22) there is an offset for each temporary, and an entry of the plan.
  }];
  let arguments = (ins I64Attr:$part, Index:$bytes, Variadic<Index>:$offsets, DenseI64ArrayAttr:$temporaries,
                       Plan_ArenaPlan:$plan);
  let assemblyFormat = "$part `bytes` $bytes `temporaries` $temporaries `at` `(` $offsets `)` `plan` $plan attr-dict";
  let hasVerifier = 1;
}

def Plan_AllocateOutputOp : Plan_Op<"allocate_output"> {
  let summary = "where memory for an output is allocated: its extents are known here";
  let arguments = (ins I64Attr:$output, Plan_Dims:$dims);
  let assemblyFormat = "$output `dims` $dims attr-dict";
}

def Plan_SelectPlanOp : Plan_Op<"select_plan"> {
  let summary = "where `main` selects the plan that fits the memory budget";
  let description = [{
    `bytes` is the size of part 0 of the arena. `plans` are the functions with less memory. The other attributes are
    those of `disc_rt.fit`.
  }];
  let arguments = (ins Index:$bytes, DefaultValuedAttr<TypedArrayAttrBase<FlatSymbolRefAttr, "symbols">, "{}">:$plans,
                       Plan_Exprs:$scratch, ArrayAttr:$outputs, OptionalAttr<Plan_Expr>:$cost);
  let assemblyFormat = [{
    $bytes (`plans` $plans^)? `scratch` $scratch `outputs` $outputs (`cost` $cost^)? attr-dict
  }];
}

#endif // DISC_DIALECTS_PLAN_BUFFERS
