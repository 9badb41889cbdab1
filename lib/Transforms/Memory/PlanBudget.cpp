//===- PlanBudget.cpp - alternatives of the host flow with less memory ----===//
//
//   func.func @main(...) {
//     %a = disc_plan.call @f(%x)
//     %b = disc_plan.call @g(%a)
//     ...
//     %c = disc_plan.call @m(%l, %a)       // %a is alive all the time
// gets a second function
//   func.func private @main.plan1(...) attributes {disc_plan.plan_of = @main, ...} {
//     %a = disc_plan.call @f(%x)
//     %b = disc_plan.call @g(%a)
//     ...
//     %again = disc_plan.call @f(%x) {disc_plan.again}
//     %c = disc_plan.call @m(%l, %again)
//
// All plans run the kernels of @main in its order, so their results have the same bits. Which plan fits a memory budget
// depends on the sizes of a call. The pass searches plans at several sizes (Recompute.h), with limits from the peak
// down to the least memory that it finds. It measures each plan at all of these sizes, and keeps the few that save most
// time over all sizes and limits. They are numbered in the order of their cost.
//
// A step does not run again after an update of something that it reads, nor if it updates something itself.
//
// Test: test/lit/Memory/plan-budget.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/ArenaPlanner.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Memory/Recompute.h"
#include "lib/Transforms/Memory/TensorBytes.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <functional>
#include <set>

namespace mlir::disc {
#define GEN_PASS_DEF_PLANBUDGET
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
using Sizes = llvm::StringMap<int64_t>;

/// The steps of a function, and how to make a plan from a schedule of them.
class FlowPlanner {
public:
  FlowPlanner(func::FuncOp func, ShapeAnalysis &shapes)
      : func(func), shapes(shapes), module(func->getParentOfType<ModuleOp>()) {}

  /// False if the function contains operations that plans do not support.
  bool collect();
  SmallVector<Sizes> samples();
  StepFlow at(const Sizes &sizes);
  void emit(const StepSchedule &schedule, unsigned number);
  /// Of all steps.
  SymExpr cost();

private:
  bool isRepeatable(Operation *op);
  bool isRepeatable(CallOp call);
  void addReads(Operation *op, unsigned number);
  SymExpr costOf(Operation *op);
  int64_t innerBytes(Operation *op, const Sizes &sizes);
  SymExpr bytesOf(Value tensor) {
    return SymExpr::product(shapes.dims(tensor)) * SymExpr(elementBytes(tensor.getType()));
  }
  int64_t evaluate(const SymExpr &expr, const Sizes &sizes) {
    // What is computed on the way is at its usual size.
    return std::clamp<int64_t>(expr.evaluate(sizes).value_or(shapes.typical(expr)), 0, int64_t(1) << 50);
  }

  func::FuncOp func;
  ShapeAnalysis &shapes;
  ModuleOp module;
  Operation *last = func;       // what the next plan comes after
  SmallVector<Operation *> ops; // the steps
  llvm::MapVector<Value, unsigned> numbers;
  SmallVector<SymExpr> bytes, costs; // of values, of steps
  StepFlow flow;                     // without sizes
  InPlaceKernels inPlaceResults{module, shapes};
};
} // namespace

/// Code of others may give other bits the second time.
bool FlowPlanner::isRepeatable(CallOp call) {
  auto callee = module.lookupSymbol<KernelFuncOp>(call.getCallee());
  return callee && !callee.walk([](ExternCallOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Loops and branches that bind no symbols for what comes after them, and in which no size changes.
bool FlowPlanner::isRepeatable(Operation *op) {
  if (auto call = dyn_cast<CallOp>(op))
    return isRepeatable(call);
  auto loop = dyn_cast<LoopOp>(op);
  if (loop && (!loop.getCount() || loop.getCondition() || loop.getTrips() || !loop.getSymbols().empty() ||
               !loop.getLastSymbols().empty()))
    return false;
  if (auto branch = dyn_cast<BranchOp>(op); !loop && (!branch || !branch.getSymbols().empty()))
    return false;
  for (Region &region : op->getRegions())
    for (Operation &inner : region.front()) {
      if (isa<InvokeOp, BindOp, GlobalStoreOp>(inner) ||
          (isa<CallOp, LoopOp, BranchOp>(inner) && !isRepeatable(&inner)))
        return false;
      for (Value result : inner.getResults())
        if (loop && isa<CallOp, LoopOp, BranchOp>(inner) && isa<RankedTensorType>(result.getType()))
          for (const std::string &name : bytesOf(result).symbols())
            if (name == loop.getIndex())
              return false;
    }
  return true;
}

/// What a kernel takes is in its schedule; what has none is as fast as memory.
SymExpr FlowPlanner::costOf(Operation *op) {
  if (auto call = dyn_cast<CallOp>(op)) {
    auto kernel = module.lookupSymbol<KernelFuncOp>(call.getCallee());
    ExprAttr tasks = kernel ? kernel.getTasksAttr() : ExprAttr();
    ExprAttr cost = kernel ? kernel.getCostAttr() : ExprAttr();
    if (tasks && cost)
      return tasks.getValue() * cost.getValue();
    constexpr int64_t kBytesPerNs = 8;
    SymExpr moved(0);
    for (Value v : llvm::concat<Value>(SmallVector<Value>(call.getInputs()), SmallVector<Value>(call.getOutputs())))
      moved = moved + bytesOf(v);
    return SymExpr::floorDiv(moved, SymExpr(kBytesPerNs));
  }
  SymExpr sum(0);
  for (Region &region : op->getRegions())
    for (Operation &inner : region.front())
      if (isa<CallOp, LoopOp, BranchOp>(inner))
        sum = sum + costOf(&inner);
  if (auto loop = dyn_cast<LoopOp>(op); loop && loop.getCount())
    sum = sum * shapes.expr(loop.getCount());
  return sum;
}

/// The most that is alive at once in a loop or branch, roughly: its own results have memory outside.
int64_t FlowPlanner::innerBytes(Operation *op, const Sizes &sizes) {
  int64_t most = 0;
  for (Region &region : op->getRegions()) {
    llvm::DenseMap<Operation *, int64_t> ending;
    int64_t live = 0;
    for (Operation &inner : region.front()) {
      if (!isa<CallOp, LoopOp, BranchOp>(inner))
        continue;
      for (Value result : inner.getResults()) {
        if (!isa<RankedTensorType>(result.getType()))
          continue;
        int64_t size = evaluate(bytesOf(result), sizes);
        Operation *last = &inner;
        for (Operation *user : result.getUsers())
          if (Operation *here = region.front().findAncestorOpInBlock(*user); here && last->isBeforeInBlock(here))
            last = here;
        live += size;
        ending[last] += size;
      }
      most = std::max(most, live + innerBytes(&inner, sizes));
      live -= ending.lookup(&inner);
    }
  }
  // Carried tensors have two buffers in turns.
  if (auto loop = dyn_cast<LoopOp>(op))
    for (Value result : loop.getOutputs().take_front(loop.getNumCarried()))
      most += evaluate(bytesOf(result), sizes);
  return most;
}

/// The values that a step reads, in its regions too.
void FlowPlanner::addReads(Operation *op, unsigned number) {
  std::vector<unsigned> &reads = flow.steps[number].reads;
  op->walk([&](Operation *inner) {
    if (isView(inner))
      return;
    for (Value operand : inner->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        if (auto found = numbers.find(viewBase(operand));
            found != numbers.end() && !llvm::is_contained(reads, found->second))
          reads.push_back(found->second);
  });
}

bool FlowPlanner::collect() {
  Block &block = func.getBody().front();
  if (func.walk([](InvokeOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return false;
  for (Operation &op : block)
    if (isa<CallOp, LoopOp, BranchOp, BindOp, GlobalStoreOp>(op) || op.hasTrait<OpTrait::IsTerminator>())
      ops.push_back(&op);
  // What has memory of its own: results, and new values in the memory of what they update.
  llvm::SmallDenseSet<Value> lasting;
  for (auto store : block.getOps<GlobalStoreOp>())
    lasting.insert(viewBase(store.getValue()));
  llvm::DenseMap<Operation *, int64_t> place;
  for (auto [number, op] : llvm::enumerate(ops))
    place[op] = number;
  llvm::DenseMap<Value, int64_t> updatedAt; // arguments, by the step that first writes to their memory
  llvm::SmallDenseSet<Operation *> updating;
  UpdatePlacement placement(block, [&](CallOp kernel) { return inPlaceResults(kernel); });
  for (auto [i, operand] : llvm::enumerate(block.getTerminator()->getOperands())) {
    Value base = viewBase(operand);
    std::optional<BlockArgument> argument = updatedBy(func, i);
    if (!argument || !*argument) {
      lasting.insert(base);
      continue;
    }
    SmallVector<Value> chain;
    if (!placement.place(base, *argument, chain))
      continue; // copied at the end
    int64_t first = StepFlow::kAlways;
    for (Value v : chain) {
      lasting.insert(v);
      updating.insert(v.getDefiningOp());
      first = std::min(first, place.lookup(v.getDefiningOp()));
    }
    updatedAt[*argument] = first;
  }

  flow.steps.resize(ops.size());
  for (auto [number, op] : llvm::enumerate(ops)) {
    StepFlow::Step &step = flow.steps[number];
    costs.push_back(isa<CallOp, LoopOp, BranchOp>(op) ? costOf(op) : SymExpr(0));
    addReads(op, number);
    if (!isa<CallOp, LoopOp, BranchOp>(op) || updating.contains(op) || !isRepeatable(op))
      step.repeatableUntil = StepFlow::kNever;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (auto at = updatedAt.find(viewBase(operand)); at != updatedAt.end())
          step.repeatableUntil = std::min(step.repeatableUntil, at->second);
    });
    for (Value result : op->getResults()) {
      if (!isa<RankedTensorType>(result.getType()))
        continue;
      unsigned value = numbers.size();
      numbers[result] = value;
      flow.values.push_back({0, unsigned(number)});
      step.writes.push_back(value);
      bytes.push_back(lasting.contains(result) ? SymExpr(0) : bytesOf(result));
    }
    auto call = dyn_cast<CallOp>(op);
    if (!call)
      continue;
    ArrayRef<SmallVector<unsigned>> candidates = inPlaceResults(call);
    for (auto [place, result] : llvm::enumerate(call.getOutputs().take_front(candidates.size()))) {
      ArrayRef<unsigned> inputs = candidates[place];
      for (unsigned i : inputs) {
        Value operand = call.getInputs()[i];
        auto found = numbers.find(operand);
        if (InPlaceKernels::covers(call, operand, inputs) && found != numbers.end() &&
            shapes.equal(bytesOf(operand), bytesOf(result)))
          step.inPlace.push_back({numbers[result], found->second});
      }
    }
  }
  return true;
}

SymExpr FlowPlanner::cost() {
  SymExpr sum(0);
  for (const SymExpr &cost : costs)
    sum = sum + cost;
  return shapes.simplify(sum);
}

/// Usual sizes, and those with large symbols.
SmallVector<Sizes> FlowPlanner::samples() {
  constexpr int64_t kUnbounded = 4096;
  std::set<std::string> names;
  for (const SymExpr &expr : llvm::concat<const SymExpr>(bytes, costs))
    for (std::string &name : expr.symbols())
      names.insert(name);
  Sizes usual, large;
  for (const std::string &name : names) {
    SymExpr symbol = SymExpr::symbol(name);
    ShapeAnalysis::Range range = shapes.range(symbol);
    usual[name] = shapes.typical(symbol);
    int64_t low = std::max<int64_t>(range.min.value_or(0), 1);
    large[name] = std::min(range.max.value_or(low + kUnbounded), low + (int64_t(1) << 20));
  }
  SmallVector<Sizes> points = {usual};
  if (names.size() > 1)
    for (const std::string &name : names) {
      points.push_back(usual);
      points.back()[name] = large.lookup(name);
    }
  if (!names.empty())
    points.push_back(large);
  return points;
}

StepFlow FlowPlanner::at(const Sizes &sizes) {
  StepFlow out = flow;
  for (auto [value, size] : llvm::zip(out.values, bytes)) {
    constexpr int64_t line = ArenaPlanner::alignment;
    value.bytes = (evaluate(size, sizes) + line - 1) / line * line;
  }
  for (auto [step, cost, op] : llvm::zip(out.steps, costs, ops)) {
    step.cost = evaluate(cost, sizes);
    step.inner = innerBytes(op, sizes);
  }
  return out;
}

/// A copy of the function, in which each step that is run again is cloned before the first one that needs it.
void FlowPlanner::emit(const StepSchedule &schedule, unsigned number) {
  OpBuilder b(func.getContext());
  b.setInsertionPointAfter(last);
  IRMapping mapping;
  auto plan = cast<func::FuncOp>(b.clone(*func, mapping));
  last = plan;
  plan.setName((func.getName() + ".plan" + Twine(number)).str());
  plan.setPrivate();
  plan->setAttr(kPlanOf, FlatSymbolRefAttr::get(func));

  llvm::DenseMap<Value, unsigned> numberOf; // also of what is computed again
  SmallVector<SmallVector<Value>> results;  // of each run, those that have numbers
  SymExpr extra(0);
  // The first run of each step comes in the function's order: what is run again comes before the next one of these.
  unsigned nextFirst = 0;
  for (const StepSchedule::Run &run : schedule.runs) {
    Operation *own = mapping.lookup(ops[run.step]), *op = own;
    if (run.again) {
      b.setInsertionPoint(mapping.lookup(ops[nextFirst]));
      op = b.clone(*own);
      op->setAttr(kRunAgain, b.getUnitAttr());
      extra = extra + costs[run.step];
    } else {
      nextFirst = run.step + 1;
    }
    llvm::SmallDenseMap<unsigned, Value> wanted;
    for (auto [value, from] : llvm::zip(flow.steps[run.step].reads, run.from)) {
      const std::vector<unsigned> &writes = flow.steps[schedule.runs[from].step].writes;
      wanted[value] = results[from][llvm::find(writes, value) - writes.begin()];
    }
    // A view of what was computed again is a view of its own.
    b.setInsertionPoint(op);
    llvm::SmallDenseMap<Value, Value> views;
    std::function<Value(Value, Value)> over = [&](Value operand, Value base) {
      Operation *view = operand.getDefiningOp();
      if (!view || !isView(view))
        return base;
      Value &known = views[operand];
      if (!known) {
        Value below = over(view->getOperand(0), base);
        Operation *copy = b.clone(*view);
        copy->setOperand(0, below);
        known = copy->getResult(0);
      }
      return known;
    };
    op->walk([&](Operation *inner) {
      for (OpOperand &operand : inner->getOpOperands()) {
        if (!isa<RankedTensorType>(operand.get().getType()))
          continue;
        Value base = viewBase(operand.get());
        auto found = numberOf.find(base);
        if (found == numberOf.end())
          continue;
        Value right = wanted.lookup(found->second);
        if (right && right != base)
          operand.set(over(operand.get(), right));
      }
    });
    results.emplace_back();
    for (Value result : op->getResults())
      if (isa<RankedTensorType>(result.getType())) {
        numberOf[result] = flow.steps[run.step].writes[results.back().size()];
        results.back().push_back(result);
      }
  }
  plan->setAttr(kExtraCost, ExprAttr::get(func.getContext(), shapes.simplify(extra)));
}

namespace {
/// A schedule, with its peak and what it runs again at each of the sample sizes.
struct Candidate {
  StepSchedule schedule;
  SmallVector<std::pair<int64_t, int64_t>> measured;
};

struct PlanBudget : disc::impl::PlanBudgetBase<PlanBudget> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto main = module.lookupSymbol<func::FuncOp>("main");
    if (!main || main.isExternal() || plans < 1)
      return;
    ShapeAnalysis shapes(module);
    FlowPlanner planner(main, shapes);
    if (!planner.collect())
      return;
    SmallVector<StepFlow> flows;
    for (const Sizes &sizes : planner.samples())
      flows.push_back(planner.at(sizes));
    main->setAttr(kFlowCost, ExprAttr::get(&getContext(), planner.cost()));
    unsigned number = 0;
    for (const Candidate &plan : choose(search(flows), flows))
      planner.emit(plan.schedule, ++number);
  }

  /// From the peak without a limit to the least that is found, in equal ratios.
  static SmallVector<int64_t> limits(const StepFlow &flow, int64_t peak) {
    int64_t fails = 0, works = peak;
    // The least within some percent.
    constexpr int kBisections = 9, kLimits = 10;
    for (int i = 0; i < kBisections && works - fails > peak / 100; ++i) {
      int64_t middle = fails + (works - fails) / 2;
      (scheduleWithin(flow, middle, /*quick=*/true) ? works : fails) = middle;
    }
    SmallVector<int64_t> out;
    for (int i = 1; i <= kLimits; ++i)
      out.push_back(
          std::max(works, int64_t(double(peak) * std::pow(double(works) / double(peak), double(i) / kLimits))));
    return out;
  }

  SmallVector<Candidate> search(ArrayRef<StepFlow> flows) {
    SmallVector<Candidate> found;
    grid.clear();
    for (const StepFlow &flow : flows) {
      std::optional<StepSchedule> free = scheduleWithin(flow, std::numeric_limits<int64_t>::max() / 2);
      grid.push_back({});
      if (!free || free->peak == 0)
        continue;
      grid.back() = limits(flow, free->peak);
      for (int64_t limit : grid.back()) {
        std::optional<StepSchedule> schedule = scheduleWithin(flow, limit);
        if (schedule && schedule->extra > 0)
          found.push_back({std::move(*schedule), {}});
      }
    }
    for (Candidate &c : found)
      for (const StepFlow &flow : flows)
        c.measured.push_back(measure(c.schedule, flow));
    return found;
  }

  /// Those that make the cost least, over all sizes and limits; in the order of their cost at usual sizes.
  SmallVector<Candidate> choose(SmallVector<Candidate> found, ArrayRef<StepFlow> flows) {
    // A limit that no plan fits counts as much as running the flow so many times.
    constexpr double kImpossible = 10;
    // Another plan has to save this much of a run's time, on average.
    constexpr double kWorthAnother = 0.002;
    SmallVector<std::pair<unsigned, int64_t>> cases; // sizes and a limit
    for (auto [i, limits] : llvm::enumerate(grid))
      for (int64_t limit : limits)
        cases.push_back({unsigned(i), limit});
    auto costIn = [&](const Candidate &c, std::pair<unsigned, int64_t> one) {
      auto [peak, extra] = c.measured[one.first];
      return peak > one.second ? kImpossible : double(extra) / std::max<int64_t>(flows[one.first].cost(), 1);
    };
    SmallVector<double> reached(cases.size(), kImpossible);
    SmallVector<Candidate> chosen;
    while (chosen.size() < plans && !found.empty()) {
      unsigned best = 0;
      double most = -1;
      for (auto [i, c] : llvm::enumerate(found)) {
        double saved = 0;
        for (auto [one, so] : llvm::zip(cases, reached))
          saved += std::max(so - costIn(c, one), 0.0);
        if (saved > most) {
          best = i;
          most = saved;
        }
      }
      if (most < kWorthAnother * double(cases.size()))
        break;
      for (auto [one, so] : llvm::zip(cases, reached))
        so = std::min(so, costIn(found[best], one));
      chosen.push_back(std::move(found[best]));
      found.erase(found.begin() + best);
    }
    llvm::sort(chosen,
               [](const Candidate &a, const Candidate &b) { return a.measured[0].second < b.measured[0].second; });
    return chosen;
  }

  SmallVector<SmallVector<int64_t>> grid; // limits at each of the sizes
};
} // namespace
