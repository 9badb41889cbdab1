//===- PlanArena.cpp - memory and symbols of the host flow ----------------===//
//
//   func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>, ...}) -> tensor<?x8xf32> {
//     %t = disc_plan.call @k0(%x) result_dims [...] : ...
//     %y = disc_plan.call @k1(%t) result_dims [...] : ...
//     return %y
// becomes
//   disc_rt.entry @main attributes {inputs = [...], outputs = [...]} {
//   ^bb0(%call: !llvm.ptr):
//     disc_rt.check_inputs %call
//     %S = disc_rt.extent %call[0, 0]
//     disc_rt.guard %call, %S ge %min ...                       // range of S; extents that must agree
//     disc_rt.bind_symbol @S, %S
//     %y = disc_rt.output %call[0] (%S, %c8)
//     %arena = disc_rt.arena %call, %bytes
//     %x = disc_rt.input %call[0]
//     %t = disc_rt.offset %arena, %offset
//     disc_rt.launch %call @k0(%x, %t)
//     disc_rt.launch %call @k1(%t, %y)
//     disc_rt.return
//
// A `disc_shape.bind` in the flow begins an epoch. The value is read, checked and bound, then what has extents that are
// known only now gets memory: outputs, and a part of the arena for temporaries.
//
//     disc_rt.launch %call @k0(%x, %rows, %count)
//     %n = llvm.load %count
//     disc_rt.guard %call, %n le %max ...
//     disc_rt.bind_symbol @u0, %n computed
//     %y = disc_rt.output %call[0] (%u0)
//     %more = disc_rt.arena %call, %bytes1 part 1
//
// Tests: test/lit/Memory/plan-arena.mlir, test/lit/Memory/epochs.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/ArenaOffsets.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::disc {
#define GEN_PASS_DEF_PLANARENA
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// Bytes of an element in memory; a boolean takes one.
static int64_t elementBytes(Type type) {
  return llvm::divideCeil(cast<RankedTensorType>(type).getElementType().getIntOrFloatBitWidth(), 8);
}

namespace {
/// Rewrites one function into an entry.
class EntryBuilder {
public:
  EntryBuilder(func::FuncOp func, ShapeAnalysis &shapes)
      : func(func), shapes(shapes), module(func->getParentOfType<ModuleOp>()), b(func), loc(func.getLoc()) {}
  LogicalResult run();

private:
  DictionaryAttr describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs, ArrayRef<SymExpr> dims);
  LogicalResult bindSymbols();
  void guardRange(SymbolOp symbol, Value value, int64_t input, int64_t dim, StringRef what = "");
  void guard(GuardPredicate predicate, Value lhs, Value rhs, int64_t input, int64_t dim, const Twine &expected,
             const Twine &message);
  void guardFact(GuardOp fact);
  LogicalResult lowerBind(BindOp bind);
  unsigned epochOf(ArrayRef<SymExpr> exprs) const;
  LogicalResult assignResults(unsigned epoch);
  void planTemporaries();
  void assignTemporaries(unsigned epoch);
  DictionaryAttr describePlan(const ArenaPlanner::Plan &plan, ArrayRef<ArenaPlanner::Temporary> temporaries,
                              int64_t inPlace);
  LogicalResult fetch(Value tensor);
  FailureOr<Value> buffer(Value tensor);

  SymExpr bytesOf(Value tensor) {
    return SymExpr::product(shapes.dims(tensor)) * SymExpr(elementBytes(tensor.getType()));
  }
  Value dim(const SymExpr &expr) { return DimOp::create(b, loc, expr); }

  func::FuncOp func;
  ShapeAnalysis &shapes;
  ModuleOp module;
  OpBuilder b;
  Location loc;
  EntryOp entry;
  Type pointer = LLVM::LLVMPointerType::get(func.getContext());
  Value call;
  llvm::DenseMap<Value, Value> buffers;
  llvm::StringMap<Value> bySource;                                           // parameters and globals already fetched
  llvm::DenseMap<KernelFuncOp, SmallVector<SmallVector<unsigned>>> reusable; // per kernel: inPlaceOperands

  llvm::StringMap<unsigned> epochs; // of the symbols that the flow binds, from 1
  SmallVector<ArenaPlanner::Temporary> temporaries;
  llvm::MapVector<Value, unsigned> storage; // of each temporary value; several may have one, one after the other
  SmallVector<int64_t> inPlace;             // per epoch
};
} // namespace

DictionaryAttr EntryBuilder::describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs,
                                      ArrayRef<SymExpr> dims) {
  StringAttr name = attrs ? attrs.getAs<StringAttr>(ShapeDialect::getNameAttrName()) : StringAttr();
  if (!name)
    name = b.getStringAttr(fallback + Twine(index));
  SmallVector<NamedAttribute> fields = {b.getNamedAttr("name", name), b.getNamedAttr("type", TypeAttr::get(type)),
                                        b.getNamedAttr("dims", DimsAttr::get(b.getContext(), dims))};
  // The one fact about an element type that signless integers lose.
  if (attrs && attrs.contains("disc_tensor.unsigned"))
    fields.push_back(b.getNamedAttr("unsigned", b.getUnitAttr()));
  return b.getDictionaryAttr(fields);
}

void EntryBuilder::guard(GuardPredicate predicate, Value lhs, Value rhs, int64_t input, int64_t dim,
                         const Twine &expected, const Twine &message) {
  RtGuardOp::create(b, loc, call, predicate, lhs, rhs, input, dim, expected.str(), message.str());
}

void EntryBuilder::guardRange(SymbolOp symbol, Value value, int64_t input, int64_t dimension, StringRef what) {
  std::string range;
  llvm::raw_string_ostream os(range);
  os << symbol.getMin() << " <= " << symbol.getSymName();
  if (std::optional<int64_t> max = symbol.getMax())
    os << " <= " << *max;
  std::string message =
      what.empty() ? "is out of range" : (what + ": " + symbol.getSymName() + " is out of range").str();
  // Without a stated minimum there is nothing to check: extents are not negative. What is computed may be.
  if (symbol.getMin() > 0 || !what.empty())
    guard(GuardPredicate::Ge, value, dim(SymExpr(static_cast<int64_t>(symbol.getMin()))), input, dimension, range,
          message);
  if (std::optional<int64_t> max = symbol.getMax())
    guard(GuardPredicate::Le, value, dim(SymExpr(*max)), input, dimension, range, message);
  if (symbol.getDivisor() > 1)
    guard(GuardPredicate::Divisible, value, dim(SymExpr(static_cast<int64_t>(symbol.getDivisor()))), input, dimension,
          "a multiple of " + Twine(symbol.getDivisor()), "is not divisible");
}

LogicalResult EntryBuilder::bindSymbols() {
  if (func.getNumArguments() != 0)
    CheckInputsOp::create(b, loc, call);
  llvm::StringSet<> bound;
  struct Extent {
    Value value;
    int64_t input, dim;
    SymExpr expr;
  };
  SmallVector<Extent> pending;
  auto bind = [&](StringRef name, Value value, int64_t input, int64_t dimension) -> LogicalResult {
    auto symbol = module.lookupSymbol<SymbolOp>(name);
    if (!symbol)
      return func.emitError() << "symbol '" << name << "' of argument " << input << " is not declared";
    guardRange(symbol, value, input, dimension);
    BindSymbolOp::create(b, loc, name, value, /*computed=*/false);
    bound.insert(name);
    return success();
  };
  for (BlockArgument arg : func.getArguments()) {
    SmallVector<SymExpr> dims = shapes.dims(arg);
    for (auto [d, expr] : llvm::enumerate(dims)) {
      int64_t input = arg.getArgNumber(), dimension = d;
      Value value = ExtentOp::create(b, loc, b.getIndexType(), call, input, dimension);
      std::optional<StringRef> name = expr.asSymbol();
      if (name && !bound.contains(*name)) {
        if (failed(bind(*name, value, input, dimension)))
          return failure();
      } else {
        pending.push_back({value, input, dimension, expr});
      }
    }
  }
  // What is left either follows from bound symbols, and is checked, or is linear in one more symbol: solve for it.
  for (bool progress = true; progress;) {
    progress = false;
    for (Extent &e : llvm::make_early_inc_range(pending)) {
      SmallVector<std::string> open;
      for (std::string &name : e.expr.symbols())
        if (!bound.contains(name))
          open.push_back(name);
      if (open.size() != 1)
        continue;
      SymExpr zero = e.expr.substitute([&](StringRef n) -> std::optional<SymExpr> {
        return n == open[0] ? std::optional<SymExpr>(SymExpr(0)) : std::nullopt;
      });
      std::optional<SymExpr> scale = SymExpr::exactDiv(e.expr - zero, SymExpr::symbol(open[0]));
      if (!scale || !scale->isConstant() || scale->constant() <= 0 || !zero.isConstant())
        continue;
      Value rest = arith::SubIOp::create(b, loc, e.value, dim(zero));
      Value divisor = dim(*scale);
      guard(GuardPredicate::Divisible, rest, divisor, e.input, e.dim, e.expr.str(), "does not have the form");
      Value solved = arith::DivSIOp::create(b, loc, rest, divisor);
      if (failed(bind(open[0], solved, e.input, e.dim)))
        return failure();
      progress = true;
    }
  }
  for (Extent &e : pending) {
    for (std::string &name : e.expr.symbols())
      if (!bound.contains(name))
        return func.emitError() << "symbol '" << name << "' in extent " << e.dim << " of argument " << e.input
                                << " cannot be computed from the inputs";
    guard(GuardPredicate::Eq, e.value, dim(e.expr), e.input, e.dim, e.expr.str(), "has the wrong extent");
  }
  return success();
}

void EntryBuilder::guardFact(GuardOp fact) {
  GuardPredicate predicate = fact.getPredicate() == Predicate::Eq   ? GuardPredicate::Eq
                             : fact.getPredicate() == Predicate::Le ? GuardPredicate::Le
                                                                    : GuardPredicate::Divisible;
  SymExpr lhs = fact.getLhsAttr().getValue(), rhs = fact.getRhsAttr().getValue();
  std::string text = (lhs.str() + Twine(" ") + stringifyPredicate(fact.getPredicate()) + " " + rhs.str()).str();
  RtGuardOp::create(b, fact.getLoc(), call, predicate, dim(lhs), dim(rhs), -1, -1, text, fact.getMessage());
}

/// Reads the value of a symbol from the tensor that holds it.
LogicalResult EntryBuilder::lowerBind(BindOp bind) {
  auto symbol = module.lookupSymbol<SymbolOp>(bind.getSymbol());
  std::optional<Layout> layout = viewLayout(bind.getValue(), shapes);
  FailureOr<Value> data = buffer(viewBase(bind.getValue()));
  if (!symbol || !layout || failed(data))
    return bind.emitError() << "symbol '" << bind.getSymbol() << "' cannot be bound to this value";
  Value address = OffsetOp::create(b, bind.getLoc(), pointer, *data, dim(layout->offset * SymExpr(8)));
  Value loaded = LLVM::LoadOp::create(b, bind.getLoc(), b.getI64Type(), address);
  Value value = arith::IndexCastOp::create(b, bind.getLoc(), b.getIndexType(), loaded);
  guardRange(symbol, value, -1, -1, bind.getWhat().empty() ? "a computed extent" : bind.getWhat());
  BindSymbolOp::create(b, bind.getLoc(), bind.getSymbol(), value, /*computed=*/true);
  return success();
}

/// The epoch in which these expressions have values: 0 is the entry.
unsigned EntryBuilder::epochOf(ArrayRef<SymExpr> exprs) const {
  unsigned epoch = 0;
  for (const SymExpr &expr : exprs)
    for (const std::string &name : expr.symbols())
      epoch = std::max(epoch, epochs.lookup(name));
  return epoch;
}

/// Memory for the results whose extents are known from this epoch on.
LogicalResult EntryBuilder::assignResults(unsigned epoch) {
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  for (auto [i, operand] : llvm::enumerate(ret.getOperands())) {
    if (epochOf(shapes.dims(operand)) != epoch)
      continue;
    Value base = viewBase(operand);
    if (!base.getDefiningOp<CallOp>() || buffers.contains(base))
      return ret.emitError() << "result " << i << " does not own its buffer";
    SmallVector<Value> extents;
    for (const SymExpr &expr : shapes.dims(operand))
      extents.push_back(dim(expr));
    buffers[base] = OutputOp::create(b, loc, pointer, call, extents, i);
  }
  if (epoch != 0)
    return success();
  for (auto store : func.getBody().front().getOps<GlobalStoreOp>()) {
    Value base = viewBase(store.getValue());
    if (!base.getDefiningOp<CallOp>() || buffers.contains(base))
      return store.emitError("a global must be the result of a kernel of its own");
    int64_t bytes = bytesOf(store.getValue()).constant();
    buffers[base] = RtGlobalOp::create(b, loc, pointer, call, store.getGlobal(), bytes);
    bySource["@" + store.getGlobal().str()] = buffers[base];
  }
  return success();
}

/// Which temporaries there are, and how long each lives.
void EntryBuilder::planTemporaries() {
  llvm::DenseMap<Operation *, int64_t> step;
  int64_t steps = 0;
  for (Operation &op : func.getBody().front())
    step[&op] = steps++;
  std::function<int64_t(Value)> lastUse = [&](Value v) {
    int64_t last = step[v.getDefiningOp()];
    for (Operation *user : v.getUsers())
      last = std::max(last, isView(user) ? lastUse(user->getResult(0)) : step[user]);
    return last;
  };

  ArenaPlanner planner(shapes);
  llvm::SmallDenseSet<Value> results;
  for (Value operand : func.getBody().front().getTerminator()->getOperands())
    results.insert(viewBase(operand));
  for (auto store : func.getBody().front().getOps<GlobalStoreOp>())
    results.insert(viewBase(store.getValue()));
  inPlace.assign(epochs.size() + 1, 0);
  for (auto kernel : func.getBody().front().getOps<CallOp>()) {
    auto callee = module.lookupSymbol<KernelFuncOp>(kernel.getCallee());
    auto [known, isNew] = reusable.try_emplace(callee);
    if (isNew && callee)
      known->second = inPlaceOperands(callee, shapes);
    ArrayRef<SmallVector<unsigned>> candidates = known->second;
    llvm::SmallDenseSet<unsigned> claimed; // by an earlier result of this kernel
    for (Value result : kernel.getOutputs()) {
      unsigned r = cast<OpResult>(result).getResultNumber();
      if (results.contains(result))
        continue;
      SymExpr bytes = planner.align(bytesOf(result));
      std::optional<unsigned> taken;
      for (unsigned i : r < candidates.size() ? candidates[r] : SmallVector<unsigned>()) {
        Value operand = kernel.getInputs()[i];
        auto found = storage.find(operand);
        if (found == storage.end() || lastUse(operand) != step[kernel] ||
            temporaries[found->second].life.last != step[kernel] || claimed.contains(found->second))
          continue;
        // The same buffer may be an operand twice, seen through different views.
        bool safe = llvm::all_of(llvm::enumerate(kernel.getInputs()), [&](auto other) {
          return other.value() != operand || llvm::is_contained(candidates[r], other.index());
        });
        if (safe && shapes.equal(temporaries[found->second].bytes, bytes)) {
          taken = found->second;
          break;
        }
      }
      if (!taken) {
        taken = temporaries.size();
        temporaries.push_back({bytes, {step[kernel], step[kernel]}});
      } else {
        ++inPlace[epochOf(bytes)];
      }
      storage[result] = *taken;
      claimed.insert(*taken);
      temporaries[*taken].life.last = lastUse(result);
    }
  }
}

/// The part of the arena for temporaries whose sizes are known from this epoch on.
void EntryBuilder::assignTemporaries(unsigned epoch) {
  SmallVector<ArenaPlanner::Temporary> part;
  llvm::DenseMap<unsigned, unsigned> place;
  for (auto [i, temporary] : llvm::enumerate(temporaries))
    if (epochOf(temporary.bytes) == epoch) {
      place[i] = part.size();
      part.push_back(temporary);
    }
  if (part.empty())
    return;
  ArenaPlanner::Plan plan = ArenaPlanner(shapes).plan(part);
  ArenaOffsets offsets = emitArenaOffsets(b, loc, plan, part, shapes);
  Value arena = ArenaOp::create(b, loc, pointer, call, offsets.bytes, epoch, describePlan(plan, part, inPlace[epoch]));
  SmallVector<Value> pointers;
  for (Value offset : offsets.offsets)
    pointers.push_back(OffsetOp::create(b, loc, pointer, arena, offset));
  for (auto [value, i] : storage)
    if (auto at = place.find(i); at != place.end())
      buffers[value] = pointers[at->second];
}

/// The plan as an attribute, for those who ask what a call needs (Arena.h of the bindings, tests).
DictionaryAttr EntryBuilder::describePlan(const ArenaPlanner::Plan &plan, ArrayRef<ArenaPlanner::Temporary> temporaries,
                                          int64_t inPlace) {
  SmallVector<SymExpr> bytes;
  SmallVector<int64_t> first, last;
  for (const ArenaPlanner::Temporary &t : temporaries) {
    bytes.push_back(t.bytes);
    first.push_back(t.life.first);
    last.push_back(t.life.last);
  }
  SmallVector<Attribute> orders;
  for (ArrayRef<unsigned> order : plan.orders)
    orders.push_back(b.getDenseI64ArrayAttr(SmallVector<int64_t>(order)));
  return b.getDictionaryAttr(
      {b.getNamedAttr("bytes", DimsAttr::get(b.getContext(), bytes)),
       b.getNamedAttr("first", b.getDenseI64ArrayAttr(first)), b.getNamedAttr("last", b.getDenseI64ArrayAttr(last)),
       b.getNamedAttr("in_place", b.getI64IntegerAttr(inPlace)), b.getNamedAttr("orders", b.getArrayAttr(orders))});
}

/// Has the buffer of what comes from outside at hand.
LogicalResult EntryBuilder::fetch(Value tensor) {
  Operation *def = tensor.getDefiningOp();
  return success(!(!def || isa<ParameterOp, GlobalLoadOp>(def)) || succeeded(buffer(tensor)));
}

FailureOr<Value> EntryBuilder::buffer(Value tensor) {
  if (Value known = buffers.lookup(tensor))
    return known;
  Value &slot = buffers[tensor];
  if (auto arg = dyn_cast<BlockArgument>(tensor))
    return slot = InputOp::create(b, loc, pointer, call, arg.getArgNumber());
  Operation *def = tensor.getDefiningOp();
  if (auto parameter = dyn_cast<ParameterOp>(def)) {
    Value &fetched = bySource[parameter.getName()];
    if (!fetched)
      fetched = RtParameterOp::create(b, loc, pointer, call, parameter.getName(), tensor.getType());
    return slot = fetched;
  }
  if (auto load = dyn_cast<GlobalLoadOp>(def)) {
    Value &fetched = bySource["@" + load.getGlobal().str()];
    if (!fetched)
      fetched = RtGlobalOp::create(b, loc, pointer, call, load.getGlobal(), bytesOf(tensor).constant());
    return slot = fetched;
  }
  buffers.erase(tensor);
  def->emitError() << "'" << def->getName() << "' has no buffer";
  return failure();
}

LogicalResult EntryBuilder::run() {
  SmallVector<Attribute> inputs, outputs;
  for (BlockArgument arg : func.getArguments())
    inputs.push_back(describe("input", arg.getArgNumber(), arg.getType(), func.getArgAttrDict(arg.getArgNumber()),
                              shapes.dims(arg)));
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  for (auto [i, operand] : llvm::enumerate(ret.getOperands()))
    outputs.push_back(describe("output", i, operand.getType(), func.getResultAttrDict(i), shapes.dims(operand)));

  entry = EntryOp::create(b, loc, (func.getName() + "$entry").str(), StringAttr(), b.getArrayAttr(inputs),
                          b.getArrayAttr(outputs));
  Block *block = &entry.getBody().emplaceBlock();
  call = block->addArgument(pointer, loc);
  b.setInsertionPointToStart(block);
  Block &flow = func.getBody().front();
  for (auto bind : flow.getOps<BindOp>())
    epochs.try_emplace(bind.getSymbol(), epochs.size() + 1);
  if (failed(bindSymbols()))
    return failure();
  for (GuardOp fact : flow.getOps<GuardOp>())
    if (epochOf({fact.getLhs().getValue(), fact.getRhs().getValue()}) == 0)
      guardFact(fact);
  planTemporaries();
  if (failed(assignResults(0)))
    return failure();
  assignTemporaries(0);
  // Fetch what calls read before the first launch: a failure then leaves nothing half done.
  for (Operation &op : flow)
    if (isa<CallOp, BindOp>(op))
      for (Value operand : op.getOperands())
        if (failed(fetch(viewBase(operand))))
          return failure();
  unsigned epoch = 0;
  for (Operation &op : flow) {
    if (auto kernel = dyn_cast<CallOp>(op)) {
      SmallVector<Value> list;
      for (Value v :
           llvm::concat<Value>(SmallVector<Value>(kernel.getInputs()), SmallVector<Value>(kernel.getOutputs()))) {
        FailureOr<Value> pointer = buffer(v);
        if (failed(pointer))
          return failure();
        list.push_back(*pointer);
      }
      LaunchOp::create(b, kernel.getLoc(), call, kernel.getCallee(), list);
    } else if (auto bind = dyn_cast<BindOp>(op)) {
      ++epoch;
      if (failed(lowerBind(bind)))
        return failure();
      for (GuardOp fact : flow.getOps<GuardOp>())
        if (epochOf({fact.getLhs().getValue(), fact.getRhs().getValue()}) == epoch)
          guardFact(fact);
      if (failed(assignResults(epoch)))
        return failure();
      assignTemporaries(epoch);
    }
  }
  ReturnOp::create(b, loc);
  std::string name = func.getName().str();
  func.erase();
  entry.setSymName(name);
  return success();
}

namespace {
struct PlanArena : disc::impl::PlanArenaBase<PlanArena> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    for (auto func : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      if (failed(EntryBuilder(func, shapes).run()))
        return signalPassFailure();
  }
};
} // namespace
