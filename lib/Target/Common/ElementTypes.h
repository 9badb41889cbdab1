//===- ElementTypes.h - element types in memory ----------------*- C++ -*-===//
#ifndef DISC_TARGET_COMMON_ELEMENTTYPES_H
#define DISC_TARGET_COMMON_ELEMENTTYPES_H

#include "mlir/IR/Types.h"
#include <optional>

namespace mlir::disc {

/// The number of lib/Runtime/Core/ModelInfo.h for an element type; nothing for types that cannot cross the interface.
std::optional<int64_t> interfaceDtype(Type type, bool isUnsigned);

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_ELEMENTTYPES_H
