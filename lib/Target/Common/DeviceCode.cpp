//===- DeviceCode.cpp - gpu.modules to code and images --------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "dialects/Rt/RtDialect.h"
#include "lib/Target/Common/EmitCode.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/LLVMIR/ROCDLDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace mlir::disc;

/// Whether LLVM has an instruction or an expansion for the operation on every device.
static bool isNative(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp, math::CountLeadingZerosOp,
             math::CountTrailingZerosOp, math::CtPopOp, math::FloorOp, math::FmaOp, math::IsFiniteOp, math::IsInfOp,
             math::IsNaNOp, math::IsNormalOp, math::RoundEvenOp, math::SqrtOp, math::TruncOp>(op);
}

static LogicalResult checkOps(gpu::GPUFuncOp kernel) {
  WalkResult result = kernel.walk([](Operation *op) {
    bool needsLibrary = isa<arith::RemFOp>(op) || (isa<math::MathDialect>(op->getDialect()) && !isNative(op));
    if (needsLibrary) {
      op->emitOpError("has neither an instruction on the device nor an expansion for ") << op->getResult(0).getType();
      return WalkResult::interrupt();
    }
    if (isa<CallOpInterface>(op) && !isa<LLVM::CallIntrinsicOp>(op)) {
      op->emitOpError("kernels cannot call functions");
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

std::optional<int64_t> mlir::disc::mostBlocks(DeviceKernelOp kernel, const ShapeAnalysis &shapes) {
  auto tasks = kernel->getAttrOfType<ExprAttr>(kKernelTasksAttr);
  if (!tasks)
    return std::nullopt;
  // Without a known bound, only the runtime knows the number.
  std::optional<int64_t> most = shapes.range(tasks.getValue()).max;
  return most && *most > 0 && *most <= std::numeric_limits<int32_t>::max() ? most : std::nullopt;
}

/// Adds attributes for buffers that the kernel only reads, and for the ranges of symbols and of block numbers. With
/// these ranges LLVM computes indices in 32 bits where these are enough.
static LogicalResult annotate(gpu::GPUFuncOp kernel, DeviceKernelOp known, const ShapeAnalysis &shapes) {
  SmallVector<ArgumentUse> uses = known.getArgumentUses();
  if (uses.size() != kernel.getNumArguments())
    return kernel.emitOpError("its disc_rt.device_kernel describes ")
           << uses.size() << " arguments, but it has " << kernel.getNumArguments();
  Builder b(kernel.getContext());
  auto symbols = known->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr);
  unsigned next = 0;
  for (auto [i, use] : llvm::enumerate(uses)) {
    if (use == ArgumentUse::Reads)
      kernel.setArgAttr(i, LLVM::LLVMDialect::getReadonlyAttrName(), b.getUnitAttr());
    // Numbers of other kinds may follow the symbols.
    if (use != ArgumentUse::Number || !symbols || next == symbols.size())
      continue;
    ShapeAnalysis::Range range = shapes.range(SymExpr::symbol(cast<StringAttr>(symbols[next++]).getValue()));
    if (range.min && range.max && *range.min >= 0 && *range.max < std::numeric_limits<int64_t>::max())
      kernel.setArgAttr(i, LLVM::LLVMDialect::getRangeAttrName(),
                        LLVM::ConstantRangeAttr::get(b.getContext(), APInt(64, *range.min), APInt(64, *range.max + 1)));
  }
  if (std::optional<int64_t> blocks = mostBlocks(known, shapes))
    kernel.walk([&](gpu::BlockIdOp id) { id.setUpperBoundAttr(b.getIndexAttr(*blocks)); });
  return success();
}

static LogicalResult prepare(gpu::GPUFuncOp kernel) {
  DenseI32ArrayAttr block = kernel.getKnownBlockSizeAttr();
  if (!block)
    return kernel.emitOpError("needs a known block size");
  int32_t threads = block[0];
  kernel.walk([&](Operation *op) {
    OpBuilder b(op);
    if (auto id = dyn_cast<gpu::ThreadIdOp>(op)) {
      id.setUpperBoundAttr(b.getIndexAttr(threads));
    } else if (auto size = dyn_cast<gpu::BlockDimOp>(op)) {
      size.replaceAllUsesWith(arith::ConstantIndexOp::create(b, op->getLoc(), threads).getResult());
      size.erase();
    }
  });
  return success();
}

LogicalResult mlir::disc::prepareKernels(ModuleOp module) {
  SymbolTable symbols(module);
  ShapeAnalysis shapes(module);
  // Device registers have 32 bits, so a shuffle of 64 bits becomes two. Rounded divisions have no conversion.
  RewritePatternSet patterns(module.getContext());
  populateGpuShufflePatterns(patterns);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  FrozenRewritePatternSet frozen(std::move(patterns));
  for (auto device : module.getOps<gpu::GPUModuleOp>()) {
    if (failed(applyPatternsGreedily(device, frozen)))
      return failure();
    for (auto kernel : device.getOps<gpu::GPUFuncOp>()) {
      if (failed(checkOps(kernel)) || failed(prepare(kernel)))
        return failure();
      if (auto known = symbols.lookup<DeviceKernelOp>(kernel.getName()))
        if (failed(annotate(kernel, known, shapes)))
          return failure();
    }
  }
  return success();
}

LogicalResult mlir::disc::convertKernels(gpu::GPUModuleOp module,
                                         function_ref<void(LLVMTypeConverter &, RewritePatternSet &)> populate) {
  MLIRContext *context = module.getContext();
  LowerToLLVMOptions options(context);
  options.overrideIndexBitwidth(64);
  LLVMTypeConverter types(context, options);
  RewritePatternSet patterns(context);
  populate(types, patterns);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  index::populateIndexToLLVMConversionPatterns(types, patterns);
  ub::populateUBToLLVMConversionPatterns(types, patterns);
  // These replace the libraries that the devices' own patterns would call.
  populateMathToLLVMConversionPatterns(types, patterns, /*approximateLog1p=*/false, /*benefit=*/10);
  ConversionTarget target(*context);
  target.addLegalDialect<LLVM::LLVMDialect, NVVM::NVVMDialect, ROCDL::ROCDLDialect>();
  target.addLegalOp<gpu::GPUModuleOp, UnrealizedConversionCastOp>();
  // The conversion of functions keeps only the attributes of pointers.
  llvm::MapVector<StringAttr, ArrayAttr> arguments;
  for (auto kernel : module.getOps<gpu::GPUFuncOp>())
    if (ArrayAttr attrs = kernel.getAllArgAttrs())
      arguments[kernel.getNameAttr()] = attrs;
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();
  for (auto [name, attrs] : arguments)
    module.lookupSymbol<LLVM::LLVMFuncOp>(name).setAllArgAttrs(attrs);
  return success();
}

FailureOr<SmallVector<std::string>> mlir::disc::deviceArchs(ModuleOp module, StringRef triple,
                                                            ArrayRef<std::string> chosen) {
  SmallVector<std::string> archs(chosen);
  if (archs.empty())
    if (ArrayAttr named = TargetAttr::of(module).getArch())
      for (auto name : named.getAsRange<StringAttr>())
        archs.push_back(name.str());
  if (archs.empty())
    return module.emitError("no architecture for device code: neither the option 'arch' nor 'arch' of "
                            "disc_plan.target names one");
  std::string error;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(llvm::Triple(triple), error);
  if (!backend)
    return module.emitError(error);
  std::unique_ptr<llvm::MCSubtargetInfo> info(backend->createMCSubtargetInfo(llvm::Triple(triple), "", ""));
  for (StringRef arch : archs) {
    if (info->isCPUStringValid(arch))
      continue;
    std::string known;
    for (const llvm::SubtargetSubTypeKV &cpu : info->getAllProcessorDescriptions())
      if (StringRef(cpu.Key).starts_with("sm_") || StringRef(cpu.Key).starts_with("gfx"))
        known += (known.empty() ? "" : ", ") + std::string(cpu.Key);
    return module.emitError("unknown architecture '") << arch << "'; known architectures: " << known;
  }
  return archs;
}

namespace {
/// LLVM's errors and warnings as diagnostics of an operation.
class ToMlir : public llvm::DiagnosticHandler {
public:
  explicit ToMlir(Operation *op) : op(op) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error && info.getSeverity() != llvm::DS_Warning)
      return true;
    std::string text;
    llvm::raw_string_ostream os(text);
    llvm::DiagnosticPrinterRawOStream printer(os);
    info.print(printer);
    if (info.getSeverity() == llvm::DS_Error) {
      HasErrors = true;
      op->emitError(text);
    } else {
      op->emitWarning(text);
    }
    return true;
  }

private:
  Operation *op;
};
} // namespace

FailureOr<std::string> mlir::disc::compileForDevice(gpu::GPUModuleOp module, StringRef triple, StringRef arch,
                                                    llvm::CodeGenFileType type,
                                                    function_ref<void(llvm::Module &)> adapt) {
  std::string error;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(llvm::Triple(triple), error);
  if (!backend)
    return module.emitError(error);
  constexpr int optLevel = 3;
  std::unique_ptr<llvm::TargetMachine> machine(backend->createTargetMachine(llvm::Triple(triple), arch, /*Features=*/"",
                                                                            llvm::TargetOptions(), llvm::Reloc::PIC_,
                                                                            std::nullopt, codegenLevel(optLevel)));
  if (!machine)
    return module.emitError("no code generator for ") << triple;

  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<ToMlir>(module));
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context, module.getName());
  if (!code)
    return failure();
  code->setTargetTriple(llvm::Triple(triple));
  code->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *code)
    if (!function.isDeclaration())
      function.addFnAttr(llvm::Attribute::NoUnwind);
  adapt(*code);
  optimizeModule(*code, *machine, optLevel);
  for (llvm::Function &function : *code)
    if (function.isDeclaration() && !function.isIntrinsic() && !function.use_empty())
      return module.emitError("device code calls '") << function.getName() << "', which does not exist on devices";
  llvm::SmallVector<char, 0> bytes;
  if (llvm::Error failed = emitCode(*code, *machine, type, bytes))
    return module.emitError(llvm::toString(std::move(failed)));
  if (context.getDiagHandlerPtr()->HasErrors)
    return failure();
  return std::string(bytes.data(), bytes.size());
}

gpu::ObjectAttr mlir::disc::imageAttr(gpu::GPUModuleOp module, Attribute target, gpu::CompilationTarget format,
                                      StringRef image, const KernelResources &resources, bool isEarly) {
  Builder b(module.getContext());
  SmallVector<gpu::KernelMetadataAttr> kernels;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    if (function.isDeclaration())
      continue;
    DictionaryAttr needs;
    if (auto found = resources.find(function.getSymName().str()); found != resources.end()) {
      SmallVector<NamedAttribute> entries;
      for (const auto &[name, value] : found->second)
        entries.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(value)));
      needs = b.getDictionaryAttr(entries);
    }
    kernels.push_back(gpu::KernelMetadataAttr::get(function.getSymNameAttr(), function.getFunctionType(),
                                                   /*argAttrs=*/nullptr, needs));
  }
  DictionaryAttr properties;
  if (isEarly)
    properties = b.getDictionaryAttr(b.getNamedAttr(kEarlyAttr, b.getBoolAttr(true)));
  return gpu::ObjectAttr::get(b.getContext(), target, format, b.getStringAttr(image), properties,
                              gpu::KernelTableAttr::get(b.getContext(), kernels));
}

void mlir::disc::replaceByBinary(gpu::GPUModuleOp module, ArrayRef<Attribute> objects) {
  OpBuilder b(module);
  gpu::BinaryOp::create(b, module.getLoc(), module.getName(), /*offloadingHandler=*/nullptr, objects);
  module.erase();
}
