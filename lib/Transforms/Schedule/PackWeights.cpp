//===- PackWeights.cpp - panels for weights -------------------------------===//
//
//   %w = disc_tensor.parameter "w" : tensor<384x384xf32>           // [n, k]
//   %y = disc_plan.kernel contraction ins(%x, %w) ... { ^bb0(%a, %b): linalg.generic ins(%a, %b) ... }
// becomes, with a `pack` kernel in @init that stores @packed0,
//   %p = disc_plan.global_load @packed0 : tensor<12x384x32xf32>
//   %y = disc_plan.kernel contraction ins(%x, %p) ... {
//   ^bb0(%a, %p):
//     %b = disc_tensor.unpack %p batch [] n [0] k [1] panel 32 : tensor<12x384x32xf32> -> tensor<384x384xf32>
//     linalg.generic ins(%a, %b) ...
//
// A panel holds as many columns as the product kernel has in registers, one row of k after the other, so the kernel
// reads the weights once, in order. Packing happens at load. One weight used by several kernels is packed once.
// Weights of f16 are widened while packing, so that the product kernel reads what it multiplies. Those of bf16 stay,
// and with `precision=bf16` f32 weights are rounded to bf16, which halves what few rows have to read; the kernel widens
// them in registers and multiplies and sums in f32. If the target has instructions that sum pairs of products of bf16
// (`bf16_dot`) or multiply tiles of it (`bf16_tiles`), panels hold two values of k side by side, and a kernel before
// rounds the left operand.
//
// Weights that are codes of a quantised tensor (Dequantized.h) stay codes, in panels of bytes, or of eight codes of 4
// bits in an i32, beside panels of their scales and zeros; the product kernel makes floats of them in registers. Codes
// that are multiplied by codes stay bytes too, with four values of k side by side if the target sums four products of
// bytes (`i8_dot`, `i8_dot_mixed`), else two if it sums pairs of products of 16 bits (`i16_dot`).
//
// Weights of convolutions, [G, O/G, k..., C/G], become panels of filters for each group, and those that Winograd's way
// takes, [16, O, C], for each of 16 sums; those of a filter for each channel (depthwise), panels of channels.
//
// Test: test/lit/Schedule/pack-weights.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

#include "lib/Transforms/Schedule/CodedWeight.h"
#include "lib/Transforms/Schedule/ConvolutionInfo.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/TargetInfo.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <map>

namespace mlir::disc {
#define GEN_PASS_DEF_PACKWEIGHTS
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// How values of k lie in a panel.
struct Side {
  int64_t together = 1;
  int64_t leftShift = 0;
  bool nibbles = false, isUnsigned = false;

  /// Rows of a panel for `k` values of k, of whose dimensions the last has `last`.
  int64_t rows(int64_t k, int64_t last) const {
    if (nibbles || last == 0)
      return k / (nibbles ? nibblesInWord : 1);
    return k / last * int64_t(llvm::divideCeil(last, together)) + (leftShift != 0);
  }
  static constexpr int64_t nibblesInWord = 8;
};

/// Where the panels of codes and their scales and zeros are kept.
struct CodedGlobals {
  StringRef codes, scales, zeros; // empty: none
};

struct PackWeights : disc::impl::PackWeightsBase<PackWeights> {
  using PackWeightsBase::PackWeightsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    init = module.lookupSymbol<func::FuncOp>("init");
    if (!init || !module.lookupSymbol("main"))
      return;
    if (precision != "f32" && precision != "bf16") {
      module.emitError() << "precision is f32 or bf16, not '" << precision << "'";
      return signalPassFailure();
    }
    TargetInfo target = TargetInfo::get(module);
    ShapeAnalysis shapes(module);
    forwardGlobals(init);
    SmallVector<KernelOp> kernels;
    for (auto func : module.getOps<func::FuncOp>())
      if (func != init)
        func.walk([&](KernelOp kernel) { kernels.push_back(kernel); });
    for (KernelOp kernel : kernels)
      if (isa<ContractionKindAttr>(kernel.getKind()))
        packProducts(kernel, target, shapes);
    init.walk([&](KernelOp kernel) { kernels.push_back(kernel); });
    for (KernelOp kernel : kernels)
      if (isa<ConvolutionKindAttr>(kernel.getKind()))
        packConvolution(kernel, target, shapes);
    for (auto func : module.getOps<func::FuncOp>())
      if (func != init)
        eraseDead(func);
    eraseUnreadGlobals(module, init);
    eraseDead(init);
  }

  /// Convolutions always read panels. Those of weights that are not known at load are formed before the kernel.
  void packConvolution(KernelOp kernel, const TargetInfo &target, ShapeAnalysis &shapes) {
    Operation *convolution = nullptr;
    for (Operation &op : kernel.getBody().front())
      if (isa<ConvolutionOp, WinogradOp>(op))
        convolution = &op;
    auto arg = convolution ? dyn_cast<BlockArgument>(convolution->getOperand(1)) : BlockArgument();
    if (!arg)
      return;
    auto type = cast<RankedTensorType>(arg.getType());
    Type accumulator = getElementTypeOrSelf(convolution->getResult(0).getType());
    int64_t bits = accumulator.getIntOrFloatBitWidth();
    auto own = dyn_cast<ConvolutionOp>(convolution);
    RhsDims dims;
    int64_t panel = target.vectorBits / bits;
    if (own && ConvolutionInfo::get(own, shapes).isDepthwise) {
      dims.n = {0, 1};
    } else {
      dims.batch = {0}, dims.n = {1};
      panel = target.panelColumns(bits, shapes.range(shapes.dims(arg)[1]).max, isa<FloatType>(accumulator));
    }
    // Integer products made those of bytes, with channels in fours.
    Side side;
    if (own && type.getElementType().isInteger(8) && accumulator.isInteger(32) && (target.i8Dot || target.i8DotMixed))
      side = fours(own.getUnsignedInput(), own.getUnsignedWeight(), target);
    // An input of f32 is rounded where it is copied.
    bool halves = own && target.multipliesHalves() && accumulator.isF32() && !dims.batch.empty() &&
                  (precision == "bf16" || multipliesBf16(own));
    if (halves)
      side.together = 2;
    for (int64_t d = 2; d < type.getRank(); ++d)
      dims.k.push_back(d);
    auto extent = [&](ArrayRef<int64_t> which) {
      int64_t product = 1;
      for (int64_t d : which)
        product = ShapedType::isDynamic(type.getDimSize(d)) || ShapedType::isDynamic(product)
                      ? ShapedType::kDynamic
                      : product * type.getDimSize(d);
      return product;
    };
    SmallVector<int64_t> shape;
    for (int64_t d : dims.batch)
      shape.push_back(type.getDimSize(d));
    int64_t n = extent(dims.n);
    shape.push_back(ShapedType::isDynamic(n) ? n : int64_t(llvm::divideCeil(n, panel)));
    int64_t k = extent(dims.k);
    shape.append({ShapedType::isDynamic(k) ? k : side.rows(k, type.getShape().back()), side.together * panel});
    Type stored = side.together == 4 ? type.getElementType()
                  : halves           ? Type(BFloat16Type::get(&getContext()))
                                     : accumulator;
    auto packedType = RankedTensorType::get(shape, stored);
    Location loc = convolution->getLoc();

    OpBuilder b(init.getBody().front().getTerminator()), at(kernel);
    Value weight = kernel.getInputs()[arg.getArgNumber()];
    Value source = kernel->getParentOp() == init ? Value() : valueInInit(init, weight, b, initValues);
    Value packed;
    if (source)
      packed = GlobalLoadOp::create(at, loc, packedType, panelsAtLoad(source, dims, packedType, panel, side, loc));
    else
      packed = packKernel(at, loc, weight, dims, packedType, panel, side);
    kernel.getInputsMutable()[arg.getArgNumber()].set(packed);
    arg.setType(packedType);
    OpBuilder nested = OpBuilder::atBlockBegin(&kernel.getBody().front());
    auto logical = RankedTensorType::get(type.getShape(), stored);
    auto unpack =
        UnpackOp::create(nested, loc, logical, arg, dims.batch, dims.n, dims.k, panel, side.together, side.leftShift);
    // Panels do not tell the extents of what is in them.
    SmallVector<SymExpr> extents = shapes.dims(weight);
    unpack->setAttr(ShapeDialect::getDimsAttrName(), nested.getArrayAttr({DimsAttr::get(&getContext(), extents)}));
    convolution->setOperand(1, unpack);
  }

  /// A kernel that forms panels.
  static Value packKernel(OpBuilder &b, Location loc, Value source, const RhsDims &dims, RankedTensorType type,
                          int64_t panel, Side side) {
    auto kernel =
        KernelOp::create(b, loc, TypeRange{type}, ValueRange{source}, PackKindAttr::get(b.getContext()),
                         b.getStringAttr("pack"), b.getStringAttr("weights in the order in which products read them"));
    Block *inner = &kernel.getBody().emplaceBlock();
    Value in = inner->addArgument(source.getType(), loc);
    OpBuilder nested = OpBuilder::atBlockBegin(inner);
    YieldOp::create(nested, loc,
                    PackOp::create(nested, loc, type, in, dims.batch, dims.n, dims.k, panel, side.together,
                                   side.leftShift, side.nibbles, side.isUnsigned)
                        .getResult());
    return kernel.getOutputs()[0];
  }

  /// The name of the global that holds `source`, a value of @init, in panels.
  StringRef panelsAtLoad(Value source, const RhsDims &dims, RankedTensorType type, int64_t panel, Side side,
                         Location loc) {
    OpBuilder b(init.getBody().front().getTerminator());
    std::string key;
    llvm::raw_string_ostream(key) << b.getDenseI64ArrayAttr(dims.batch) << b.getDenseI64ArrayAttr(dims.n)
                                  << b.getDenseI64ArrayAttr(dims.k) << type << side.leftShift << side.nibbles
                                  << side.isUnsigned;
    GlobalOp &global = packed[{source.getAsOpaquePointer(), key}];
    if (!global) {
      std::string name = ("packed" + Twine(count++)).str();
      global = keepInGlobal(init, packKernel(b, loc, source, dims, type, panel, side), name, b);
    }
    return global.getSymName();
  }

  /// Whether every product of the kernel has weights on the right, and on the left an input that lies along k: then the
  /// left one can be read in pairs as well.
  static bool canRound(KernelOp kernel) {
    for (auto op : kernel.getBody().front().getOps<linalg::GenericOp>()) {
      if (!linalg::isaContractionOpInterface(op))
        continue;
      auto left = dyn_cast<BlockArgument>(op.getDpsInputs()[0]), right = dyn_cast<BlockArgument>(op.getDpsInputs()[1]);
      bool packed = op.getDpsInputs()[1].getDefiningOp<UnpackOp>() != nullptr;
      if (!left || (!packed && (!right || !right.hasOneUse() ||
                                !isa_and_present<ParameterOp, GlobalLoadOp>(
                                    viewBase(kernel.getInputs()[right.getArgNumber()]).getDefiningOp()))))
        return false;
      AffineMap map = op.getIndexingMapsArray()[0];
      if (map.getNumResults() == 0)
        return false;
      auto last = dyn_cast<AffineDimExpr>(map.getResults().back());
      if (!last || op.getNumReductionLoops() != 1 ||
          op.getIteratorTypesArray()[last.getPosition()] != utils::IteratorType::reduction)
        return false;
    }
    return true;
  }

  /// The product reads its left operand rounded, by a kernel of its own that all readers of the same value share.
  void roundLeft(KernelOp kernel, linalg::GenericOp op, Type to, ShapeAnalysis &shapes) {
    auto left = cast<BlockArgument>(op.getDpsInputs()[0]);
    Value whole = kernel.getInputs()[left.getArgNumber()];
    if (getElementTypeOrSelf(whole.getType()) == to)
      return; // done for another product of the kernel
    Value &narrow = rounded[{whole, kernel->getBlock()}];
    if (!narrow)
      narrow = round(whole, to, OpBuilder(kernel), shapes);
    Block &body = kernel.getBody().front();
    auto known = llvm::find(kernel.getInputs(), narrow);
    unsigned index = known - kernel.getInputs().begin();
    if (known == kernel.getInputs().end()) {
      kernel.getInputsMutable().append(narrow);
      body.addArgument(narrow.getType(), kernel.getLoc());
    }
    op.getDpsInputOperand(0)->set(body.getArgument(index));
    narrowArgument(op, 0, to);
    if (left.use_empty()) {
      kernel.getInputsMutable().erase(left.getArgNumber());
      body.eraseArgument(left.getArgNumber());
    }
  }

  static Value round(Value whole, Type to, OpBuilder b, ShapeAnalysis &shapes) {
    auto type = cast<RankedTensorType>(whole.getType());
    auto narrow = RankedTensorType::get(type.getShape(), to);
    Location loc = whole.getLoc();
    auto kernel = KernelOp::create(b, loc, TypeRange{narrow}, ValueRange{whole}, LoopKindAttr::get(b.getContext()),
                                   b.getStringAttr("round"), b.getStringAttr("activations of products, rounded once"));
    SmallVector<SymExpr> dims = shapes.dims(whole);
    Block *body = &kernel.getBody().emplaceBlock();
    Value in = body->addArgument(type, loc);
    b.setInsertionPointToStart(body);
    SmallVector<Value> sizes;
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (type.isDynamicDim(i))
        sizes.push_back(DimOp::create(b, loc, dims[i]));
    Value empty = tensor::EmptyOp::create(b, loc, narrow, sizes);
    AffineMap id = b.getMultiDimIdentityMap(type.getRank());
    SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
    auto generic = linalg::GenericOp::create(b, loc, TypeRange{narrow}, ValueRange{in}, ValueRange{empty},
                                             ArrayRef<AffineMap>{id, id}, iterators,
                                             [&](OpBuilder &nested, Location at, ValueRange args) {
                                               // Denormals may become 0, as which the product would read them.
                                               auto rounded = arith::TruncFOp::create(nested, at, to, args[0]);
                                               rounded.setFastmath(arith::FastMathFlags::afn);
                                               linalg::YieldOp::create(nested, at, rounded.getResult());
                                             });
    YieldOp::create(b, loc, generic.getResults());
    return kernel.getOutputs()[0];
  }

  /// Packs the weights of a kernel's products: of all, since the loops over them are the same, or of none.
  void packProducts(KernelOp kernel, const TargetInfo &target, ShapeAnalysis &shapes) {
    SmallVector<Product> products;
    for (auto generic : kernel.getBody().front().getOps<linalg::GenericOp>())
      if (linalg::isaContractionOpInterface(generic)) {
        std::optional<Product> product = packable(kernel, generic);
        if (!product)
          return;
        products.push_back(*product);
      }
    bool halves =
        precision == "bf16" && target.multipliesHalves() && canRound(kernel) && llvm::all_of(products, isOfEvenCodes);
    for (Product &product : products)
      pack(kernel, product, target, shapes, halves);
  }

  /// A product whose weights are known at load.
  struct Product {
    linalg::GenericOp op;
    RhsDims dims;
    Value source; // in @init
  };

  /// Whether the weights are codes that can be made pairs of bf16.
  static bool isOfEvenCodes(const Product &product) {
    linalg::GenericOp op = product.op;
    std::optional<CodedWeight> coded = CodedWeight::get(product.source, product.dims);
    return getElementTypeOrSelf(op->getResult(0).getType()).isF32() && coded && coded->depth / coded->groups % 2 == 0;
  }

  std::optional<Product> packable(KernelOp kernel, linalg::GenericOp contraction) {
    auto arg = dyn_cast<BlockArgument>(contraction.getDpsInputs()[1]);
    if (!arg || !arg.hasOneUse())
      return std::nullopt;
    Value weight = kernel.getInputs()[arg.getArgNumber()];
    std::optional<RhsDims> dims = RhsDims::get(contraction);
    if (!cast<RankedTensorType>(weight.getType()).hasStaticShape() || !dims || dims->n.empty() || dims->k.empty())
      return std::nullopt;
    OpBuilder b(init.getBody().front().getTerminator());
    Value source = valueInInit(init, weight, b, initValues);
    return source ? std::optional<Product>({contraction, *dims, source}) : std::nullopt;
  }

  /// Panels for `n` columns and `k` values of k.
  static RankedTensorType panelType(ArrayRef<int64_t> batch, int64_t n, int64_t k, int64_t last, int64_t panel,
                                    Type element, Side side) {
    SmallVector<int64_t> shape(batch);
    shape.push_back(llvm::divideCeil(n, panel));
    shape.push_back(side.rows(k, last));
    shape.push_back(side.together * panel);
    return RankedTensorType::get(shape, element);
  }

  /// `asHalves`: the product's operands are rounded to bf16, codes where rows are many.
  void pack(KernelOp kernel, Product &product, const TargetInfo &target, ShapeAnalysis &shapes, bool asHalves) {
    Block &body = kernel.getBody().front();
    linalg::GenericOp contraction = product.op;
    const RhsDims &dims = product.dims;
    auto arg = cast<BlockArgument>(contraction.getDpsInputs()[1]);
    auto type = cast<RankedTensorType>(kernel.getInputs()[arg.getArgNumber()].getType());

    Type element = cast<RankedTensorType>(contraction->getResult(0).getType()).getElementType();
    int64_t n = staticExtent(type, dims.n), k = staticExtent(type, dims.k), last = type.getDimSize(dims.k.back());
    int64_t panel = target.panelColumns(element.getIntOrFloatBitWidth(), n, isa<FloatType>(element));
    SmallVector<int64_t> batch;
    for (int64_t d : dims.batch)
      batch.push_back(type.getDimSize(d));
    OpBuilder at(kernel), nested = OpBuilder::atBlockBegin(&body);
    Location loc = contraction.getLoc();
    auto load = [&](StringRef global, RankedTensorType of) {
      return GlobalLoadOp::create(at, loc, of, global).getResult();
    };
    auto replace = [&](Value panels) {
      kernel.getInputsMutable()[arg.getArgNumber()].set(panels);
      arg.setType(panels.getType());
    };

    if (std::optional<CodedWeight> coded = element.isF32() ? CodedWeight::get(product.source, dims) : std::nullopt) {
      bool narrow = coded->codes.isNarrow() && k / coded->groups % Side::nibblesInWord == 0;
      Side side;
      side.nibbles = narrow;
      RankedTensorType codesType =
                           panelType(batch, n, k, last, panel, narrow ? nested.getI32Type() : nested.getI8Type(), side),
                       scalesType = panelType(batch, n, coded->groups, coded->groups, panel, element, {});
      CodedGlobals globals = codedPanels(product.source, *coded, codesType, scalesType, panel, side, loc);
      replace(load(globals.codes, codesType));
      auto more = [&](StringRef global) -> Value {
        if (global.empty())
          return {};
        kernel.getInputsMutable().append(load(global, scalesType));
        return body.addArgument(scalesType, loc);
      };
      Value scales = more(globals.scales), zeros = more(globals.zeros);
      auto logical = RankedTensorType::get(type.getShape(), element);
      contraction.getDpsInputOperand(1)->set(
          UnpackOp::create(nested, loc, logical, arg, scales, zeros, dims.batch, dims.n, dims.k, panel, /*together=*/1,
                           /*left_shift=*/0, narrow, narrow || coded->codes.codes.isUnsigned, asHalves));
      if (element != type.getElementType())
        widenArgument(contraction, 1, element);
      if (asHalves)
        roundLeft(kernel, contraction, nested.getBF16Type(), shapes);
      return;
    }

    // Codes stay as they are; the product widens them.
    bool codes = element.isInteger(32) && type.getElementType().isInteger(8);
    bool halves = element.isF32() && (precision == "bf16" || type.getElementType().isBF16());
    Type stored = halves ? nested.getBF16Type() : codes ? type.getElementType() : element;
    bool rounds = precision == "bf16" || getElementTypeOrSelf(contraction.getDpsInputs()[0]).isBF16();
    bool pairs = halves && rounds && (k % 2 == 0 || dims.k.size() == 1) && (target.bf16Dot || target.bf16Tiles) &&
                 target.vectorBits == 512 && canRound(kernel);
    Side side;
    if (codes)
      side = sideOfCodes(kernel, target);
    else if (pairs)
      side.together = 2;
    RankedTensorType packedType = panelType(batch, n, k, last, panel, stored, side);
    replace(load(panelsAtLoad(product.source, dims, packedType, panel, side, loc), packedType));
    auto logical = RankedTensorType::get(type.getShape(), stored);
    Value unpacked =
        UnpackOp::create(nested, loc, logical, arg, dims.batch, dims.n, dims.k, panel, side.together, side.leftShift);
    contraction.getDpsInputOperand(1)->set(unpacked);
    if (codes)
      return;
    if (element != type.getElementType())
      widenArgument(contraction, 1, element);
    if (element != stored)
      narrowArgument(contraction, 1, stored);
    if (pairs)
      roundLeft(kernel, contraction, stored, shapes);
  }

  /// How codes that are multiplied by codes lie in panels. All products of a kernel read the left operand alike, as
  /// bytes with the sign that the instruction wants, or widened in pairs.
  static Side sideOfCodes(KernelOp kernel, const TargetInfo &target) {
    std::optional<bool> leftUnsigned, rightUnsigned;
    int64_t most = 4;
    bool dots = target.i8Dot || target.i8DotMixed;
    for (auto op : kernel.getBody().front().getOps<linalg::GenericOp>()) {
      if (!linalg::isaContractionOpInterface(op))
        continue;
      for (Value operand : op.getDpsInputs())
        if (!getElementTypeOrSelf(operand.getType()).isInteger(8))
          return {};
      bool left = isWidenedUnsigned(op, 0), right = isWidenedUnsigned(op, 1);
      dots &= leftUnsigned.value_or(left) == left && rightUnsigned.value_or(right) == right;
      leftUnsigned = left, rightUnsigned = right;
      // Rows of the left operand are padded at their end alone.
      if (std::optional<RhsDims> dims = RhsDims::get(op); !dims || dims->k.size() != 1)
        most = std::min<int64_t>(most, !dims ? 1 : greatestOf(op, *dims));
    }
    if (dots && leftUnsigned && most == 4)
      return fours(*leftUnsigned, *rightUnsigned, target);
    Side side;
    side.together = target.i16Dot ? std::min<int64_t>(most, 2) : 1;
    return side;
  }

  /// 4, 2 or 1, which divides the last of several dimensions of k.
  static int64_t greatestOf(linalg::GenericOp op, const RhsDims &dims) {
    int64_t last = cast<RankedTensorType>(op.getDpsInputs()[1].getType()).getDimSize(dims.k.back());
    return last % 4 == 0 ? 4 : last % 2 == 0 ? 2 : 1;
  }

  /// Four bytes side by side, with the sign of the left ones that the instruction wants. Those for tiles take any.
  static Side fours(bool leftUnsigned, bool rightUnsigned, const TargetInfo &target) {
    bool wanted = target.i8DotMixed != rightUnsigned;
    Side side;
    side.together = 4;
    side.leftShift = leftUnsigned == wanted || target.i8Tiles ? 0 : wanted ? 128 : -128;
    side.isUnsigned = rightUnsigned;
    return side;
  }

  static bool isWidenedUnsigned(linalg::GenericOp op, unsigned input) {
    return llvm::any_of(op.getBody()->getArgument(input).getUsers(), llvm::IsaPred<arith::ExtUIOp>);
  }

  /// Puts codes, scales and zeros in panels, once for all kernels that read them in one way.
  CodedGlobals codedPanels(Value source, const CodedWeight &coded, RankedTensorType codesType,
                           RankedTensorType scalesType, int64_t panel, Side side, Location loc) {
    std::string key;
    OpBuilder b(init.getBody().front().getTerminator());
    llvm::raw_string_ostream(key) << b.getDenseI64ArrayAttr(coded.dims.batch) << b.getDenseI64ArrayAttr(coded.dims.n)
                                  << b.getDenseI64ArrayAttr(coded.dims.k) << codesType;
    CodedGlobals &globals = codedGlobals[{source.getAsOpaquePointer(), key}];
    if (!globals.codes.empty())
      return globals;
    Value codes = tensorAtLoad(coded.codes.codes, b);
    if (side.nibbles)
      codes = checkedCodes(coded.codes, codes, b, loc);
    globals.codes = panelsAtLoad(codes, coded.ownDims(), codesType, panel, side, loc);
    RhsDims dims;
    for (size_t i = 0; i < coded.kept.size(); ++i)
      (i < coded.dims.batch.size()                         ? dims.batch
       : i < coded.dims.batch.size() + coded.dims.n.size() ? dims.n
                                                           : dims.k)
          .push_back(i);
    auto panels = [&](const PointOperand &operand, double fallback, double offset) {
      Value spread = spreadOut(operand, coded.kept, coded.keptShape(), fallback, offset, b, loc);
      return panelsAtLoad(spread, dims, scalesType, panel, {}, loc);
    };
    globals.scales = panels(coded.codes.scale, 1, 0);
    // The middle of 4 bits is what kernels take without zeros.
    double offset = side.nibbles ? double(-coded.codes.low) : 0;
    if (side.nibbles && coded.zero() != 8 - offset)
      globals.zeros = panels(coded.codes.zero, 0, offset);
    else if (!side.nibbles && coded.codes.zero && !coded.codes.zero.isZero())
      globals.zeros = panels(coded.codes.zero, 0, 0);
    return globals;
  }

  /// The body's argument for an operand that is read in a wider type now: the conversion it did is the identity.
  static void widenArgument(linalg::GenericOp op, unsigned operand, Type element) {
    BlockArgument arg = op.getBody()->getArgument(operand);
    arg.setType(element);
    for (Operation *user : llvm::make_early_inc_range(arg.getUsers()))
      if (user->getNumOperands() == 1 && user->getResult(0).getType() == element) {
        user->replaceAllUsesWith(ValueRange{arg});
        user->erase();
      }
  }

  /// The body's argument for an operand that is read in a narrower type now, and widened before all uses.
  static void narrowArgument(linalg::GenericOp op, unsigned operand, Type stored) {
    BlockArgument arg = op.getBody()->getArgument(operand);
    OpBuilder b = OpBuilder::atBlockBegin(op.getBody());
    Type element = arg.getType();
    arg.setType(stored);
    auto wide = arith::ExtFOp::create(b, op.getLoc(), element, arg);
    arg.replaceAllUsesExcept(wide, wide);
  }

  func::FuncOp init;
  llvm::DenseMap<std::pair<Value, Block *>, Value> rounded;
  IRMapping initValues;
  std::map<std::pair<void *, std::string>, GlobalOp> packed;
  std::map<std::pair<void *, std::string>, CodedGlobals> codedGlobals;
  unsigned count = 0;
};
} // namespace
