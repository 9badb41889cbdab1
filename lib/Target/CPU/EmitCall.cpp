//===- EmitCall.cpp - kernels that call a native function -------------------===//
//
//   disc_plan.kernel_func call @sort { %v, %i = disc_tensor.call "sort" (%x) ... ; disc_plan.yield %v, %i }
//
// describes the buffers on the stack, from layouts and symbols, and calls the function once for its range of tasks:
//
//   disc_view views[3] = {{%x, dtype, rank, dims, strides}, ...}; int64_t config[1] = {...}
//   %status = disc_fn_sort(%call, views, config, %begin, %end, %scratch)
//   scf.if (%status != 0) { disc_rt_function_at(%call, %status, "aten.sort at model.py:3") }
//
// The interface is lib/Runtime/Functions/Function.h.
//
// Lit test: test/lit/CPU/emit-call.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Functions/Function.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/Common/ElementTypes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::disc;

/// A name without its function is a mistake that only a link would find.
static bool isFunction(StringRef name) {
  static const llvm::StringSet<> names = {
#define DISC_FUNCTION(name) #name,
#include "lib/Runtime/Functions/Functions.def"
#undef DISC_FUNCTION
  };
  return names.contains(name);
}

namespace {
class CallEmitter {
public:
  CallEmitter(KernelEmission &e, CallFunctionOp op)
      : e(e), op(op), b(e.builder), loc(e.kernel.getLoc()), points(b, e.kernel, e.args(), /*lanes=*/1, e.shapes),
        module(e.kernel->getParentOfType<ModuleOp>()), i32(b.getI32Type()), i64(b.getI64Type()),
        ptr(LLVM::LLVMPointerType::get(b.getContext())) {}

  LogicalResult run();

private:
  Value number(int64_t value) { return points.constant(b.getI64IntegerAttr(value)); }
  Value toI64(const SymExpr &expr) { return arith::IndexCastOp::create(b, loc, i64, points.expr(expr)); }
  Value array(int64_t slots);
  Value slot(Value array, int64_t i);
  void store(Value value, Value array, int64_t i) { LLVM::StoreOp::create(b, loc, value, slot(array, i)); }
  /// The addresses of consecutive numbers.
  Value numbers(ArrayRef<SymExpr> values);
  LogicalResult describe(Value views, unsigned operand, Value tensor, unsigned buffer);

  KernelEmission &e;
  CallFunctionOp op;
  OpBuilder &b;
  Location loc;
  PointEmitter points;
  ModuleOp module;
  Type i32, i64, ptr;
};
} // namespace

/// 8-byte slots on the stack; at least one, so that there is an address.
Value CallEmitter::array(int64_t slots) {
  Value one = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
  auto type = LLVM::LLVMArrayType::get(i64, std::max<int64_t>(slots, 1));
  return LLVM::AllocaOp::create(b, loc, ptr, type, one, /*alignment=*/16);
}

Value CallEmitter::slot(Value array, int64_t i) {
  return LLVM::GEPOp::create(b, loc, ptr, i64, array, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)},
                             LLVM::GEPNoWrapFlags::inbounds);
}

Value CallEmitter::numbers(ArrayRef<SymExpr> values) {
  Value result = array(values.size());
  for (auto [i, value] : llvm::enumerate(values))
    store(toI64(value), result, i);
  return result;
}

/// Fills one disc_view, whose fields are slots.
LogicalResult CallEmitter::describe(Value views, unsigned operand, Value tensor, unsigned buffer) {
  Type element = getElementTypeOrSelf(tensor.getType());
  auto unsignedOperands = op.getUnsignedOperands().value_or(ArrayRef<int64_t>());
  std::optional<int64_t> dtype = interfaceDtype(element, llvm::is_contained(unsignedOperands, operand));
  if (!dtype)
    return op.emitError() << "operand " << operand << " has elements of type " << element
                          << ", which functions do not know";
  LayoutAttr layout = e.kernel.getLayout(buffer);
  int64_t bytes = llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  Value data =
      buffer < e.kernel.getNumInputs() ? points.operandPtr(buffer) : points.resultPtr(buffer - e.kernel.getNumInputs());
  SymExpr offset = layout.getOffset().getValue() * SymExpr(bytes);
  if (!offset.isConstant(0))
    data = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), data, ArrayRef<LLVM::GEPArg>{toI64(offset)});
  SmallVector<SymExpr> dims = e.shapes.dims(tensor);
  constexpr int64_t fields = sizeof(disc_view) / 8;
  static_assert(fields == 5);
  int64_t first = operand * fields;
  store(data, views, first);
  store(number(*dtype), views, first + 1);
  store(number(dims.size()), views, first + 2);
  store(numbers(dims), views, first + 3);
  store(numbers(layout.getStrides().getDims()), views, first + 4);
  return success();
}

LogicalResult CallEmitter::run() {
  if (!isFunction(op.getFunction()))
    return op.emitError() << "the runtime has no function '" << op.getFunction() << "'";
  unsigned numInputs = op.getInputs().size(), numOperands = numInputs + op.getOutputs().size();
  Value views = array(numOperands * sizeof(disc_view) / 8);
  for (auto [i, input] : llvm::enumerate(op.getInputs())) {
    auto arg = dyn_cast<BlockArgument>(input);
    if (!arg)
      return op.emitError() << "operand " << i << " is not in a buffer";
    if (failed(describe(views, i, input, arg.getArgNumber())))
      return failure();
  }
  for (auto [i, output] : llvm::enumerate(op.getOutputs()))
    if (failed(describe(views, numInputs + i, output, e.kernel.getNumInputs() + i)))
      return failure();
  for (Value v : op.getConfig())
    if (!ShapeAnalysis::isExpressible(e.shapes.expr(v)))
      return op.emitError("a number of its config is not known before it runs");
  Value config = numbers(llvm::map_to_vector(op.getConfig(), [&](Value v) { return e.shapes.expr(v); }));

  auto function =
      LLVM::lookupOrCreateFn(b, module, ("disc_fn_" + op.getFunction()).str(), {ptr, ptr, ptr, i64, i64, ptr}, i32);
  auto report = LLVM::lookupOrCreateFn(b, module, "disc_rt_function_at", {ptr, i32, ptr},
                                       LLVM::LLVMVoidType::get(b.getContext()));
  if (failed(function) || failed(report))
    return failure();
  Value call = points.callPtr();
  Value status =
      LLVM::CallOp::create(b, loc, *function, ValueRange{call, views, config, e.begin(), e.end(), e.scratch()})
          .getResult();
  Value ok = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(DISC_OK));
  Value bad = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, status, ok);
  emitIf(b, loc, bad, {}, [&] {
    Value what = textAddress(b, loc, module, op.getWhat());
    LLVM::CallOp::create(b, loc, *report, ValueRange{call, status, what});
    return SmallVector<Value>();
  });
  return success();
}

LogicalResult mlir::disc::emitCall(KernelEmission &e) {
  auto op = e.kernel.getYield().getValues().front().getDefiningOp<CallFunctionOp>();
  if (!op || op.getOutputs() != e.kernel.getYield().getValues())
    return e.kernel.emitError("a call kernel must yield the results of one disc_tensor.call");
  return CallEmitter(e, op).run();
}
