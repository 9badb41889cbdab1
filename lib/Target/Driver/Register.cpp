//===- Register.cpp - One list of everything that can be used -------------===//

#include "lib/Target/Driver/Register.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/Passes.h"
#include "lib/Target/Common/Passes.h"
#include "lib/Target/Emulation/Passes.h"
#include "lib/Target/GPU/DeviceEmission.h"
#include "lib/Target/GPU/Passes.h"
#include "lib/Target/Host/Passes.h"
#include "lib/Target/NVVM/Passes.h"
#include "lib/Target/Null/Passes.h"
#include "lib/Target/ROCDL/Passes.h"
#include "lib/Transforms/Fusion/Kinds.h"
#include "lib/Transforms/Fusion/Passes.h"
#include "lib/Transforms/Library/Passes.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Memory/Passes.h"
#include "lib/Transforms/Schedule/Kinds.h"
#include "lib/Transforms/Schedule/Passes.h"
#include "lib/Transforms/Shape/Passes.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"

#include <mutex>

using namespace mlir;

void mlir::disc::registerDialects(DialectRegistry &registry) {
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registerAllToLLVMIRTranslations(registry);
  registry.insert<ShapeDialect, TensorDialect, PlanDialect, RtDialect>();
  registerFusedKinds(registry);
  registerScheduledKinds(registry);
  registerInPlaceKinds(registry);
  registerHostKinds(registry);
  registerDeviceKinds(registry);
}

void mlir::disc::registerPasses() {
  static std::once_flag once;
  std::call_once(once, [] {
    registerAllPasses();
    registerDiscCommonPasses();
    registerDiscCPUPasses();
    registerDiscGPUPasses();
    registerDiscEmulationPasses();
    registerDiscHostPasses();
    registerDiscNVVMPasses();
    registerDiscNullPasses();
    registerDiscROCDLPasses();
    registerDiscShapePasses();
    registerDiscLibraryPasses();
    registerDiscFusionPasses();
    registerDiscSchedulePasses();
    registerDiscMemoryPasses();
  });
}
