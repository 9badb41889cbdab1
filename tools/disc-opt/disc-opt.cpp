//===- disc-opt.cpp - mlir-opt with DISC's dialects and passes ------------===//

#include "lib/Target/Driver/Register.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::disc::registerDialects(registry);
  mlir::disc::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "DISC optimizer driver\n", registry));
}
