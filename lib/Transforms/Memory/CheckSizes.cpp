//===- CheckSizes.cpp - where sizes may overflow --------------------------===//
//
//   %k = ... ; disc_rt.bind_symbol @k, %k computed
//   disc_rt.launch %call @ones(%x)                 // writes a tensor of k * k elements
// becomes
//   disc_rt.bind_symbol @k, %k computed
//   disc_rt.check_sizes %call [k * k * 4] of [k * k * 4] as ["a tensor of shape [k, k]..."]
//   disc_rt.launch %call @ones(%x)
//
// No tensor of the program may have more bytes than `kSizeLimit`, be it in memory or only a step within a kernel. Then
// no index, offset or number of bytes overflows in what runs behind the check. A size is checked once all symbols that
// it depends on have values, in the block that uses it: a side of a branch that is not taken may have any size. What an
// earlier check or the ranges of symbols prove is not checked again; the others are combined in one comparison.
//
// Lit test: test/lit/Memory/check-sizes.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "lib/Transforms/Memory/SizeBound.h"
#include "lib/Transforms/Memory/TensorBytes.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>

namespace mlir::disc {
#define GEN_PASS_DEF_CHECKSIZES
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// What ranges prove one by one adds up to less than 2^62.
static constexpr double kProvedLimit = double(int64_t(1) << 56);
static constexpr unsigned kMaxProved = 64;
/// A number that is at most so many times a checked size fits.
static constexpr double kSlack = 8;

namespace {
/// Something that must not overflow.
struct Size {
  SymExpr expr;    // undefined if not even its coefficients fit
  SizeBound bound; // unused for a number
  std::string text;
  Location loc;
  bool isTotal = false; // of several sizes, which say more in an error
};

/// What is known at a point of the flow to be below the limit: coefficients of products.
using Checked = std::map<SizeBound::Monomial, double, SizeBound::Less>;

/// Checks at one point.
struct Point {
  SmallVector<const Size *> sizes, numbers;
};

class SizeChecker {
public:
  SizeChecker(ModuleOp module, ShapeAnalysis &shapes) : module(module), shapes(shapes) {
    module.walk([&](RtLoopOp loop) {
      if (auto count = loop.getCount() ? loop.getCount().getDefiningOp<DimOp>() : DimOp())
        counts[loop.getSymbol()] = count.getExpr().getValue();
    });
  }
  LogicalResult run(Operation *entry);

private:
  struct KernelSizes {
    SmallVector<Size, 0> sizes, numbers;
  };
  const KernelSizes &sizesOf(KernelFuncOp kernel);
  void addTensor(SmallVectorImpl<Size> &sizes, ArrayRef<SymExpr> dims, RankedTensorType type, Location loc,
                 const Twine &name = "a tensor");
  void addNumbers(SmallVectorImpl<Size> &numbers, const SymExpr &expr, Location loc);
  LogicalResult check(Block &block, llvm::StringSet<> known, Checked checked, Value call);
  LogicalResult emit(OpBuilder &b, Location loc, Value call, Point point, Checked &checked);
  bool proves(const Checked &checked, const SymExpr &number) const;
  /// A step of a loop is less than the loop's count.
  SizeBound boundOf(const SymExpr &expr, bool coarse = false) const {
    return SizeBound::of(expr.substitute([&](StringRef name) -> std::optional<SymExpr> {
      auto count = counts.find(name);
      return count == counts.end() ? std::nullopt : std::optional<SymExpr>(count->second);
    }),
                         shapes, coarse);
  }

  ModuleOp module;
  ShapeAnalysis &shapes;
  llvm::StringMap<SymExpr> counts; // of loops, by the symbol of the step
  std::map<Operation *, KernelSizes> kernels;
  SmallVector<std::unique_ptr<Size>> own; // of the flow itself
};
} // namespace

static std::string shapeText(ArrayRef<SymExpr> dims) {
  std::string text = "[";
  for (auto [i, dim] : llvm::enumerate(dims))
    text += (i ? ", " : "") + dim.str();
  return text + "]";
}

/// " needs 4 * B * S bytes"
static std::string needs(const SymExpr &size, StringRef unit) {
  return size.isDefined() ? (" needs " + Twine(size.str()) + " " + unit).str() : "";
}

/// "model.py:12: ", or nothing if the line is not known.
static std::string where(Location loc) {
  std::string line = sourceLine(loc);
  return line.empty() ? line : line + ": ";
}

void SizeChecker::addTensor(SmallVectorImpl<Size> &sizes, ArrayRef<SymExpr> dims, RankedTensorType type, Location loc,
                            const Twine &name) {
  if (!llvm::all_of(dims, ShapeAnalysis::isExpressible))
    return;
  SymExpr bytes = SymExpr::product(dims) * SymExpr(elementBytes(type));
  SizeBound bound(double(elementBytes(type)));
  for (const SymExpr &dim : dims)
    bound *= boundOf(dim);
  std::string element;
  llvm::raw_string_ostream(element) << type.getElementType();
  sizes.push_back(
      {bytes, bound,
       where(loc) + name.str() + " of shape " + shapeText(dims) + " and type " + element + needs(bytes, "bytes"), loc});
}

/// The expression, and what it computes on the way where wrapping around would be seen.
void SizeChecker::addNumbers(SmallVectorImpl<Size> &numbers, const SymExpr &expr, Location loc) {
  if (!ShapeAnalysis::isExpressible(expr) || expr.isConstant() || expr.asSymbol())
    return;
  for (const SymTerm &term : expr.terms())
    for (const SymAtom &atom : term.factors)
      for (const SymExpr &arg : atom.args())
        addNumbers(numbers, arg, loc);
  numbers.push_back({expr, SizeBound(0), where(loc) + expr.str(), loc});
}

/// The tensors of a kernel, those in memory and its steps, and what it computes with symbols.
const SizeChecker::KernelSizes &SizeChecker::sizesOf(KernelFuncOp kernel) {
  auto [known, isNew] = kernels.try_emplace(kernel);
  KernelSizes &result = known->second;
  if (!isNew)
    return result;
  auto addValue = [&](Value value) {
    if (auto type = dyn_cast<RankedTensorType>(value.getType()); type && type.getElementType().isIntOrFloat())
      addTensor(result.sizes, shapes.dims(value), type, value.getLoc());
  };
  for (BlockArgument argument : kernel.getBody().front().getArguments())
    addValue(argument);
  kernel.walk([&](Operation *op) {
    for (Value value : op->getResults())
      addValue(value);
    if (auto dim = dyn_cast<DimOp>(op))
      addNumbers(result.numbers, dim.getExpr().getValue(), op->getLoc());
    if (auto generic = dyn_cast<linalg::LinalgOp>(op)) {
      // Elements that are reduced to one may be more than any tensor has.
      SmallVector<SymExpr> reduced;
      SizeBound bound(1);
      SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
      for (auto [loop, kind] : llvm::enumerate(generic.getIteratorTypesArray())) {
        if (kind != utils::IteratorType::reduction)
          continue;
        for (auto [operand, map] : llvm::zip(op->getOperands(), maps)) {
          auto position = map.getResultPosition(getAffineDimExpr(loop, op->getContext()));
          if (!position || !isa<RankedTensorType>(operand.getType()))
            continue;
          SymExpr extent = shapes.dims(operand)[*position];
          if (ShapeAnalysis::isExpressible(extent)) {
            reduced.push_back(extent);
            bound *= boundOf(extent);
          }
          break;
        }
      }
      if (reduced.size() > 1)
        result.sizes.push_back({SymExpr::product(reduced), bound,
                                where(op->getLoc()) + "a reduction over dimensions of sizes " + shapeText(reduced) +
                                    needs(SymExpr::product(reduced), "elements"),
                                op->getLoc()});
    }
  });
  auto addExpr = [&](ExprAttr attr, StringRef what) {
    SymExpr expr = attr ? attr.getValue() : SymExpr();
    if (ShapeAnalysis::isExpressible(expr))
      result.sizes.push_back({expr, boundOf(expr),
                              where(kernel.getLoc()) + "kernel '" + kernel.getSymName().str() + "'" + needs(expr, what),
                              kernel.getLoc()});
  };
  addExpr(kernel.getScratchAttr(), "bytes of scratch memory");
  addExpr(kernel.getTasksAttr(), "tasks");
  return result;
}

bool SizeChecker::proves(const Checked &checked, const SymExpr &number) const {
  double share = 0, constant = 0;
  for (const auto &[monomial, coefficient] : boundOf(number, /*coarse=*/true).terms) {
    if (monomial.empty()) {
      constant += coefficient;
      continue;
    }
    double best = coefficient * SizeBound::largest(monomial, shapes) / kSizeLimit;
    for (const auto &[larger, known] : checked)
      if (SizeBound::covers(larger, monomial))
        best = std::min(best, coefficient / known);
    share += best;
  }
  return share <= kSlack && constant <= kSizeLimit;
}

/// Whether nothing between two binds uses the first one's value in a way that must wait for its checks.
static bool isHarmless(Operation &op) {
  return isa<ExtentOp, RtGuardOp, DimOp, BindSymbolOp>(op) || isa<arith::ArithDialect>(op.getDialect());
}

LogicalResult SizeChecker::check(Block &block, llvm::StringSet<> known, Checked checked, Value call) {
  // The last bind of each run of them, by the symbols that have values there.
  llvm::StringMap<Operation *> boundAt;
  SmallVector<StringRef> run;
  SmallVector<Operation *> order = {nullptr}; // points; null: the block's begin
  Operation *last = nullptr;
  auto endRun = [&] {
    if (last && order.back() != last)
      order.push_back(last);
    for (StringRef name : run)
      boundAt[name] = last;
    run.clear();
  };
  for (Operation &op : block) {
    if (auto bind = dyn_cast<BindSymbolOp>(op)) {
      run.push_back(bind.getSymbol());
      last = &op;
    } else if (!isHarmless(op)) {
      endRun();
    }
  }
  endRun();

  std::map<Operation *, Point> points;
  auto rank = [&](Operation *op) { return llvm::find(order, op) - order.begin(); };
  auto placeOf = [&](const SymExpr &expr, const SizeBound &bound) -> std::optional<Operation *> {
    Operation *place = nullptr;
    SmallVector<std::string> names = expr.symbols();
    for (const auto &[monomial, coefficient] : bound.terms)
      for (const SymAtom &atom : monomial)
        llvm::append_range(names, SymExpr::atom(atom).symbols());
    for (const std::string &name : names) {
      auto found = boundAt.find(name);
      if (found != boundAt.end())
        place = rank(found->second) > rank(place) ? found->second : place;
      else if (!known.contains(name))
        return std::nullopt; // the verifier's business
    }
    return place;
  };
  auto addSize = [&](const Size &size) {
    if (auto place = placeOf(size.expr, size.bound))
      points[*place].sizes.push_back(&size);
  };
  auto addNumber = [&](const Size &number) {
    if (auto place = placeOf(number.expr, SizeBound(0)))
      points[*place].numbers.push_back(&number);
  };
  auto ownSize = [&](Size size) {
    own.push_back(std::make_unique<Size>(std::move(size)));
    addSize(*own.back());
  };
  for (Operation &op : block) {
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      if (auto kernel = module.lookupSymbol<KernelFuncOp>(launch.getKernel())) {
        const KernelSizes &sizes = sizesOf(kernel);
        llvm::for_each(sizes.sizes, addSize);
        llvm::for_each(sizes.numbers, addNumber);
      }
    } else if (auto arena = dyn_cast<ArenaOp>(op); arena && arena.getPlan()) {
      if (DimsAttr bytes = arena.getPlan()->getBytes()) {
        SymExpr total;
        SizeBound bound(0);
        for (const SymExpr &expr : bytes.getDims()) {
          total += expr;
          bound += boundOf(expr);
        }
        ownSize({total, bound, "memory for temporaries" + needs(total, "bytes"), op.getLoc(), /*isTotal=*/true});
      }
    } else if (auto dim = dyn_cast<DimOp>(op)) {
      SmallVector<Size> numbers;
      addNumbers(numbers, dim.getExpr().getValue(), op.getLoc());
      for (Size &number : numbers) {
        own.push_back(std::make_unique<Size>(std::move(number)));
        addNumber(*own.back());
      }
    }
  }
  if (auto entry = dyn_cast<EntryOp>(block.getParentOp()))
    for (Attribute input : entry.getInputs()) {
      auto tensor = cast<InterfaceTensorAttr>(input);
      SmallVector<Size> sizes;
      addTensor(sizes, tensor.getDims().getDims(), tensor.getType(), UnknownLoc::get(entry.getContext()),
                "input '" + tensor.getName().getValue() + "'");
      for (Size &size : sizes) {
        size.loc = entry.getLoc();
        ownSize(std::move(size));
      }
    }

  SmallVector<std::pair<Operation *, Checked>> knownAfter;
  for (Operation *place : order) {
    if (auto found = points.find(place); found != points.end()) {
      OpBuilder b =
          place ? OpBuilder(place->getBlock(), std::next(place->getIterator())) : OpBuilder::atBlockBegin(&block);
      if (failed(emit(b, place ? place->getLoc() : block.getParentOp()->getLoc(), call, found->second, checked)))
        return failure();
    }
    knownAfter.push_back({place, checked});
  }
  // Inner blocks know what was checked before them.
  auto current = knownAfter.begin();
  for (Operation &op : block) {
    for (auto next = std::next(current); next != knownAfter.end() && next->first == &op; ++next)
      current = next;
    if (auto bind = dyn_cast<BindSymbolOp>(op))
      known.insert(bind.getSymbol());
    llvm::StringSet<> inside = known;
    if (auto loop = dyn_cast<RtLoopOp>(op))
      inside.insert(loop.getSymbol());
    for (Region &region : op.getRegions())
      if (failed(check(region.front(), inside, current->second, call)))
        return failure();
  }
  return success();
}

LogicalResult SizeChecker::emit(OpBuilder &b, Location loc, Value call, Point point, Checked &checked) {
  // What a schedule divides in ways of its own is mostly less than the tensors that it is for.
  Checked plain = checked;
  for (const Size *size : point.sizes)
    if (!size->bound.divides())
      for (const auto &[monomial, coefficient] : size->bound.terms)
        if (!monomial.empty())
          plain[monomial] = std::max(plain[monomial], coefficient);
  llvm::erase_if(point.sizes, [&](const Size *size) {
    return size->bound.divides() && size->expr.isDefined() && proves(plain, size->expr);
  });
  // Products that no other divides, with the size that has most of each.
  struct Term {
    double coefficient = 0;
    const Size *size = nullptr;
    double own = 0;
  };
  std::map<SizeBound::Monomial, Term, SizeBound::Less> terms;
  for (const Size *size : point.sizes)
    for (const auto &term : size->bound.terms)
      if (!term.first.empty() && llvm::none_of(checked, [&](const auto &known) {
            return SizeBound::covers(known.first, term.first) && known.second >= term.second;
          }))
        terms[term.first];
  for (auto it = terms.begin(); it != terms.end();) {
    bool covered = llvm::any_of(terms, [&](const auto &other) {
      return &other.second != &it->second && SizeBound::covers(other.first, it->first);
    });
    it = covered ? terms.erase(it) : std::next(it);
  }
  double constant = 0;
  for (const Size *size : point.sizes) {
    std::map<SizeBound::Monomial, double, SizeBound::Less> sums;
    double rest = 0;
    for (const auto &[monomial, coefficient] : size->bound.terms) {
      if (monomial.empty()) {
        rest += coefficient;
        continue;
      }
      for (auto &[larger, term] : terms)
        if (SizeBound::covers(larger, monomial)) {
          sums[larger] += coefficient;
          double own = larger.size() != monomial.size() ? 0 : size->isTotal ? 1e-9 : coefficient;
          if (!term.size || own >= term.own) {
            term.size = size;
            term.own = own;
          }
          break;
        }
    }
    for (auto &[monomial, sum] : sums)
      terms[monomial].coefficient = std::max(terms[monomial].coefficient, sum);
    constant = std::max(constant, rest);
    // Products are at least 1, so this size is never allowed.
    double least = rest;
    for (const auto &[monomial, coefficient] : size->bound.terms)
      if (!monomial.empty() && size->bound.terms.size() == 1)
        least += coefficient;
    if (least > kSizeLimit || !std::isfinite(least))
      return emitError(size->loc)
             << size->text << ": the size overflows for all sizes of dynamic dimensions; at most 2^59 is supported";
  }

  unsigned proved = 0;
  SmallVector<Attribute> products, values, texts, numbers, numberTexts;
  auto exprAttr = [&](const SymExpr &expr) { return ExprAttr::get(b.getContext(), expr); };
  for (auto &[monomial, term] : terms) {
    checked[monomial] = std::max(checked[monomial], term.coefficient);
    if (term.coefficient * SizeBound::largest(monomial, shapes) <= kProvedLimit && proved < kMaxProved) {
      ++proved;
      continue;
    }
    int64_t coefficient = std::ceil(std::min(term.coefficient, 2 * kSizeLimit));
    SymExpr product = SymExpr::fromTerms(SymTerm{std::max<int64_t>(coefficient, 1), SymMonomial(monomial)});
    products.push_back(exprAttr(product));
    values.push_back(exprAttr(term.size->expr.isDefined() ? term.size->expr : product));
    texts.push_back(b.getStringAttr(term.size->text));
  }
  // All of them at their largest, in one sum.
  double most = constant;
  for (auto &[monomial, term] : terms)
    most += term.coefficient * SizeBound::largest(monomial, shapes);
  if (most <= kSizeLimit)
    products.clear(), values.clear(), texts.clear();

  llvm::SmallDenseSet<Attribute> seen;
  for (const Size *number : point.numbers)
    if (!proves(checked, number->expr) && seen.insert(exprAttr(number->expr)).second) {
      numbers.push_back(exprAttr(number->expr));
      numberTexts.push_back(b.getStringAttr(number->text));
    }
  if (products.empty() && numbers.empty())
    return success();
  CheckSizesOp::create(b, loc, call, b.getArrayAttr(products), b.getArrayAttr(values), b.getArrayAttr(texts),
                       b.getArrayAttr(numbers), b.getArrayAttr(numberTexts));
  return success();
}

LogicalResult SizeChecker::run(Operation *entry) {
  Block &block = entry->getRegion(0).front();
  return check(block, {}, {}, block.getArgument(0));
}

namespace {
struct CheckSizes : disc::impl::CheckSizesBase<CheckSizes> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    ShapeAnalysis shapes(module);
    SizeChecker checker(module, shapes);
    for (Operation &op : *module.getBody())
      if (isa<EntryOp, ProcedureOp>(op) && failed(checker.run(&op)))
        return signalPassFailure();
  }
};
} // namespace
