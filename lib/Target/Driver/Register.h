//===- Register.h - One list of everything that can be used -----*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_REGISTER_H
#define DISC_TARGET_DRIVER_REGISTER_H

namespace mlir {
class DialectRegistry;

namespace disc {

/// Our dialects, the upstream ones, their extensions and their translations to
/// LLVM IR. Shared by disc-opt and the native module, so that the same text
/// means the same in both.
void registerDialects(DialectRegistry &registry);

/// Our passes and the upstream ones, by their command-line names. Call it once
/// per process.
void registerPasses();

} // namespace disc
} // namespace mlir

#endif // DISC_TARGET_DRIVER_REGISTER_H
