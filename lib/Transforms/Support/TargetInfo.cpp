//===- TargetInfo.cpp - what passes need to know of a machine -------------===//

#include "lib/Transforms/Support/TargetInfo.h"

#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace mlir::disc;

TargetInfo TargetInfo::get(ModuleOp module) {
  TargetAttr target = TargetAttr::of(module);
  TargetInfo info;
  info.vectorBits = target.getVectorBits();
  info.vectorRegisters = target.numVectorRegisters();
  info.l1Bytes = target.getL1dBytes();
  info.l1Ways = target.getL1dWays();
  info.l2Bytes = target.getL2Bytes();
  info.l3Bytes = target.getL3Bytes();
  info.cores = target.getCores();
  info.warp = target.getWarp();
  info.matrixUnit = target.getMatrixUnit();
  info.bf16Dot = target.getBf16Dot();
  info.i16Dot = target.getI16Dot();
  info.i8Dot = target.getI8Dot();
  info.i8DotMixed = target.getI8DotMixed();
  info.i8Tiles = target.getI8Tiles();
  info.bf16Tiles = target.getBf16Tiles();
  info.fetchToL2 = target.getFetchToL2();
  info.fma = target.getFma();
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

int64_t TargetInfo::tileRows(int64_t bits, int64_t columns, bool tiles) const {
  if (tiles)
    return 32; // two registers of 16 rows
  // As many as leave registers for one row of the right-hand side and a broadcast.
  int64_t vectors = std::max<int64_t>(columns * bits / vectorBits, 2);
  return (vectorRegisters - 1 - vectors) / vectors;
}
