//===- VerifyMemory.cpp - the contract of the memory stage ----------------===//
//
// The host flow contains no tensors: `disc_rt.entry` functions pass pointers to `disc_plan.kernel_func`s, every symbol
// is bound before an extent uses it, and every temporary is in the arena.
//
//   disc_rt.entry @main attributes {...} {
//   ^bb0(%call: !llvm.ptr):
//     ...
//     disc_rt.launch %call @k0_relu(%0, %1)
//     disc_rt.return
//   }
//
// Test: test/lit/Memory/verify.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::disc {
#define GEN_PASS_DEF_VERIFYMEMORY
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct VerifyMemory : disc::impl::VerifyMemoryBase<VerifyMemory> {
  void runOnOperation() override {
    bool ok = true;
    auto fail = [&](Operation *op, const Twine &text) {
      op->emitError(text);
      ok = false;
    };
    for (auto func : getOperation().getOps<func::FuncOp>())
      fail(func, "function '" + func.getName() + "' must be a disc_rt.entry after the memory stage");
    for (auto entry : getOperation().getOps<EntryOp>()) {
      llvm::StringSet<> bound;
      verify(entry.getBody().front(), bound, fail);
    }
    for (auto procedure : getOperation().getOps<ProcedureOp>()) {
      llvm::StringSet<> bound;
      verify(procedure.getBody().front(), bound, fail);
    }
    if (!ok)
      signalPassFailure();
  }

  static void verify(Block &block, llvm::StringSet<> &bound,
                     llvm::function_ref<void(Operation *, const Twine &)> fail) {
    for (Operation &op : block) {
      for (Type type : op.getResultTypes())
        if (isa<TensorType>(type))
          fail(&op, "a tensor is left in the host flow after the memory stage");
      if (auto bind = dyn_cast<BindSymbolOp>(op))
        bound.insert(bind.getSymbol());
      if (auto dim = dyn_cast<DimOp>(op))
        for (const std::string &name : dim.getExprAttr().getValue().symbols())
          if (!bound.contains(name))
            fail(&op, "symbol '" + name + "' is used before it is bound");
      if (auto loop = dyn_cast<RtLoopOp>(op)) {
        // A loop's symbol has a value only in its body.
        llvm::StringSet<> inside = bound;
        inside.insert(loop.getSymbol());
        verify(loop.getBody().front(), inside, fail);
      }
      if (auto branch = dyn_cast<RtBranchOp>(op))
        for (Region &side : branch->getRegions()) {
          llvm::StringSet<> inside = bound;
          verify(side.front(), inside, fail);
        }
    }
  }
};
} // namespace
