//===- CodeObject.h - what a code object of AMD says of its kernels -*- C++ -*-===//

#ifndef DISC_TARGET_ROCDL_CODEOBJECT_H
#define DISC_TARGET_ROCDL_CODEOBJECT_H

#include "lib/Target/Common/DeviceCode.h"
#include "llvm/Support/Error.h"

namespace mlir::disc {

/// Links an object to what HIP loads.
llvm::Expected<std::string> linkCodeObject(StringRef object);

/// What the metadata note says of each kernel. An error if there is none, or a kernel has no descriptor.
llvm::Expected<KernelResources> readCodeObject(StringRef image);

} // namespace mlir::disc

#endif // DISC_TARGET_ROCDL_CODEOBJECT_H
