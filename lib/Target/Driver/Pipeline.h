//===- Pipeline.h - Runs textual pipelines, collects errors -----*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_PIPELINE_H
#define DISC_TARGET_DRIVER_PIPELINE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Support/LLVM.h"
#include <atomic>
#include <string>
#include <vector>

namespace mlir::disc {

/// A diagnostic with its location already reduced to the user's source line.
struct CollectedDiagnostic {
  enum class Severity { Note, Remark, Warning, Error };
  Severity severity = Severity::Error;
  std::string message;
  std::string file; // empty when unknown
  unsigned line = 0, column = 0;
  std::vector<CollectedDiagnostic> notes;

  /// "file.py:12:3: error: message", notes on lines of their own.
  std::string str() const;
};

struct PipelineDiagnostics {
  std::vector<CollectedDiagnostic> list;
  std::string failedPass; // command-line name of the pass that failed, if one did

  std::string str() const;
};

struct PipelineOptions {
  bool verifyEach = true; // after each pass; otherwise once, after the last
  bool timing = false;    // print MLIR's timing tree to stderr
  /// Null, or set by another thread: passes that have not begun are skipped then, and the pipeline fails.
  const std::atomic<bool> *cancelled = nullptr;
};

/// Null on error, with the reasons in `diagnostics`.
OwningOpRef<ModuleOp> parseModule(llvm::StringRef text, MLIRContext &context, PipelineDiagnostics &diagnostics);

/// Runs e.g. "builtin.module(disc-shape-propagate,canonicalize)".
LogicalResult runPipeline(ModuleOp module, llvm::StringRef pipeline, PipelineDiagnostics &diagnostics,
                          const PipelineOptions &options = {});

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_PIPELINE_H
