//===- Rt.td - the disc_rt dialect -------------------------------*- tablegen -*-===//
//
// The host flow: one operation per function of the runtime's C interface (lib/Runtime/Core/Abi.h).
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_RT
#define DISC_DIALECTS_RT

include "mlir/Dialect/LLVMIR/LLVMOpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Rt_Dialect : Dialect {
  let name = "disc_rt";
  let cppNamespace = "::mlir::disc";
  let summary = "The host flow's calls into the runtime";
  let description = [{
    Operations take the call in progress (`%call`, a pointer) first. Those that can fail return from the function with
    the runtime's status at once when they do.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::disc::ShapeDialect"];
  let useDefaultAttributePrinterParser = 1;
}

def Rt_InterfaceTensorAttr : AttrDef<Rt_Dialect, "InterfaceTensor"> {
  let mnemonic = "tensor";
  let summary = "an input or output of the model, as the runtime checks calls";
  let description = [{
    `is_unsigned`: the elements are unsigned integers. `updated`: the entry writes to the input. Along the dimensions
    `repeats` the input may have one element where others have more.

    (R2) there is an extent for each dimension of the type.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::RankedTensorType":$type, "::mlir::disc::DimsAttr":$dims,
                        DefaultValuedParameter<"bool", "false">:$is_unsigned,
                        DefaultValuedParameter<"bool", "false">:$updated,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$repeats);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}
def Rt_InterfaceTensors : TypedArrayAttrBase<Rt_InterfaceTensorAttr, "tensors of the interface">;

def Rt_ArenaPlanAttr : AttrDef<Rt_Dialect, "ArenaPlan"> {
  let mnemonic = "arena_plan";
  let summary = "what an arena contains, for tools";
  let description = [{
    Of each temporary the size, and the first and last step of the host flow at which it is there. `in_place` is how
    many results are in the memory of operands. `orders` are the orders in which temporaries may be placed.
  }];
  let parameters = (ins "::mlir::disc::DimsAttr":$bytes, "::mlir::DenseI64ArrayAttr":$first,
                        "::mlir::DenseI64ArrayAttr":$last, "int64_t":$in_place, "::mlir::ArrayAttr":$orders);
  let assemblyFormat = "`<` struct(params) `>`";
}

// A pointer in the default address space; buildable, so that assembly need not repeat it.
def Rt_Ptr : Type<CPred<"::llvm::isa<::mlir::LLVM::LLVMPointerType>($_self)">, "pointer">,
             BuildableType<"::mlir::LLVM::LLVMPointerType::get($_builder.getContext())">;

class Rt_Op<string mnemonic, list<Trait> traits = []> : Op<Rt_Dialect, mnemonic, traits>;

def Rt_CheckInputsOp : Rt_Op<"check_inputs"> {
  let summary = "checks rank, data type and device of every input";
  let arguments = (ins Rt_Ptr:$call);
  let assemblyFormat = "$call attr-dict";
}

def Rt_SanitizeOp : Rt_Op<"sanitize"> {
  let summary = "begins the checks of a sanitized model's call";
  let arguments = (ins Rt_Ptr:$call);
  let assemblyFormat = "$call attr-dict";
}

def Rt_ExtentOp : Rt_Op<"extent", [Pure]> {
  let summary = "an extent of an input, read from its descriptor";
  let arguments = (ins Rt_Ptr:$call, I64Attr:$input, I64Attr:$dim);
  let results = (outs Index:$result);
  let assemblyFormat = "$call `[` $input `,` $dim `]` attr-dict";
}

def Rt_BindSymbolOp : Rt_Op<"bind_symbol"> {
  let summary = "gives a symbol its value; `disc_shape.dim` may use it from here on";
  let description = "A value that kernels computed is marked `computed`: nobody knows it before the call.";
  let arguments = (ins FlatSymbolRefAttr:$symbol, Index:$value, UnitAttr:$computed);
  let assemblyFormat = "$symbol `,` $value (`computed` $computed^)? attr-dict";
}

def Rt_GuardEq : I32EnumAttrCase<"Eq", 0, "eq">;
def Rt_GuardLe : I32EnumAttrCase<"Le", 1, "le">;
def Rt_GuardGe : I32EnumAttrCase<"Ge", 2, "ge">;
def Rt_GuardDivisible : I32EnumAttrCase<"Divisible", 3, "divisible">;
def Rt_GuardPredicate : I32EnumAttr<"GuardPredicate", "what a guard demands of its two sides",
    [Rt_GuardEq, Rt_GuardLe, Rt_GuardGe, Rt_GuardDivisible]> {
  let cppNamespace = "::mlir::disc";
}

def Rt_RtGuardOp : Rt_Op<"guard"> {
  let summary = "returns with a shape error unless `lhs predicate rhs` holds";
  let description = [{
    `input` and `dim` say which extent is blamed (-1: none in particular), `expected` is the right-hand side as the
    user would write it.
  }];
  let arguments = (ins Rt_Ptr:$call, Rt_GuardPredicate:$predicate, Index:$lhs, Index:$rhs,
                       I64Attr:$input, I64Attr:$dim, StrAttr:$expected, StrAttr:$message);
  let assemblyFormat = [{
    $call `,` $lhs $predicate $rhs `input` $input `dim` $dim `expected` $expected `,` $message attr-dict
  }];
}

def Rt_CheckSizesOp : Rt_Op<"check_sizes"> {
  let summary = "returns with a memory error if a size overflows";
  let description = [{
    `terms` are products whose factors count as at least 1; their sum bounds every size that depends on them. The
    operation fails if the sum exceeds 2^59. `values` are the sizes to report, one for each term, and `texts` describe
    them. `numbers` are expressions that are not sizes; each must fit a 64-bit integer.

    (R6) each term has a value and a text, each number a text.
  }];
  let arguments = (ins Rt_Ptr:$call, ArrayAttr:$terms, ArrayAttr:$values, StrArrayAttr:$texts,
                       DefaultValuedAttr<ArrayAttr, "{}">:$numbers, DefaultValuedAttr<StrArrayAttr, "{}">:$number_texts);
  let assemblyFormat = [{
    $call $terms `of` $values `as` $texts (`numbers` $numbers^ `as` $number_texts)? attr-dict
  }];
  let hasVerifier = 1;
}

def Rt_InputOp : Rt_Op<"input"> {
  let summary = "the contiguous elements of an input; a strided one is copied once";
  let description = [{
    Where the entry's `inputs` call it `updated`, what is written to them is the input's at the end of the call.
  }];
  let arguments = (ins Rt_Ptr:$call, I64Attr:$input);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$call `[` $input `]` attr-dict";
}

def Rt_RtParameterOp : Rt_Op<"parameter", [Pure]> {
  let summary = "the elements of a parameter, by name";
  let description = [{
    With `updated` the entry writes to them: the parameter is state of the loaded model.
  }];
  let arguments = (ins Rt_Ptr:$call, StrAttr:$name, TypeAttr:$type, UnitAttr:$updated);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$call $name `as` $type (`updated` $updated^)? attr-dict";
}

def Rt_RtGlobalOp : Rt_Op<"global"> {
  let summary = "the elements of a global; `init` allocates it";
  let arguments = (ins Rt_Ptr:$call, FlatSymbolRefAttr:$global, I64Attr:$bytes);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$call $global `bytes` $bytes attr-dict";
}

def Rt_ArenaOp : Rt_Op<"arena"> {
  let summary = "this call's memory for temporaries";
  let description = [{
    `plan` records what lies in it: the temporaries' sizes as expressions (`bytes`), their lifetimes in steps of the host
    flow (`first`, `last`, both included), the `orders` in which they may be stacked, of which a call takes the one that
    needs least, and how many results took the storage of an operand (`in_place`). A flow with symbols that are bound
    on the way has several parts, numbered by `part`: the later ones hold what has extents that are known only then. A part
    that is asked for again, in another step of a loop, is other memory. With `activation` it is that of an activation
    of a procedure.
  }];
  let arguments = (ins Rt_Ptr:$call, Index:$bytes, DefaultValuedAttr<I64Attr, "0">:$part,
                       OptionalAttr<Rt_ArenaPlanAttr>:$plan, UnitAttr:$activation);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$call `,` $bytes (`part` $part^)? (`activation` $activation^)? attr-dict";
}

def Rt_FitOp : Rt_Op<"fit"> {
  let summary = "selects the plan of an entry that fits the model's memory budget";
  let description = [{
    Does nothing if the model has no budget. Otherwise it selects the first plan that fits: the entry's own plan, whose
    first part of the arena has `bytes` bytes, or one of `plans`. For each plan, `sizes` names a procedure that returns
    the bytes of this part. The entry's own plan is the code after this operation. Another plan runs instead of it, and
    the entry returns. If no plan fits, the entry returns with a memory error before any kernel has run. `values` are the
    values of the entry's symbols; they are passed to the procedures.

    The decision includes other memory of the call: the largest of the expressions in `scratch` is the scratch of a
    thread, and `outputs` contains the bytes of each output of the entry, or a unit if they are not known yet. `cost` is
    an expression for tools: the estimated nanoseconds of the entry's own plan.

    (R9) there are as many `sizes` as `plans`.
  }];
  let arguments = (ins Rt_Ptr:$call, Index:$bytes, Variadic<Index>:$values,
                       DefaultValuedAttr<TypedArrayAttrBase<FlatSymbolRefAttr, "symbols">, "{}">:$plans,
                       DefaultValuedAttr<TypedArrayAttrBase<FlatSymbolRefAttr, "symbols">, "{}">:$sizes,
                       ArrayAttr:$scratch, ArrayAttr:$outputs, OptionalAttr<AnyAttr>:$cost);
  let assemblyFormat = [{
    $call `,` $bytes `scratch` $scratch `outputs` $outputs (`cost` $cost^)? (`plans` $plans^ `sizes` $sizes)? (`of` $values^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Rt_OffsetOp : Rt_Op<"offset", [Pure]> {
  let summary = "a pointer some bytes further";
  let arguments = (ins Rt_Ptr:$base, Index:$bytes);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$base `,` $bytes attr-dict";
}

def Rt_OutputOp : Rt_Op<"output"> {
  let summary = "memory for an output of the given extents";
  let arguments = (ins Rt_Ptr:$call, Variadic<Index>:$extents, I64Attr:$output);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$call `[` $output `]` `(` $extents `)` attr-dict";
}

def Rt_CopyOp : Rt_Op<"copy"> {
  let summary = "copies bytes; for an input or a parameter that is not updated in place";
  let description = "With `checked`, of which the value is the call, the runtime checks both ranges (`sanitize`).";
  let arguments = (ins Rt_Ptr:$target, Rt_Ptr:$source, Index:$bytes, Optional<Rt_Ptr>:$checked);
  let assemblyFormat = "$target `,` $source `,` $bytes (`checked` $checked^)? attr-dict";
}

def Rt_LaunchOp : Rt_Op<"launch"> {
  let summary = "runs a kernel's tasks on the thread pool";
  let description = [{
    Buffers are the kernel's operands, then its results. The kernel's `tasks`, `scratch` and `cost` are evaluated at
    the symbols' values. In a sanitized model, `bytes` are the sizes of the buffers and `texts` describe them, as
    `disc_rt_checked_launch` expects: flags, a space and a name.

    (R7) `bytes` and `texts` have an entry for each buffer.
  }];
  let arguments = (ins Rt_Ptr:$call, FlatSymbolRefAttr:$kernel, Variadic<Rt_Ptr>:$buffers,
                       OptionalAttr<AnyAttr>:$bytes, OptionalAttr<StrArrayAttr>:$texts);
  let assemblyFormat = "$call $kernel `(` $buffers `)` (`checked` $bytes^ `as` $texts)? attr-dict";
  let hasVerifier = 1;
}

def Rt_Reads : I32EnumAttrCase<"Reads", 0, "reads">;
def Rt_Writes : I32EnumAttrCase<"Writes", 1, "writes">;
def Rt_Number : I32EnumAttrCase<"Number", 2, "number">;
def Rt_ArgumentUse : I32EnumAttr<"ArgumentUse", "what an argument of a device's kernel is",
    [Rt_Reads, Rt_Writes, Rt_Number]> {
  let cppNamespace = "::mlir::disc";
}
def Rt_ArgumentUses : TypedArrayAttrBase<Rt_ArgumentUse, "uses of arguments">;

def Rt_DeviceKernelOp : Rt_Op<"device_kernel", [Symbol]> {
  let summary = "a kernel that a device runs: what launches of it need to know";
  let description = [{
    Stands in the host module for the device function of this name. Each of its arguments is a buffer that the kernel
    `writes`, one that it only `reads`, or a `number`, such as a symbol's value. `host` names the function that does its
    work where the device is emulated.

    ```mlir
    disc_rt.device_kernel @k threads 256 [reads, writes, number] {disc_plan.symbols = ["B"], ...}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$threads, Rt_ArgumentUses:$uses,
                       OptionalAttr<FlatSymbolRefAttr>:$host);
  let assemblyFormat = "$sym_name `threads` $threads custom<Uses>($uses) (`host` $host^)? attr-dict";
  let extraClassDeclaration = [{
    /// What each argument is.
    ::llvm::SmallVector<ArgumentUse> getArgumentUses();
  }];
}

def Rt_SlotOp : Rt_Op<"slot"> {
  let summary = "memory of the call that grows";
  let description = [{
    The slot of this number, with at least `bytes` bytes: memory for what has other sizes from step to step of a loop.
    What was in it is lost, unless it is to `keep` it.
  }];
  let arguments = (ins Rt_Ptr:$call, Index:$number, Index:$bytes, UnitAttr:$keep);
  let results = (outs Rt_Ptr:$result);
  let assemblyFormat = "$call `[` $number `]` `,` $bytes (`keep` $keep^)? attr-dict";
}

def Rt_RtLoopOp : Rt_Op<"loop", [SingleBlock, AttrSizedOperandSegments]> {
  let summary = "steps that are repeated, with a symbol that counts them";
  let description = [{
    Runs the region for the steps 0, 1, ... while the step is below `count` and `condition` is not 0, with `symbol`
    bound to the step in it; with `reverse` to `count - 1`, ..., 0. The region's arguments are pointers and extents:
    `inits` at first, then what `next` gave; so are the results. `trips` is the number of steps.

    (R3) the region's arguments, the values of `next` and the results have the types of `inits`.
    (R8) there is a count or a condition; a reversed loop has only a count.
  }];
  let arguments = (ins FlatSymbolRefAttr:$symbol, Optional<Index>:$count, Optional<I8>:$condition,
                       Variadic<AnyType>:$inits, UnitAttr:$reverse);
  let results = (outs Variadic<AnyType>:$results, Index:$trips);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $symbol (`reverse` $reverse^)? (`below` $count^)? (`while` $condition^)? `carries` `(` $inits `)` attr-dict
    `:` functional-type($inits, results) $body
  }];
  let hasVerifier = 1;
}

def Rt_RtNextOp : Rt_Op<"next", [Pure, Terminator, AttrSizedOperandSegments, HasParent<"RtLoopOp">]> {
  let summary = "what the next step of a loop begins with, and whether there is one";
  let arguments = (ins Variadic<AnyType>:$values, Optional<I8>:$condition);
  let assemblyFormat = "($values^ `:` type($values))? (`while` $condition^)? attr-dict";
}

def Rt_RtBranchOp : Rt_Op<"branch"> {
  let summary = "one of two blocks: the first if the condition is not 0";
  let description = [{
    The results are what the `give` of the region that ran says: pointers and extents.

    (R4) both regions give values of the results' types.
  }];
  let arguments = (ins I8:$condition);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$then_region, SizedRegion<1>:$else_region);
  let assemblyFormat = "$condition attr-dict-with-keyword (`:` `(` type($results)^ `)`)? $then_region `else` $else_region";
  let hasVerifier = 1;
}

def Rt_GiveOp : Rt_Op<"give", [Pure, Terminator, HasParent<"RtBranchOp">]> {
  let summary = "the results of a side of a branch";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def Rt_EnterOp : Rt_Op<"enter"> {
  let summary = "begins an activation of a procedure";
  let description = [{
    Fails if the stack is used up. The activation has `slots` slots of its own, numbered from `slot`; what its arenas
    take is given back when it returns, to where `mark` says.
  }];
  let arguments = (ins Rt_Ptr:$call, I64Attr:$slots);
  let results = (outs Index:$slot, Index:$mark);
  let assemblyFormat = "$call `slots` $slots attr-dict";
}

def Rt_LeaveOp : Rt_Op<"leave"> {
  let summary = "ends an activation of a procedure";
  let arguments = (ins Rt_Ptr:$call, Index:$slot, Index:$mark);
  let assemblyFormat = "$call `,` $slot `,` $mark attr-dict";
}

def Rt_RtInvokeOp : Rt_Op<"invoke"> {
  let summary = "runs a procedure";
  let description = [{
    What is passed are pointers to its arguments and to memory for its results, and the values of its symbols. A result
    whose extents the procedure finds out lies in a slot, whose number is passed in the place of the pointer; `given`
    are such extents.
  }];
  let arguments = (ins Rt_Ptr:$call, FlatSymbolRefAttr:$callee, Variadic<AnyType>:$passed);
  let results = (outs Variadic<Index>:$given);
  let assemblyFormat = "$call $callee `(` $passed `)` attr-dict `:` functional-type($passed, $given)";
}

def Rt_ReturnOp : Rt_Op<"return", [Terminator, ParentOneOf<["EntryOp", "ProcedureOp"]>]> {
  let summary = "ends an entry function or a procedure with success";
  let description = [{
    `given` are the extents of a procedure's results that are handed back to who invoked it.
  }];
  let arguments = (ins Variadic<Index>:$given);
  let assemblyFormat = "($given^)? attr-dict";
}

def Rt_EntryOp : Rt_Op<"entry", [IsolatedFromAbove, Symbol]> {
  let summary = "an entry function of the artifact: `init` or `main`";
  let description = [{
    The region's one argument is the call in progress. `inputs` and `outputs` describe the model's interface, for the
    table that the runtime checks calls against.

    (R1) the region has one argument, the call, of pointer type.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility, Rt_InterfaceTensors:$inputs,
                       Rt_InterfaceTensors:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Rt_ProcedureOp : Rt_Op<"procedure", [IsolatedFromAbove, Symbol]> {
  let summary = "a function of the host flow that others invoke, and that may invoke itself";
  let description = [{
    The region's arguments are the call in progress, then what `disc_rt.invoke` passes. With `plan_of` it is a
    plan of that entry with less memory (`disc_rt.fit`), or returns the plan's size. It then uses the memory of the call
    itself, and its arguments are the values of the entry's symbols. `extra_cost` is an expression: the estimated
    nanoseconds that the plan takes in addition to the entry's own.

    (R5) the first argument of the region is a pointer.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility,
                       OptionalAttr<FlatSymbolRefAttr>:$plan_of, OptionalAttr<AnyAttr>:$extra_cost);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

#endif // DISC_DIALECTS_RT
