//===- EmitKernels.cpp - kernels become functions ---------------------------===//
//
//   disc_plan.kernel_func loop @k attributes {layouts = [...], schedule = #disc_plan.loop<...>, symbols = ["B"]} {
//   ^bb0(%x: tensor<?xf32>):
//     %r = linalg.generic ... math.tanh ...
//     disc_plan.yield %r : tensor<?xf32>
//   }
//
// becomes
//
//   func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) {
//     scf.for %task = %begin to %end { scf.for ... { llvm.load : vector<16xf32>, math.tanh, llvm.store } }
//   }
//
// `args` holds pointers to operands, then to results, then the values of the symbols. There are no memrefs: layouts
// are symbolic expressions, known at compile time up to the symbols, so that a descriptor would say nothing more.
//
// Lit test: test/lit/CPU/emit-kernels.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitKernels.h"

#include "dialects/Plan/Schedule.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/Passes.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/DialectRegistry.h"

namespace mlir::disc {
#define GEN_PASS_DEF_CPUEMITKERNELS
#include "lib/Target/CPU/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

LogicalResult KernelEmission::checkColumns(int64_t columns, int64_t lanes) {
  if (columns % lanes == 0)
    return success();
  return kernel.emitError() << "a tile of " << columns << " columns is not one of whole vectors of " << lanes
                            << " elements";
}

#include "lib/Target/CPU/Kinds.cpp.inc"

namespace {
LogicalResult emitKernel(KernelEmission &e) {
  KernelKind kind = e.kernel.getKind();
  ScheduleAttrInterface schedule = e.kernel.getScheduleAttr();
  if (isDeviceSchedule(schedule))
    return e.kernel.emitError("has a schedule for blocks of threads, which CPUs do not run");
  if (!schedule)
    return e.kernel.emitError() << "a kernel of kind " << kind.getWord() << " needs a schedule";
  auto emitter = dyn_cast<HostKind>(kind);
  if (!emitter)
    return e.kernel.emitError() << "CPUs do not run kernels of kind " << kind.getWord();
  return emitter.emit(e);
}

template <typename Kind, auto function> struct Emitter : HostKind::ExternalModel<Emitter<Kind, function>, Kind> {
  LogicalResult emit(Attribute, KernelEmission &e) const { return function(e); }
};

/// True if the kernel may fail, and then reports to the call.
bool kernelReports(KernelFuncOp kernel) {
  return kernel
      .walk([](Operation *op) {
        return isa<CheckIndexOp, CallFunctionOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

struct CpuEmitKernels : disc::impl::CpuEmitKernelsBase<CpuEmitKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    int64_t vectorBits = TargetAttr::of(module).getVectorBits();
    ShapeAnalysis shapes(module);
    OpBuilder builder(&getContext());
    auto ptr = LLVM::LLVMPointerType::get(&getContext());
    Type i64 = builder.getI64Type();
    for (KernelFuncOp kernel : llvm::make_early_inc_range(module.getOps<KernelFuncOp>())) {
      builder.setInsertionPoint(kernel);
      auto function = func::FuncOp::create(builder, kernel.getLoc(), kernel.getSymName(),
                                           builder.getFunctionType({ptr, i64, i64, ptr}, {}));
      copyLaunchAttrs(kernel, function);
      if (kernelReports(kernel))
        function->setAttr(kKernelCallAttr, builder.getUnitAttr());
      builder.setInsertionPointToStart(function.addEntryBlock());
      auto end = func::ReturnOp::create(builder, kernel.getLoc());
      builder.setInsertionPoint(end);
      KernelEmission emission{builder, kernel, function, shapes, vectorBits};
      if (failed(emitKernel(emission)))
        return signalPassFailure();
      kernel.erase();
    }
  }
};
} // namespace

void disc::registerHostKinds(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, PlanDialect *) {
    LoopKindAttr::attachInterface<Emitter<LoopKindAttr, emitLoop>>(*context);
    RowKindAttr::attachInterface<Emitter<RowKindAttr, emitRow>>(*context);
    ColumnKindAttr::attachInterface<Emitter<ColumnKindAttr, emitColumn>>(*context);
    ContractionKindAttr::attachInterface<Emitter<ContractionKindAttr, emitContraction>>(*context);
    AttentionKindAttr::attachInterface<Emitter<AttentionKindAttr, emitAttention>>(*context);
    PackKindAttr::attachInterface<Emitter<PackKindAttr, emitPack>>(*context);
    CallKindAttr::attachInterface<Emitter<CallKindAttr, emitCall>>(*context);
    ConvolutionKindAttr::attachInterface<Emitter<ConvolutionKindAttr, emitConvolution>>(*context);
  });
}
