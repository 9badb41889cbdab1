//===- RtDialect.cpp - the disc_rt dialect --------------------------------===//

#include "dialects/Rt/RtDialect.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

#include "dialects/Rt/RtDialect.cpp.inc"
#include "dialects/Rt/RtEnums.cpp.inc"

void RtDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Rt/RtOps.cpp.inc"
      >();
}

LogicalResult RtLoopOp::verify() {
  Block &block = getBody().front();
  auto next = dyn_cast<RtNextOp>(block.getTerminator());
  size_t count = getInits().size();
  if (!next || block.getNumArguments() != count || next.getValues().size() != count || getNumResults() != count ||
      !llvm::all_of(block.getArgumentTypes(), llvm::IsaPred<LLVM::LLVMPointerType>))
    return emitOpError("arguments, next values and results must be as many pointers as come in (R3)");
  return success();
}

LogicalResult EntryOp::verify() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 1 || !isa<LLVM::LLVMPointerType>(block.getArgument(0).getType()))
    return emitOpError("must have one argument, the call, of pointer type (R1)");
  for (ArrayAttr table : {getInputs(), getOutputs()})
    for (Attribute entry : table) {
      auto dict = dyn_cast<DictionaryAttr>(entry);
      if (!dict || !dict.getAs<StringAttr>("name") || !dict.getAs<TypeAttr>("type") || !dict.get("dims"))
        return emitOpError("inputs and outputs must be dictionaries with name, type and dims (R2)");
    }
  return success();
}

#define GET_OP_CLASSES
#include "dialects/Rt/RtOps.cpp.inc"
