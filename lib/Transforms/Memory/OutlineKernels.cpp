//===- OutlineKernels.cpp - kernels out of the host flow ------------------===//
//
//   %v = disc_tensor.permute %x [1, 0] : tensor<?x8xf32> -> tensor<8x?xf32>
//   %y = disc_plan.kernel loop ins(%v : tensor<8x?xf32>) -> tensor<8x?xf32> attributes {...} { ... }
// becomes
//   disc_plan.kernel_func loop @k0_relu attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[8, S]>],
//     layouts = [#disc_plan.layout<<0>, <[1, 8]>>, #disc_plan.layout<<0>, <[S, 1]>>], ...} { ... }
//   %y = disc_plan.call @k0_relu(%x) result_dims [#disc_shape.dims<[8, S]>] : (tensor<?x8xf32>) -> tensor<8x?xf32>
//
// Views end here: each becomes the layout of a kernel operand. Kernels that are equal but for their data (the same
// layer of a model, again and again) become one function, so code size and compile time do not grow with depth.
//
// Of symbols that a guard makes equal, such as the sizes of x[mask] and y[mask], a kernel has one: guards are no part
// of it, so what emits its code could not know. The same holds for extents that are computed from symbols: where a
// guard says that 32 * n / B is 8, the kernel has the 8.
//
// Test: test/lit/Memory/outline-kernels.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringMap.h"
#include <set>

namespace mlir::disc {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct OutlineKernels : disc::impl::OutlineKernelsBase<OutlineKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    ShapeAnalysis shapes(module);
    SymbolTable symbols(module);
    llvm::StringMap<KernelFuncOp> known;
    SmallVector<KernelOp> kernels;
    for (auto func : module.getOps<func::FuncOp>())
      func.walk([&](KernelOp kernel) { kernels.push_back(kernel); });
    for (KernelOp kernel : kernels)
      if (failed(outline(kernel, shapes, symbols, known)))
        return signalPassFailure();
    // What only views used is dead now.
    for (auto func : module.getOps<func::FuncOp>())
      eraseDead(func);
  }

  LogicalResult outline(KernelOp kernel, ShapeAnalysis &shapes, SymbolTable &symbols,
                        llvm::StringMap<KernelFuncOp> &known) {
    MLIRContext *context = kernel.getContext();
    SmallVector<Attribute> layouts, argDims, resultDims;
    SmallVector<Value> bases;
    for (Value input : kernel.getInputs()) {
      std::optional<Layout> layout = viewLayout(input, shapes);
      if (!layout)
        return kernel.emitError("an operand's view has no strided layout");
      layouts.push_back(layout->attr(context));
      argDims.push_back(DimsAttr::get(context, shapes.dims(input)));
      bases.push_back(viewBase(input));
    }
    for (Value output : kernel.getOutputs()) {
      SmallVector<SymExpr> dims = shapes.dims(output);
      layouts.push_back(Layout::contiguous(dims).attr(context));
      resultDims.push_back(DimsAttr::get(context, dims));
    }

    // The body is moved, so take it after the analysis has answered.
    OpBuilder b(context);
    auto func = KernelFuncOp::create(b, kernel.getLoc(), "k", StringAttr(), kernel.getKind(), b.getStrArrayAttr({}),
                                     b.getArrayAttr(layouts), b.getArrayAttr(argDims), StringAttr(),
                                     kernel.getScheduleAttr(), kernel.getVariantsAttr(), kernel.getTasksAttr(),
                                     kernel.getScratchAttr(), kernel.getCostAttr());
    IRMapping map;
    kernel.getBody().cloneInto(&func.getBody(), map);
    unifySymbols(func, shapes);
    unifyExtents(func, shapes);
    func.setSymbolsAttr(b.getStrArrayAttr(symbolsOf(func)));

    std::string text;
    llvm::raw_string_ostream os(text);
    func->print(os, OpPrintingFlags().useLocalScope().printGenericOpForm());
    KernelFuncOp &unique = known[text];
    if (unique) {
      func->erase();
    } else {
      unique = func;
      func.setSymName(("k" + Twine(count++) + "_" + kernel.getName().value_or("kernel")).str());
      func.setReasonAttr(kernel.getReasonAttr());
      auto parent = kernel->getParentOfType<func::FuncOp>();
      symbols.insert(func, Block::iterator(parent));
    }

    b.setInsertionPoint(kernel);
    auto call = CallOp::create(b, kernel.getLoc(), kernel.getResultTypes(), unique.getSymName(), bases,
                               b.getArrayAttr(resultDims));
    kernel.replaceAllUsesWith(call.getResults());
    kernel.erase();
    return success();
  }

  /// Replaces symbols that are equal to another one of the kernel.
  static void unifySymbols(KernelFuncOp func, ShapeAnalysis &shapes) {
    SmallVector<StringRef> names = symbolsOf(func);
    llvm::StringMap<SymExpr> others;
    for (size_t i = 1; i < names.size(); ++i)
      for (size_t j = 0; j < i && !others.contains(names[i]); ++j)
        if (!others.contains(names[j]) && shapes.equal(SymExpr::symbol(names[i]), SymExpr::symbol(names[j])))
          others[names[i]] = SymExpr::symbol(names[j]);
    if (others.empty())
      return;
    AttrTypeReplacer replacer;
    replacer.addReplacement([&](ExprAttr expr) -> std::optional<Attribute> {
      SymExpr replaced = expr.getValue().substitute([&](StringRef name) -> std::optional<SymExpr> {
        auto found = others.find(name);
        return found == others.end() ? std::nullopt : std::optional<SymExpr>(found->second);
      });
      return ExprAttr::get(expr.getContext(), replaced);
    });
    replacer.recursivelyReplaceElementsIn(func, /*replaceAttrs=*/true);
  }

  /// Replaces extents that are equal to another one of the kernel: by a constant, or by the first of the others.
  static void unifyExtents(KernelFuncOp func, ShapeAnalysis &shapes) {
    SmallVector<SymExpr> extents;
    auto add = [&](ArrayRef<SymExpr> dims) {
      for (const SymExpr &dim : dims)
        if (dim.isDefined() && !llvm::is_contained(extents, dim))
          extents.push_back(dim);
    };
    AttrTypeWalker walker;
    walker.addWalk([&](DimsAttr dims) { add(dims.getDims()); });
    func->walk<WalkOrder::PreOrder>([&](Operation *op) {
      walker.walk(op->getAttrDictionary());
      if (auto dim = dyn_cast<DimOp>(op))
        add(dim.getExpr().getValue());
    });
    SmallVector<std::pair<SymExpr, SymExpr>> others;
    for (const SymExpr &extent : extents) {
      if (extent.isConstant())
        continue;
      auto isSame = [&](const SymExpr &other) { return shapes.equal(extent, other); };
      auto known = llvm::find_if(extents, [&](const SymExpr &other) { return other.isConstant() && isSame(other); });
      if (known == extents.end())
        known = llvm::find_if(extents, isSame);
      if (*known != extent)
        others.push_back({extent, *known});
    }
    if (others.empty())
      return;
    AttrTypeReplacer replacer;
    replacer.addReplacement([&](ExprAttr expr) -> std::optional<Attribute> {
      for (auto &[other, extent] : others)
        if (other == expr.getValue())
          return ExprAttr::get(expr.getContext(), extent);
      return std::nullopt;
    });
    replacer.recursivelyReplaceElementsIn(func, /*replaceAttrs=*/true);
  }

  /// Every symbol that an expression of the kernel mentions, sorted.
  static SmallVector<StringRef> symbolsOf(KernelFuncOp func) {
    std::set<std::string> names;
    AttrTypeWalker walker;
    walker.addWalk([&](ExprAttr expr) {
      for (std::string &name : expr.getValue().symbols())
        names.insert(name);
    });
    func->walk([&](Operation *op) { walker.walk(op->getAttrDictionary()); });
    SmallVector<StringRef> out;
    for (const std::string &name : names)
      out.push_back(StringAttr::get(func.getContext(), name).getValue());
    return out;
  }

  unsigned count = 0;
};
} // namespace
