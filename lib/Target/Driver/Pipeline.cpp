//===- Pipeline.cpp - Runs textual pipelines, collects errors -------------===//

#include "lib/Target/Driver/Pipeline.h"

#include "mlir/IR/Action.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace mlir;
using namespace mlir::disc;

/// The innermost file location: fused and named locations wrap the Python line,
/// and call sites lead to it through the callee.
static FileLineColLoc findFileLoc(Location loc) {
  FileLineColLoc found;
  loc->walk([&](Location nested) {
    if (auto file = dyn_cast<FileLineColLoc>(nested)) {
      found = file;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return found;
}

static CollectedDiagnostic::Severity convert(DiagnosticSeverity severity) {
  using Severity = CollectedDiagnostic::Severity;
  switch (severity) {
  case DiagnosticSeverity::Note:
    return Severity::Note;
  case DiagnosticSeverity::Warning:
    return Severity::Warning;
  case DiagnosticSeverity::Error:
    return Severity::Error;
  case DiagnosticSeverity::Remark:
    return Severity::Remark;
  }
  llvm_unreachable("all severities are listed");
}

static CollectedDiagnostic convert(Diagnostic &diagnostic) {
  CollectedDiagnostic result;
  result.severity = convert(diagnostic.getSeverity());
  result.message = diagnostic.str();
  if (FileLineColLoc loc = findFileLoc(diagnostic.getLocation())) {
    result.file = loc.getFilename().str();
    result.line = loc.getLine();
    result.column = loc.getColumn();
  }
  for (Diagnostic &note : diagnostic.getNotes())
    result.notes.push_back(convert(note));
  return result;
}

std::string CollectedDiagnostic::str() const {
  static const char *const names[] = {"note", "remark", "warning", "error"};
  std::string text;
  llvm::raw_string_ostream os(text);
  if (!file.empty())
    os << file << ':' << line << ':' << column << ": ";
  os << names[static_cast<int>(severity)] << ": " << message;
  for (const CollectedDiagnostic &note : notes)
    os << '\n' << note.str();
  return text;
}

std::string PipelineDiagnostics::str() const {
  std::string text;
  for (const CollectedDiagnostic &diagnostic : list) {
    if (!text.empty())
      text += '\n';
    text += diagnostic.str();
  }
  return text;
}

namespace {
/// Collects what the context reports while it lives. Passes on functions may
/// run on several threads.
class Collector : public ScopedDiagnosticHandler {
public:
  Collector(MLIRContext *context, PipelineDiagnostics &out) : ScopedDiagnosticHandler(context) {
    setHandler([this, &out](Diagnostic &diagnostic) {
      std::lock_guard<std::mutex> lock(mutex);
      out.list.push_back(convert(diagnostic));
      return success();
    });
  }

private:
  std::mutex mutex;
};

/// Remembers the innermost pass that failed; adaptors fail after it.
struct FailedPassRecorder : PassInstrumentation {
  explicit FailedPassRecorder(PipelineDiagnostics &out) : out(out) {}
  void runAfterPassFailed(Pass *pass, Operation *) override {
    std::lock_guard<std::mutex> lock(mutex);
    if (out.failedPass.empty())
      out.failedPass = pass->getArgument().str();
  }
  PipelineDiagnostics &out;
  std::mutex mutex;
};
} // namespace

OwningOpRef<ModuleOp> mlir::disc::parseModule(StringRef text, MLIRContext &context, PipelineDiagnostics &diagnostics) {
  Collector collector(&context, diagnostics);
  return parseSourceString<ModuleOp>(text, ParserConfig(&context));
}

LogicalResult mlir::disc::runPipeline(ModuleOp module, StringRef pipeline, PipelineDiagnostics &diagnostics,
                                      const PipelineOptions &options) {
  Collector collector(module.getContext(), diagnostics);
  std::string parseErrors;
  llvm::raw_string_ostream os(parseErrors);
  FailureOr<OpPassManager> parsed = parsePassPipeline(pipeline, os);
  if (failed(parsed)) {
    CollectedDiagnostic diagnostic;
    diagnostic.message = parseErrors;
    diagnostics.list.push_back(std::move(diagnostic));
    return failure();
  }

  PassManager manager(module.getContext(), parsed->getOpAnchorName());
  static_cast<OpPassManager &>(manager) = std::move(*parsed);
  manager.enableVerifier(options.verifyEach);
  if (options.timing)
    manager.enableTiming();
  manager.addInstrumentation(std::make_unique<FailedPassRecorder>(diagnostics));
  auto verified = [&](LogicalResult result) {
    return success(succeeded(result) && (options.verifyEach || succeeded(verify(module))));
  };
  if (!options.cancelled)
    return verified(manager.run(module));
  MLIRContext &context = *module.getContext();
  context.registerActionHandler([&](llvm::function_ref<void()> apply, const tracing::Action &action) {
    if (!isa<PassExecutionAction>(action) || !options.cancelled->load(std::memory_order_relaxed))
      apply();
  });
  LogicalResult result = manager.run(module);
  context.registerActionHandler(nullptr);
  return failure(options.cancelled->load() || failed(verified(result)));
}
