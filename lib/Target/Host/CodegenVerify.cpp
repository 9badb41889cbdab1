//===- CodegenVerify.cpp - the contract of the codegen stage ---------------===//
//
// What comes out of the codegen stage is translated to LLVM IR as it is. This
// pass reports what translation would only crash on or silently drop:
//
//   func.func @k(...)          // C1: left by a lowering that did not run
//   llvm.func @disc_main()     // C2: not what the runtime calls
//
// Test: test/lit/Host/codegen-verify.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Host/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::disc {
#define GEN_PASS_DEF_CODEGENVERIFY
#include "lib/Target/Host/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// The first operation that is not the LLVM dialect's is enough: what follows is
/// usually the same omission again.
static LogicalResult checkDialect(ModuleOp module) {
  WalkResult result = module->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op == module || isa<LLVM::LLVMDialect>(op->getDialect()))
      return WalkResult::advance();
    op->emitOpError("is not of the LLVM dialect (C1)");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult checkEntry(ModuleOp module, StringRef name) {
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function || function.isExternal())
    return module.emitError() << "entry function '" << name << "' is not defined (C2)";
  MLIRContext *context = module.getContext();
  auto expected = LLVM::LLVMFunctionType::get(IntegerType::get(context, 32), {LLVM::LLVMPointerType::get(context)});
  if (function.getFunctionType() != expected || function.getLinkage() != LLVM::Linkage::External)
    return function.emitOpError() << "must be public, of type " << expected << " (C2)";
  return success();
}

/// Names of the C library that the JIT and the linker resolve: libm's functions
/// and the block moves that LLVM itself introduces.
static bool isCLibrary(StringRef name) {
  static const llvm::StringSet<> names = {"memcpy", "memmove", "memset",    "acos",  "asin",  "atan",  "atan2", "cbrt",
                                          "ceil",   "cos",     "cosh",      "erf",   "erfc",  "exp",   "exp2",  "expm1",
                                          "fabs",   "floor",   "fmod",      "log",   "log10", "log1p", "log2",  "pow",
                                          "rint",   "round",   "roundeven", "sin",   "sinh",  "sqrt",  "tan",   "tanh",
                                          "trunc",  "acosh",   "asinh",     "atanh", "fma"};
  return names.contains(name) || (name.ends_with("f") && names.contains(name.drop_back()));
}

static LogicalResult checkDeclarations(ModuleOp module) {
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    StringRef name = function.getSymName();
    if (function.isExternal() && !name.starts_with("disc_rt_") && !name.starts_with("disc_fn_") &&
        !name.starts_with("llvm.") && !isCLibrary(name))
      return function.emitOpError("is called but nothing defines it (C4)");
  }
  return success();
}

namespace {
struct CodegenVerify : mlir::disc::impl::CodegenVerifyBase<CodegenVerify> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(checkDialect(module)) || failed(checkEntry(module, "disc_init")) ||
        failed(checkEntry(module, "disc_main")) || failed(checkEntry(module, "disc_shapes")))
      return signalPassFailure();
    auto info = module.lookupSymbol<LLVM::GlobalOp>("disc_model_info");
    if (!info) {
      module.emitError("'disc_model_info' is not defined (C3)");
      return signalPassFailure();
    }
    if (failed(checkDeclarations(module)))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
