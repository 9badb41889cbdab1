//===- DeviceKernel.h - one emitter per kind of kernel --------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEKERNEL_H
#define DISC_LIB_TARGET_GPU_DEVICEKERNEL_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Target/Common/KernelAccess.h"
#include "lib/Target/Common/KernelLoops.h"
#include "lib/Target/Common/TileLoops.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/SmallBitVector.h"

namespace mlir::disc {

/// A kernel and the function that each thread of its blocks runs:
///   gpu.func @k(%operand: !llvm.ptr<1>, ..., %result: !llvm.ptr<1>, ..., %symbol: i64, ..., %errors, %text: i64, ...)
/// `b` stands in the function's entry block, before its return.
class DeviceKernel {
public:
  DeviceKernel(OpBuilder &b, KernelFuncOp kernel, gpu::GPUFuncOp function, ShapeAnalysis &shapes, int64_t warp)
      : b(b), kernel(kernel), function(function), shapes(shapes), warp(warp), loc(kernel.getLoc()), m{b, loc} {}

  /// The kernel's schedule, which is one of its kind.
  template <typename Schedule> Schedule schedule() { return cast<Schedule>(kernel.getScheduleAttr()); }
  int64_t threads() { return kernel.getScheduleAttr().getBlockThreads(); }

  /// The kernel is launched only where these are multiples of `divisor`. Before points().
  void assumeMultiples(ArrayRef<SymExpr> exprs, int64_t divisor) {
    multiples.assign(exprs.begin(), exprs.end());
    multiplesOf = divisor;
  }

  bool isMultiple(const SymExpr &e, int64_t divisor) const {
    return e.content() % divisor == 0 || (multiplesOf % divisor == 0 && llvm::is_contained(multiples, e));
  }

  /// Values of the kernel at points; vectors of them have `lanes` lanes.
  PointEmitter points(int64_t lanes);

  Value thread() { return gpu::ThreadIdOp::create(b, loc, b.getIndexType(), gpu::Dimension::x); }
  /// Among the blocks that do the same: see share().
  Value block() {
    Value block = gpu::BlockIdOp::create(b, loc, b.getIndexType(), gpu::Dimension::x);
    return firstBlock ? m.sub(block, firstBlock) : block;
  }
  Value blocks() { return gpu::GridDimOp::create(b, loc, b.getIndexType(), gpu::Dimension::x); }
  void barrier() { gpu::BarrierOp::create(b, loc); }

  /// Says that an index (i64) is out of range for an extent (i64); `what` is among checkTexts().
  void report(Value seen, Value extent, StringRef what);

  /// Emits `part` for `count` blocks that begin with `first`, as if they were all. No block runs two parts, so that the
  /// parts' arrays in memory of the block are the same.
  void share(Value first, Value count, function_ref<void()> part);

  /// Lets the next kernel start as soon as this one has no more blocks to start, and waits for the kernels before this
  /// one.
  void startEarly();
  /// Moves the wait to here, if there is one. What comes before it reads constants only.
  void delayWait();
  /// Moves the start of the next kernel to here, for one that would only take bandwidth from this one until now.
  void delayNext();
  /// Whether no kernel writes to this operand in any launch, so that it may be read before the wait.
  bool isConstant(unsigned operand) const { return operand < constants.size() && constants[operand]; }
  void setConstants(const llvm::SmallBitVector &operands) { constants = operands; }

  /// Keeps the loop of these results a loop, also if its number of steps is known: unrolled, the loads of all steps
  /// would be in registers at once.
  void keepRolled(ValueRange results);

  /// Memory of the block for `count` elements.
  Value shared(Type element, int64_t count);
  /// Reads and writes it at an element; booleans take a byte.
  Value loadShared(Value memory, Type element, Value at);
  void storeShared(Value memory, Value v, Value at);

  /// The value that another thread of the warp has: `offset` below (UP), or one whose number differs by the bit mask
  /// `offset` (XOR). All threads of the warp take part; where there is no such thread the value is unspecified.
  Value shuffle(Value v, int64_t offset, gpu::ShuffleMode mode);
  Value shuffleXor(Value v, int64_t mask) { return shuffle(v, mask, gpu::ShuffleMode::XOR); }

  OpBuilder &b;
  KernelFuncOp kernel;
  gpu::GPUFuncOp function;
  ShapeAnalysis &shapes;
  const int64_t warp;
  const Location loc;
  IndexMath m;

private:
  int64_t numShared = 0, multiplesOf = 1;
  SmallVector<SymExpr> multiples;
  Value firstBlock;
  llvm::SmallBitVector constants;
  bool isEarly = false;
  Operation *wait = nullptr; ///< Of the kernel, or of the part that share() emits.
  Operation *next = nullptr; ///< Starts the next kernel.
};

/// The texts of a kernel's checks, in the order in which its function takes their addresses.
SmallVector<StringRef> checkTexts(KernelFuncOp kernel);

/// One of the schedules of a kernel.
struct KernelVariant {
  ScheduleAttrInterface schedule;
  SymExpr when;                   // it serves the shapes where this is positive
  SmallVector<SymExpr> multiples; // of the schedule's `vector` there
  std::optional<SymExpr> tasks;   // if they are not the kernel's
};
using KernelVariants = FailureOr<SmallVector<KernelVariant>>;
/// The schedules of kernels of these kinds, by what they ask of the layouts of buffers.
KernelVariants loopVariants(KernelFuncOp kernel, ShapeAnalysis &shapes);
KernelVariants rowVariants(KernelFuncOp kernel, ShapeAnalysis &shapes);
KernelVariants columnVariants(KernelFuncOp kernel, ShapeAnalysis &shapes);
/// Each with the condition and tasks that it says.
KernelVariants variantsWithTasks(KernelFuncOp kernel);

/// The extents and the ends of parts that lie side by side along the last dimension of a concatenation in the kernel.
SmallVector<SymExpr> concatenatedExtents(KernelFuncOp kernel, ShapeAnalysis &shapes);

/// How a loop kernel without a running sum walks its buffers, over the dims of its results.
KernelAccess loopAccess(KernelFuncOp kernel, ShapeAnalysis &shapes);

/// The run that a loop kernel's tiles cross, where one of its operands lies in memory along another dimension than its
/// results.
std::optional<unsigned> tiledRun(KernelFuncOp kernel, const KernelAccess &access, ArrayRef<MergedDims> runs);

/// How many blocks a row kernel of this schedule has.
SymExpr rowBlocks(const ReductionPlan &plan, DeviceRowScheduleAttr schedule, int64_t warp);

/// Of how many parallel points a block combines the parts.
int64_t wholesOfBlock(KernelFuncOp kernel, int64_t warp);

/// All report what they cannot emit.
LogicalResult emitDeviceLoop(DeviceKernel &k);
/// A loop kernel that is one `disc_tensor.running_sum`.
LogicalResult emitDeviceRunningSum(DeviceKernel &k);
/// In parts: of each the accumulators go to memory, see DeviceReduction.cpp.
LogicalResult emitDeviceRow(DeviceKernel &k, bool inParts);
LogicalResult emitDeviceColumn(DeviceKernel &k, bool inParts);
/// What the parts of a row or column kernel make together.
LogicalResult emitDeviceWhole(DeviceKernel &k);
LogicalResult emitDeviceContraction(DeviceKernel &k);
LogicalResult emitDeviceConvolution(DeviceKernel &k);
LogicalResult emitDeviceAttention(DeviceKernel &k);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICEKERNEL_H
