//===- CallStream.h - a call's work on its way into a stream ----*- C++ -*-===//
//
// A launch costs the host several microseconds, often more than the kernel takes. Calls with the same extents put the
// same kernels into their stream, so from the second one on a call's work is a graph, which costs one launch. Compiled
// code runs as ever and computes sizes and addresses; what it asks for is compared with the graph's nodes. Where
// addresses differ, as those of inputs and outputs do, the node is changed. A call that asks for something else, or
// that waits for the device in between, goes without a graph: what it asked for so far is put into the stream at once.
//
// Where every call has new extents, as those of a cache that grows, one graph moves from call to call: most of them put
// the same kernels into their stream, with other sizes and numbers of blocks, and changing nodes costs less than
// launches do.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_CALLSTREAM_H
#define DISC_RUNTIME_CORE_CALLSTREAM_H

#include "lib/Runtime/Core/DeviceMemory.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/Device/Device.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace disc::rt {

/// One thing that a call asked its device for.
struct DeviceStep {
  enum Kind : uint8_t {
    Launch,
    Copy,
    Product,
    KernelProduct, ///< Which the library left to a kernel: nothing is to be done.
  };
  Kind kind;
  bool isChanged = false;     ///< The graph's node has other values.
  size_t node = 0;            ///< In the graph.
  int64_t kernel = 0;         ///< Its number in the model's code, also a product's.
  int64_t blocks = 0;         ///< Of a launch.
  size_t first = 0;           ///< Of the arguments.
  int64_t count = 0;          ///< Of arguments.
  DeviceProduct product = {}; ///< Extents and addresses.
  void *memory = nullptr;     ///< A product's own, or where a copy goes to.
  const void *from = nullptr;
  size_t bytes = 0; ///< Of a copy, or of a product's own memory.
};

/// What calls with the same extents do, as far as it is known.
struct RecordedCall {
  std::vector<int64_t> extents; ///< Of all inputs.
  uint64_t hash = 0;
  int64_t used = 0;     ///< When, in calls of the storage.
  int64_t calls = 0;    ///< That ran without a graph...
  int64_t failures = 0; ///< ...where there could have been one.
  int64_t replays = 0;  ///< Launches of the graph.
  bool moves = false;   ///< The graph is for the next call with new extents, unless these occur again.

  std::unique_ptr<DeviceGraph> graph; ///< Null, or one that does `steps`.
  std::vector<DeviceStep> steps;
  std::vector<void *> args;
};

/// The graphs of the calls that use one storage, whose addresses thus stay the same: the least recently used go first.
class RecordedCalls {
public:
  static constexpr size_t kMost = 64;

  /// What is known of calls with these extents; it stays until the next call of this function.
  RecordedCall &find(const DLTensor *const *inputs, int64_t count);
  /// Whether the next one is worth a graph.
  bool isWorth(const RecordedCall &call) const;
  /// A graph that came from other extents did not fit, or it did.
  void moved(bool fits);

private:
  /// After so many calls in a row with new extents a graph is made that moves.
  static constexpr int64_t kManyNew = 3;
  bool mayMove() const { return rest == 0; }

  std::vector<std::unique_ptr<RecordedCall>> calls;
  RecordedCall *latest = nullptr;
  int64_t numNew = 0;             ///< The last calls, in a row, had extents that were new.
  int64_t rest = 0, lastRest = 0; ///< For so many such calls no graph moves, since one did not fit.
  std::vector<int64_t> extents;   ///< Of the call that is looked for.
  int64_t clock = 0;
  int64_t needed = 1; ///< Calls before there is a graph. Where graphs go before they are of use, it grows.
};

/// Of one call: puts work into its stream, or keeps it until end().
class CallStream final : DeferredWork {
public:
  /// Both may be null as long as nothing is asked for. Errors name kernels as `info` does.
  CallStream(const disc_model_info_t &info, Device *device, DeviceModule *module, Stream stream)
      : info(info), device(device), module(module), stream(stream) {}
  ~CallStream() { abandon(); }
  CallStream(const CallStream &) = delete;
  CallStream &operator=(const CallStream &) = delete;

  /// From here on work may become a graph, or is compared with one. `memory` is that of the call's buffers: before any
  /// of it is freed, what was kept goes into the stream.
  void begin(RecordedCalls &known, DeviceMemory &memory, const DLTensor *const *inputs);

  /// `args` are values.
  Status launch(int64_t kernel, void *const *args, int64_t count, int64_t blocks);
  Status copy(void *to, const void *from, size_t bytes);
  Status multiply(const DeviceProduct &product, const ProductMemory &memory, bool &done);

  /// Before something that no graph contains: puts what was kept into the stream.
  Status interrupt() { return flush(kAttempts); }
  /// After the last request of a call that succeeded.
  Status end();
  /// Forgets what was kept.
  void abandon();

private:
  /// What fails so often is not tried again.
  static constexpr int64_t kAttempts = 3;
  friend class RecordedCalls;

  void settle() override;
  /// As the next request does not fit, or is none for a graph.
  void leave();
  Status flush(int64_t failures);
  Status make();
  Status change();
  /// Into the stream, or into the call's graph.
  Status launchNow(int64_t kernel, void *const *args, int64_t count, int64_t blocks);
  Status issue(const DeviceStep &step);
  Status place(const DeviceStep &step, DeviceGraph &graph);
  /// The graph's next step if it is of this kind.
  DeviceStep *next(DeviceStep::Kind kind);
  /// A step of a graph that is to be; null, and what was kept is in the stream, if there are too many.
  DeviceStep *add(DeviceStep::Kind kind);
  bool isReplay() const { return isKept && call->graph; }
  Status named(int64_t kernel, Status status) const;

  const disc_model_info_t &info;
  Device *const device;
  DeviceModule *const module;
  const Stream stream;
  DeviceMemory *memory = nullptr;
  RecordedCalls *known = nullptr;
  RecordedCall *call = nullptr; ///< Null: there will be no graph.
  bool isBehindKernel = false;  ///< The last thing that the call put into the stream is a kernel.
  bool isKept = false;          ///< Work is not put into the stream yet.
  size_t position = 0;          ///< In the steps of a graph.
  Status failed;                ///< What nobody could be told yet.
};

/// "kernel 'relu' (model.py:12)"
std::string kernelText(const disc_model_info_t &info, int64_t kernel);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_CALLSTREAM_H
