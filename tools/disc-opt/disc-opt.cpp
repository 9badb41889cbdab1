//===- disc-opt.cpp - mlir-opt with DISC's dialects and passes ------------===//

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  registry.insert<mlir::disc::ShapeDialect, mlir::disc::TensorDialect, mlir::disc::PlanDialect,
                  mlir::disc::RtDialect>();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "DISC optimizer driver\n", registry));
}
