//===- ConvolutionInput.cpp - what tasks of a convolution read ------------===//

#include "lib/Target/CPU/ConvolutionInput.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

static SymExpr atLeastOne(const SymExpr &e) { return SymExpr::max(e, SymExpr(1)); }

ConvolutionChunks::ConvolutionChunks(KernelEmission &e, PointEmitter &points, IndexMath &m, ConvolutionInfo &info)
    : m(m) {
  auto schedule = e.schedule<ConvolutionScheduleAttr>();
  int64_t tile = schedule.getRows();
  SymExpr chunkTiles = schedule.getChunkTiles().getValue();
  maxLines = schedule.getChunkRows().getValue();
  maxPositions = SymExpr::min(chunkTiles * SymExpr(tile), atLeastOne(info.w().output));
  depth = points.expr(info.z().output), lines = points.expr(info.h().output);
  Value positions = points.expr(info.w().output);
  tiles = m.max(m.ceilDiv(positions, m.constant(tile)), m.constant(1));
  down = m.ceilDiv(lines, points.expr(maxLines));
  across = m.ceilDiv(tiles, points.expr(chunkTiles));
  positionSplit.emplace(m, positions, tiles);
  // No lines, no chunks, and then no tasks: but their number is divided by.
  lineSplit.emplace(m, lines, m.max(down, m.constant(1)));
  tileSplit.emplace(m, tiles, across);
  SymExpr chunkImages = schedule.getChunkImages().getValue();
  if (chunkImages.isConstant(1))
    return;
  Value images = points.expr(info.batch);
  imageSplit.emplace(m, images, m.max(m.ceilDiv(images, points.expr(chunkImages)), m.constant(1)));
}

ConvolutionChunk ConvolutionChunks::locate(Value linear) {
  ConvolutionChunk c;
  Value x = m.rem(linear, across);
  linear = m.div(linear, across);
  Value y = m.rem(linear, down);
  linear = m.div(linear, down);
  c.z = m.rem(linear, depth);
  c.image = m.div(linear, depth), c.images = m.constant(1);
  if (imageSplit)
    std::tie(c.image, c.images) = std::make_pair(imageSplit->start(m, c.image), imageSplit->size(m, c.image));
  c.firstLine = lineSplit->start(m, y), c.lines = lineSplit->size(m, y);
  c.firstTile = tileSplit->start(m, x), c.endTile = m.add(c.firstTile, tileSplit->size(m, x));
  c.firstPosition = tileStart(c.firstTile);
  c.positions = m.sub(tileStart(c.endTile), c.firstPosition);
  return c;
}

SmallVector<Idx> disc::convolutionPoint(PointEmitter &points, ConvolutionInfo &info, const ConvolutionChunk &chunk,
                                        Value line, Idx position, Idx channel) {
  SmallVector<Idx> point(info.op.getSpatialRank() + 2);
  point.front() = points.uniform(chunk.image);
  for (auto [axis, at] : llvm::zip_equal(info.axes, std::array<Idx, 3>{chunk.z, line, position}))
    if (axis.dim >= 0)
      point[axis.dim] = at;
  point.back() = channel;
  return point;
}

LogicalResult disc::storeConvolution(KernelEmission &e, PointEmitter &points, Value result, ArrayRef<Idx> point,
                                     Value mask, PointEmitter::Computation sum) {
  points.bind(result, std::move(sum));
  // A result may take the memory of an operand that another is computed from.
  SmallVector<std::pair<SmallVector<Idx>, Value>> values;
  for (auto [i, yielded] : llvm::enumerate(e.kernel.getYield().getValues())) {
    FailureOr<SmallVector<Idx>> at = followResult(points, yielded, result, point);
    if (failed(at))
      return e.kernel.emitError("result ") << i << " of a convolution kernel is not over the convolution's domain";
    Value v = points.eval(yielded, *at, mask);
    if (!v)
      return failure();
    // A result without a dimension for the only channel: that channel is the first lane.
    if (isa<VectorType>(v.getType()) && llvm::all_of(*at, [](const Idx &index) { return index.isUniform(); })) {
      Value first = LLVM::ConstantOp::create(e.builder, v.getLoc(), e.builder.getI64IntegerAttr(0));
      v = LLVM::ExtractElementOp::create(e.builder, v.getLoc(), v, first);
    }
    values.emplace_back(*at, v);
  }
  for (auto [i, value] : llvm::enumerate(values))
    if (failed(points.store(i, value.first, value.second, mask)))
      return failure();
  points.unbind(result);
  return success();
}

ConvolutionInput::ConvolutionInput(KernelEmission &e, PointEmitter &points, IndexMath &m, ConvolutionInfo &info,
                                   ConvolutionChunks &chunks)
    : e(e), b(e.builder), points(points), m(m), info(info), chunks(chunks), element(info.inputElement),
      made(info.inputRead()) {}

LogicalResult ConvolutionInput::plan() {
  buffer = BufferOperand::get(e.kernel, info.op.getInput(), e.shapes);
  if (!buffer)
    return info.op.emitError("the input of a convolution must be in a buffer");
  ArrayRef<SymExpr> strides = buffer->layout.strides;
  linesOfTiles = e.schedule<ConvolutionScheduleAttr>().getLines();
  copied = linesOfTiles != LinesOfTiles::Apart || !info.isInside() || info.inputShift() != 0 || made != element ||
           isPadded() || !(strides.back().isConstant(1) || info.groupInputs.isConstant(1));
  if (!copied) {
    auto of = [&](const ConvolutionInfo::Axis &a) { return a.dim < 0 ? SymExpr(0) : strides[a.dim]; };
    zStride = of(info.z()), hStride = of(info.h()), wStride = of(info.w());
  } else {
    wStride = info.pixelInputs;
    hStride = info.w().window(chunks.maxPositions) * wStride;
    zStride = info.h().window(chunks.maxLines) * hStride;
  }
  // The copy holds a plane for each tap and none between them.
  zTap = copied ? zStride : zStride * SymExpr(info.z().dilation);
  hTap = hStride * SymExpr(info.h().dilation), lineStep = hStride * SymExpr(info.h().stride);
  wTap = wStride * SymExpr(info.w().dilation), step = wStride * SymExpr(info.w().stride);
  imageStep = info.z().kernel * zTap;
  joinedLine = info.w().window(chunks.maxPositions);
  if (linesOfTiles != LinesOfTiles::Merged)
    return success();
  // [taps of z, (of h,) of w, lines, positions, channels]
  step = info.pixelInputs, lineStep = info.w().output * step;
  wTap = info.mergedLines(chunks.maxLines) * lineStep;
  hTap = info.h().stride == 1 ? lineStep * SymExpr(info.h().dilation) : wTap * info.w().kernel;
  zTap = (info.h().stride == 1 ? SymExpr(1) : info.h().kernel) * info.w().kernel * wTap;
  imageStep = info.z().kernel * zTap;
  return success();
}

Value ConvolutionInput::stride(const ConvolutionInfo::Axis &axis) {
  return axis.dim < 0 ? m.constant(0) : points.expr(buffer->layout.strides[axis.dim]);
}

Value ConvolutionInput::pointer(const ConvolutionChunk &chunk, Value group) {
  if (copied)
    return m.advance(e.scratch(), points.expr(e.schedule<ConvolutionScheduleAttr>().getInputScratch().getValue()));
  ArrayRef<SymExpr> strides = buffer->layout.strides;
  Value offset = m.add(points.expr(buffer->layout.offset), m.mul(chunk.image, points.expr(strides.front())));
  offset = m.add(offset, m.mul(m.mul(group, points.expr(info.groupInputs)), points.expr(strides.back())));
  for (auto [axis, at] :
       llvm::zip_equal(info.axes, std::array<Value, 3>{chunk.z, chunk.firstLine, chunk.firstPosition}))
    offset = m.add(offset, m.mul(m.sub(m.mul(at, axis.stride), m.constant(axis.low)), stride(axis)));
  return m.advance(points.operandPtr(buffer->argument), m.mul(offset, byteSize(element)));
}

Value ConvolutionInput::position(const ConvolutionInfo::Axis &axis, Value at, Value &inside) {
  Value zero = m.constant(0), bounded = m.max(at, zero);
  inside = arith::CmpIOp::create(b, m.loc, arith::CmpIPredicate::sge, at, zero);
  if (axis.inputDilation != 1) {
    Value step = m.constant(axis.inputDilation);
    inside = arith::AndIOp::create(b, m.loc, inside, m.equal(m.rem(bounded, step), zero));
    bounded = m.div(bounded, step);
  }
  inside = arith::AndIOp::create(b, m.loc, inside, m.less(bounded, points.expr(axis.input)));
  return bounded;
}

void ConvolutionInput::copy(const ConvolutionChunk &chunk, Value group, Value to) {
  Value zero = m.constant(0), one = m.constant(1);
  const ConvolutionInfo::Axis &z = info.z(), &h = info.h();
  ArrayRef<SymExpr> strides = buffer->layout.strides;
  Value image = m.add(points.expr(buffer->layout.offset), m.mul(chunk.image, points.expr(strides.front())));
  image = m.add(image, m.mul(m.mul(group, points.expr(info.groupInputs)), points.expr(strides.back())));
  if (linesOfTiles == LinesOfTiles::Merged)
    return copyMerged(chunk, image, to);
  Value lines = m.add(m.mul(m.sub(chunk.lines, one), h.stride), points.expr(h.window(SymExpr(1))));
  Value taps = points.expr(z.kernel);
  emitFor(b, m.loc, zero, taps, one, {}, [&](Value tap, ValueRange) {
    Value inDepth;
    Value depth = m.sub(m.add(m.mul(chunk.z, z.stride), m.mul(tap, z.dilation)), m.constant(z.low));
    depth = position(z, depth, inDepth);
    emitFor(b, m.loc, zero, lines, one, {}, [&](Value line, ValueRange) {
      PointEmitter::Scope scope(points);
      Value inside;
      Value at = m.sub(m.add(m.mul(chunk.firstLine, h.stride), line), m.constant(h.low));
      at = position(h, at, inside);
      inside = arith::AndIOp::create(b, m.loc, inside, inDepth);
      Value from = m.add(image, m.add(m.mul(depth, stride(z)), m.mul(at, stride(h))));
      Value dest = m.add(m.mul(tap, points.expr(zStride)), m.mul(line, points.expr(hStride)));
      copyLine(chunk, m.advance(points.operandPtr(buffer->argument), m.mul(from, byteSize(element))),
               m.advance(to, m.mul(dest, byteSize(made))), inside);
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

/// A copy for each tap that lines do not share, with the elements that results read there one after the other.
void ConvolutionInput::copyMerged(const ConvolutionChunk &chunk, Value image, Value to) {
  const ConvolutionInfo::Axis &z = info.z(), &h = info.h();
  Value zero = m.constant(0), one = m.constant(1);
  bool shared = h.stride == 1;
  Value down = shared ? one : points.expr(h.kernel);
  Value lines = shared ? m.add(m.sub(chunk.lines, one), points.expr(h.window(SymExpr(1)))) : chunk.lines;
  auto each = [&](Value count, function_ref<void(Value)> body) {
    emitFor(b, m.loc, zero, count, one, {}, [&](Value i, ValueRange) {
      PointEmitter::Scope scope(points);
      body(i);
      return SmallVector<Value>();
    });
  };
  each(points.expr(z.kernel), [&](Value kz) {
    Value inDepth;
    Value depth = m.sub(m.add(m.mul(chunk.z, z.stride), m.mul(kz, z.dilation)), m.constant(z.low));
    depth = position(z, depth, inDepth);
    each(down, [&](Value kh) {
      each(points.expr(info.w().kernel), [&](Value kw) {
        each(lines, [&](Value line) {
          Value inside, at = m.mul(m.add(chunk.firstLine, line), h.stride);
          at = position(h, m.sub(m.add(at, m.mul(kh, h.dilation)), m.constant(h.low)), inside);
          inside = arith::AndIOp::create(b, m.loc, inside, inDepth);
          Value from = m.add(image, m.add(m.mul(depth, stride(z)), m.mul(at, stride(h))));
          Value dest = m.add(m.add(m.mul(kz, points.expr(zTap)), m.mul(kw, points.expr(wTap))),
                             m.mul(line, points.expr(lineStep)));
          if (!shared)
            dest = m.add(dest, m.mul(kh, points.expr(hTap)));
          copyResults(chunk, kw, m.advance(points.operandPtr(buffer->argument), m.mul(from, byteSize(element))),
                      m.advance(to, m.mul(dest, byteSize(made))), inside);
        });
      });
    });
  });
}

/// What the results of one line read for one tap; zeros if the line is not `inside`.
void ConvolutionInput::copyResults(const ConvolutionChunk &chunk, Value tap, Value from, Value to, Value inside) {
  const ConvolutionInfo::Axis &w = info.w();
  Value zero = m.constant(0), pixel = points.expr(info.pixelInputs), count = points.expr(w.output);
  Value first = m.sub(m.mul(tap, w.dilation), m.constant(w.low)), by = m.constant(w.stride);
  Value left = m.min(m.ceilDiv(m.max(m.sub(zero, first), zero), by), count);
  Value right = m.min(m.ceilDiv(m.max(m.sub(points.expr(w.input), first), zero), by), count);
  left = arith::SelectOp::create(b, m.loc, inside, left, count);
  right = m.max(right, left);
  zeros(to, m.mul(padsWithZeros() ? count : left, pixel));
  copyPixels(ofInput(from, m.mul(m.add(first, m.mul(left, w.stride)), stride(w))), ofCopy(to, m.mul(left, pixel)),
             m.sub(right, left), w.stride, 1);
  if (!padsWithZeros())
    zeros(ofCopy(to, m.mul(right, pixel)), m.mul(m.sub(count, right), pixel));
}

/// One line of the chunk, of which `from` is the input's first element; zeros if it is not `inside`.
void ConvolutionInput::copyLine(const ConvolutionChunk &chunk, Value from, Value to, Value inside) {
  const ConvolutionInfo::Axis &w = info.w();
  Value zero = m.constant(0), one = m.constant(1), pixel = points.expr(wStride), step = stride(w);
  Value width = m.add(m.mul(m.sub(chunk.positions, one), w.stride), points.expr(w.window(SymExpr(1))));
  Value first = m.sub(m.mul(chunk.firstPosition, w.stride), m.constant(w.low));
  auto either = scf::IfOp::create(b, m.loc, inside, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  {
    b.setInsertionPointToStart(&either.getElseRegion().front());
    PointEmitter::Scope scope(points);
    zeros(to, m.mul(width, pixel));
  }
  b.setInsertionPointToStart(&either.getThenRegion().front());
  PointEmitter::Scope scope(points);
  Value extent = points.expr(w.input);
  if (w.inputDilation == 1) {
    Value left = m.min(m.max(m.sub(zero, first), zero), width);
    Value right = m.min(m.max(m.sub(extent, first), left), width);
    zeros(to, m.mul(padsWithZeros() ? width : left, pixel));
    copyPixels(ofInput(from, m.mul(m.add(first, left), step)), ofCopy(to, m.mul(left, pixel)), m.sub(right, left), 1,
               1);
    if (!padsWithZeros())
      zeros(ofCopy(to, m.mul(right, pixel)), m.mul(m.sub(width, right), pixel));
    return;
  }
  zeros(to, m.mul(width, pixel));
  Value apart = m.constant(w.inputDilation);
  Value begin = m.min(m.ceilDiv(m.max(first, zero), apart), extent);
  Value end = m.max(m.min(m.ceilDiv(m.max(m.add(first, width), zero), apart), extent), begin);
  copyPixels(ofInput(from, m.mul(begin, step)), ofCopy(to, m.mul(m.sub(m.mul(begin, apart), first), pixel)),
             m.sub(end, begin), 1, w.inputDilation);
}

/// `count` pixels, every `fromStep`-th, which end up `toStep` apart.
void ConvolutionInput::copyPixels(Value from, Value to, Value count, int64_t fromStep, int64_t toStep) {
  const SymExpr &channelStride = buffer->layout.strides.back();
  SymExpr pixelStride = info.w().dim < 0 ? SymExpr(0) : buffer->layout.strides[info.w().dim];
  pixelStride *= SymExpr(fromStep);
  Value channels = points.expr(info.groupInputs), pixel = points.expr(info.pixelInputs);
  int64_t bytes = byteSize(element);
  bool isRun = channelStride.isConstant(1) || info.groupInputs.isConstant(1);
  if (isRun && toStep == 1 && !isPadded() && e.shapes.equal(pixelStride, info.groupInputs))
    return copyRun(from, to, m.mul(count, channels));
  bool words = bytes == 1 && toStep == 1 && info.pixelInputs.isConstant(4) && info.groupInputs.isConstant();
  if (!isRun && pixelStride.isConstant(1) && words && points.lanes() > 1) {
    // Pixels of four bytes, whose channels are apart: a word for each, lanes along the line.
    vectors(count, [&](Value at, Value mask) {
      Type word = points.vectorOf(b.getI32Type());
      Value pixels;
      for (int64_t c = 0; c < info.groupInputs.constant(); ++c) {
        Value source = m.advance(from, m.mul(points.expr(channelStride), c));
        Value v = arith::ExtUIOp::create(b, m.loc, word, read(source, Idx(at, true), mask));
        auto by = DenseElementsAttr::get(cast<VectorType>(word), b.getI32IntegerAttr(int32_t(8 * c)));
        v = arith::ShLIOp::create(b, m.loc, v, arith::ConstantOp::create(b, m.loc, by));
        pixels = pixels ? arith::OrIOp::create(b, m.loc, pixels, v).getResult() : v;
      }
      points.store(to, Idx(at, true), pixels, mask);
    });
    return;
  }
  if (!isRun && pixelStride.isConstant(1)) {
    // A channel at a time, lanes along the line.
    emitFor(b, m.loc, m.constant(0), channels, m.constant(1), {}, [&](Value c, ValueRange) {
      PointEmitter::Scope scope(points);
      Value source = m.advance(from, m.mul(m.mul(c, points.expr(channelStride)), bytes));
      Value dest = ofCopy(to, c);
      vectors(count, [&](Value at, Value mask) {
        Value v = read(source, Idx(at, true), mask);
        points.store(dest, points.mulIdx(Idx(at, true), info.pixelInputs * SymExpr(toStep)), v, mask);
      });
      return SmallVector<Value>();
    });
    return;
  }
  emitFor(b, m.loc, m.constant(0), count, m.constant(1), {}, [&](Value x, ValueRange) {
    PointEmitter::Scope scope(points);
    Value source = m.advance(from, m.mul(m.mul(x, points.expr(pixelStride)), bytes));
    Value dest = ofCopy(to, m.mul(m.mul(x, toStep), pixel));
    vectors(channels, [&](Value c, Value mask) {
      Idx at = isRun ? Idx(c, true) : points.mulIdx(Idx(c, true), channelStride);
      points.store(dest, Idx(c, true), read(source, at, mask), mask);
    });
    return SmallVector<Value>();
  });
}

void ConvolutionInput::copyRun(Value from, Value to, Value count) {
  vectors(count, [&](Value at, Value mask) { points.store(to, Idx(at, true), read(from, Idx(at, true), mask), mask); });
}

/// Elements of the input as the product wants them.
Value ConvolutionInput::read(Value from, const Idx &at, Value mask) {
  Value v = points.load(from, at, element, mask);
  // Denormals become 0, as which the product would read them.
  if (made != element)
    return LLVM::CallIntrinsicOp::create(b, m.loc, Type(points.vectorOf(made)),
                                         b.getStringAttr("llvm.x86.avx512bf16.cvtneps2bf16.512"), ValueRange{v})
        .getResult(0);
  return info.inputShift() == 0 ? v : arith::XOrIOp::create(b, m.loc, v, bytes(-128)).getResult();
}

Value ConvolutionInput::bytes(int64_t code) {
  auto type = cast<VectorType>(points.vectorOf(element));
  return arith::ConstantOp::create(b, m.loc, DenseElementsAttr::get(type, b.getI8IntegerAttr(int8_t(code))));
}

/// What the input has outside.
void ConvolutionInput::zeros(Value to, Value count) {
  Value zero = info.op.getOutside() != 0 || info.inputShift() != 0
                   ? bytes(info.op.getOutside() + info.inputShift())
                   : arith::ConstantOp::create(b, m.loc, b.getZeroAttr(points.vectorOf(made))).getResult();
  vectors(count, [&](Value at, Value mask) { points.store(to, Idx(at, true), zero, mask); });
}

/// `body` for each vector of `count` elements; the last one under a mask.
void ConvolutionInput::vectors(Value count, function_ref<void(Value at, Value mask)> body) {
  int64_t lanes = points.lanes();
  Value whole = m.mul(m.div(count, m.constant(lanes)), lanes);
  emitFor(b, m.loc, m.constant(0), whole, m.constant(lanes), {}, [&](Value at, ValueRange) {
    PointEmitter::Scope scope(points);
    body(at, {});
    return SmallVector<Value>();
  });
  emitIf(b, m.loc, m.less(whole, count), {}, [&] {
    PointEmitter::Scope scope(points);
    body(whole, points.tailMask(m.sub(count, whole)));
    return SmallVector<Value>();
  });
}
