//===- EntryLowering.h - one entry function as straight code -------*- C++ -*-===//
//
// What HostLower.cpp does with one entry; LowerLaunch.cpp has the launches of kernels, LowerSizes.cpp the
// checks of sizes.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_TARGET_HOST_ENTRYLOWERING_H
#define DISC_TARGET_HOST_ENTRYLOWERING_H

#include "dialects/Rt/RtDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "lib/Target/Common/ExprEmitter.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/Host/EmitModelInfo.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {

/// The runtime's functions (lib/Runtime/Core/Abi.h), declared when first called.
class RuntimeFunctions {
public:
  explicit RuntimeFunctions(ModuleOp module) : module(module) {}

  Value call(OpBuilder &b, Location loc, StringRef name, Type result, ValueRange args) {
    if (!module.lookupSymbol(name)) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(module.getBody());
      LLVM::LLVMFuncOp::create(
          b, module.getLoc(), name,
          LLVM::LLVMFunctionType::get(result ? result : LLVM::LLVMVoidType::get(module.getContext()),
                                      llvm::to_vector(args.getTypes())));
    }
    if (!result) {
      LLVM::CallOp::create(b, loc, TypeRange(), name, args);
      return {};
    }
    return LLVM::CallOp::create(b, loc, result, name, args).getResult();
  }

private:
  ModuleOp module;
};

/// Lowers one entry function. Its blocks form a chain, so that whatever was
/// emitted dominates what comes next; failures branch off to cold blocks. The
/// body of a loop is a chain of its own, between the loop's head and its latch,
/// and so are the sides of a branch.
class EntryLowering {
public:
  EntryLowering(ModuleOp module, Operation *entry, ShapeAnalysis &shapes, RuntimeFunctions &runtime, ModelInfo &info,
                int64_t serialNs)
      : module(module), entry(entry), shapes(shapes), runtime(runtime), info(info), serialNs(serialNs),
        b(module.getContext()), exprs(b, shapes, [this](StringRef name) { return symbols.lookup(name); }),
        i32(b.getI32Type()), i64(b.getI64Type()), ptr(LLVM::LLVMPointerType::get(module.getContext())),
        onDevice(deviceOf(module)) {}

  LogicalResult lower();

  /// Lowers the checks of the entry alone, and then tells the extents of its outputs, as the function `disc_shapes`.
  LogicalResult lowerShapes();

private:
  func::FuncOp begin(const Twine &name);
  void end();
  LogicalResult lowerOp(Operation &op);
  void lowerExtent(ExtentOp op);
  LogicalResult lowerBind(BindSymbolOp op);
  void lowerGuard(RtGuardOp op);
  LogicalResult lowerCheckSizes(CheckSizesOp op);
  void lowerParameter(RtParameterOp op);
  LogicalResult lowerGlobal(RtGlobalOp op);
  void lowerOutput(OutputOp op);
  LogicalResult lowerLaunch(LaunchOp op);
  LogicalResult lowerCheckedLaunch(LaunchOp op, func::FuncOp kernel, Value taskCount, const SymExpr &cost,
                                   const SymExpr &scratch);
  LogicalResult lowerDeviceLaunch(LaunchOp op, DeviceKernelOp kernel);
  LogicalResult launchOnDevice(LaunchOp op, DeviceKernelOp kernel);
  Value blocksOf(LaunchOp op, DeviceKernelOp kernel);
  Value ofVariant(LaunchOp op, DeviceKernelOp kernel, function_ref<Value(DeviceKernelOp)> value);
  LogicalResult bringOperand(LaunchOp op, UpdateAttr update);
  LogicalResult launchInParts(LaunchOp op, DeviceKernelOp kernel, SplitAttr split);
  LogicalResult launchOrdered(LaunchOp op, DeviceKernelOp kernel, OrderAttr order);
  /// The arguments of a device's kernel, with `extra` slots of the runtime's own after the symbols.
  FailureOr<std::pair<Value, size_t>> deviceArguments(LaunchOp op, DeviceKernelOp kernel, size_t extra);
  Value productTable(DeviceKernelOp kernel, LibraryProductAttr product);
  int64_t numberOf(DeviceKernelOp kernel);
  LogicalResult storeArguments(LaunchOp op, ArrayAttr symbolNames, Value args, size_t &slot);
  Value readDevice(LLVM::LoadOp load);
  LogicalResult lowerLoop(RtLoopOp op);
  void poll(Location loc);
  LogicalResult lowerBranch(RtBranchOp op);
  void lowerEnter(EnterOp op);
  LogicalResult lowerFit(FitOp op);
  void callVoid(Location loc, StringRef name, ValueRange args);
  /// Lowers a block of a loop or branch, but for its end. What is fetched or bound in it is not known outside.
  LogicalResult lowerInside(Block &block);

  /// Goes on in a new block when `ok` holds, else leaves with `status`.
  void continueIf(Location loc, Value ok, Value status);
  void checkStatus(Location loc, Value status);
  Value checkPointer(Location loc, Value pointer);

  Value emitExpr(Operation *op, const SymExpr &expr);
  /// The expression of a kernel's attribute; `fallback` when it is absent.
  SymExpr exprAttr(Operation *op, StringRef name, int64_t fallback);
  Value constant64(Location loc, int64_t value);
  Value toI64(Location loc, Value index);
  Value isNonzero(Location loc, Value byte);
  Value mapped(Value value) { return values.lookupOrDefault(value); }
  /// An array of at least `size` 8-byte slots, in the function's first block.
  Value slots(Location loc, size_t size);
  void store(Location loc, Value value, Value array, size_t slot);

  ModuleOp module;
  Operation *entry; // or a procedure
  Value given;      // where a procedure puts the extents that it hands back
  ShapeAnalysis &shapes;
  RuntimeFunctions &runtime;
  ModelInfo &info;
  int64_t serialNs;

  OpBuilder b;
  llvm::StringMap<Value> symbols;
  ExprEmitter exprs;
  Type i32, i64, ptr;
  const bool onDevice; // the data of calls is

  IRMapping values;
  Value call;
  Block *exit = nullptr; // takes the status to return
  LLVM::AllocaOp slotArray;
  int64_t slotCount = 0;
  llvm::DenseMap<std::pair<int, int64_t>, Value> pointers; // by function, number
};

} // namespace mlir::disc

#endif // DISC_TARGET_HOST_ENTRYLOWERING_H
