//===- DeviceCode.h - gpu.modules to code and images ---------------*- C++ -*-===//
//
// What the back ends of all devices have in common: lowering to the LLVM dialect (`prepareKernels`, `convertKernels`),
// then images (`compileForDevice`, `imageAttr`, `replaceByBinary`).
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TARGET_COMMON_DEVICECODE_H
#define DISC_TARGET_COMMON_DEVICECODE_H

#include "dialects/Rt/RtDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/CodeGen.h"

#include <map>
#include <string>

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace mlir::disc {

/// The most blocks that a kernel is ever launched with, which its code may count on; nothing if that is not known.
std::optional<int64_t> mostBlocks(DeviceKernelOp kernel, const ShapeAnalysis &shapes);

/// Rewrites all kernels to what the conversions to device dialects take: the block size becomes a constant, ids get
/// their ranges, arguments what the kernel's `disc_rt.device_kernel` says of them. An operation that would need a
/// library on the device is an error.
LogicalResult prepareKernels(ModuleOp module);

/// Converts a gpu.module to the LLVM dialect: with the device's own patterns, and those for everything else that
/// kernels hold behind convert-scf-to-cf and convert-vector-to-llvm.
LogicalResult convertKernels(gpu::GPUModuleOp module,
                             function_ref<void(LLVMTypeConverter &, RewritePatternSet &)> populate);

/// The architectures to make code for: `chosen`, or else those that `disc_plan.target` names. LLVM must know them.
FailureOr<SmallVector<std::string>> deviceArchs(ModuleOp module, StringRef triple, ArrayRef<std::string> chosen);

/// Code of one gpu.module in the LLVM dialect, optimised at O3. `adapt` sees each module before that. What fails, and
/// what LLVM warns of, becomes diagnostics of the gpu.module.
FailureOr<std::string> compileForDevice(gpu::GPUModuleOp module, StringRef triple, StringRef arch,
                                        llvm::CodeGenFileType type, function_ref<void(llvm::Module &)> adapt);

/// What each kernel needs of the device, by the kernel's name: numbers such as `registers`, `spill_stores`.
using KernelResources = std::map<std::string, std::map<std::string, int64_t>>;

/// An image for `gpu.binary`. The kernels' needs are the metadata of its kernel table. `isEarly`: all kernels wait for
/// those before them, which the property kEarlyAttr then says.
gpu::ObjectAttr imageAttr(gpu::GPUModuleOp module, Attribute target, gpu::CompilationTarget format, StringRef image,
                          const KernelResources &resources, bool isEarly = false);

/// Puts a `gpu.binary` of the same name in the place of the gpu.module.
void replaceByBinary(gpu::GPUModuleOp module, ArrayRef<Attribute> objects);

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_DEVICECODE_H
