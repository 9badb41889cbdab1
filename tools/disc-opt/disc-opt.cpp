//===- disc-opt.cpp - mlir-opt with DISC's dialects and passes ------------===//

#include "lib/Target/Driver/Opt.h"

int main(int argc, char **argv) { return mlir::disc::runOpt(argc, argv); }
