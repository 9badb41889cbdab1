//===- Artifact.h - an ahead-of-time library --------------------*- C++ -*-===//
//
// Gathers the code of one model for one or several kinds of CPU, and its weights, and links them with the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TARGET_DRIVER_ARTIFACT_H
#define DISC_TARGET_DRIVER_ARTIFACT_H

#include "lib/Target/Driver/Codegen.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace mlir::disc {

enum class ArtifactKind {
  Shared, ///< Complete, sealed, and can be loaded by path.
  Static, ///< An archive, the runtime included.
  Object  ///< One object, without the runtime.
};

struct ArtifactOptions {
  ArtifactKind kind = ArtifactKind::Shared;
  /// Archives of the runtime.
  std::vector<std::string> runtime;
  /// Object files and libraries of back ends, by path; libraries are needed at run time under their own names.
  std::vector<std::string> objects, libraries;
  /// A safetensors file with the weights; "" for a model without any.
  std::string weights;
  /// The name under which that file will lie beside the library; "" puts its contents into the library.
  std::string weightsFile;
};

/// The features that code of this target may use and that the runtime can look for: "avx,avx2".
llvm::Expected<std::string> requiredFeatures(const HostTarget &target);

class ArtifactBuilder {
public:
  /// A model of this name, which must be an identifier of C.
  explicit ArtifactBuilder(std::string name) : name(std::move(name)) {}
  ArtifactBuilder(const ArtifactBuilder &) = delete;
  ArtifactBuilder &operator=(const ArtifactBuilder &) = delete;

  /// Compiles a module of the LLVM dialect for its `disc_plan.target`, as the code for `cpu`.
  llvm::Error addVariant(ModuleOp module, llvm::StringRef cpu, CodegenOptions options, CodegenTimes *times = nullptr);

  size_t numVariants() const { return variants.size(); }
  const ObjectCode &code(size_t variant) const { return variants[variant].code; }
  /// The weights hold what the variant's init would compute.
  void setPacked(size_t variant) { variants[variant].packed = true; }

  /// Replaces `output` as a whole, or leaves it as it was.
  llvm::Error write(llvm::StringRef output, const ArtifactOptions &options) const;

private:
  struct Variant {
    std::string cpu, prefix, features;
    HostTarget target;
    ObjectCode code;
    bool packed = false;
  };
  class Descriptor;

  std::string weightsSymbol() const { return "disc_" + name + "_weights"; }

  std::string name;
  std::vector<Variant> variants;
};

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_ARTIFACT_H
