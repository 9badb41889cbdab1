//===- EmitDepthwise.cpp - convolutions of each channel by itself ---------===//
//
// A kernel of kind convolution whose weights have one filter for each channel. Vectors run along the channels:
//
//   for each task: its chunk of an image, panel of channels
//     for each line of the chunk, vector of channels
//       up to 8 neighbouring positions at a time, while no tap falls outside the line
//         for each line of the kernel inside the image, each of its taps
//           8 sums += 8 vectors of the input * one vector of weights
//         8 epilogues from registers
//       the others one by one, with each tap tested
//
// Where the positions of a line are neighbours in memory and channels are not, vectors run along the lines instead:
//
//   for each task: its chunk of an image, panel of channels
//     for each channel, 4 lines of the chunk
//       2 neighbouring vectors of positions at a time, while no tap falls outside the line
//         for each line of the input that they read, each tap
//           2 vectors of the input, for each of the 4 lines that reads them: 2 sums += 2 vectors * one weight
//         8 epilogues from registers
//       the others one by one, with a mask for each tap
//
// There is little work for each element, so that a copy with zeros around it would cost too much.
// Where the input is computed from a narrower one, as of codes, that is read, and widened in registers.
//
// Test: test/lit/CPU/convolution.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ConvolutionInput.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <map>

using namespace mlir;
using namespace mlir::disc;

namespace {
/// Kernels of up to this many taps in a line have them unrolled.
constexpr int64_t maxUnrolled = 15;
/// Kernels of up to this many taps in a plane have all of them unrolled for several lines.
constexpr int64_t maxUnrolledTaps = 64;

class DepthwiseEmitter {
public:
  DepthwiseEmitter(KernelEmission &e, const ConvolutionInfo &own)
      : e(e), b(e.builder), info(own), m{e.builder, e.kernel.getLoc()}, acc(info.accumulator),
        lanes(e.vectorBits / int64_t(acc.getIntOrFloatBitWidth())),
        points(e.builder, e.kernel, e.args(), lanes, e.shapes), chunks(e, points, m, info),
        vectors(e.schedule<ConvolutionScheduleAttr>().getColumns() / lanes), sumType(VectorType::get({lanes}, acc)) {}

  LogicalResult emit();

private:
  using Axis = ConvolutionInfo::Axis;
  /// The taps of an axis that meet an element of the input.
  struct Taps {
    Value begin, end;
  };

  /// The positions of a line from `begin` to `end`; none of those from `first` to `last` has a tap outside the line.
  struct Inside {
    Value begin, end, first, last;
  };

  bool unrolls() const;
  bool isAlongLines() const;
  Inside inside(const ConvolutionChunk &chunk);
  void emitChannel(const ConvolutionChunk &chunk, Value weights, Value channel);
  int64_t sharedLines() const;
  void emitAlong(const ConvolutionChunk &chunk, Value line, Value lines, Value position, int64_t count, Value weights,
                 Value channel, Value tail);
  Value columnMask(Value column);
  void emitVector(const ConvolutionChunk &chunk, Value line, Value weights, Value channel);
  void emitLine(const ConvolutionChunk &chunk, Value line, Value weights, Idx channel, Value mask);
  void emitInside(const ConvolutionChunk &chunk, Value line, Value position, int64_t count, Value weights, Idx channel,
                  Value mask);
  void emitTested(const ConvolutionChunk &chunk, Value line, Value position, Value weights, Idx channel, Value mask);
  void finish(const ConvolutionChunk &chunk, Value line, Idx position, Idx channel, Value mask, Value sum);
  Taps taps(const Axis &axis, Value output);
  Value inputAt(const Axis &axis, Value output, Value tap);
  Value stride(const Axis &axis) {
    return axis.dim < 0 ? m.constant(0) : points.expr(buffer->layout.strides[axis.dim]);
  }
  Value load(Value offset, Idx channel, Value mask);
  Value input(const Idx &at, Value mask);
  Value weight(Value weights, Value tap, bool lanesDiffer = true);
  Value widen(Value v, Type from);
  Value multiplyAdd(Value x, Value w, Value sum);
  Value zero() { return points.constant(cast<TypedAttr>(b.getZeroAttr(sumType))); }
  Location loc() { return m.loc; }

  KernelEmission &e;
  OpBuilder &b;
  ConvolutionInfo info;
  IndexMath m;
  Type acc;
  int64_t lanes;
  PointEmitter points;
  ConvolutionChunks chunks;
  int64_t vectors;
  VectorType sumType;
  Value memory; // the input, or what it is computed from
  std::optional<BufferOperand> buffer;
  bool failedInside = false;
};

LogicalResult DepthwiseEmitter::emit() {
  memory = info.op.getInput();
  if (auto widening = memory.getDefiningOp<linalg::GenericOp>())
    memory = widening.getDpsInputs()[0];
  buffer = BufferOperand::get(e.kernel, memory, e.shapes);
  auto panels = BufferOperand::get(e.kernel, info.panels.getSource(), e.shapes);
  if (!buffer || !panels)
    return info.op.emitError("input and panels of a convolution must be in buffers");
  Value channels = points.expr(info.groups), one = m.constant(1);
  Value taps = points.expr(info.z().kernel * info.h().kernel * info.w().kernel);
  int64_t width = vectors * lanes;
  Value panelCount = m.ceilDiv(channels, m.constant(width));
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), one, {}, [&](Value task, ValueRange) {
    PointEmitter::Scope scope(points);
    Value panel = m.rem(task, panelCount);
    ConvolutionChunk chunk = chunks.locate(m.div(task, panelCount));
    Value offset = m.add(points.expr(panels->layout.offset), m.mul(m.mul(panel, taps), width));
    Value weights = m.advance(points.operandPtr(panels->argument), m.mul(offset, byteSize(info.weightElement)));
    if (isAlongLines()) {
      Value first = m.mul(panel, width), last = m.min(m.add(first, m.constant(width)), channels);
      emitFor(b, loc(), first, last, one, {}, [&](Value channel, ValueRange) {
        PointEmitter::Scope inner(points);
        Value own = m.advance(weights, m.mul(m.sub(channel, first), byteSize(info.weightElement)));
        emitChannel(chunk, own, channel);
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    }
    // All channels of the panel for one line: what they read are neighbours, which come from far together.
    Value lastLine = m.add(chunk.firstLine, chunk.lines);
    emitFor(b, loc(), chunk.firstLine, lastLine, one, {}, [&](Value line, ValueRange) {
      PointEmitter::Scope inner(points);
      for (int64_t v = 0; v < vectors; ++v) {
        Value own = m.advance(weights, m.constant(v * lanes * byteSize(info.weightElement)));
        emitVector(chunk, line, own, m.add(m.mul(panel, width), m.constant(v * lanes)));
      }
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
  return failure(failedInside);
}

/// A line for a vector of channels from `channel` on, of which fewer may be there.
void DepthwiseEmitter::emitVector(const ConvolutionChunk &chunk, Value line, Value weights, Value channel) {
  Idx lane(channel, /*lanes=*/true, 1, lanes);
  if (e.shapes.divisible(info.groups, vectors * lanes))
    return emitLine(chunk, line, weights, lane, {});
  Value left = m.sub(points.expr(info.groups), channel), whole = m.less(m.constant(lanes - 1), left);
  emitIf(b, loc(), whole, {}, [&] {
    PointEmitter::Scope inner(points);
    emitLine(chunk, line, weights, lane, {});
    return SmallVector<Value>();
  });
  Value some = arith::AndIOp::create(b, loc(), m.less(m.constant(0), left), m.less(left, m.constant(lanes)));
  emitIf(b, loc(), some, {}, [&] {
    PointEmitter::Scope inner(points);
    emitLine(chunk, line, weights, lane, points.tailMask(left));
    return SmallVector<Value>();
  });
}

bool DepthwiseEmitter::unrolls() const {
  const Axis &w = info.axes.back();
  return w.kernel.isConstant() && w.kernel.constant() <= maxUnrolled &&
         llvm::none_of(info.axes, [](const Axis &a) { return a.inputDilation != 1; });
}

bool DepthwiseEmitter::isAlongLines() const {
  ArrayRef<SymExpr> strides = buffer->layout.strides;
  int dim = info.axes.back().dim;
  return unrolls() && dim >= 0 && strides[dim].isConstant(1) && !strides.back().isConstant(1);
}

DepthwiseEmitter::Inside DepthwiseEmitter::inside(const ConvolutionChunk &chunk) {
  const Axis &w = info.w();
  Value begin = chunk.firstPosition, end = m.add(chunk.firstPosition, chunk.positions);
  Value first = m.constant(w.low > 0 ? llvm::divideCeil(w.low, w.stride) : 0);
  Value room =
      m.sub(m.add(points.expr(w.input), m.constant(w.low)), m.constant((w.kernel.constant() - 1) * w.dilation));
  Value last = m.ceilDiv(m.max(room, m.constant(0)), m.constant(w.stride));
  first = m.min(m.max(first, begin), end), last = m.max(m.min(last, end), first);
  return {begin, end, first, last};
}

/// How many lines share what they read.
int64_t DepthwiseEmitter::sharedLines() const {
  const Axis &h = info.axes[1];
  bool few = h.kernel.isConstant() && h.kernel.constant() * info.axes.back().kernel.constant() <= maxUnrolledTaps;
  return few && !h.output.isConstant(1) ? 4 : 1;
}

/// All lines of the chunk for one channel.
void DepthwiseEmitter::emitChannel(const ConvolutionChunk &chunk, Value weights, Value channel) {
  Value lastLine = m.add(chunk.firstLine, chunk.lines);
  emitFor(b, loc(), chunk.firstLine, lastLine, m.constant(sharedLines()), {}, [&](Value line, ValueRange) {
    PointEmitter::Scope scope(points);
    Value lines = m.sub(lastLine, line);
    Inside span = inside(chunk);
    auto vectorsOf = [&](Value from, Value to, int64_t count, bool edge) {
      emitFor(b, loc(), from, to, m.constant(count * lanes), {}, [&](Value position, ValueRange) {
        PointEmitter::Scope inner(points);
        Value tail = edge ? points.tailMask(m.min(m.sub(span.end, position), m.constant(lanes))) : Value();
        emitAlong(chunk, line, lines, position, count, weights, channel, tail);
        return SmallVector<Value>();
      });
    };
    Value before = m.mul(m.ceilDiv(m.sub(span.first, span.begin), m.constant(lanes)), lanes);
    Value at = m.min(m.add(span.begin, before), span.end);
    vectorsOf(span.begin, at, 1, /*edge=*/true);
    for (int64_t count : {sharedLines() == 1 ? 4 : 2, 1}) {
      Value room = m.max(m.sub(span.last, at), m.constant(0));
      Value stop = m.add(at, m.mul(m.div(room, m.constant(count * lanes)), count * lanes));
      vectorsOf(at, stop, count, /*edge=*/false);
      at = stop;
    }
    vectorsOf(at, span.end, 1, /*edge=*/true);
    return SmallVector<Value>();
  });
}

/// The lanes whose element, the first of which is `column`, is in the line.
Value DepthwiseEmitter::columnMask(Value column) {
  int64_t step = info.w().stride, reach = lanes * step;
  SmallVector<int32_t> steps;
  for (int64_t i = 0; i < lanes; ++i)
    steps.push_back(int32_t(i * step));
  auto type = VectorType::get({lanes}, b.getI32Type());
  Value lane = points.constant(DenseElementsAttr::get(type, ArrayRef<int32_t>(steps)));
  auto bound = [&](Value v) {
    v = m.min(m.max(v, m.constant(0)), m.constant(reach)); // 32 bits are enough then
    return vector::BroadcastOp::create(b, loc(), type, arith::IndexCastOp::create(b, loc(), b.getI32Type(), v));
  };
  Value low = bound(m.sub(m.constant(0), column)), high = bound(m.sub(points.expr(info.w().input), column));
  Value right = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::sge, lane, low);
  Value left = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::slt, lane, high);
  return arith::AndIOp::create(b, loc(), right, left);
}

/// `count` vectors of positions of a channel, in as many lines as share what they read, of which `lines` are there.
/// With `tail`, the lanes that are stored, any tap may fall outside the line.
void DepthwiseEmitter::emitAlong(const ConvolutionChunk &chunk, Value line, Value lines, Value position, int64_t count,
                                 Value weights, Value channel, Value tail) {
  const Axis &z = info.z(), &h = info.h(), &w = info.w();
  int64_t across = w.kernel.constant(), shared = sharedLines();
  Value own = m.mul(channel, points.expr(buffer->layout.strides.back()));
  Value image = m.add(m.add(points.expr(buffer->layout.offset), own),
                      m.mul(chunk.image, points.expr(buffer->layout.strides.front())));
  Value column = inputAt(w, position, m.constant(0)), one = m.constant(1);
  SmallVector<Value> masks(across);
  for (int64_t tap = 0; tail && tap < across; ++tap)
    masks[tap] = columnMask(m.add(column, m.constant(tap * w.dilation)));

  struct Reader {
    int64_t line; // which of the shared ones
    Value down;   // the line of the kernel that reads for it
  };
  // Sums of lines, each of which has a vector for each of `count`.
  auto addRow = [&](Value plane, Value kz, Value index, ArrayRef<Reader> readers, ValueRange sums) {
    PointEmitter::Scope scope(points);
    Value row = m.add(m.add(plane, m.mul(index, stride(h))), column);
    SmallVector<Value> next(sums);
    for (int64_t tap = 0; tap < across; ++tap) {
      SmallVector<Value> read;
      for (int64_t i = 0; i < count; ++i) {
        Value start = m.add(row, m.constant(i * lanes * w.stride + tap * w.dilation));
        read.push_back(input(Idx(start, /*lanes=*/true, w.stride), masks[tap]));
      }
      for (const Reader &reader : readers) {
        Value firstTap = m.mul(m.add(m.mul(kz, points.expr(h.kernel)), reader.down), across);
        Value right = weight(weights, m.add(firstTap, m.constant(tap)), /*lanesDiffer=*/false);
        for (int64_t i = 0; i < count; ++i) {
          Value &sum = next[reader.line * count + i];
          sum = multiplyAdd(read[i], right, sum);
        }
      }
    }
    return next;
  };

  Taps deep = taps(z, chunk.z);
  SmallVector<Value> sums(shared * count, zero());
  sums = emitFor(b, loc(), deep.begin, deep.end, one, sums, [&](Value kz, ValueRange outer) {
    Value plane = m.add(image, m.mul(inputAt(z, chunk.z, kz), stride(z)));
    if (shared == 1) {
      Taps down = taps(h, line);
      return emitFor(b, loc(), down.begin, down.end, one, outer, [&](Value kh, ValueRange inner) {
        return addRow(plane, kz, inputAt(h, line, kh), Reader{0, kh}, inner);
      });
    }
    std::map<int64_t, SmallVector<Reader>> rows; // any number may be a key
    for (int64_t i = 0; i < shared; ++i)
      for (int64_t kh = 0; kh < h.kernel.constant(); ++kh)
        rows[i * h.stride + kh * h.dilation].push_back({i, m.constant(kh)});
    Value top = inputAt(h, line, m.constant(0));
    SmallVector<Value> next(outer);
    for (const auto &[down, readers] : rows) {
      Value index = m.add(top, m.constant(down));
      Value there = arith::AndIOp::create(b, loc(), m.less(m.constant(-1), index), m.less(index, points.expr(h.input)));
      ArrayRef<Reader> by = readers;
      next = emitIf(b, loc(), there, next, [&] { return addRow(plane, kz, index, by, next); });
    }
    return next;
  });
  for (int64_t j = 0; j < shared; ++j) {
    auto finishLine = [&, j] {
      PointEmitter::Scope scope(points);
      for (int64_t i = 0; i < count; ++i) {
        Idx at(m.add(position, m.constant(i * lanes)), /*lanes=*/true);
        finish(chunk, m.add(line, m.constant(j)), at, points.uniform(channel), tail, sums[j * count + i]);
      }
      return SmallVector<Value>();
    };
    if (j == 0)
      finishLine();
    else
      emitIf(b, loc(), m.less(m.constant(j), lines), {}, finishLine);
  }
}

void DepthwiseEmitter::emitLine(const ConvolutionChunk &chunk, Value line, Value weights, Idx channel, Value mask) {
  Value one = m.constant(1);
  auto tested = [&](Value from, Value to) {
    emitFor(b, loc(), from, to, one, {}, [&](Value position, ValueRange) {
      PointEmitter::Scope scope(points);
      emitTested(chunk, line, position, weights, channel, mask);
      return SmallVector<Value>();
    });
  };
  if (!unrolls())
    return tested(chunk.firstPosition, m.add(chunk.firstPosition, chunk.positions));
  Inside span = inside(chunk);
  tested(span.begin, span.first);
  Value at = span.first;
  for (int64_t count : {8, 4, 1}) {
    Value stop = m.add(at, m.mul(m.div(m.sub(span.last, at), m.constant(count)), count));
    emitFor(b, loc(), at, stop, m.constant(count), {}, [&](Value position, ValueRange) {
      PointEmitter::Scope scope(points);
      emitInside(chunk, line, position, count, weights, channel, mask);
      return SmallVector<Value>();
    });
    at = stop;
  }
  tested(span.last, span.end);
}

DepthwiseEmitter::Taps DepthwiseEmitter::taps(const Axis &axis, Value output) {
  Value zero = m.constant(0), count = points.expr(axis.kernel), step = m.constant(axis.dilation);
  Value start = m.sub(m.mul(output, axis.stride), m.constant(axis.low));
  Value begin = m.min(m.ceilDiv(m.max(m.sub(zero, start), zero), step), count);
  Value end = m.min(m.ceilDiv(m.max(m.sub(points.expr(axis.input), start), zero), step), count);
  return {begin, m.max(begin, end)};
}

Value DepthwiseEmitter::inputAt(const Axis &axis, Value output, Value tap) {
  return m.sub(m.add(m.mul(output, axis.stride), m.mul(tap, axis.dilation)), m.constant(axis.low));
}

Value DepthwiseEmitter::widen(Value v, Type from) {
  if (from == acc)
    return v;
  if (isa<FloatType>(acc))
    return arith::ExtFOp::create(b, loc(), sumType, v);
  return arith::ExtSIOp::create(b, loc(), sumType, v);
}

/// A vector of channels of the input at `offset` (elements).
Value DepthwiseEmitter::load(Value offset, Idx channel, Value mask) {
  Idx at = points.addIdx(points.mulIdx(channel, buffer->layout.strides.back()), points.uniform(offset));
  return input(at, mask);
}

/// A vector of the input, computed from what is in memory if that is narrower; 0 where it is masked.
Value DepthwiseEmitter::input(const Idx &at, Value mask) {
  Value v = points.load(points.operandPtr(buffer->argument), at, getElementTypeOrSelf(memory.getType()), mask);
  if (memory == info.op.getInput())
    return widen(v, info.inputElement);
  PointEmitter::Scope scope(points);
  points.bind(memory, [v](ArrayRef<Idx>, Value) -> Value { return v; });
  SmallVector<Idx> point(cast<RankedTensorType>(memory.getType()).getRank(), points.uniform(int64_t(0)));
  point.back() = at; // Any will do that runs along the lanes.
  Value wide = points.eval(info.op.getInput(), point);
  points.unbind(memory);
  if (!wide) {
    failedInside = true;
    return zero();
  }
  wide = widen(wide, info.inputElement);
  return mask ? arith::SelectOp::create(b, loc(), mask, wide, zero()).getResult() : wide;
}

Value DepthwiseEmitter::weight(Value weights, Value tap, bool lanesDiffer) {
  Idx at(m.mul(tap, vectors * lanes), lanesDiffer);
  Value loaded = points.load(weights, at, info.weightElement);
  if (!lanesDiffer)
    loaded = vector::BroadcastOp::create(b, loc(), VectorType::get({lanes}, info.weightElement), loaded);
  return widen(loaded, info.weightElement);
}

Value DepthwiseEmitter::multiplyAdd(Value x, Value w, Value sum) {
  if (isa<FloatType>(acc))
    return math::FmaOp::create(b, loc(), x, w, sum);
  return arith::AddIOp::create(b, loc(), arith::MulIOp::create(b, loc(), x, w), sum);
}

void DepthwiseEmitter::emitInside(const ConvolutionChunk &chunk, Value line, Value position, int64_t count,
                                  Value weights, Idx channel, Value mask) {
  const Axis &z = info.z(), &h = info.h(), &w = info.w();
  Taps deep = taps(z, chunk.z), down = taps(h, line);
  int64_t across = w.kernel.constant();
  Value image =
      m.add(points.expr(buffer->layout.offset), m.mul(chunk.image, points.expr(buffer->layout.strides.front())));
  Value start = m.add(image, m.mul(inputAt(w, position, m.constant(0)), stride(w)));
  Value one = m.constant(1);
  SmallVector<Value> sums(count, zero());
  sums = emitFor(b, loc(), deep.begin, deep.end, one, sums, [&](Value kz, ValueRange outer) {
    Value plane = m.add(start, m.mul(inputAt(z, chunk.z, kz), stride(z)));
    return emitFor(b, loc(), down.begin, down.end, one, outer, [&](Value kh, ValueRange inner) {
      PointEmitter::Scope scope(points);
      Value row = m.add(plane, m.mul(inputAt(h, line, kh), stride(h)));
      Value firstTap = m.mul(m.add(m.mul(kz, points.expr(h.kernel)), kh), across);
      SmallVector<Value> next(inner);
      // What neighbouring positions share is loaded once.
      std::map<int64_t, Value> loaded; // any number may be a key
      for (int64_t tap = 0; tap < across; ++tap) {
        Value right = weight(weights, m.add(firstTap, m.constant(tap)));
        for (int64_t i = 0; i < count; ++i) {
          int64_t column = i * w.stride + tap * w.dilation;
          Value &x = loaded[column];
          if (!x)
            x = load(m.add(row, m.mul(stride(w), column)), channel, mask);
          next[i] = multiplyAdd(x, right, next[i]);
        }
      }
      return next;
    });
  });
  for (int64_t i = 0; i < count; ++i)
    finish(chunk, line, m.add(position, m.constant(i)), channel, mask, sums[i]);
}

/// One position, any of whose taps may fall outside the input or between its elements.
void DepthwiseEmitter::emitTested(const ConvolutionChunk &chunk, Value line, Value position, Value weights, Idx channel,
                                  Value mask) {
  Value image =
      m.add(points.expr(buffer->layout.offset), m.mul(chunk.image, points.expr(buffer->layout.strides.front())));
  std::array<Value, 3> outputs{chunk.z, line, position};
  std::function<Value(unsigned, Value, Value, Value)> over = [&](unsigned depth, Value offset, Value tap,
                                                                 Value sum) -> Value {
    if (depth == 3)
      return multiplyAdd(load(offset, channel, mask), weight(weights, tap), sum);
    const Axis &axis = info.axes[depth];
    Value kernel = points.expr(axis.kernel);
    bool sparse = axis.inputDilation != 1;
    Taps range = sparse ? Taps{m.constant(0), kernel} : taps(axis, outputs[depth]);
    return emitFor(b, loc(), range.begin, range.end, m.constant(1), sum, [&](Value k, ValueRange carried) {
      PointEmitter::Scope scope(points);
      Value at = inputAt(axis, outputs[depth], k), next = m.add(m.mul(tap, kernel), k);
      auto inner = [&](Value index) {
        return over(depth + 1, m.add(offset, m.mul(index, stride(axis))), next, carried[0]);
      };
      if (!sparse)
        return SmallVector<Value>{inner(at)};
      Value none = m.constant(0), apart = m.constant(axis.inputDilation), bounded = m.max(at, none);
      Value index = m.div(bounded, apart);
      Value inside = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::sge, at, none);
      inside = arith::AndIOp::create(b, loc(), inside, m.equal(m.rem(bounded, apart), none));
      inside = arith::AndIOp::create(b, loc(), inside, m.less(index, points.expr(axis.input)));
      return emitIf(b, loc(), inside, carried, [&] {
        PointEmitter::Scope branch(points);
        return SmallVector<Value>{inner(index)};
      });
    })[0];
  };
  finish(chunk, line, position, channel, mask, over(0, image, m.constant(0), zero()));
}

void DepthwiseEmitter::finish(const ConvolutionChunk &chunk, Value line, Idx position, Idx channel, Value mask,
                              Value sum) {
  PointEmitter::Scope scope(points);
  SmallVector<Idx> point = convolutionPoint(points, info, chunk, line, position, channel);
  failedInside |= failed(storeConvolution(e, points, info.op.getResult(), point, mask,
                                          [sum](ArrayRef<Idx>, Value) -> Value { return sum; }));
}
} // namespace

LogicalResult disc::emitDepthwise(KernelEmission &e, const ConvolutionInfo &info) {
  return DepthwiseEmitter(e, info).emit();
}
