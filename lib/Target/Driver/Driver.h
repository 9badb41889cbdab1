//===- Driver.h - From IR text to native code -------------------*- C++ -*-===//
//
// The one header that tools and the native module need: register everything,
// run a textual pipeline, make native code of the LLVM-dialect module, and load
// it or link it into a library.
//
//   DialectRegistry registry;
//   registerDialects(registry);
//   registerPasses();
//   MLIRContext context(registry);
//   OwningOpRef<ModuleOp> module = parseModule(text, context, diagnostics);
//   setHostTarget(*module, HostTarget::detect());
//   runPipeline(*module, "builtin.module(...)", diagnostics); // to LLVM dialect
//
//   auto code = generateCode(*module, codegenOptions);
//   auto jit = Jit::create(std::move(*code), jitOptions);
//   auto *info = (*jit)->lookup("disc_model_info");
//
//   ArtifactBuilder library("minilm");
//   library.addVariant(*module, "host", codegenOptions);
//   library.write("libminilm.so", artifactOptions);
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
