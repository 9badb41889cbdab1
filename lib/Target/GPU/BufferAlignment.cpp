//===- BufferAlignment.cpp - where buffers of kernels begin ---------------===//
//
// The runtime aligns memory that it gives, and checks that of the caller. A step of a loop may hand on a row of a
// stack, which begins where the row before ended:
//
//   %last = disc_rt.loop @i below %n carries(%first) {
//   ^bb0(%h: !llvm.ptr):
//     %bytes = disc_shape.dim <i * B * 36>
//     %row = disc_rt.offset %stack, %bytes
//     disc_rt.launch %call @step(%h, %row)          // both at multiples of 4
//     disc_rt.next %row
//   }
//
// Lit test: test/lit/GPU/alignment.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/BufferAlignment.h"

#include "dialects/Rt/RtDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

constexpr int64_t kAligned = 16; // vectors need no more

/// `seen` are the pointers that this one goes back to, through loops: they add nothing to what their loop begins with.
static int64_t alignmentOf(Value pointer, ShapeAnalysis &shapes, llvm::DenseSet<Value> &seen) {
  if (!seen.insert(pointer).second)
    return kAligned;
  auto both = [&](Value a, Value b) { return std::gcd(alignmentOf(a, shapes, seen), alignmentOf(b, shapes, seen)); };
  auto carried = [&](RtLoopOp loop, unsigned i) {
    return both(loop.getInits()[i], cast<RtNextOp>(loop.getBody().front().getTerminator()).getValues()[i]);
  };
  if (auto argument = dyn_cast<BlockArgument>(pointer)) {
    auto loop = dyn_cast<RtLoopOp>(argument.getOwner()->getParentOp());
    return loop ? carried(loop, argument.getArgNumber()) : 1;
  }
  unsigned number = cast<OpResult>(pointer).getResultNumber();
  return llvm::TypeSwitch<Operation *, int64_t>(pointer.getDefiningOp())
      .Case<InputOp, RtParameterOp, RtGlobalOp, ArenaOp, OutputOp, SlotOp>([](auto) { return kAligned; })
      .Case([&](OffsetOp op) {
        return std::gcd(alignmentOf(op.getBase(), shapes, seen), shapes.expr(op.getBytes()).content());
      })
      .Case([&](RtLoopOp op) { return carried(op, number); })
      .Case([&](RtBranchOp op) {
        auto given = [&](Region &side) { return cast<GiveOp>(side.front().getTerminator()).getValues()[number]; };
        return both(given(op.getThenRegion()), given(op.getElseRegion()));
      })
      .Default([](Operation *) { return 1; });
}

SmallVector<int64_t> disc::bufferAlignments(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  SmallVector<int64_t> result(kernel.getNumInputs() + kernel.getNumResults(), kAligned);
  for (Operation &op : *kernel->getParentOfType<ModuleOp>().getBody())
    if (isa<EntryOp, ProcedureOp>(op))
      op.walk([&](LaunchOp launch) {
        if (launch.getKernel() != kernel.getSymName())
          return;
        for (auto [alignment, buffer] : llvm::zip(result, launch.getBuffers())) {
          llvm::DenseSet<Value> seen;
          alignment = std::gcd(alignment, alignmentOf(buffer, shapes, seen));
        }
      });
  return result;
}
