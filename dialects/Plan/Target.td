//===- Target.td - the machine that a module is for --------------*- tablegen -*-===//

#ifndef DISC_DIALECTS_PLAN_TARGET
#define DISC_DIALECTS_PLAN_TARGET

/// A text that may be missing.
def Plan_Text : StringRefParameter<"", [{""}]>;
class Plan_Number<string value> : DefaultValuedParameter<"int64_t", value>;
class Plan_Flag<string value> : DefaultValuedParameter<"bool", value>;

def Plan_TargetAttr : AttrDef<Plan_Dialect, "Target"> {
  let mnemonic = "target";
  let summary = "the machine that a module is for";
  let description = [{
    What schedules and code generation need to know of a CPU and a device. It crosses the stages as the module's
    attribute `disc_plan.target`, so that IR printed on one machine compiles to the same code on another. What is not
    known has a modest value.

    ```mlir
    module attributes {disc_plan.target = #disc_plan.target<triple = "x86_64-pc-linux-gnu", vector_bits = 512,
        device = "cuda", arch = ["sm_90"], warp = 32>} {...}
    ```

    `triple`, `cpu` and `features` are LLVM's. `sve_bits`: vectors are SVE's, of just this length. `fma`: a product and a
    sum of floats are one instruction. `bf16_dot`, `i16_dot`: sums of pairs of products are instructions; `i8_dot`:
    those of four products of bytes, with one sign; `i8_dot_mixed`: of unsigned and signed ones. `i8_tiles`, `bf16_tiles`:
    products of tiles of bytes and of bf16 are (AMX). `fetch_to_l2`: what a core reads from memory in order comes faster
    if it is fetched to the second-level cache ahead than to the first. `warp`: threads of a
    device that step together. `matrix_unit`: warps have the instructions of lib/Target/GPU/MatrixUnit.h.

    (P10) numbers are within bounds, and powers of two where they must be.
  }];
  let parameters = (ins Plan_Text:$triple, Plan_Text:$cpu, Plan_Text:$features,
                        Plan_Number<"TargetDefaults::vectorBits">:$vector_bits, Plan_Number<"0">:$vector_registers,
                        Plan_Number<"0">:$sve_bits, Plan_Number<"TargetDefaults::l1dBytes">:$l1d_bytes,
                        Plan_Number<"TargetDefaults::l1dWays">:$l1d_ways,
                        Plan_Number<"TargetDefaults::l2Bytes">:$l2_bytes,
                        Plan_Number<"TargetDefaults::l3Bytes">:$l3_bytes,
                        Plan_Number<"TargetDefaults::cores">:$cores, Plan_Flag<"true">:$fma,
                        Plan_Flag<"false">:$bf16_dot, Plan_Flag<"false">:$i16_dot, Plan_Flag<"false">:$i8_dot,
                        Plan_Flag<"false">:$i8_dot_mixed, Plan_Flag<"false">:$i8_tiles,
                        Plan_Flag<"false">:$bf16_tiles, Plan_Flag<"false">:$fetch_to_l2, Plan_Text:$device,
                        OptionalParameter<"::mlir::ArrayAttr">:$arch, Plan_Number<"TargetDefaults::warp">:$warp,
                        Plan_Flag<"false">:$matrix_unit);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The name of the module's attribute.
    static constexpr ::llvm::StringLiteral attrName = "disc_plan.target";
    /// The target of the module that `op` is or is in; one of which nothing is known if that has none.
    static TargetAttr of(::mlir::Operation *op);
    /// The same machine with a device.
    TargetAttr withDevice(::llvm::StringRef device, ::mlir::ArrayAttr arch, int64_t warp, bool matrixUnit);
    /// The vector registers, as many as are usual with such vectors if their number is not known.
    int64_t numVectorRegisters() const {
      return getVectorRegisters() ? getVectorRegisters() : getVectorBits() >= 512 ? 32 : 16;
    }
  }];
}

#endif // DISC_DIALECTS_PLAN_TARGET
