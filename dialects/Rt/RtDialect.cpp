//===- RtDialect.cpp - the disc_rt dialect --------------------------------===//

#include "dialects/Rt/RtDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

#include "dialects/Rt/RtDialect.cpp.inc"
#include "dialects/Rt/RtEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Rt/RtAttrs.cpp.inc"

void RtDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Rt/RtAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Rt/RtOps.cpp.inc"
      >();
}

LogicalResult ProcedureOp::verify() {
  Block &block = getBody().front();
  if (block.getNumArguments() == 0 || !isa<LLVM::LLVMPointerType>(block.getArgument(0).getType()))
    return emitOpError("the first argument must be the call, a pointer (R5)");
  return success();
}

LogicalResult CheckSizesOp::verify() {
  if (getTerms().size() != getValues().size() || getTerms().size() != getTexts().size() ||
      getNumbers().size() != getNumberTexts().size())
    return emitOpError("each term must have a value and a text, each number a text (R6)");
  return success();
}

LogicalResult LaunchOp::verify() {
  if (!getBytes() == !getTexts() && (!getTexts() || getTexts()->size() == getBuffers().size()))
    return success();
  return emitOpError("each buffer must have a size and a text (R7)");
}

LogicalResult RtLoopOp::verify() {
  auto next = dyn_cast<RtNextOp>(getBody().front().getTerminator());
  TypeRange types = getInits().getTypes();
  if (!next || getBody().front().getArgumentTypes() != types || next.getValues().getTypes() != types ||
      getResults().getTypes() != types || !getCondition() != !next.getCondition())
    return emitOpError("arguments, next values and results must have the types of what comes in (R3)");
  if ((!getCount() && !getCondition()) || (getReverse() && (!getCount() || getCondition())))
    return emitOpError("the loop must have a count or a condition, and only a count if reversed (R8)");
  return success();
}

LogicalResult RtBranchOp::verify() {
  for (Region *side : {&getThenRegion(), &getElseRegion()}) {
    auto give = dyn_cast<GiveOp>(side->front().getTerminator());
    if (!give || give.getValues().getTypes() != getResultTypes())
      return emitOpError("both sides must give values of the types of the results (R4)");
  }
  return success();
}

LogicalResult FitOp::verify() {
  if (getPlans().size() != getSizes().size())
    return emitOpError("must have a size for each plan (R9)");
  return success();
}

LogicalResult EntryOp::verify() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 1 || !isa<LLVM::LLVMPointerType>(block.getArgument(0).getType()))
    return emitOpError("must have one argument, the call, of pointer type (R1)");
  return success();
}

LogicalResult InterfaceTensorAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringAttr name,
                                          RankedTensorType type, DimsAttr dims, bool, bool, DenseI64ArrayAttr) {
  if (static_cast<int64_t>(dims.size()) != type.getRank())
    return emitError() << name << " has " << dims.size() << " extents, and a type of rank " << type.getRank()
                       << " (R2)";
  return success();
}

SmallVector<ArgumentUse> DeviceKernelOp::getArgumentUses() {
  return llvm::map_to_vector(getUses().getAsRange<ArgumentUseAttr>(),
                             [](ArgumentUseAttr use) { return use.getValue(); });
}

/// `[reads, writes, number]`
static ParseResult parseUses(OpAsmParser &parser, ArrayAttr &uses) {
  SmallVector<Attribute> list;
  auto parseOne = [&]() -> ParseResult {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (failed(parser.parseKeyword(&word)))
      return failure();
    std::optional<ArgumentUse> use = symbolizeArgumentUse(word);
    if (!use)
      return parser.emitError(loc) << "'" << word << "' is not what an argument may be";
    list.push_back(ArgumentUseAttr::get(parser.getContext(), *use));
    return success();
  };
  if (failed(parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne)))
    return failure();
  uses = ArrayAttr::get(parser.getContext(), list);
  return success();
}

static void printUses(OpAsmPrinter &printer, DeviceKernelOp op, ArrayAttr) {
  printer << "[";
  llvm::interleaveComma(op.getArgumentUses(), printer, [&](ArgumentUse use) { printer << stringifyArgumentUse(use); });
  printer << "]";
}

#define GET_OP_CLASSES
#include "dialects/Rt/RtOps.cpp.inc"
