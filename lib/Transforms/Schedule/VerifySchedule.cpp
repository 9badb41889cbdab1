//===- VerifySchedule.cpp - the contract of the schedule stage ------------===//
//
// Every kernel has a schedule, a number of tasks, a scratch size and a cost, the latter three as expressions over
// declared symbols:
//
//   disc_plan.kernel row ... attributes {schedule = #disc_plan.row<...>, tasks = #disc_shape.expr<B * S>, scratch =
//   ..., cost = ...}
//
// Test: test/lit/Schedule/verify.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

namespace mlir::disc {
#define GEN_PASS_DEF_VERIFYSCHEDULE
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct VerifySchedule : disc::impl::VerifyScheduleBase<VerifySchedule> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    bool ok = true;
    getOperation().walk([&](KernelOp kernel) {
      if (!kernel.getScheduleAttr()) {
        kernel.emitError("kernel has no schedule");
        ok = false;
      }
      for (auto [name, expr] : {std::pair<StringRef, ExprAttr>("tasks", kernel.getTasksAttr()),
                                {"scratch", kernel.getScratchAttr()},
                                {"cost", kernel.getCostAttr()}}) {
        if (!expr) {
          kernel.emitError() << "kernel has no expression for '" << name << "'";
          ok = false;
          continue;
        }
        for (const std::string &symbol : expr.getValue().symbols())
          if (!symbols.lookup<SymbolOp>(symbol)) {
            kernel.emitError() << "'" << name << "' uses '" << symbol << "', which is no symbol of the module";
            ok = false;
          }
      }
    });
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
