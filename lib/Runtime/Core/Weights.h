//===- Weights.h - what a model reads beside its inputs ---------*- C++ -*-===//
//
// Parameters, and the globals that `disc_init` makes of them. A set of weights never changes once init has run; a model
// whose weights are swapped takes another set, and calls that began with the old one keep it until they end. State is
// the exception: parameters that calls update, one call at a time.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_WEIGHTS_H
#define DISC_RUNTIME_CORE_WEIGHTS_H

#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Core/Library.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Core/Safetensors.h"
#include "lib/Runtime/Core/Status.h"
#include "lib/Runtime/Core/StoredFile.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace disc::rt {

/// Types that differ in nothing but the sign of an integer: a parameter's table entry comes from MLIR's signless types.
bool sameStorage(int64_t a, int64_t b);

class Weights {
public:
  /// All live longer. Buffers are the device's, in the order of the stream, or the allocator's where there is none.
  Weights(const disc_model_info_t &info, const Allocator &host, Device *device = nullptr, Stream stream = nullptr);
  ~Weights();
  Weights(const Weights &) = delete;
  Weights &operator=(const Weights &) = delete;

  /// Parameters in the order of the table. The tensors are ours from here on, also if this fails; they are kept, not
  /// copied, unless they are strided or go from the host to a device.
  Status take(DLManagedTensorVersioned *const *tensors, size_t count);

  /// What a set like this one had after init: parameters that calls read, null for the others, and the bytes of each
  /// global. The tensors are ours from here on, also if this fails.
  Status restore(DLManagedTensorVersioned *const *tensors, size_t count, DLManagedTensorVersioned *const *packed,
                 size_t numPacked);

  struct Binding {
    const disc_library *library;
    const disc_variant *variant;
    bool packed;      ///< Globals are in the file too; parameters that only init reads need not be.
    bool compare;     ///< Shapes and dtypes are not all: contents must have the recorded hashes.
    unsigned threads; ///< To hash with.
  };
  /// Parameters, and packed globals, from a file by their names. The file's memory lives as long as `mapping`, or
  /// longer than this.
  Status bind(const Safetensors &file, std::shared_ptr<StoredFile> mapping, const Binding &binding);

  /// Memory for global `index`, `bytes` bytes at least; null if there is none. `apart` from all others, or beside them.
  void *allocate(size_t index, size_t bytes, bool apart);

  /// Has each back end make its state from its constants; on the CPU only.
  Status startRegions();

  /// Lets go of what only init reads. Weights that are packed now would double the model's size.
  void initialised();

  /// Gives state its first values again, those of the file.
  Status reset();

  struct Global {
    explicit Global(const Allocator &allocator) : own(allocator) {}
    void *data = nullptr;
    size_t bytes = 0;
    Buffer own; ///< Unless the data is in the file or in `region`.
  };

  DeviceMemory memory;            ///< With a device: its memory.
  std::vector<void *> parameters; ///< Contiguous data, by number; null once let go of.
  std::vector<Global> globals;
  std::vector<void *> regions;               ///< The states of back ends, of those that were started.
  bool hasState = false;                     ///< Some parameter is updated by calls...
  Mutex updating{Mutex::Held::WhileRunning}; ///< ...which hold this.
  std::unique_ptr<DeviceEvent> written;      ///< On a device: behind the last of them, in this stream.
  Stream writtenIn = nullptr;

private:
  Status takeOne(size_t index, DLManagedTensorVersioned *tensor);
  /// The host's memory is not the device's.
  bool isApart() const { return memory.device && memory.device->where.device_type != kDLCPU; }
  Status noMemory(const std::string &what) const;
  /// Host memory to a buffer of ours.
  Status fill(Buffer &buffer, const void *data, size_t bytes, const std::string &what);
  void lend();

  const disc_model_info_t &info;
  std::vector<DLManagedTensorVersioned *> owned; ///< Keep parameters alive; null once let go of.
  std::vector<Buffer> copies;                    ///< Of strided or misaligned parameters, by number.
  std::shared_ptr<StoredFile> mapping;
  std::vector<std::pair<void *, size_t>> onlyForInit; ///< In the mapping.
  struct State {
    void *data;
    const void *first; ///< In the file.
    size_t bytes;
  };
  std::vector<State> states; ///< Of parameters that are from a file.
  bool pooled;               ///< Globals may share the region.
  Region region;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_WEIGHTS_H
