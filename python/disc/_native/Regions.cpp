//===- Regions.cpp - What the compiler asks back ends about -----------------===//

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/IR/Builders.h"
#include "python/disc/_native/Errors.h"
#include "python/disc/_native/Module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

using namespace disc::py;
using namespace mlir::disc;

static nb::list dims(mlir::Value tensor, ShapeAnalysis &shapes) {
  nb::list result;
  for (const SymExpr &expr : shapes.dims(tensor))
    result.append(expr.str());
  return result;
}

/// (number, name, owner and refusals) of each composite: (back end, pattern) or None, and (back end, pattern, reason).
static nb::list composites(Module &module) {
  nb::list result;
  module.op->walk([&](CompositeOp op) {
    nb::object owner = nb::none();
    if (auto claim = op->getAttrOfType<ClaimAttr>(PlanDialect::getOwnerAttrName()))
      owner = nb::make_tuple(claim.getBackend().str(), claim.getPattern().str());
    nb::list refusals;
    if (auto list = op->getAttrOfType<mlir::ArrayAttr>(PlanDialect::getRefusalsAttrName()))
      for (auto refusal : list.getAsRange<RefusalAttr>())
        refusals.append(
            nb::make_tuple(refusal.getBackend().str(), refusal.getPattern().str(), refusal.getReason().str()));
    result.append(nb::make_tuple(op.getId(), op.getName().str(), owner, refusals));
  });
  return result;
}

/// (number, back end, composites, operands, results) of each region, in program order.
static nb::list regions(Module &module) {
  ShapeAnalysis shapes(*module.op);
  nb::list result;
  module.op->walk([&](RegionOp region) {
    nb::list ops, operands, results;
    auto members = llvm::to_vector(region.getBody().getOps<CompositeOp>());
    for (CompositeOp op : members) {
      auto owner = op->getAttrOfType<ClaimAttr>(PlanDialect::getOwnerAttrName());
      ops.append(nb::make_tuple(op.getId(), owner.getPattern().str(), owner.getMatch()));
    }
    for (mlir::Value operand : region.getOperandTensors())
      for (CompositeOp op : members) {
        auto inputs = op.getInputs();
        auto found = llvm::find(inputs, operand);
        if (found == inputs.end())
          continue;
        nb::object name = nb::none();
        if (auto parameter = operand.getDefiningOp<ParameterOp>())
          name = nb::cast(parameter.getName().str());
        operands.append(nb::make_tuple(op.getId(), found - inputs.begin(), name, dims(operand, shapes)));
        break;
      }
    for (mlir::Value value : region.getYield().getValues()) {
      auto from = llvm::cast<mlir::OpResult>(value);
      results.append(nb::make_tuple(llvm::cast<CompositeOp>(from.getOwner()).getId(), from.getResultNumber(),
                                    dims(value, shapes)));
    }
    result.append(nb::make_tuple(region.getId(), region.getBackend().str(), ops, operands, results));
  });
  return result;
}

static RegionOp find(Module &module, int64_t id) {
  RegionOp found;
  module.op->walk([&](RegionOp region) {
    if (static_cast<int64_t>(region.getId()) == id)
      found = region;
  });
  if (!found)
    raise(PyExc_KeyError, "no region " + std::to_string(id));
  return found;
}

static void veto(Module &module, int64_t id, const std::string &reason) { find(module, id).setVeto(reason); }

static void answer(Module &module, int64_t id, const std::string &table, const std::string &description,
                   const std::vector<std::string> &constants, const std::vector<std::string> &numbers,
                   const std::vector<std::string> &when) {
  RegionOp region = find(module, id);
  mlir::Builder b(module.context.get());
  auto exprs = [&](const std::vector<std::string> &texts) {
    llvm::SmallVector<mlir::Attribute> list;
    for (const std::string &text : texts) {
      std::string error;
      mlir::FailureOr<SymExpr> expr = SymExpr::parse(text, &error);
      if (failed(expr))
        raise(PyExc_ValueError, "'" + text + "' is not an expression: " + error);
      list.push_back(ExprAttr::get(module.context.get(), *expr));
    }
    return b.getArrayAttr(list);
  };
  region.setTable(table);
  region.setDescription(description);
  region.setConstantsAttr(b.getStrArrayAttr(llvm::SmallVector<llvm::StringRef>(constants.begin(), constants.end())));
  region.setNumbersAttr(exprs(numbers));
  if (!when.empty())
    region.setWhenAttr(exprs(when));
}

void disc::py::bindRegions(nb::class_<Module> &m) {
  m.def("composites", &composites,
        "The composites of the input IR, in program order: tuples (number, name, (back end, pattern) of the owner or "
        "None, refusals as (back end, pattern, reason)).")
      .def("regions", &regions,
           "The regions after the partition, in program order: tuples (number, back end, composites as (number, "
           "pattern, "
           "match), operands as (composite, which of its inputs, name of the parameter or None, dims), results as "
           "(composite, which of its results, dims)).")
      .def("veto_region", &veto, nb::arg("region"), nb::arg("reason"), "Leaves a region to the host.")
      .def("compile_region", &answer, nb::arg("region"), nb::kw_only(), nb::arg("table"), nb::arg("description"),
           nb::arg("constants"), nb::arg("numbers"), nb::arg("when"),
           "Leaves a region to the code whose table of functions has this symbol. `constants` are names of parameters, "
           "`numbers` and `when` texts of expressions: values that the code gets, and that must be at least 0.");
}
