//===- ElementTypes.cpp - element types in memory --------------------------===//

#include "lib/Target/Common/ElementTypes.h"

#include "lib/Runtime/Core/ModelInfo.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

std::optional<int64_t> mlir::disc::interfaceDtype(Type type, bool isUnsigned) {
  if (type.isF16())
    return DISC_F16;
  if (type.isBF16())
    return DISC_BF16;
  if (type.isF32())
    return DISC_F32;
  if (type.isF64())
    return DISC_F64;
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return std::nullopt;
  isUnsigned |= integer.isUnsigned();
  switch (integer.getWidth()) {
  case 1:
    return DISC_BOOL;
  case 8:
    return isUnsigned ? DISC_U8 : DISC_I8;
  case 16:
    return isUnsigned ? DISC_U16 : DISC_I16;
  case 32:
    return isUnsigned ? DISC_U32 : DISC_I32;
  case 64:
    return isUnsigned ? DISC_U64 : DISC_I64;
  default:
    return std::nullopt;
  }
}
