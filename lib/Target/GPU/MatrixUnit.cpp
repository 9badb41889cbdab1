//===- MatrixUnit.cpp - products of fragments by a warp -------------------===//

#include "lib/Target/GPU/MatrixUnit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

std::pair<Value, Value> MatrixUnit::split(Value word) {
  // The unit reads the upper 19 bits of a word.
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  Value mask = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(0xffffe000)));
  Value high = arith::AndIOp::create(b, loc, word, mask);
  Value x = arith::BitcastOp::create(b, loc, f32, word), upper = arith::BitcastOp::create(b, loc, f32, high);
  Value rest = arith::SubFOp::create(b, loc, x, upper);
  return {high, NVVM::ConvertFloatToTF32Op::create(b, loc, i32, rest, NVVM::FPRoundingMode::RNA)};
}

Value MatrixUnit::finite(Value high) {
  auto constant = [&](uint32_t v) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(v)));
  };
  Value magnitude = arith::AndIOp::create(b, loc, high, constant(0x7fffffff));
  Value isFinite = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, magnitude, constant(0x7f800000));
  return arith::SelectOp::create(b, loc, isFinite, high, constant(0));
}

MatrixUnit::Fragment MatrixUnit::prepare(Value chunk) {
  Fragment out;
  for (int64_t i = 0; i < 4; ++i) {
    Value word = vector::ExtractOp::create(b, loc, chunk, i);
    if (!element.isF32()) {
      out.parts[0].push_back(word);
      continue;
    }
    auto [high, low] = split(word);
    out.parts[0].push_back(high);
    out.parts[1].push_back(low);
  }
  return out;
}

Value MatrixUnit::pack(ArrayRef<Value> elements) {
  Value all = vector::FromElementsOp::create(b, loc, VectorType::get({int64_t(elements.size())}, element), elements);
  return vector::BitCastOp::create(b, loc, chunkType(), all);
}

SmallVector<Value> MatrixUnit::instruction(ArrayRef<Value> a, ArrayRef<Value> right, ValueRange sums) {
  Type f32 = b.getF32Type();
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, f32));
  NVVM::MMATypes kind = element.isF32()    ? NVVM::MMATypes::tf32
                        : element.isBF16() ? NVVM::MMATypes::bf16
                                           : NVVM::MMATypes::f16;
  // The operation has f16 as pairs of elements, other types as words.
  auto operands = [&](ArrayRef<Value> words) {
    return llvm::map_to_vector(words, [&](Value word) -> Value {
      return element.isF16() ? LLVM::BitcastOp::create(b, loc, VectorType::get({2}, element), word).getResult() : word;
    });
  };
  SmallVector<Value> left = operands(a), columns = operands(right);
  int64_t shape[] = {kRows, kColumns, element.isF32() ? 8 : 16};
  auto op = NVVM::MmaOp::create(b, loc, type, left, columns, sums, shape, std::nullopt, std::nullopt,
                                std::array<NVVM::MMATypes, 2>{kind, kind},
                                std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
  SmallVector<Value> out;
  for (int64_t i = 0; i < 4; ++i)
    out.push_back(LLVM::ExtractValueOp::create(b, loc, op.getRes(), i));
  return out;
}

SmallVector<Value> MatrixUnit::multiply(ArrayRef<Fragment> rows, ArrayRef<Fragment> columns, ValueRange sums) {
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  SmallVector<Value> out = isExact() ? SmallVector<Value>(sums) : SmallVector<Value>(sums.size(), zero);
  auto all = [&](unsigned leftPart, unsigned rightPart, unsigned first) {
    for (size_t i = 0; i < rows.size(); i += 2)
      for (auto [j, column] : llvm::enumerate(columns)) {
        ArrayRef<Value> upper = rows[i].parts[leftPart], lower = rows[i + 1].parts[leftPart];
        ArrayRef<Value> right = column.parts[rightPart];
        if (right.empty())
          continue;
        MutableArrayRef<Value> own = MutableArrayRef<Value>(out).slice((i / 2 * columns.size() + j) * 4, 4);
        SmallVector<Value> next =
            instruction({upper[first], lower[first], upper[first + 1], lower[first + 1]}, right.slice(first, 2), own);
        llvm::copy(next, own.begin());
      }
  };
  for (unsigned first : {0, 2}) {
    if (!isExact()) {
      all(1, 0, first);
      all(0, 1, first);
    }
    all(0, 0, first);
  }
  if (!isExact())
    for (auto [sum, before] : llvm::zip(out, sums))
      sum = arith::AddFOp::create(b, loc, before, sum);
  return out;
}

SmallVector<Value> MatrixUnit::loadTransposed(Value address) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getI32Type()));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  Value all =
      NVVM::LdMatrixOp::create(b, loc, type, address, 4, NVVM::MMALayout::col, shape, NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> out;
  for (int64_t i = 0; i < 4; ++i)
    out.push_back(LLVM::ExtractValueOp::create(b, loc, all, i));
  return out;
}
