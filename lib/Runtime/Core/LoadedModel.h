//===- LoadedModel.h - a model of a compiled library ------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_LOADEDMODEL_H
#define DISC_RUNTIME_CORE_LOADEDMODEL_H

#include "lib/Runtime/Core/Library.h"
#include "lib/Runtime/Core/Model.h"

#include <vector>

namespace disc::rt {

/// The arrays that descriptions point to.
class Descriptions {
public:
  explicit Descriptions(const disc_model_info_t &info);

  /// An index out of range is an error.
  Status input(int64_t index, disc_tensor_spec *spec) const;
  Status output(int64_t index, disc_tensor_spec *spec) const;
  Status parameter(int64_t index, disc_tensor_spec *spec) const;
  Status symbol(int64_t index, disc_symbol_spec *spec) const;

private:
  struct Tensor {
    const char *name;
    int64_t dtype;
    std::vector<std::string> numbers; ///< Texts of a parameter's extents.
    std::vector<const char *> dims;
    std::vector<int64_t> min, max;
    bool updated;
  };
  static Tensor interface(const disc_tensor_info &info);
  static Status describe(const std::vector<Tensor> &list, const char *what, int64_t index, disc_tensor_spec *spec);

  const disc_model_info_t &info;
  std::vector<Tensor> inputs, outputs, parameters;
};

struct LoadedModel {
  const disc_library &library;
  const disc_variant &variant;
  std::unique_ptr<Model> model;
  Descriptions descriptions;
  bool mapsFiles; ///< DISC_MAP_FILES

  /// The variant that fits the machine, with its weights. `folder` is where a file of weights lies; null if the library
  /// is to be looked for.
  static Status open(const disc_library &library, const char *folder, const disc_options *options,
                     std::unique_ptr<LoadedModel> &result);

  Status swapWeights(const std::string &path);
  Status describe(disc_model_spec *spec) const;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_LOADEDMODEL_H
