//===- LowerExternCalls.cpp - calls of back ends to calls of the runtime ---------===//
//
//   %y = disc_plan.extern_call @region1(%x) sizes(%s) numbers(%n) "a: aten.linear at model.py:3" ...
// becomes
//   %y = disc_tensor.call "region" (%x) sizes(%s) config(%c1, %c1, %c1, %c1, %n) tasks %c1 scratch %c0 "a: ..."
//
// The numbers are which `disc_plan.extern` of the module, how many operands, results and numbers, and the numbers. From
// here on a region is a native function like a sort: views of its operands fold into their strides, its results get
// memory from the plan of the arena, and a device has it run on the host.
//
// Test: test/lit/Fusion/lower-extern-calls.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::disc {
#define GEN_PASS_DEF_LOWEREXTERNCALLS
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct LowerExternCalls : disc::impl::LowerExternCallsBase<LowerExternCalls> {
  void runOnOperation() override {
    llvm::StringMap<int64_t> numbers;
    for (auto callee : getOperation().getOps<ExternOp>())
      numbers.try_emplace(callee.getSymName(), numbers.size());
    SmallVector<ExternCallOp> calls;
    getOperation().walk([&](ExternCallOp op) { calls.push_back(op); });
    for (ExternCallOp op : calls) {
      OpBuilder b(op);
      auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, op.getLoc(), value); };
      SmallVector<Value> config = {constant(numbers.lookup(op.getCallee())),
                                   constant(static_cast<int64_t>(op.getInputs().size())),
                                   constant(static_cast<int64_t>(op.getOutputs().size())),
                                   constant(static_cast<int64_t>(op.getNumbers().size()))};
      llvm::append_range(config, op.getNumbers());
      auto call = CallFunctionOp::create(b, op.getLoc(), op.getResultTypes(), b.getStringAttr("region"), op.getInputs(),
                                         op.getSizes(), config, constant(1), constant(0), op.getWhatAttr(),
                                         op.getUnsignedOperandsAttr(), UnitAttr(), UnitAttr(), DenseI64ArrayAttr());
      if (Attribute dims = op->getAttr(ShapeDialect::getDimsAttrName()))
        call->setAttr(ShapeDialect::getDimsAttrName(), dims);
      op.replaceAllUsesWith(call);
      op.erase();
    }
  }
};
} // namespace
