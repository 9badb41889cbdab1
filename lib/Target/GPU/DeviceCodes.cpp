//===- DeviceCodes.cpp - quantised weights as a matrix unit multiplies them ===//

#include "lib/Target/GPU/DeviceCodes.h"

#include "lib/Target/Common/TileLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

std::unique_ptr<DeviceCodes> DeviceCodes::get(DeviceKernel &k, PointEmitter &points, Value operand) {
  auto op = operand.getDefiningOp<UnpackFragmentsOp>();
  if (!op)
    return {};
  // All three are in memory as they are: globals of the model.
  std::unique_ptr<DeviceCodes> out(new DeviceCodes(k));
  bool constant = true;
  auto address = [&](Value v) -> Value {
    auto buffer = v ? BufferOperand::get(k.kernel, v, k.shapes) : std::nullopt;
    if (!buffer)
      return {};
    constant &= k.isConstant(buffer->argument);
    Value first = points.operandPtr(buffer->argument);
    return k.m.advance(first, k.m.mul(points.expr(buffer->layout.offset), 4));
  };
  out->codes = address(op.getSource());
  out->scales = address(op.getScales());
  out->zeros = address(op.getZeros());
  out->constant = constant;
  out->bits = op.getBits(), out->block = op.getBlock(), out->groups = op.getGroups(), out->zero = op.getZero();
  out->depth = op.extent(op.getKDims()), out->columns = op.extent(op.getNDims());
  out->type = getElementTypeOrSelf(op.getResult().getType());
  return out;
}

Value DeviceCodes::i32(int64_t v) {
  return arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(static_cast<int32_t>(v)));
}

Value DeviceCodes::f32(double v) {
  return arith::ConstantOp::create(b, k.loc, b.getF32FloatAttr(static_cast<float>(v)));
}

Value DeviceCodes::fragmentAddress(Value batch, Value tile) {
  Value fragment = m.mul(m.add(m.mul(batch, tiles()), tile), blocks());
  return m.advance(codes, m.mul(fragment, kFragmentBytes));
}

Value DeviceCodes::paneAddress(Value pane, Value batch, Value tile) {
  return m.advance(pane, m.add(m.mul(batch, groups * groupBytes()), m.mul(tile, 4 * kColumns)));
}

Value DeviceCodes::scaleOrZero(Value pane, Value batch, Value column, Value group) {
  Value bytes = m.add(m.mul(m.add(m.mul(batch, groups), group), groupBytes()), m.mul(column, 4));
  return LLVM::LoadOp::create(b, k.loc, b.getF32Type(), m.advance(pane, bytes), 4);
}

Value DeviceCodes::wordAddress(Value batch, Value column, Value position, Value word) {
  Value size = m.constant(block), eight = m.constant(8);
  Value thread = m.div(m.rem(position, m.constant(kRun)), eight);
  Value lane = m.add(m.mul(m.rem(column, eight), 4), thread);
  Value bytes = m.add(m.mul(m.div(position, size), kFragmentBytes), m.mul(m.add(m.mul(lane, 4), word), 4));
  return m.advance(fragmentAddress(batch, m.div(column, eight)), bytes);
}

namespace {
/// 2^23: integers below it are the lowest bits of floats from it on.
constexpr int64_t kMagic = int64_t(1) << 23, kMagicBits = 0x4b000000;
} // namespace

Value DeviceCodes::base(Value zero) {
  return zero ? arith::AddFOp::create(b, k.loc, zero, f32(kMagic)).getResult() : f32(double(kMagic + commonZero()));
}

Value DeviceCodes::number(Value word, Value shift, Value base) {
  Value code = arith::ShRUIOp::create(b, k.loc, word, shift);
  code = arith::AndIOp::create(b, k.loc, code, i32((1 << bits) - 1));
  code = arith::OrIOp::create(b, k.loc, code, i32(kMagicBits));
  Value shifted = arith::BitcastOp::create(b, k.loc, b.getF32Type(), code);
  return arith::SubFOp::create(b, k.loc, shifted, base);
}

/// The bit of a word from which code `i` of eight of a run begins.
static int64_t shiftOf(int64_t i, int64_t bits) { return i % 2 * 16 + i % (32 / bits) / 2 * bits; }

SmallVector<MatrixUnit::Fragment> DeviceCodes::numbers(MatrixUnit &unit, Value words, int64_t run, Value zero) {
  int64_t perRun = bits / 4; // words
  SmallVector<Value> own;
  for (int64_t i = 0; i < perRun; ++i)
    own.push_back(vector::ExtractOp::create(b, k.loc, words, run * perRun + i));

  // Two numbers in a word at once, where code and zero are exact beside 1024 or 128.
  int64_t magic = type.isF16() ? 1024 : 128, magicBits = type.isF16() ? 0x64006400 : 0x43004300;
  bool isExact = type.isF16() || (type.isBF16() && bits == 4);
  if (isExact && !zero && commonZero() >= 0 && commonZero() <= magic) {
    MatrixUnit::Fragment out;
    auto pair = VectorType::get({2}, type);
    Value both = arith::ConstantOp::create(
        b, k.loc, DenseElementsAttr::get(pair, b.getFloatAttr(type, double(magic + commonZero()))));
    for (int64_t i = 0; i < 8; i += 2) {
      Value word = own[i * bits / 32];
      if (int64_t shift = shiftOf(i, bits))
        word = arith::ShRUIOp::create(b, k.loc, word, i32(shift));
      word = arith::AndIOp::create(b, k.loc, word, i32(((1 << bits) - 1) * 0x10001));
      word = arith::OrIOp::create(b, k.loc, word, i32(magicBits));
      Value numbers = LLVM::BitcastOp::create(b, k.loc, pair, word);
      numbers = arith::SubFOp::create(b, k.loc, numbers, both);
      out.parts[0].push_back(LLVM::BitcastOp::create(b, k.loc, b.getI32Type(), numbers));
    }
    return {out};
  }

  SmallVector<Value> floats;
  Value base = this->base(zero);
  for (int64_t i = 0; i < 8; ++i)
    floats.push_back(number(own[i * bits / 32], i32(shiftOf(i, bits)), base));
  SmallVector<MatrixUnit::Fragment> out;
  if (!type.isF32()) {
    out.emplace_back();
    for (int64_t i = 0; i < 8; i += 2) {
      Value two = vector::FromElementsOp::create(b, k.loc, VectorType::get({2}, b.getF32Type()),
                                                 ValueRange{floats[i], floats[i + 1]});
      Value narrow = arith::TruncFOp::create(b, k.loc, VectorType::get({2}, type), two);
      out[0].parts[0].push_back(LLVM::BitcastOp::create(b, k.loc, b.getI32Type(), narrow));
    }
    return out;
  }
  // The unit reads 11 bits: enough for codes less a zero of as many.
  bool isSmall = !zero && commonZero() >= -1024 && commonZero() <= 1024;
  for (int64_t i = 0; i < 8; ++i) {
    if (i % 4 == 0)
      out.emplace_back();
    Value word = arith::BitcastOp::create(b, k.loc, b.getI32Type(), floats[i]);
    if (isSmall) {
      out.back().parts[0].push_back(word);
      continue;
    }
    auto [high, low] = unit.split(word);
    out.back().parts[0].push_back(high);
    out.back().parts[1].push_back(low);
  }
  return out;
}

Value DeviceCodes::chunk(MatrixUnit &unit, Value batch, Value column, Value position) {
  // The last block is whole, whatever the depth is.
  position = m.min(position, m.constant(blocks() * block - unit.chunk()));
  Value run = m.div(m.rem(position, m.constant(block)), m.constant(kRun)), half = m.rem(position, m.constant(8));
  Value group = m.min(m.div(position, m.constant(groupSize())), m.constant(groups - 1));
  Value scale = scaleOrZero(scales, batch, column, group);
  Value base = this->base(zeros ? scaleOrZero(zeros, batch, column, group) : Value());
  // Of f32 a chunk is the first or second half of eight values: the upper ones are in the same places of the second
  // word, or further up in the only one.
  int64_t perRun = bits / 4;
  SmallVector<Value> words;
  for (int64_t i = 0; i * 32 / bits < unit.chunk(); ++i) {
    Value word = m.add(m.mul(run, perRun), m.constant(i));
    if (perRun > 1 && unit.chunk() < 8)
      word = m.add(word, m.div(half, m.constant(4)));
    words.push_back(LLVM::LoadOp::create(b, k.loc, b.getI32Type(), wordAddress(batch, column, position, word), 4));
  }
  if (perRun == 1 && unit.chunk() < 8) {
    Value shift = arith::IndexCastOp::create(b, k.loc, b.getI32Type(), m.mul(half, 2));
    words[0] = arith::ShRUIOp::create(b, k.loc, words[0], shift);
  }
  return unit.pack(elements(words, 0, unit.chunk(), base, scale));
}

SmallVector<Value> DeviceCodes::elements(ArrayRef<Value> words, int64_t first, int64_t count, Value base, Value scale) {
  SmallVector<Value> out;
  for (int64_t i = first; i < first + count; ++i) {
    Value v = number(words[i * bits / 32], i32(shiftOf(i, bits)), base);
    v = arith::MulFOp::create(b, k.loc, v, scale);
    out.push_back(type.isF32() ? v : arith::TruncFOp::create(b, k.loc, type, v).getResult());
  }
  return out;
}

Value DeviceCodes::decodedLine(Value memory, Value batch, Value column) {
  Value line = m.add(m.mul(batch, columns), column);
  return m.advance(memory, m.mul(line, depth * (type.isF32() ? 4 : 2)));
}

void DeviceCodes::decode(MatrixUnit &unit, Value memory, Value batches, Value number) {
  Value lanes = m.constant(4 * kColumns), four = m.constant(4);
  Value lane = m.rem(number, lanes), fragment = m.div(number, lanes), perTile = m.constant(blocks());
  Value tile = m.div(fragment, perTile), perBatch = m.constant(tiles());
  Value batch = m.div(tile, perBatch);
  Value column = m.add(m.mul(m.rem(tile, perBatch), kColumns), m.div(lane, four));
  Value first = m.add(m.mul(m.rem(fragment, perTile), block), m.mul(m.rem(lane, four), 8));
  Value inside = arith::AndIOp::create(b, k.loc, m.less(batch, batches), m.less(column, m.constant(columns)));
  emitIf(b, k.loc, inside, {}, [&] {
    Value words = LLVM::LoadOp::create(b, k.loc, unit.chunkType(), m.advance(codes, m.mul(number, 16)), 16);
    Value line = decodedLine(memory, batch, column);
    for (int64_t run = 0; run < runs(); ++run) {
      Value position = m.add(first, m.constant(run * kRun));
      emitIf(b, k.loc, m.less(position, m.constant(depth)), {}, [&] {
        Value group = m.div(position, m.constant(groupSize()));
        Value scale = scaleOrZero(scales, batch, column, group);
        Value base = this->base(zeros ? scaleOrZero(zeros, batch, column, group) : Value());
        SmallVector<Value> own;
        for (int64_t i = 0; i < bits / 4; ++i)
          own.push_back(vector::ExtractOp::create(b, k.loc, words, run * bits / 4 + i));
        for (int64_t i = 0; i < 8; i += unit.chunk()) {
          Value chunk = unit.pack(elements(own, i, unit.chunk(), base, scale));
          Value at = m.advance(line, m.mul(m.add(position, m.constant(i)), type.isF32() ? 4 : 2));
          LLVM::StoreOp::create(b, k.loc, chunk, at, 16);
        }
        return SmallVector<Value>();
      });
    }
    return SmallVector<Value>();
  });
}

Value DeviceCodes::element(Value batch, Value column, Value position) {
  Value run = m.div(m.rem(position, m.constant(block)), m.constant(kRun)), i = m.rem(position, m.constant(8));
  Value perWord = m.constant(32 / bits), two = m.constant(2);
  Value word = m.add(m.mul(run, bits / 4), m.div(i, perWord));
  Value shift = m.add(m.mul(m.rem(i, two), 16), m.mul(m.div(m.rem(i, perWord), two), bits));
  Value group = m.div(position, m.constant(groupSize()));
  Value base = this->base(zeros ? scaleOrZero(zeros, batch, column, group) : Value());
  Value loaded = LLVM::LoadOp::create(b, k.loc, b.getI32Type(), wordAddress(batch, column, position, word), 4);
  Value v = number(loaded, arith::IndexCastOp::create(b, k.loc, b.getI32Type(), shift), base);
  v = arith::MulFOp::create(b, k.loc, v, scaleOrZero(scales, batch, column, group));
  return type.isF32() ? v : arith::TruncFOp::create(b, k.loc, type, v).getResult();
}
