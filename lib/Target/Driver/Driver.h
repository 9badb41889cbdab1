//===- Driver.h - From IR text to native code -------------------*- C++ -*-===//
//
// The one header that tools and the native module need: register everything,
// run a textual pipeline, compile the LLVM-dialect module to an object, load
// it.
//
//   DialectRegistry registry;
//   registerDialects(registry);
//   registerPasses();
//   MLIRContext context(registry);
//   OwningOpRef<ModuleOp> module = parseModule(text, context, diagnostics);
//   setHostTarget(*module, HostTarget::detect());
//   runPipeline(*module, "builtin.module(...)", diagnostics);   // to LLVM
//   dialect auto object = compileToObject(*module, codegenOptions); auto jit =
//   Jit::create(std::move(*object), jitOptions); auto *info =
//   (*jit)->lookup("disc_model_info");
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TARGET_DRIVER_DRIVER_H
#define DISC_TARGET_DRIVER_DRIVER_H

#include "lib/Target/Driver/Artifact.h"
#include "lib/Target/Driver/Codegen.h"
#include "lib/Target/Driver/HostTarget.h"
#include "lib/Target/Driver/Jit.h"
#include "lib/Target/Driver/Pipeline.h"
#include "lib/Target/Driver/Register.h"

#endif // DISC_TARGET_DRIVER_DRIVER_H
