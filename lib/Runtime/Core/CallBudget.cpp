//===- CallBudget.cpp - a call within a memory budget ---------------------===//
//
// Before anything is allocated, compiled code asks how large its arena may be, chooses a plan that fits, and begins it.
// All memory that is known then is allocated at once, after a wait if other calls hold too much at the moment. What
// becomes known later, such as sizes that depend on data, is allocated if the budget has room for it, and fails if not.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Guarded.h"

#include <algorithm>

using namespace disc::rt;

static std::string bytesText(int64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

/// Lasting memory of so many bytes; none for 0 bytes on the host.
static int64_t takenBy(const Allocator &allocator, int64_t bytes) {
  return bytes == 0 && !allocator.copyFn ? 0 : int64_t(allocator.taken(memorySize(bytes), Use::Lasting));
}

int64_t disc_call::Needs::total() const { return addSizes(addSizes(temporaries, results), addSizes(scratch, copies)); }

/// What a result takes that the library allocates, as far as it is known.
int64_t disc_call::resultBytes(const OutputSlot &slot) const {
  if (slot.given || slot.plannedBytes < 0)
    return 0;
  if (model.device())
    return deviceOutputBytes(slot.plannedBytes);
  size_t redZones = sanitizer ? 2 * Sanitizer::kRedZone : 0;
  size_t bytes = memorySize(slot.plannedBytes);
  return bytes > size_t(PTRDIFF_MAX) - 1024 ? INT64_MAX : int64_t(OutputPool::capacityFor(bytes + redZones));
}

/// Calls `use(buffer, bytes, kind)` for each buffer that the call will ask for, as far as it is known.
template <typename Use> void disc_call::eachPlanned(int64_t arenaBytes, Use use) {
  const disc_model_info_t &info = model.info();
  if (storage->arena.empty())
    storage->arena.emplace_back(storage->allocator);
  // A device's memory is never empty.
  if (arenaBytes > 0 || model.device())
    use(storage->arena[0], arenaBytes, &Needs::temporaries);
  if (plannedScratch > 0)
    use(storage->scratch, sharedScratchBytes(model.threads(), plannedScratch), &Needs::scratch);
  for (int64_t i = 0; i < info.num_inputs; ++i) {
    const DLTensor &tensor = *inputs[i];
    int64_t bytes;
    if (inPlace(tensor) && isAlignedFor(model.device(), tensor)) {
      // In place of the null pointer that frameworks have for an empty tensor.
      if (model.device() && !dataOf(tensor))
        use(storage->inputs[size_t(i)], 0, &Needs::copies);
      continue;
    }
    if (!denseBytes(tensor.shape, tensor.ndim, elementBytes(dtypeOf(tensor)), bytes))
      bytes = INT64_MAX;
    if (bytes > 0)
      use(storage->inputs[size_t(i)], bytes, &Needs::copies);
  }
  for (size_t i = 0; i < storage->outputs.size(); ++i) {
    const OutputSlot &slot = storage->outputs[i];
    if (slot.given && slot.plannedBytes > 0 && !(inPlace(*slot.given) && isAlignedFor(model.device(), *slot.given)))
      use(storage->scattered[i], slot.plannedBytes, &Needs::results);
  }
}

disc_call::Needs disc_call::needsWith(int64_t arenaBytes) {
  Needs needs = {};
  auto add = [&](Buffer &buffer, int64_t bytes, int64_t Needs::*kind) {
    const Allocator &from = &buffer == &storage->scratch ? storage->hostAllocator : storage->allocator;
    needs.*kind = addSizes(needs.*kind, takenBy(from, bytes));
  };
  eachPlanned(arenaBytes, add);
  for (const OutputSlot &slot : storage->outputs)
    needs.results = addSizes(needs.results, resultBytes(slot));
  return needs;
}

int64_t disc_call::arenaBudget(int64_t scratchBytes, const int64_t *outputBytes) {
  plannedScratch = std::max<int64_t>(scratchBytes, 0);
  if (plannedScratch && sanitizer)
    plannedScratch = addSizes(plannedScratch, int64_t(Sanitizer::kRedZone));
  for (size_t i = 0; i < storage->outputs.size(); ++i)
    storage->outputs[i].plannedBytes = outputBytes ? outputBytes[i] : -1;
  if (!budgeted)
    return INT64_MAX;
  Needs needs = needsWith(0);
  int64_t least = std::exchange(needs.temporaries, 0); // of any arena
  int64_t room = storage->meter.limit() - needs.total();
  return room < least ? -1 : storage->allocator.largest(room);
}

/// Of the memory that the storage has, keeps what the plan can use; the bytes that have to be allocated beside it.
int64_t disc_call::keepFitting(int64_t arenaBytes) {
  int64_t missing = 0;
  eachPlanned(arenaBytes, [&](Buffer &buffer, int64_t bytes, int64_t Needs::*) {
    const Allocator &from = &buffer == &storage->scratch ? storage->hostAllocator : storage->allocator;
    if (buffer.data() && buffer.capacity() >= memorySize(bytes)) {
      (void)buffer.reserve(memorySize(bytes)); // in use from here on
      return;
    }
    buffer.release();
    missing = addSizes(missing, takenBy(from, bytes));
  });
  for (OutputSlot &slot : storage->outputs) {
    int64_t bytes = resultBytes(slot);
    if (bytes > 0 && !model.device())
      slot.block = model.outputPool_->takeKept(size_t(bytes));
    missing = addSizes(missing, slot.block.data ? 0 : bytes);
  }
  return missing;
}

/// The call holds nothing afterwards.
void disc_call::giveUpMemory() {
  for (OutputSlot &slot : storage->outputs)
    if (slot.block.data)
      model.outputPool_->give(std::exchange(slot.block, {}));
  storage->releaseAll();
}

/// With room for all of it.
int32_t disc_call::allocatePlanned(int64_t arenaBytes) {
  bool enough = true;
  eachPlanned(arenaBytes, [&](Buffer &buffer, int64_t bytes, int64_t Needs::*) {
    enough = enough && buffer.reserve(memorySize(bytes));
  });
  if (!model.device())
    for (OutputSlot &slot : storage->outputs)
      if (int64_t bytes = resultBytes(slot); bytes > 0 && !slot.block.data && enough) {
        slot.block = model.outputPool_->take(size_t(bytes), &storage->meter);
        enough = slot.block.data;
      }
  if (!enough)
    return noMemory(storage->memory, "no memory for a plan with " + bytesText(arenaBytes) + " of temporaries"),
           int32_t(status.code());
  // Those on a device are allocated when they are computed.
  if (model.device())
    for (OutputSlot &slot : storage->outputs) {
      slot.setAside = resultBytes(slot);
      storage->meter.setAside(slot.setAside);
    }
  storage->meter.keepCredit(0);
  return 0;
}

std::string disc_call::needsText(const Needs &needs) const {
  return "temporaries " + bytesText(needs.temporaries) + ", results " + bytesText(needs.results) + ", scratch of " +
         std::to_string(model.threads()) + (model.threads() == 1 ? " thread " : " threads ") +
         bytesText(needs.scratch) + ", copies of inputs " + bytesText(needs.copies);
}

int32_t disc_call::overBudget(int64_t bytes) {
  Needs needs = needsWith(std::max<int64_t>(bytes, 0));
  return record(Status(Code::Memory, "the model's memory budget is " + bytesText(storage->meter.limit()) +
                                         ", and a call at these shapes needs at least " + bytesText(needs.total()) +
                                         ": " + needsText(needs) +
                                         ". Raise the budget, or call the model with smaller inputs"));
}

int32_t disc_call::beginPlan(int64_t plan, int64_t bytes) {
  MemoryAccount &account = *model.account_;
  account.lastPlan.store(plan, std::memory_order_relaxed);
  if (plan != 0)
    account.otherPlans.fetch_add(1, std::memory_order_relaxed);
  if (!budgeted)
    return 0;
  if (bytes < 0)
    return record(Status(Code::Invalid, "the compiled code chose a plan with " + bytesText(bytes)));
  Meter &meter = storage->meter;
  Needs needs = needsWith(bytes);
  if (needs.total() > meter.limit())
    return overBudget(bytes);
  bool waits = !account.failsAtOnce.load(std::memory_order_relaxed);
  // Behind those that wait, else they might wait forever.
  bool queues = waits && account.hasWaiting() && !account.isNested(*running);
  if (!queues) {
    if (meter.secure(keepFitting(bytes)))
      return allocatePlanned(bytes);
    // What it has may be larger than what it needs.
    giveUpMemory();
    if (meter.secure(needs.total()))
      return allocatePlanned(bytes);
  }
  giveUpMemory();
  meter.keepCredit(0);
  if (queues || (waits && !account.isNested(*running))) {
    constexpr int64_t kAskNs = 5'000'000;
    int64_t asked = Profile::now();
    auto interrupted = [&] {
      int64_t now = Profile::now();
      if (now - asked < kAskNs)
        return false;
      asked = now;
      return isInterrupted();
    };
    if (!account.wait(needs.total(), meter.limit(), model, interrupted))
      return cancelled();
    meter.addCredit(needs.total());
    return allocatePlanned(bytes);
  }
  return record(Status(
      Code::Memory, "the model's memory budget is " + bytesText(meter.limit()) + ", other calls hold " +
                        bytesText(account.held()) + " of it at the moment, and this call needs " +
                        bytesText(needs.total()) + ": " + needsText(needs) +
                        (waits ? ". It cannot wait for them: its thread is inside of another call of the model" : "")));
}

std::string disc_call::lacking(std::string message) {
  int64_t asked = storage->meter.takeDenied();
  if (!asked)
    return message;
  auto sum = [](const std::vector<Buffer> &list) {
    int64_t bytes = 0;
    for (const Buffer &buffer : list)
      bytes += int64_t(buffer.takenBytes());
    return bytes;
  };
  int64_t temporaries = sum(storage->arena) + sum(storage->slots) + sum(storage->staged) +
                        int64_t(storage->workspace.takenBytes() + storage->frames.heldBytes());
  int64_t stack = int64_t(storage->stack.heldBytes()), scratch = int64_t(storage->scratch.takenBytes());
  int64_t copies = sum(storage->inputs), results = sum(storage->scattered);
  for (const OutputSlot &slot : storage->outputs)
    results += slot.made ? countedBytes(slot.made) : int64_t(slot.block.capacity);
  int64_t others = std::max<int64_t>(
      model.account_->held() - temporaries - stack - scratch - copies - results - storage->meter.unused(), 0);
  return message + ": the model's memory budget of " + bytesText(storage->meter.limit()) + " has no room for " +
         bytesText(asked) + " more. This call holds temporaries " + bytesText(temporaries) + ", results " +
         bytesText(results) + ", scratch " + bytesText(scratch) + ", copies of inputs " + bytesText(copies) +
         ", a stack of " + bytesText(stack) + "; other calls hold " + bytesText(others);
}
