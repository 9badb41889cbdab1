//===- Model.h - a loaded model ---------------------------------*- C++ -*-===//
//
// Compiled code (functions and a table), weights, and a share in a thread pool. Any number of threads may run it, also
// while its weights are swapped.
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
#include "lib/Runtime/Core/Weights.h"
#include "lib/Runtime/Device/Device.h"
#include "lib/Runtime/disc.h"

#include <memory>
#include <string>

namespace disc::rt {

/// The compiled functions; `info` lives as long as the code.
struct Program {
  const disc_model_info_t *info;
  disc_entry_fn init; ///< Null if there is nothing to do.
  disc_entry_fn main;
  disc_entry_fn shapes; ///< Null if the model cannot be asked for shapes.
};

struct ModelOptions {
  unsigned threads = 0;                       ///< The caller's included; 0 means every core.
  disc_parallel_for_fn parallelFor = nullptr; ///< In place of our own pool.
  void *parallelContext = nullptr;
  Allocator allocator;
  int32_t device = 0;                        ///< Which one of the kind that the model is for.
  disc_interrupted_fn interrupted = nullptr; ///< Asked every few milliseconds whether the run should end.
  void *interruptedContext = nullptr;
  int64_t memoryBudget = 0;     ///< Bytes that calls may hold at once; 0: no budget.
  bool failsOverBudget = false; ///< A call does not wait until others have ended.
};

/// As disc_memory_usage has it.
struct MemoryUsage {
  int64_t budget, held, peak, allocations, otherPlans, lastPlan;
};

/// Scratch of so many threads in one piece, each at a multiple of kAlignment.
int64_t sharedScratchBytes(unsigned threads, int64_t scratchBytes);

class Model final : Reclaimer {
public:
  /// A model without weights: load() or adopt() comes next.
  static Status create(const Program &program, const ModelOptions &options, std::unique_ptr<Model> &model);
  ~Model();
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  /// Takes the parameters, in the order of the table, and runs `disc_init`. The tensors are the model's from here on,
  /// also if this fails; they are kept as long as `disc_main` reads them, not copied, unless they are strided or go
  /// from the host to a device.
  Status load(DLManagedTensorVersioned *const *parameters, size_t count, Stream stream = nullptr);

  /// Takes what a model of the same code had after load(); see Weights::restore.
  Status restore(DLManagedTensorVersioned *const *parameters, size_t count, DLManagedTensorVersioned *const *packed,
                 size_t numPacked, Stream stream = nullptr);

  /// Takes bound weights in place of those that it has, after `disc_init` if that is to run. On failure nothing
  /// changes. Waits for the stream, that of the weights.
  Status adopt(std::shared_ptr<Weights> weights, bool runInit);

  /// Gives the state its first values again; waits for a call that is running.
  Status reset();

  /// State of the table's parameter `index`, row-major, from or to host memory of exactly its size. These four wait for
  /// a call that is running.
  Status readState(int64_t index, void *data, size_t bytes);
  Status writeState(int64_t index, const void *data, size_t bytes);

  /// All state, and what random numbers follow from, to and from a safetensors file. A file that cannot be written
  /// stays as it was; from a file that does not fit nothing is taken.
  Status saveState(const std::string &path);
  Status loadState(const std::string &path);

  /// Runs the model. On success every entry of `outputs` without a tensor of the caller's has a new one; on failure
  /// none has. Inputs are read during the call only, or while its work is in the device's stream.
  Status run(const DLTensor *const *inputs, size_t numInputs, disc_output *outputs, size_t numOutputs,
             Stream stream = nullptr);

  /// Waits for a stream of the device's.
  Status synchronize(Stream stream);

  /// What run() would give, from shapes alone; entries of `shapes` that are null are skipped.
  Status outputShapes(const DLTensor *const *inputs, size_t numInputs, int64_t *const *shapes, size_t numOutputs);

  /// What random numbers follow from: the seed, and the number of the run since it was set.
  struct Random {
    uint64_t seed = 0, run = 0;
  };
  void seed(uint64_t seed);

  /// Those that the next call will use; null before load() or adopt().
  std::shared_ptr<Weights> weights();

  const disc_model_info_t &info() const { return *program_.info; }
  const Program &program() const { return program_; }
  const Allocator &allocator() const { return options_.allocator; }
  unsigned threads() const { return threads_; }
  Device *device() const { return device_; } ///< Null: the CPU.

  /// For calls that begin from here on; 0: no budget. What is kept beyond it is freed.
  Status setMemoryBudget(int64_t bytes);
  /// Whether calls that the budget has no room for at the moment wait. If not they fail.
  void waitForMemory(bool waits) { account_->failsAtOnce = !waits; }
  MemoryUsage memoryUsage() const;
  void resetMemoryPeak() { account_->resetPeak(); }

  DLDevice where() const { return device_ ? device_->where : DLDevice{kDLCPU, 0}; }
  /// Launches from here on leave records...
  Status startProfile();
  /// ...until then. Waits for the device.
  Status stopProfile(std::vector<LaunchRecord> &launches);

private:
  friend struct ::disc_call;

  Model(const Program &program, const ModelOptions &options);
  Random nextRandom();
  Status checkState(int64_t index, const void *data, size_t bytes) const;
  Status checkCounts(const void *inputs, size_t numInputs, const void *outputs, size_t numOutputs) const;
  /// `shared`: so many threads at most have their scratch in `scratch`; 0: all have their own.
  Status parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs, int64_t scratchBytes,
                     Buffer &scratch, unsigned shared);
  Status callersParallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, unsigned ranges,
                            int64_t scratchBytes, const SharedScratch &shared);
  /// Frees a part of what is kept for later calls.
  bool reclaim() override;

  const Program program_;
  const ModelOptions options_; ///< Its allocator is where all buffers come from, so it goes last.
  Device *device_ = nullptr;
  std::unique_ptr<DeviceModule> module_;
  bool usesGraphs_ = false; ///< Calls become graphs of the device's (CallStream.h).
  unsigned threads_ = 1;
  std::shared_ptr<ThreadPool> pool_; ///< Null with a parallelFor of the caller's.
  std::shared_ptr<MemoryAccount> account_;
  Meter scratchMeter_; ///< Of all threads, so without a limit.
  const Allocator scratchAllocator_;
  StoragePool storages_;
  ScratchPool scratches_; ///< For the caller's threads.
  std::shared_ptr<OutputPool> outputPool_;
  Mutex weightsMutex_;
  std::shared_ptr<Weights> weights_;
  Profile profile_;
  std::unique_ptr<DeviceEvent> profileBegan_;
  int64_t profileBeganNs_ = 0;
  Mutex randomMutex_;
  Random random_; ///< Of the next run.
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_MODEL_H
