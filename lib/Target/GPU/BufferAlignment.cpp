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
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

constexpr int64_t kAligned = 16; // vectors need no more

namespace {
/// What divides the address of a pointer, or a number of bytes. A value that was seen already adds nothing: pointers go
/// back to themselves through loops, and ends of an arena's parts are sums and maxima of those before, with as many
/// paths through them as there are subsets.
struct Alignment {
  ShapeAnalysis &shapes;
  llvm::DenseSet<Value> seen;

  int64_t of(Value v);
  int64_t common(Value a, Value b) { return std::gcd(of(a), of(b)); }
  int64_t carried(RtLoopOp loop, unsigned i) {
    return common(loop.getInits()[i], cast<RtNextOp>(loop.getBody().front().getTerminator()).getValues()[i]);
  }
};
} // namespace

int64_t Alignment::of(Value v) {
  if (!seen.insert(v).second)
    return kAligned;
  if (auto argument = dyn_cast<BlockArgument>(v)) {
    auto loop = dyn_cast<RtLoopOp>(argument.getOwner()->getParentOp());
    return loop ? carried(loop, argument.getArgNumber()) : 1;
  }
  unsigned number = cast<OpResult>(v).getResultNumber();
  return llvm::TypeSwitch<Operation *, int64_t>(v.getDefiningOp())
      .Case<InputOp, RtParameterOp, RtGlobalOp, ArenaOp, OutputOp, SlotOp>([](auto) { return kAligned; })
      .Case([&](OffsetOp op) { return common(op.getBase(), op.getBytes()); })
      .Case<DimOp, arith::ConstantOp>([&](auto) { return shapes.expr(v).content(); })
      .Case<arith::AddIOp, arith::MaxSIOp>([&](auto op) { return common(op.getLhs(), op.getRhs()); })
      .Case([&](RtLoopOp op) { return carried(op, number); })
      .Case([&](RtBranchOp op) {
        auto given = [&](Region &side) { return cast<GiveOp>(side.front().getTerminator()).getValues()[number]; };
        return common(given(op.getThenRegion()), given(op.getElseRegion()));
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
        for (auto [alignment, buffer] : llvm::zip(result, launch.getBuffers()))
          alignment = std::gcd(alignment, Alignment{shapes, {}}.of(buffer));
      });
  return result;
}
