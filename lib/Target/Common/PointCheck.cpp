//===- PointCheck.cpp - indices that are checked when the kernel runs ------===//
//
//   %r = disc_tensor.check_index %i below %n wrap "aten.index at model.py:3"
//
// along the lanes, with `%call` from the kernel's last slot, becomes
//
//   %w   = select(%i < 0, %i + %n, %i)
//   %bad = cmpi uge %w, %n                    (and the mask)
//   scf.if (reduce or %bad) { disc_rt_index_failed(%call, @text, the smallest wrong %i, %n) }
//   %r   = max(min(%w, %n - 1), 0)            (what follows must not touch foreign memory)
//
// Lit test: test/lit/CPU/check-index.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/PointEmitter.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <limits>

using namespace mlir;
using namespace mlir::disc;

/// The address of `value` as constant NUL-terminated text; one global for all that say the same.
Value mlir::disc::textAddress(OpBuilder &b, Location loc, ModuleOp module, StringRef value) {
  std::string bytes = value.str();
  bytes.push_back('\0');
  StringAttr content = b.getStringAttr(bytes);
  LLVM::GlobalOp text;
  unsigned count = 0;
  for (auto global : module.getOps<LLVM::GlobalOp>()) {
    count += global.getSymName().starts_with("disc_check_");
    if (global.getValueOrNull() == content)
      text = global;
  }
  if (!text) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    text = LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size()), /*isConstant=*/true,
                                  LLVM::Linkage::Private, ("disc_check_" + Twine(count)).str(), content);
  }
  return LLVM::AddressOfOp::create(b, loc, text);
}

Value PointEmitter::checkIndex(CheckIndexOp op, Value index, Value extent, Value mask) {
  Type i64 = builder.getI64Type(), ptr = LLVM::LLVMPointerType::get(builder.getContext());
  bool lanewise = isa<VectorType>(index.getType()) || isa<VectorType>(extent.getType());
  auto whole = [&](Value v) { return lanewise ? splat(v) : v; };
  auto number = [&](int64_t value) { return whole(constant(builder.getI64IntegerAttr(value))); };
  auto compare = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) -> Value {
    return arith::CmpIOp::create(builder, loc, predicate, lhs, rhs);
  };
  Value i = whole(index), n = whole(extent), wrapped = i;
  if (op.getWrap())
    wrapped = arith::SelectOp::create(builder, loc, compare(arith::CmpIPredicate::slt, i, number(0)),
                                      arith::AddIOp::create(builder, loc, i, n), i);
  Value bad = compare(arith::CmpIPredicate::uge, wrapped, n), any = bad;
  if (lanewise) {
    if (mask)
      bad = arith::AndIOp::create(builder, loc, bad, mask);
    any = vector::ReductionOp::create(builder, loc, vector::CombiningKind::OR, bad);
  }

  if (guard)
    any = arith::AndIOp::create(builder, loc, any, guard);
  auto branch = scf::IfOp::create(builder, loc, any, /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    Scope scope(*this);
    auto module = kernelFunc->getParentOfType<ModuleOp>();
    builder.setInsertionPointToStart(branch.thenBlock());
    Value seen = i, limit = n;
    if (lanewise) {
      seen = arith::SelectOp::create(builder, loc, bad, i, number(std::numeric_limits<int64_t>::max()));
      seen = vector::ReductionOp::create(builder, loc, vector::CombiningKind::MINSI, seen);
      limit = vector::ReductionOp::create(builder, loc, vector::CombiningKind::MAXSI, n);
    }
    if (report) {
      report(seen, limit, op.getWhat());
    } else {
      Value call = callPtr();
      auto callee = LLVM::lookupOrCreateFn(builder, module, "disc_rt_index_failed", {ptr, ptr, i64, i64},
                                           LLVM::LLVMVoidType::get(builder.getContext()));
      if (failed(callee))
        return {};
      LLVM::CallOp::create(builder, loc, *callee,
                           ValueRange{call, textAddress(builder, loc, module, op.getWhat()), seen, limit});
    }
  }
  Value last = arith::SubIOp::create(builder, loc, n, number(1));
  Value below = arith::MinSIOp::create(builder, loc, wrapped, last);
  return arith::MaxSIOp::create(builder, loc, below, number(0));
}
