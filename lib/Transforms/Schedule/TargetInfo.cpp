//===- TargetInfo.cpp - what schedules need to know of a machine ----------===//

#include "lib/Transforms/Schedule/TargetInfo.h"

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
  if (auto flag = dict.getAs<BoolAttr>("bf16_dot"))
    info.bf16Dot = flag.getValue();
  return info;
}

TargetInfo::Tile TargetInfo::tile(int64_t bits, std::optional<int64_t> maxColumns) const {
  // Two vectors wide; as many rows as leave registers for one row of the right-hand side and a broadcast.
  int64_t lanes = vectorBits / bits;
  int64_t columns = maxColumns && *maxColumns <= lanes ? lanes : 2 * lanes;
  return {(vectorRegisters - 3) / 2, columns};
}
