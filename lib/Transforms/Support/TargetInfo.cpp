//===- TargetInfo.cpp - what passes need to know of a machine -------------===//

#include "lib/Transforms/Support/TargetInfo.h"

#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace mlir::disc;

TargetInfo TargetInfo::get(ModuleOp module) {
  TargetInfo info;
  auto dict = module->getAttrOfType<DictionaryAttr>(attrName);
  if (!dict)
    return info;
  auto read = [&](StringRef key, int64_t &value) {
    if (auto attr = dict.getAs<IntegerAttr>(key))
      value = attr.getInt();
  };
  read("vector_bits", info.vectorBits);
  info.vectorRegisters = info.vectorBits >= 512 ? 32 : 16;
  read("vector_registers", info.vectorRegisters);
  read("l1d_bytes", info.l1Bytes);
  read("l1d_ways", info.l1Ways);
  read("l2_bytes", info.l2Bytes);
  read("l3_bytes", info.l3Bytes);
  read("cores", info.cores);
  read("warp", info.warp);
  auto readFlag = [&](StringRef key, bool &value) {
    if (auto attr = dict.getAs<BoolAttr>(key))
      value = attr.getValue();
  };
  readFlag("bf16_dot", info.bf16Dot);
  readFlag("i16_dot", info.i16Dot);
  readFlag("i8_dot", info.i8Dot);
  readFlag("i8_dot_mixed", info.i8DotMixed);
  readFlag("matrix_unit", info.matrixUnit);
  readFlag("fma", info.fma);
  return info;
}

int64_t TargetInfo::panelColumns(int64_t bits, std::optional<int64_t> maxColumns, bool floats) const {
  int64_t lanes = vectorBits / bits, two = 2 * lanes, three = 3 * lanes;
  if (!maxColumns)
    return two;
  if (*maxColumns <= lanes)
    return lanes;
  // With sixteen registers, tiles of three vectors by four rows load less for each product than those of two by six,
  // and an uneven split leaves them more independent sums: 8 rows are 4 and 4, each with twelve of them instead of
  // eight, as many as just hide the latency. Worth it unless much of the last panel is left empty. A product and a sum
  // apart need one register more.
  auto padded = [&](int64_t panel) { return int64_t(llvm::divideCeil(*maxColumns, panel)) * panel; };
  return fma && floats && vectorRegisters < 32 && padded(three) * 32 <= padded(two) * 33 ? three : two;
}

int64_t TargetInfo::tileRows(int64_t bits, int64_t columns) const {
  // As many as leave registers for one row of the right-hand side and a broadcast.
  int64_t vectors = std::max<int64_t>(columns * bits / vectorBits, 2);
  return (vectorRegisters - 1 - vectors) / vectors;
}
