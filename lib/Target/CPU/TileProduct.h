//===- TileProduct.h - products by the CPU's registers of tiles ----*- C++ -*-===//
//
// AMX of x86-64: registers of 16 rows by 64 bytes, and instructions that multiply two of them.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_TILEPRODUCT_H
#define DISC_LIB_TARGET_CPU_TILEPRODUCT_H

#include "lib/Target/CPU/MicroKernel.h"

namespace mlir::disc {

/// The shape that a kernel's registers of tiles have, in memory of its own, as LDTILECFG reads it: products change it
/// only where they need another. `builder` stands in the kernel's entry block.
Value openTiles(OpBuilder &builder, Location loc);
/// Gives the registers back, at the kernel's end.
void closeTiles(OpBuilder &builder, Location loc);

/// The body of a micro-kernel with `tiles`. Its arguments are those of the others, then what `openTiles` gave, then the
/// number of rows: one function does all heights.
void writeTileProduct(OpBuilder &builder, Location loc, const MicroKernelSpec &spec, LLVM::LLVMFuncOp func);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_TILEPRODUCT_H
