//===- Opt.cpp - disc-opt as a function -----------------------------------===//
//
// The build's own program (tools/disc-opt) and the command of an installed wheel run the same code: a second program
// with LLVM inside would double the size of the wheel.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Driver/Opt.h"
#include "lib/Target/Driver/Register.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int mlir::disc::runOpt(int argc, char **argv) {
  return runOpt(argc, argv, [](DialectRegistry &) {});
}

int mlir::disc::runOpt(int argc, char **argv, llvm::function_ref<void(DialectRegistry &)> add) {
  DialectRegistry registry;
  registerDialects(registry);
  add(registry);
  registerPasses();
  return asMainReturnCode(MlirOptMain(argc, argv, "DISC optimizer driver\n", registry));
}
