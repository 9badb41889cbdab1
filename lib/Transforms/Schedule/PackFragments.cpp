//===- PackFragments.cpp - quantised weights for matrix units -------------===//
//
// On devices whose warps multiply fragments of matrices:
//
//   %w = disc_plan.global_load @decoded0 : tensor<64x512xbf16>      // [n, k], (code - 8) * scale
//   %y = disc_plan.kernel contraction ins(%x, %w) ... { ^bb0(%a, %b): linalg.generic ins(%a, %b) ... }
// becomes, with kernels in @init that store @fragments0 and @fragments1,
//   %c = disc_plan.global_load @fragments0 : tensor<8x4x128xi32>
//   %s = disc_plan.global_load @fragments1 : tensor<16x64xf32>
//   %y = disc_plan.kernel contraction ins(%x, %c, %s) ... {
//   ^bb0(%a, %c, %s):
//     %b = disc_tensor.unpack_fragments %c scales %s : tensor<16x64xf32> zero 8 bits 4 batch [] n [0] k [1]
//         : tensor<8x4x128xi32> -> tensor<64x512xbf16>
//     linalg.generic ins(%a, %b) ...
//
// A thread reads 16 bytes of its column, 16 or 32 codes, and its neighbours what follows in memory. The floats that the
// codes stand for are never in memory. Other weights stay where they are: chunks of them are read as they lie.
//
// Test: test/lit/Schedule/pack-fragments.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/CodedWeight.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/TargetInfo.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <map>

namespace mlir::disc {
#define GEN_PASS_DEF_PACKFRAGMENTS
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr int64_t kColumns = 8, kWords = 128, kRun = 32; // of a fragment; values of k that have one scale at least

/// Values of k of a fragment.
constexpr int64_t blockOf(int64_t bits) { return kWords * 32 / bits / kColumns; }

/// Integers of 64 bits in the body of a kernel.
struct Numbers {
  OpBuilder &b;
  Location loc;

  Value constant(int64_t v) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(v)); }
  Value index(int64_t dim) {
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), linalg::IndexOp::create(b, loc, dim));
  }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value add(Value x, int64_t y) { return add(x, constant(y)); }
  Value mul(Value x, int64_t y) { return arith::MulIOp::create(b, loc, x, constant(y)); }
  Value div(Value x, int64_t y) { return arith::DivUIOp::create(b, loc, x, constant(y)); }
  Value rem(Value x, int64_t y) { return arith::RemUIOp::create(b, loc, x, constant(y)); }
  Value atMost(Value x, int64_t y) { return arith::MinUIOp::create(b, loc, x, constant(y)); }
  Value less(Value x, int64_t y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, constant(y)); }
  /// The row-major position `linear` over the dimensions `dims` of a tensor, as coordinates of its point.
  void place(Value linear, ArrayRef<int64_t> dims, RankedTensorType type, MutableArrayRef<Value> point) {
    for (size_t i = dims.size(); i-- > 0;) {
      int64_t extent = type.getDimSize(dims[i]);
      point[dims[i]] = i ? rem(linear, extent) : linear;
      linear = i ? div(linear, extent) : linear;
    }
  }
  /// The element at a point; coordinates that are null are 0.
  Value extract(Value tensor, ArrayRef<Value> point) {
    auto at = llvm::map_to_vector(point, [&](Value i) -> Value {
      return arith::IndexCastOp::create(b, loc, b.getIndexType(), i ? i : constant(0));
    });
    return tensor::ExtractOp::create(b, loc, tensor, at);
  }
};

struct PackFragments : disc::impl::PackFragmentsBase<PackFragments> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    init = module.lookupSymbol<func::FuncOp>("init");
    if (!init || !module.lookupSymbol("main") || !TargetInfo::get(module).matrixUnit)
      return;
    forwardGlobals(init);
    SmallVector<KernelOp> kernels;
    for (auto func : module.getOps<func::FuncOp>())
      if (func != init)
        func.walk([&](KernelOp kernel) {
          if (isa<ContractionKindAttr>(kernel.getKind()))
            kernels.push_back(kernel);
        });
    for (KernelOp kernel : kernels)
      for (auto generic : llvm::to_vector(kernel.getBody().front().getOps<linalg::GenericOp>()))
        if (linalg::isaContractionOpInterface(generic))
          pack(kernel, generic);
    for (auto func : module.getOps<func::FuncOp>())
      if (func != init)
        eraseDead(func);
    eraseUnreadGlobals(module, init);
    eraseDead(init);
  }

private:
  struct Globals {
    std::string codes, scales, zeros; // empty: none
    int64_t zero = 0;                 // of all codes, if there are no zeros
  };

  void pack(KernelOp kernel, linalg::GenericOp contraction) {
    auto arg = dyn_cast<BlockArgument>(contraction.getDpsInputs()[1]);
    std::optional<RhsDims> dims = RhsDims::get(contraction);
    if (!arg || !arg.hasOneUse() || !dims || dims->n.empty() || dims->k.empty())
      return;
    Value weight = kernel.getInputs()[arg.getArgNumber()];
    auto type = cast<RankedTensorType>(weight.getType());
    Type element = type.getElementType();
    auto isHere = [&](Value v, Type of) { return getElementTypeOrSelf(v.getType()) == of; };
    OpBuilder b(init.getBody().front().getTerminator());
    if (!type.hasStaticShape() || !(element.isF32() || element.isF16() || element.isBF16()) ||
        !isHere(contraction.getDpsInputs()[0], element) || !isHere(contraction.getResult(0), b.getF32Type()))
      return;
    Value source = valueInInit(init, weight, b, initValues);
    std::optional<CodedWeight> coded = source ? CodedWeight::get(source, *dims) : std::nullopt;
    if (!coded || coded->dims.batch.size() != dims->batch.size() ||
        (coded->groups > 1 && coded->depth % (kRun * coded->groups) != 0))
      return;

    int64_t bits = coded->codes.isNarrow() ? 4 : 8, n = staticExtent(type, dims->n), k = staticExtent(type, dims->k);
    if (n == 0 || k == 0)
      return;
    int64_t tiles = llvm::divideCeil(n, kColumns), blocks = llvm::divideCeil(k, blockOf(bits));
    SmallVector<int64_t> codesShape, scalesShape;
    for (int64_t d : dims->batch) {
      codesShape.push_back(type.getDimSize(d));
      scalesShape.push_back(type.getDimSize(d));
    }
    codesShape.append({tiles, blocks, kWords});
    scalesShape.append({coded->groups, tiles * kColumns});
    auto codesType = RankedTensorType::get(codesShape, b.getI32Type()),
         scalesType = RankedTensorType::get(scalesShape, b.getF32Type());
    Location loc = contraction.getLoc();
    const Globals &globals = fragments(source, *coded, bits, codesType, scalesType, loc);

    OpBuilder at(kernel), nested = OpBuilder::atBlockBegin(&kernel.getBody().front());
    kernel.getInputsMutable()[arg.getArgNumber()].set(GlobalLoadOp::create(at, loc, codesType, globals.codes));
    arg.setType(codesType);
    auto more = [&](StringRef global) -> Value {
      if (global.empty())
        return {};
      kernel.getInputsMutable().append(GlobalLoadOp::create(at, loc, scalesType, global).getResult());
      return kernel.getBody().addArgument(scalesType, loc);
    };
    Value scales = more(globals.scales), zeros = more(globals.zeros);
    contraction.getDpsInputOperand(1)->set(UnpackFragmentsOp::create(
        nested, loc, type, arg, scales, zeros, globals.zero, bits, dims->batch, dims->n, dims->k));
  }

  /// Brings codes, scales and zeros into order, once for all kernels that read them in one way.
  const Globals &fragments(Value source, const CodedWeight &coded, int64_t bits, RankedTensorType codesType,
                           RankedTensorType scalesType, Location loc) {
    OpBuilder b(init.getBody().front().getTerminator());
    std::string key;
    llvm::raw_string_ostream(key) << b.getDenseI64ArrayAttr(coded.dims.batch) << b.getDenseI64ArrayAttr(coded.dims.n)
                                  << b.getDenseI64ArrayAttr(coded.dims.k) << codesType;
    Globals &globals = known[{source.getAsOpaquePointer(), key}];
    if (!globals.codes.empty())
      return globals;
    Value codes = tensorAtLoad(coded.codes.codes, b);
    if (bits == 4)
      codes = checkedCodes(coded.codes, codes, b, loc);
    auto keep = [&](Value value) {
      return keepInGlobal(init, value, ("fragments" + Twine(count++)).str(), b).getSymName().str();
    };
    globals.codes = keep(inFragments(b, loc, codes, coded, bits, codesType));

    // What is added to codes makes them unsigned.
    int64_t offset = bits == 4 ? -coded.codes.low : coded.codes.codes.isUnsigned ? 0 : 128;
    auto panels = [&](const PointOperand &operand, double fallback, double added) {
      Value spread = spreadOut(operand, coded.kept, coded.keptShape(), fallback, added, b, loc);
      return keep(byGroups(b, loc, spread, coded, scalesType));
    };
    globals.scales = panels(coded.codes.scale, 1, 0);
    if (std::optional<double> zero = coded.zero())
      globals.zero = static_cast<int64_t>(*zero) + offset;
    else
      globals.zeros = panels(coded.codes.zero, 0, double(offset));
    return globals;
  }

  /// A kernel whose result is computed point by point from elements of a tensor.
  static Value gather(OpBuilder &b, Location loc, StringRef name, StringRef reason, Value source, RankedTensorType type,
                      function_ref<Value(Numbers &, Value)> point) {
    auto kernel = KernelOp::create(b, loc, TypeRange{type}, ValueRange{source}, LoopKindAttr::get(b.getContext()),
                                   b.getStringAttr(name), b.getStringAttr(reason));
    Block *body = &kernel.getBody().emplaceBlock();
    Value whole = body->addArgument(source.getType(), loc);
    OpBuilder nested = OpBuilder::atBlockBegin(body);
    Value empty = tensor::EmptyOp::create(nested, loc, type, ValueRange());
    SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
    auto generic = linalg::GenericOp::create(nested, loc, TypeRange{type}, ValueRange{}, ValueRange{empty},
                                             ArrayRef<AffineMap>{b.getMultiDimIdentityMap(type.getRank())}, iterators,
                                             [&](OpBuilder &inner, Location at, ValueRange) {
                                               Numbers numbers{inner, at};
                                               linalg::YieldOp::create(inner, at, point(numbers, whole));
                                             });
    YieldOp::create(nested, loc, generic.getResults());
    return kernel.getOutputs()[0];
  }

  /// Words of codes as `unpack_fragments` describes them, zeros beyond the ends.
  static Value inFragments(OpBuilder &b, Location loc, Value source, const CodedWeight &coded, int64_t bits,
                           RankedTensorType type) {
    auto from = cast<RankedTensorType>(source.getType());
    RhsDims own = coded.ownDims();
    int64_t n = staticExtent(from, own.n), k = staticExtent(from, own.k), perWord = 32 / bits, rank = type.getRank();
    bool isUnsigned = bits == 4 || coded.codes.codes.isUnsigned;
    return gather(b, loc, "fragments", "codes in the order in which products read them", source, type,
                  [&](Numbers &m, Value whole) -> Value {
                    OpBuilder &in = m.b;
                    Type i32 = in.getI32Type();
                    Value word = m.index(rank - 1), column = m.add(m.mul(m.index(rank - 3), kColumns), m.div(word, 16));
                    Value thread = m.rem(m.div(word, 4), 4), part = m.mul(m.rem(word, 4), perWord);
                    // Of 4 bits a word has the eight values of a run, of 8 bits half of them.
                    Value run = m.div(part, 8), half = m.rem(part, 8);
                    Value first = m.add(m.mul(m.index(rank - 2), blockOf(bits)),
                                        m.add(m.mul(run, kRun), m.add(m.mul(thread, 8), half)));
                    auto number = [&](int64_t v) -> Value {
                      return arith::ConstantOp::create(in, m.loc, in.getI32IntegerAttr(static_cast<int32_t>(v)));
                    };
                    Value all = number(0);
                    for (int64_t i = 0; i < perWord; ++i) {
                      Value depth = m.add(first, i);
                      Value inside = arith::AndIOp::create(in, m.loc, m.less(depth, k), m.less(column, n));
                      SmallVector<Value> point(from.getRank());
                      for (auto [d, position] : llvm::enumerate(own.batch))
                        point[position] = m.index(d);
                      m.place(m.atMost(column, n - 1), own.n, from, point);
                      m.place(m.atMost(depth, k - 1), own.k, from, point);
                      Value code = m.extract(whole, point);
                      code = isUnsigned ? arith::ExtUIOp::create(in, m.loc, i32, code).getResult()
                                        : arith::ExtSIOp::create(in, m.loc, i32, code).getResult();
                      if (!isUnsigned)
                        code = arith::AddIOp::create(in, m.loc, code, number(128));
                      code = arith::SelectOp::create(in, m.loc, inside, code, number(0));
                      code = arith::ShLIOp::create(in, m.loc, code, number(i % 2 * 16 + i / 2 * bits));
                      all = arith::OrIOp::create(in, m.loc, all, code);
                    }
                    return all;
                  });
  }

  /// Scales or zeros over the dimensions that they differ along as [batch..., groups, columns]. Columns beyond the last
  /// one have its scale.
  static Value byGroups(OpBuilder &b, Location loc, Value source, const CodedWeight &coded, RankedTensorType type) {
    auto from = cast<RankedTensorType>(source.getType());
    int64_t batch = coded.dims.batch.size(), columns = coded.dims.n.size(), rank = type.getRank();
    SmallVector<int64_t> n, k;
    for (int64_t d = batch; d < from.getRank(); ++d)
      (d < batch + columns ? n : k).push_back(d);
    return gather(b, loc, "scales", "scales or zeros, those of neighbouring columns side by side", source, type,
                  [&](Numbers &m, Value whole) {
                    SmallVector<Value> point(from.getRank());
                    for (int64_t d = 0; d < batch; ++d)
                      point[d] = m.index(d);
                    m.place(m.atMost(m.index(rank - 1), staticExtent(from, n) - 1), n, from, point);
                    m.place(m.index(rank - 2), k, from, point);
                    return m.extract(whole, point);
                  });
  }

  func::FuncOp init;
  IRMapping initValues;
  std::map<std::pair<void *, std::string>, Globals> known;
  unsigned count = 0;
};
} // namespace
