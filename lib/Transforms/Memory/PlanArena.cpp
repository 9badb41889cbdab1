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
// Loops, branches and calls of procedures: PlanControlFlow.cpp.
//
// A function with `disc_plan.plan_of` is a plan of the entry with less memory (PlanBudget.cpp). It becomes a procedure,
// with a second one that returns the size of its arena. `disc_rt.fit` in the entry selects a plan.
//
// A result with `disc_tensor.updates` = n is the new value of argument n. The kernel that computes it writes to the
// argument's own memory where nothing reads the old value any more (Updates.h), else it is copied there at the end. An
// argument with `disc_tensor.state` is no input: it is the parameter of that name.
//
// Tests: test/lit/Memory/plan-arena.mlir, test/lit/Memory/epochs.mlir, updates.mlir, loop.mlir, branch.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/EntryBuilder.h"
#include "lib/Transforms/Memory/Updates.h"
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

InterfaceTensorAttr EntryBuilder::describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs,
                                           ArrayRef<SymExpr> dims, bool updated) {
  StringAttr name = attrs ? attrs.getAs<StringAttr>(ShapeDialect::getNameAttrName()) : StringAttr();
  if (!name)
    name = b.getStringAttr(fallback + Twine(index));
  // The one fact about an element type that signless integers lose.
  bool isUnsigned = attrs && attrs.contains("disc_tensor.unsigned");
  auto repeats = attrs ? attrs.getAs<DenseI64ArrayAttr>(ShapeDialect::getRepeatsAttrName()) : DenseI64ArrayAttr();
  return InterfaceTensorAttr::get(b.getContext(), name, cast<RankedTensorType>(type),
                                  DimsAttr::get(b.getContext(), dims), isUnsigned, updated, repeats);
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
  // A range says what an input's extent may be; of what is computed the bound that it misses says enough.
  auto expected = [&](int64_t bound) { return what.empty() ? range : std::to_string(bound); };
  int64_t min = symbol.getMin(), divisor = symbol.getDivisor();
  // Without a stated minimum there is nothing to check: extents are not negative. What is computed may be.
  if (min > 0 || !what.empty())
    guard(GuardPredicate::Ge, value, dim(SymExpr(min)), input, dimension, expected(min), message);
  if (std::optional<int64_t> max = symbol.getMax())
    guard(GuardPredicate::Le, value, dim(SymExpr(*max)), input, dimension, expected(*max), message);
  if (divisor > 1)
    guard(GuardPredicate::Divisible, value, dim(SymExpr(divisor)), input, dimension, "a multiple of " + Twine(divisor),
          what.empty() ? "is not divisible" : message);
}

/// An expression as users write it: `x // 16`, where the IR has `x floordiv 16`.
static std::string readable(const SymExpr &expr) {
  std::string text = expr.str();
  for (auto [word, sign] : {std::pair(StringRef(" floordiv "), " // "), std::pair(StringRef(" mod "), " % ")})
    for (size_t at; (at = text.find(word.str())) != std::string::npos;)
      text.replace(at, word.size(), sign);
  return text;
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
    entrySymbols.push_back(b.getStringAttr(name));
    entryValues.push_back(value);
    return success();
  };
  for (BlockArgument arg : func.getArguments()) {
    if (stateOf(arg))
      continue;
    // As they are declared: a symbol that a guard makes equal to another has a value too, which the guard compares.
    SmallVector<SymExpr> dims = shapes.dims(arg);
    if (auto declared = func.getArgAttrOfType<DimsAttr>(arg.getArgNumber(), ShapeDialect::getDimsAttrName()))
      dims = declared.getDims();
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
      std::string form = "does not have the form " + readable(e.expr);
      if (zero.constant() != 0)
        form += " (" + zero.str() + " is subtracted)";
      guard(GuardPredicate::Divisible, rest, divisor, e.input, e.dim, "", form);
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
  StringRef relation = predicate == GuardPredicate::Eq   ? " == "
                       : predicate == GuardPredicate::Le ? " <= "
                                                         : " a multiple of ";
  std::string text = readable(lhs) + relation.str() + readable(rhs);
  RtGuardOp::create(b, fact.getLoc(), call, predicate, dim(lhs), dim(rhs), -1, -1, text, fact.getMessage());
}

/// Reads the value of a symbol from the tensor that holds it.
LogicalResult EntryBuilder::lowerBind(BindOp bind) {
  auto symbol = module.lookupSymbol<SymbolOp>(bind.getSymbol());
  FailureOr<Value> loaded = loadScalar(bind.getValue(), b.getI64Type());
  if (!symbol || failed(loaded))
    return bind.emitError() << "symbol '" << bind.getSymbol() << "' cannot be bound to this value";
  Value value = arith::IndexCastOp::create(b, bind.getLoc(), b.getIndexType(), *loaded);
  guardRange(symbol, value, -1, -1, bind.getWhat().empty() ? "a computed extent" : bind.getWhat());
  BindSymbolOp::create(b, bind.getLoc(), bind.getSymbol(), value, /*computed=*/true);
  return success();
}

/// The epoch in which these expressions have values at a step, or anywhere: 0 is the entry.
unsigned EntryBuilder::epochOf(ArrayRef<SymExpr> exprs, std::optional<int64_t> at) const {
  unsigned epoch = 0;
  for (const SymExpr &expr : exprs)
    for (const std::string &name : expr.symbols())
      if (auto found = epochs.find(name); found != epochs.end())
        for (const Known &known : found->second)
          if (!at || (known.first <= *at && *at <= known.last))
            epoch = std::max(epoch, known.epoch);
  return epoch;
}

/// Memory for the results whose extents are known from this epoch on.
LogicalResult EntryBuilder::assignResults(unsigned epoch) {
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  int64_t number = 0;
  for (auto [i, operand] : llvm::enumerate(ret.getOperands())) {
    if (updatedBy(func, i))
      continue;
    int64_t output = number++;
    Value base = viewBase(operand);
    auto place = places.find(base);
    if (epochOf(shapes.dims(operand)) != epoch || (place != places.end() && place->second.number == output))
      continue;
    auto loop = base.getDefiningOp<LoopOp>();
    bool owned = loop ? !loop.getCondition() && cast<OpResult>(base).getResultNumber() >= loop.getNumCarried()
                      : isa_and_nonnull<CallOp, InvokeOp, BranchOp>(base.getDefiningOp());
    // What a branch or a procedure gave before there was this memory lies elsewhere.
    owned &= epoch == 0 || !isa_and_nonnull<BranchOp, InvokeOp>(base.getDefiningOp()) ||
             epochAfter.lookup(base.getDefiningOp()) != epoch;
    Value memory = outputMemory(operand, output);
    if (owned && !buffers.contains(base)) {
      buffers[base] = memory;
      continue;
    }
    // What was computed while loading, or is another output too.
    std::optional<Layout> layout = viewLayout(operand, shapes);
    if (!layout || !layout->isContiguous(shapes.dims(operand)))
      return ret.emitError() << "result " << i << " does not own its buffer";
    copies.push_back({base, memory, bytesOf(operand)});
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

/// Which new values are computed in the memory of what they replace.
LogicalResult EntryBuilder::planUpdates() {
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  llvm::SmallDenseSet<Value> elsewhere; // values whose memory is an output's, or another argument's
  for (auto [i, operand] : llvm::enumerate(ret.getOperands()))
    if (!updatedBy(func, i))
      elsewhere.insert(viewBase(operand));
  UpdatePlacement placement(func.getBody().front(), [&](CallOp kernel) { return inPlaceResults(kernel); });
  for (auto [i, operand] : llvm::enumerate(ret.getOperands())) {
    std::optional<BlockArgument> argument = updatedBy(func, i);
    if (!argument)
      continue;
    if (*argument == nullptr || argument->getType() != operand.getType())
      return ret.emitError() << "result " << i << " updates no argument of its type";
    Update update{viewBase(operand), *argument, {}};
    if (!placement.place(update.value, update.replaced, update.chain) ||
        llvm::any_of(update.chain, [&](Value v) { return elsewhere.contains(v); }))
      update.chain.clear();
    elsewhere.insert(update.chain.begin(), update.chain.end());
    updates.push_back(std::move(update));
  }
  return success();
}

/// Has the buffer of what comes from outside at hand.
LogicalResult EntryBuilder::fetch(Value tensor) {
  auto arg = dyn_cast<BlockArgument>(tensor);
  bool comesIn =
      arg ? arg.getOwner() == &func.getBody().front() : isa<ParameterOp, GlobalLoadOp>(tensor.getDefiningOp());
  return success(!comesIn || succeeded(buffer(tensor)));
}

FailureOr<Value> EntryBuilder::buffer(Value tensor) {
  if (Value known = buffers.lookup(tensor))
    return known;
  if (Value memory = placed(tensor))
    return buffers[tensor] = memory;
  Value &slot = buffers[tensor];
  if (auto arg = dyn_cast<BlockArgument>(tensor); arg && arg.getOwner() == &func.getBody().front()) {
    StringAttr state = stateOf(arg);
    if (!state)
      return slot = InputOp::create(b, loc, pointer, call, arg.getArgNumber());
    return slot = RtParameterOp::create(b, loc, pointer, call, state, TypeAttr::get(arg.getType()), b.getUnitAttr());
  }
  Operation *def = tensor.getDefiningOp();
  if (auto parameter = dyn_cast<ParameterOp>(def)) {
    Value &fetched = bySource[parameter.getName()];
    if (!fetched)
      fetched = RtParameterOp::create(b, loc, pointer, call, parameter.getNameAttr(), TypeAttr::get(tensor.getType()),
                                      UnitAttr());
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

/// Fetches what calls read before the first launch: a failure then leaves nothing half done.
LogicalResult EntryBuilder::fetchOperands() {
  WalkResult result = func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<CallOp, InvokeOp, BindOp, LoopOp, BranchOp, NextOp, TensorYieldOp>(op))
      for (Value operand : op->getOperands())
        if (isa<RankedTensorType>(operand.getType()) && failed(fetch(viewBase(operand))))
          return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// Guards of the block on symbols that have values between these epochs.
void EntryBuilder::emitGuards(Block &block, unsigned first, unsigned last) {
  for (GuardOp fact : block.getOps<GuardOp>()) {
    unsigned epoch = epochOf({fact.getLhs().getValue(), fact.getRhs().getValue()}, step.lookup(fact));
    if (first <= epoch && epoch <= last)
      guardFact(fact);
  }
}

/// Symbols that computed extents give their values.
LogicalResult EntryBuilder::bindComputed(ArrayAttr symbols, ValueRange values, StringRef what) {
  for (auto [name, value] : llvm::zip(symbols.getAsRange<FlatSymbolRefAttr>(), values)) {
    auto symbol = module.lookupSymbol<SymbolOp>(name.getValue());
    guardRange(symbol, value, -1, -1, what);
    BindSymbolOp::create(b, loc, name.getValue(), value, /*computed=*/true);
  }
  return success();
}

/// Symbols have values now, and with them what depends on them.
LogicalResult EntryBuilder::beginEpoch(Operation *binding) {
  Block &block = *binding->getBlock();
  unsigned epoch = epochAfter.lookup(binding);
  emitGuards(block, epoch, epoch);
  if (&block == &func.getBody().front() && failed(assignResults(epoch)))
    return failure();
  assignTemporaries(epoch);
  return success();
}

/// An element of a tensor without dimensions, as the host reads it.
FailureOr<Value> EntryBuilder::loadScalar(Value tensor, Type type) {
  std::optional<Layout> layout = viewLayout(tensor, shapes);
  FailureOr<Value> data = buffer(viewBase(tensor));
  if (!layout || failed(data))
    return failure();
  Value address =
      OffsetOp::create(b, loc, pointer, *data, dim(layout->offset * SymExpr(elementBytes(tensor.getType()))));
  return LLVM::LoadOp::create(b, loc, type, address).getResult();
}

Value EntryBuilder::outputMemory(Value shaped, unsigned number) {
  if (isProcedure && resultMemory[number].getType() == pointer)
    return resultMemory[number];
  if (isProcedure)
    return SlotOp::create(b, loc, pointer, call, resultMemory[number], dim(bytesOf(shaped)), /*keep=*/false);
  SmallVector<Value> extents;
  for (const SymExpr &expr : shapes.dims(shaped))
    extents.push_back(dim(expr));
  return OutputOp::create(b, loc, pointer, call, extents, number);
}

Value EntryBuilder::slot(const SymExpr &number, const SymExpr &bytes, bool keep) {
  Value which = dim(number);
  if (isProcedure)
    which = arith::AddIOp::create(b, loc, firstSlot, which);
  return SlotOp::create(b, loc, pointer, call, which, dim(bytes), keep);
}

/// Memory that was not known before the value is computed; null if there is none.
Value EntryBuilder::placed(Value value) {
  auto found = places.find(value);
  if (found == places.end())
    return {};
  const Place &place = found->second;
  switch (place.kind) {
  case Place::Output:
    return outputMemory(place.shaped, place.number);
  case Place::Slot:
    return slot(SymExpr(place.number) + SymExpr::mod(LoopOp(place.loop).getIndexExpr(), SymExpr(2)), bytesOf(value),
                /*keep=*/false);
  case Place::Row: {
    SymExpr index = LoopOp(place.loop).getIndexExpr(), row = bytesOf(value);
    Value stack = slot(SymExpr(place.number), (index + SymExpr(1)) * row, /*keep=*/true);
    return OffsetOp::create(b, loc, pointer, stack, dim(index * row));
  }
  }
  llvm_unreachable("unknown place");
}

void EntryBuilder::copy(Value target, Value source, const SymExpr &bytes) {
  CopyOp::create(b, loc, target, source, dim(bytes), sanitize ? call : Value());
}

LogicalResult EntryBuilder::emit(Block &block) {
  for (Operation &op : block) {
    if (auto loop = dyn_cast<LoopOp>(op)) {
      if (failed(emit(loop)))
        return failure();
    } else if (auto branch = dyn_cast<BranchOp>(op)) {
      if (failed(emit(branch)))
        return failure();
    } else if (auto bind = dyn_cast<BindOp>(op)) {
      if (failed(lowerBind(bind)))
        return failure();
    } else if (auto invoke = dyn_cast<InvokeOp>(op)) {
      if (failed(emit(invoke)))
        return failure();
    } else if (isa<CallOp>(op)) {
      SmallVector<Value> tensors(op.getOperands()), list;
      llvm::append_range(tensors, op.getResults());
      for (Value v : tensors) {
        FailureOr<Value> data = buffer(viewBase(v));
        if (failed(data))
          return failure();
        list.push_back(*data);
      }
      auto launch = LaunchOp::create(b, op.getLoc(), call, cast<CallOp>(op).getCallee(), list,
                                     /*bytes=*/Attribute(), /*texts=*/ArrayAttr());
      if (sanitize)
        describeBuffers(launch, cast<CallOp>(op));
    }
    if (epochAfter.contains(&op) && failed(beginEpoch(&op)))
      return failure();
  }
  return success();
}

LogicalResult EntryBuilder::describeInterface(SmallVector<Attribute> &inputs, SmallVector<Attribute> &outputs) {
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  llvm::SmallDenseSet<Value> updated;
  for (auto [i, operand] : llvm::enumerate(ret.getOperands())) {
    if (std::optional<BlockArgument> argument = updatedBy(func, i))
      updated.insert(*argument);
    else
      outputs.push_back(describe("output", i, operand.getType(), func.getResultAttrDict(i), shapes.dims(operand)));
  }
  for (BlockArgument arg : func.getArguments()) {
    unsigned i = arg.getArgNumber();
    if (!stateOf(arg))
      inputs.push_back(
          describe("input", i, arg.getType(), func.getArgAttrDict(i), shapes.dims(arg), updated.contains(arg)));
    else if (i + 1 != func.getNumArguments() && !stateOf(func.getArgument(i + 1)))
      return func.emitError() << "argument " << i << " is state and comes before an input";
  }
  return success();
}

LogicalResult EntryBuilder::run() {
  auto symbols = func->getAttrOfType<ArrayAttr>(InvokeOp::getProcedureAttrName());
  isProcedure = !!symbols;
  return isProcedure ? runProcedure(symbols) : runEntry();
}

LogicalResult EntryBuilder::runEntry() {
  SmallVector<Attribute> inputs, outputs;
  if (failed(describeInterface(inputs, outputs)) || failed(planUpdates()))
    return failure();
  entry = EntryOp::create(b, loc, (func.getName() + "$entry").str(), StringAttr(), b.getArrayAttr(inputs),
                          b.getArrayAttr(outputs));
  Block *block = &entry.getBody().emplaceBlock();
  call = block->addArgument(pointer, loc);
  b.setInsertionPointToStart(block);
  Block &flow = func.getBody().front();
  numberSteps(flow);
  if (sanitize)
    SanitizeOp::create(b, loc, call);
  if (failed(bindSymbols()) || failed(build(flow)))
    return failure();
  ReturnOp::create(b, loc, ValueRange());
  std::string name = func.getName().str();
  func.erase();
  entry.setSymName(name);
  return success();
}

/// Arguments, memory for results and the values of symbols come in; memory for temporaries is the activation's.
LogicalResult EntryBuilder::runProcedure(ArrayAttr symbols) {
  auto procedure = ProcedureOp::create(b, loc, b.getStringAttr(func.getName() + "$procedure"),
                                       b.getStringAttr("private"), FlatSymbolRefAttr(), Attribute());
  Block *block = &procedure.getBody().emplaceBlock();
  call = block->addArgument(pointer, loc);
  for (BlockArgument argument : func.getArguments())
    buffers[argument] = block->addArgument(pointer, loc);
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    resultMemory.push_back(block->addArgument(InvokeOp::isOpen(func, i) ? b.getIndexType() : pointer, loc));
  SmallVector<Value> values;
  for (unsigned i = 0; i < symbols.size(); ++i)
    values.push_back(block->addArgument(b.getIndexType(), loc));
  b.setInsertionPointToStart(block);
  auto enter = EnterOp::create(b, loc, b.getIndexType(), b.getIndexType(), call, 0);
  firstSlot = enter.getSlot();
  Block &flow = func.getBody().front();
  numberSteps(flow);
  if (failed(bindComputed(symbols, values, func.getName())) || failed(build(flow)))
    return failure();
  enter.setSlots(slots);
  LeaveOp::create(b, loc, call, firstSlot, enter.getMark());
  SmallVector<Value> given;
  for (auto [result, index] : InvokeOp::givenBy(func))
    given.push_back(dim(func.getResultAttrOfType<DimsAttr>(result, ShapeDialect::getDimsAttrName()).getDims()[index]));
  ReturnOp::create(b, loc, given);
  if (Attribute places = func->getAttr(InvokeOp::getGivenAttrName()))
    procedure->setAttr(InvokeOp::getGivenAttrName(), places);
  std::string name = func.getName().str();
  func.erase();
  procedure.setSymName(name);
  return success();
}

/// Emits two procedures: one runs the plan, the other returns the size of its arena. The entry has checked the shapes.
LogicalResult EntryBuilder::runPlan(StringRef of, ArrayRef<StringAttr> symbols) {
  auto begin = [&](const Twine &name) {
    auto procedure = ProcedureOp::create(b, loc, b.getStringAttr(name), b.getStringAttr("private"),
                                         FlatSymbolRefAttr::get(b.getContext(), of), func->getAttr(kExtraCost));
    Block *block = &procedure.getBody().emplaceBlock();
    call = block->addArgument(pointer, loc);
    for (unsigned i = 0; i < symbols.size(); ++i)
      block->addArgument(b.getIndexType(), loc);
    b.setInsertionPointToStart(block);
    for (auto [name, value] : llvm::zip(symbols, block->getArguments().drop_front()))
      BindSymbolOp::create(b, loc, name.getValue(), value, /*computed=*/false);
    return procedure;
  };
  ProcedureOp procedure = begin(func.getName() + "$procedure");
  Block &flow = func.getBody().front();
  numberSteps(flow);
  if (failed(planUpdates()) || failed(build(flow)))
    return failure();
  ReturnOp::create(b, loc, ValueRange());

  b.setInsertionPoint(func);
  begin(sizeName(func))->removeAttr("extra_cost");
  Part part = layOut(0);
  ReturnOp::create(b, loc, part.temporaries.empty() ? dim(SymExpr(0)) : part.offsets.bytes);
  std::string name = func.getName().str();
  func.erase();
  procedure.setSymName(name);
  return success();
}

/// What is computed, from the checks of shapes on.
LogicalResult EntryBuilder::build(Block &flow) {
  if (!func->hasAttr(kPlanOf))
    emitGuards(flow, 0, 0);
  planTemporaries();
  if (entry && func.getName() == "main")
    fit();
  if (failed(assignResults(0)))
    return failure();
  for (const Update &update : updates) {
    FailureOr<Value> memory = buffer(update.replaced);
    if (failed(memory) || failed(fetch(update.value)))
      return failure();
    for (Value v : update.chain)
      buffers[v] = *memory;
  }
  for (const Copy &copy : copies)
    if (failed(fetch(copy.value)))
      return failure();
  assignTemporaries(0);
  if (failed(fetchOperands()) || failed(emit(flow)))
    return failure();
  // Last, as nothing can fail any more.
  for (const Copy &c : copies)
    copy(c.target, buffers.lookup(c.value), c.bytes);
  for (const Update &update : updates)
    if (update.chain.empty())
      copy(buffers.lookup(update.replaced), buffers.lookup(update.value), bytesOf(update.replaced));
  return success();
}

namespace {
struct PlanArena : disc::impl::PlanArenaBase<PlanArena> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    ShapeAnalysis shapes(module);
    SmallVector<func::FuncOp> entries;
    llvm::DenseMap<StringAttr, SmallVector<func::FuncOp>> plans;
    for (auto func : module.getOps<func::FuncOp>())
      if (auto of = func->getAttrOfType<FlatSymbolRefAttr>(kPlanOf))
        plans[of.getAttr()].push_back(func);
      else
        entries.push_back(func);
    for (func::FuncOp func : entries)
      if (failed(build(func, plans.lookup(func.getSymNameAttr()), shapes)))
        return signalPassFailure();
  }

  LogicalResult build(func::FuncOp func, ArrayRef<func::FuncOp> plans, ShapeAnalysis &shapes) {
    EntryBuilder entry(func, shapes, sanitize);
    entry.plans.assign(plans.begin(), plans.end());
    std::string name = func.getName().str();
    if (failed(entry.run()))
      return failure();
    for (func::FuncOp plan : entry.plans)
      if (failed(EntryBuilder(plan, shapes, sanitize).runPlan(name, entry.symbols())))
        return failure();
    return success();
  }
};
} // namespace
