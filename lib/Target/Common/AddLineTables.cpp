//===- AddLineTables.cpp - the user's lines in machine code ---------------===//
//
//   llvm.func internal @k0_softmax(...) {
//     %0 = llvm.load ... loc("model.py":12:0)
//     llvm.call @disc_product(...) loc(unknown)
//   } loc("model.py":12:0)
// becomes the same with `#llvm.di_subprogram<name = "k0_softmax", file = <"model.py" in ...>, line = 12>` at its
// location, from which line tables follow when it is translated. A location is replaced by the innermost place in
// a file that it names, or by that of the function: LLVM requires a place at every call. Functions without a place do
// not change.
//
// The pass of MLIR that does this takes one file for all operations of a function; kernels have operations of several.
//
// Lit test: test/lit/Common/add-line-tables.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/Passes.h"
#include "lib/Transforms/Support/SourceLine.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/BinaryFormat/Dwarf.h"

namespace mlir::disc {
#define GEN_PASS_DEF_ADDLINETABLES
#include "lib/Target/Common/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct AddLineTables : disc::impl::AddLineTablesBase<AddLineTables> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (FileLineColLoc place = sourcePlace(function.getLoc()); place && !function.isExternal())
        addSubprogram(function, place);
  }

private:
  LLVM::DIFileAttr fileOf(FileLineColLoc place) {
    StringRef path = place.getFilename().getValue();
    return LLVM::DIFileAttr::get(&getContext(), llvm::sys::path::filename(path), llvm::sys::path::parent_path(path));
  }

  void addSubprogram(LLVM::LLVMFuncOp function, FileLineColLoc place) {
    MLIRContext *context = &getContext();
    LLVM::DIFileAttr file = fileOf(place);
    LLVM::DICompileUnitAttr &unit = units[file];
    if (!unit)
      unit = LLVM::DICompileUnitAttr::get(DistinctAttr::create(UnitAttr::get(context)), llvm::dwarf::DW_LANG_C, file,
                                          StringAttr::get(context, "disc"), /*isOptimized=*/true,
                                          LLVM::DIEmissionKind::Full);
    auto type = LLVM::DISubroutineTypeAttr::get(context, llvm::dwarf::DW_CC_normal, {});
    StringAttr name = function.getSymNameAttr();
    auto subprogram = LLVM::DISubprogramAttr::get(
        context, DistinctAttr::create(UnitAttr::get(context)), unit, file, name, name, file, place.getLine(),
        place.getLine(), LLVM::DISubprogramFlags::Definition | LLVM::DISubprogramFlags::Optimized, type,
        /*retainedNodes=*/{}, /*annotations=*/{});
    function->setLoc(FusedLoc::get({place}, subprogram, context));
    function.getBody().walk([&](Operation *op) {
      FileLineColLoc at = sourcePlace(op->getLoc());
      if (!at)
        at = place;
      if (at.getFilename() == place.getFilename())
        return op->setLoc(at);
      // The scope says which file a line is of.
      auto scope = LLVM::DILexicalBlockFileAttr::get(context, subprogram, fileOf(at), /*discriminator=*/0);
      op->setLoc(FusedLoc::get({at}, scope, context));
    });
  }

  llvm::DenseMap<LLVM::DIFileAttr, LLVM::DICompileUnitAttr> units;
};
} // namespace
