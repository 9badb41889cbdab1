//===- Model.cpp - a loaded model -----------------------------------------===//

#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Call.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace disc::rt {

int64_t sharedScratchBytes(unsigned threads, int64_t scratchBytes) {
  int64_t stride = int64_t(Allocator::standard().taken(memorySize(scratchBytes))), bytes;
  if (scratchBytes <= 0)
    return 0;
  return __builtin_mul_overflow(stride, int64_t(threads), &bytes) ? INT64_MAX : bytes;
}

Model::Model(const Program &program, const ModelOptions &options)
    : program_(program), options_(options), account_(std::make_shared<MemoryAccount>()), scratchMeter_(account_.get()),
      scratchAllocator_(metered(options.allocator, scratchMeter_)),
      storages_(*program.info, options_.allocator, account_.get(), this), scratches_(scratchAllocator_),
      outputPool_(std::make_shared<OutputPool>(options.allocator, account_)) {
  account_->budget = options.memoryBudget ? options.memoryBudget : program.info->memory_budget;
  account_->failsAtOnce = options.failsOverBudget;
}

Model::~Model() {
  outputPool_->close();
  if (!device_)
    return;
  DeviceScope scope(device_);
  // Work that earlier calls put into streams still uses these objects.
  (void)device_->synchronizeAll();
  storages_.clear();
  weights_.reset();
  module_.reset();
  profileBegan_.reset();
  device_->trim();
}

Status Model::create(const Program &program, const ModelOptions &options, std::unique_ptr<Model> &model) {
  if (program.info->version != DISC_MODEL_INFO_VERSION)
    return Status(Code::Version, "the model's table has version " + std::to_string(program.info->version) +
                                     ", this runtime reads version " + std::to_string(DISC_MODEL_INFO_VERSION));
  if (options.memoryBudget < 0)
    return Status(Code::Invalid,
                  "the memory budget must be at least 0 bytes, got " + std::to_string(options.memoryBudget));
  if (options.threads > kMaxThreads)
    return Status(Code::Invalid, "expected at most " + std::to_string(kMaxThreads) + " threads, got " +
                                     std::to_string(options.threads));
  std::unique_ptr<Model> created(new Model(program, options));
  created->threads_ = options.threads ? options.threads : std::min(defaultThreads(), kMaxThreads);
  if (const disc_device_code *code = program.info->device) {
    if (Status status = DeviceRegistry::get().find(code->device, options.device, created->device_); !status.ok())
      return status;
    DeviceScope scope(created->device_);
    if (!scope.status().ok())
      return scope.status();
    if (Status status = created->device_->load(*code, created->module_); !status.ok())
      return status;
    const char *graphs = std::getenv("DISC_DEVICE_GRAPHS");
    created->usesGraphs_ = created->device_->takesGraphs() && !(graphs && std::strcmp(graphs, "0") == 0);
  }
  if (!options.parallelFor) {
    created->pool_ = ThreadPool::get(created->threads_);
    created->threads_ = created->pool_->size();
  }
  model = std::move(created);
  return Status();
}

Status Model::load(DLManagedTensorVersioned *const *parameters, size_t count, Stream stream) {
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  auto weights = std::make_shared<Weights>(info(), allocator(), device_, stream);
  if (Status status = weights->take(parameters, count); !status.ok())
    return status;
  return adopt(std::move(weights), /*runInit=*/true);
}

Status Model::restore(DLManagedTensorVersioned *const *parameters, size_t count,
                      DLManagedTensorVersioned *const *packed, size_t numPacked, Stream stream) {
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  auto weights = std::make_shared<Weights>(info(), allocator(), device_, stream);
  if (Status status = weights->restore(parameters, count, packed, numPacked); !status.ok())
    return status;
  return adopt(std::move(weights), /*runInit=*/false);
}

Status Model::adopt(std::shared_ptr<Weights> weights, bool runInit) {
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  Stream stream = weights->memory.stream;
  // Init may run regions that depend on parameters alone.
  if (Status status = weights->startRegions(); !status.ok())
    return status;
  if (runInit && program_.init) {
    disc_call call(*this, *weights, disc_call::Entry::Init, stream);
    if (Status status = call.execute(program_.init); !status.ok())
      return status;
  }
  if (device_) // so that calls in any stream can use the weights
    if (Status status = device_->synchronize(stream); !status.ok())
      return status;
  weights->initialised();
  {
    std::lock_guard<Mutex> lock(weightsMutex_);
    std::swap(weights_, weights);
  }
  // The old weights are freed here, or when the last call that uses them ends.
  return Status();
}

Status Model::setMemoryBudget(int64_t bytes) {
  if (bytes < 0)
    return Status(Code::Invalid, "the memory budget must be at least 0 bytes, got " + std::to_string(bytes));
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  account_->budget = bytes;
  while (bytes && account_->held() > bytes && reclaim()) {
  }
  account_->changed();
  return Status();
}

MemoryUsage Model::memoryUsage() const {
  const MemoryAccount &account = *account_;
  return {account.budget, account.held(), account.peak(), account.allocations, account.otherPlans, account.lastPlan};
}

bool Model::reclaim() { return storages_.reclaim() || outputPool_->reclaim() || scratches_.reclaim(); }

void Model::seed(uint64_t seed) {
  std::lock_guard<Mutex> lock(randomMutex_);
  random_ = {seed, 0};
}

Model::Random Model::nextRandom() {
  std::lock_guard<Mutex> lock(randomMutex_);
  Random next = random_;
  ++random_.run;
  return next;
}

Status Model::reset() {
  std::shared_ptr<Weights> held = weights();
  if (!held)
    return Status(Code::Invalid, "the model is not loaded: it has no weights");
  return held->reset();
}

std::shared_ptr<Weights> Model::weights() {
  std::lock_guard<Mutex> lock(weightsMutex_);
  return weights_;
}

Status Model::checkCounts(const void *inputs, size_t numInputs, const void *outputs, size_t numOutputs) const {
  if (numInputs != size_t(info().num_inputs))
    return Status(Code::Type,
                  "expected " + std::to_string(info().num_inputs) + " tensor inputs, got " + std::to_string(numInputs));
  if (numOutputs != size_t(info().num_outputs))
    return Status(Code::Type,
                  "expected " + std::to_string(info().num_outputs) + " outputs, got " + std::to_string(numOutputs));
  if ((!inputs && numInputs) || (!outputs && numOutputs))
    return Status(Code::Invalid,
                  std::string("the array of ") + (inputs || !numInputs ? "outputs" : "inputs") + " is null");
  return Status();
}

Status Model::run(const DLTensor *const *inputs, size_t numInputs, disc_output *outputs, size_t numOutputs,
                  Stream stream) {
  if (stream && !device_)
    return Status(Code::Invalid, "the model runs on the CPU, which has no streams");
  if (Status status = checkCounts(inputs, numInputs, outputs, numOutputs); !status.ok())
    return status;
  for (size_t i = 0; i < numOutputs; ++i)
    if (!outputs[i].tensor)
      outputs[i].managed = nullptr;
  std::shared_ptr<Weights> held = weights();
  if (!held)
    return Status(Code::Invalid, "the model is not loaded: it has no weights");
  // Calls that update the model's state take turns.
  std::unique_lock<Mutex> turn(held->updating, std::defer_lock);
  if (held->hasState) {
    turn.lock();
    if (held->updating.takeAbandoned())
      return Status(Code::Invalid, "the model's state is incomplete: fork() made this process while another thread's "
                                   "call was updating it. Set the state again (disc_reset, Library.reset, or the "
                                   "tensors of Model.state) before the next call");
  }
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  if (device_)
    if (Status status = device_->mayRun(stream); !status.ok())
      return status;
  disc_call call(*this, *held, disc_call::Entry::Main, stream);
  call.setInputs(inputs);
  call.setOutputs(outputs);
  Status status = call.execute(program_.main);
  if (status.ok())
    status = call.finishOutputs();
  if (status.ok())
    call.handOver(outputs);
  return status;
}

Status Model::synchronize(Stream stream) {
  if (!device_)
    return stream ? Status(Code::Invalid, "the model runs on the CPU, which has no streams") : Status();
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  Status done = device_->synchronize(stream);
  return done.ok() ? storages_.failure() : std::move(done);
}

Status Model::startProfile() {
  profile_.start();
  if (!device_)
    return Status();
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  Status status = device_->record(profileBegan_, nullptr, /*timed=*/true);
  if (status.ok())
    status = device_->synchronize(nullptr);
  profileBeganNs_ = Profile::now();
  return status;
}

Status Model::stopProfile(std::vector<LaunchRecord> &launches) {
  launches = profile_.stop();
  if (!device_)
    return Status();
  DeviceScope scope(device_);
  if (!scope.status().ok())
    return scope.status();
  Status status = device_->synchronizeAll();
  for (LaunchRecord &launch : launches) {
    if (!launch.begin || !profileBegan_)
      continue;
    launch.beginNs = profileBeganNs_ + device_->elapsed(*profileBegan_, *launch.begin);
    launch.endNs = launch.beginNs + device_->elapsed(*launch.begin, *launch.end);
    launch.begin.reset();
    launch.end.reset();
  }
  return status;
}

Status Model::outputShapes(const DLTensor *const *inputs, size_t numInputs, int64_t *const *shapes, size_t numOutputs) {
  if (Status status = checkCounts(inputs, numInputs, shapes, numOutputs); !status.ok())
    return status;
  if (!program_.shapes)
    return Status(Code::Invalid, "the model was compiled without the function that computes output shapes");
  std::shared_ptr<Weights> held = weights();
  if (!held)
    return Status(Code::Invalid, "the model is not loaded: it has no weights");
  disc_call call(*this, *held, disc_call::Entry::Shapes);
  call.setInputs(inputs);
  Status status = call.execute(program_.shapes);
  if (status.ok())
    status = call.finishOutputs();
  for (size_t i = 0; status.ok() && i < numOutputs; ++i)
    if (shapes[i])
      std::copy_n(call.storage->outputs[i].dims, info().outputs[i].rank, shapes[i]);
  return status;
}

Status Model::parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs, int64_t scratchBytes,
                          Buffer &scratch, unsigned threads) {
  auto noScratch = [&] {
    return Status(Code::Memory, "no memory for scratch of " + std::to_string(scratchBytes) + " bytes per thread");
  };
  SharedScratch shared;
  if (threads && tasks > 0 && scratchBytes >= 0) {
    int64_t bytes = sharedScratchBytes(threads, scratchBytes);
    shared = {static_cast<char *>(scratch.reserve(memorySize(bytes))), size_t(bytes / threads), threads};
    if (!shared.data)
      return noScratch();
  }
  if (pool_)
    return pool_->parallelFor(kernel, args, tasks, costNs, scratchBytes, scratch, shared) ? Status() : noScratch();
  if (tasks <= 0)
    return Status();
  unsigned ranges = rangesWorth(threads_, tasks, costNs);
  if (shared.data)
    ranges = std::min(ranges, shared.threads);
  if (ranges > 1 && scratchBytes >= 0)
    return callersParallelFor(kernel, args, tasks, ranges, scratchBytes, shared);
  void *memory = scratchBytes < 0 ? nullptr : shared.data ? shared.data : scratch.reserve(memorySize(scratchBytes));
  if (!memory)
    return noScratch();
  kernel(args, 0, tasks, memory);
  return Status();
}

namespace {
/// A launch on the caller's threads.
struct ForeignJob {
  disc_kernel_fn kernel;
  void *const *args;
  int64_t tasks, ranges, scratchBytes;
  ScratchPool &scratches;
  SharedScratch shared;
  std::atomic<unsigned> begun{0}; ///< Runs that took a part of `shared`.
  std::atomic<int64_t> done{0};
  std::atomic<bool> outOfMemory{false}, outOfRange{false};

  void runTasks(int64_t begin, int64_t end, void *memory) const {
    kernel(args, rangeBegin(begin, ranges, tasks), rangeBegin(end, ranges, tasks), memory);
  }

  static void run(void *opaque, int64_t begin, int64_t end) {
    auto &job = *static_cast<ForeignJob *>(opaque);
    if (begin < 0 || end > job.ranges || begin > end) {
      job.outOfRange.store(true, std::memory_order_relaxed);
      return;
    }
    if (job.shared.data) {
      unsigned part = job.begun.fetch_add(1, std::memory_order_relaxed);
      if (part >= job.shared.threads)
        job.outOfRange.store(true, std::memory_order_relaxed);
      else if (begin < end)
        job.runTasks(begin, end, job.shared.data + part * job.shared.stride);
      job.done.fetch_add(end - begin, std::memory_order_release);
      return;
    }
    Buffer scratch = job.scratches.acquire();
    if (void *memory = scratch.reserve(memorySize(job.scratchBytes))) {
      if (begin < end)
        job.runTasks(begin, end, memory);
    } else {
      job.outOfMemory.store(true, std::memory_order_relaxed);
    }
    job.scratches.release(std::move(scratch));
    job.done.fetch_add(end - begin, std::memory_order_release);
  }
};
} // namespace

Status Model::callersParallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, unsigned ranges,
                                 int64_t scratchBytes, const SharedScratch &shared) {
  ForeignJob job{kernel, args, tasks, ranges, scratchBytes, scratches_, shared};
  options_.parallelFor(options_.parallelContext, ranges, &ForeignJob::run, &job);
  if (job.outOfMemory.load(std::memory_order_relaxed))
    return Status(Code::Memory, "no memory for scratch of " + std::to_string(scratchBytes) + " bytes per thread");
  int64_t done = job.done.load(std::memory_order_acquire);
  if (done != ranges || job.outOfRange.load(std::memory_order_relaxed))
    return Status(Code::Invalid, "parallel_for must run each of " + std::to_string(ranges) + " ranges once, but ran " +
                                     std::to_string(done));
  return Status();
}

} // namespace disc::rt
