//===- Model.h - a loaded model ---------------------------------*- C++ -*-===//
//
// Compiled code (two functions and a table), its parameters, the storage that `disc_init`
// filled, and a share in a thread pool. After load() a model never changes, so any number
// of threads may run it.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_MODEL_H
#define DISC_RUNTIME_CORE_MODEL_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/Core/Outputs.h"
#include "lib/Runtime/Core/Profile.h"
#include "lib/Runtime/Core/Status.h"
#include "lib/Runtime/Core/ThreadPool.h"
#include "lib/Runtime/disc.h"

#include <memory>
#include <vector>

namespace disc::rt {

class Model {
public:
  /// `threads` counts the caller; 0 means every core.
  Model(const disc_model_info_t &info, disc_entry_fn init, disc_entry_fn main, unsigned threads);
  ~Model();
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  /// Takes the parameters, in the order of the table, and runs `disc_init`. Call it once.
  /// The tensors are the model's from here on, also if this fails; they are kept as long as `disc_main` reads them,
  /// not copied, unless they are strided.
  Status load(DLManagedTensorVersioned *const *parameters, size_t count);

  /// Runs the model. On success every entry of `outputs` is a new tensor of the caller's;
  /// on failure none is. Inputs are read during the call only.
  Status run(const DLTensor *const *inputs, size_t numInputs, DLManagedTensorVersioned **outputs, size_t numOutputs);

  const disc_model_info_t &info() const { return info_; }
  ThreadPool &pool() const { return *pool_; }
  Profile &profile() { return profile_; }

private:
  friend struct ::disc_call;

  Status bindParameter(size_t index, DLManagedTensorVersioned *tensor);

  const disc_model_info_t &info_;
  disc_entry_fn init_, main_;
  std::shared_ptr<ThreadPool> pool_;
  StoragePool storages_;
  std::shared_ptr<OutputPool> outputPool_ = std::make_shared<OutputPool>();

  std::vector<DLManagedTensorVersioned *> owned_; ///< Keeps parameters alive; null once let go.
  std::vector<Buffer> copies_;                    ///< Of strided parameters, by number.
  std::vector<void *> parameters_;                ///< Contiguous data, by number.
  std::vector<Buffer> globals_;
  Profile profile_;
  bool loaded_ = false;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_MODEL_H
