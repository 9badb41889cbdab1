//===- Ptxas.h - NVIDIA's assembler -------------------------------*- C++ -*-===//

#ifndef DISC_TARGET_NVVM_PTXAS_H
#define DISC_TARGET_NVVM_PTXAS_H

#include "lib/Target/Common/DeviceCode.h"
#include "llvm/Support/Error.h"

namespace mlir::disc {

/// `chosen`, or the one on PATH; "" where there is none.
llvm::Expected<std::string> findPtxas(StringRef chosen);

struct Cubin {
  std::string image;
  KernelResources resources;
};

/// Assembles PTX for one architecture. The error has what ptxas says.
llvm::Expected<Cubin> runPtxas(StringRef ptxas, StringRef ptx, StringRef arch);

/// What `ptxas -v` reports of each kernel.
KernelResources parseResources(StringRef report);

} // namespace mlir::disc

#endif // DISC_TARGET_NVVM_PTXAS_H
