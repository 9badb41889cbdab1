//===- HoistParameters.cpp - parameter-only work into @init ---------------===//
//
//   func.func @main(...) {
//     %w = disc_tensor.parameter "w" : tensor<8x4xf32>
//     %h = disc_plan.kernel loop ins(%w : ...) -> tensor<8x4xf32> ...
//     ... uses %h ...
// becomes
//   disc_plan.global @h : tensor<8x4xf32>
//   func.func @init() {
//     %w = disc_tensor.parameter "w" : tensor<8x4xf32>
//     %h = disc_plan.kernel loop ins(%w : ...) -> tensor<8x4xf32> ...
//     disc_plan.global_store @h, %h
//   func.func @main(...) {
//     %h = disc_plan.global_load @h : tensor<8x4xf32>
//
// Only results with static shapes move: an extent that depends on an input is not known at load. @init exists even
// when nothing moves, so that every artifact has both entries.
//
// Test: test/lit/Schedule/hoist-parameters.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/KnownAtLoad.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {
#define GEN_PASS_DEF_HOISTPARAMETERS
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct HoistParameters : disc::impl::HoistParametersBase<HoistParameters> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto main = module.lookupSymbol<func::FuncOp>("main");
    if (!main || module.lookupSymbol("init"))
      return;
    OpBuilder b(main);
    auto init = func::FuncOp::create(b, main.getLoc(), "init", b.getFunctionType({}, {}));
    OpBuilder body = OpBuilder::atBlockBegin(init.addEntryBlock());

    KnownAtLoad known;
    llvm::SmallPtrSet<Operation *, 16> constant;
    // What is outside comes first.
    SmallVector<Block *> blocks;
    for (auto func : module.getOps<func::FuncOp>())
      if (SmallVector<Block *> inner = hostBlocks(func); func != init)
        blocks.append(inner.rbegin(), inner.rend());
    for (Block *block : blocks)
      for (Operation &op : *block)
        if (known.contains(&op))
          constant.insert(&op);

    IRMapping map;
    unsigned count = 0;
    for (Block *block : blocks)
      for (Operation &op : llvm::make_early_inc_range(*block)) {
        auto kernel = dyn_cast<KernelOp>(op);
        if (!kernel || !constant.contains(kernel))
          continue;
        cloneInto(kernel, body, map);
        for (OpResult result : kernel->getResults()) {
          bool needed = llvm::any_of(result.getUsers(), [&](Operation *user) { return !constant.contains(user); }) ||
                        llvm::any_of(result.getUsers(), [](Operation *user) { return isView(user); });
          if (!needed)
            continue;
          std::string name = ("hoisted" + Twine(count++) + "_" + kernel.getName().value_or("value")).str();
          b.setInsertionPoint(init);
          GlobalOp::create(b, kernel.getLoc(), b.getStringAttr(name), StringAttr(), TypeAttr::get(result.getType()));
          GlobalStoreOp::create(body, kernel.getLoc(), name, map.lookup(result));
          OpBuilder at(kernel);
          Value load = GlobalLoadOp::create(at, kernel.getLoc(), result.getType(), name);
          result.replaceUsesWithIf(load, [&](OpOperand &use) { return use.getOwner() != load.getDefiningOp(); });
        }
      }
    func::ReturnOp::create(body, main.getLoc());
    for (auto func : module.getOps<func::FuncOp>())
      if (func != init)
        eraseDead(func);
  }

  static void cloneInto(Operation *op, OpBuilder &b, IRMapping &map) {
    if (map.contains(op->getResult(0)))
      return;
    for (Value operand : op->getOperands())
      cloneInto(operand.getDefiningOp(), b, map);
    b.clone(*op, map);
  }
};
} // namespace
