//===- FakeDriver.cpp - a driver's library over host memory ---------------===//

#include "FakeDriver.h"
#include "lib/Runtime/Device/Driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

using namespace disc::test;

#ifdef DISC_FAKE_HIP
#define API(cuda, hip) extern "C" __attribute__((visibility("default"))) int hip
#else
#define API(cuda, hip) extern "C" __attribute__((visibility("default"))) int cuda
#endif

namespace {
constexpr int kInvalid = 1, kNoMemory = 2, kNotFound = 500, kNotReady = 600, kNoDevice = 100;

struct Event {
  int64_t recorded = 0, passed = 0; ///< How often; the stream has come by when they are equal.
  void *stream = nullptr;
};

struct Operation {
  std::function<void()> run;
  Event *waitsFor = nullptr; ///< As it was recorded then:
  void *stream = nullptr;
  int64_t until = 0;
};

struct Block {
  std::unique_ptr<char[]> memory;
  size_t bytes;
  int64_t number;
  bool freed = false; ///< By a call; the memory goes when the stream comes by.
};

struct Kernel {
  const char *name;
  int args;
  void (*run)(void **args);
};

template <typename T> T *pointer(void *arg) { return static_cast<T *>(arg); }

const Kernel kKernels[] = {
    {"twice", 2, [](void **a) { *pointer<float>(a[1]) = 2 * *pointer<float>(a[0]); }},
    {"scale", 5,
     [](void **a) {
       for (int64_t i = 0; i < reinterpret_cast<int64_t>(a[4]); ++i)
         pointer<float>(a[3])[i] = pointer<float>(a[0])[i] * *pointer<float>(a[1]) + *pointer<float>(a[2]);
     }},
    {"add", 2, [](void **a) { *pointer<float>(a[1]) += *pointer<float>(a[0]); }},
    {"check", 5,
     [](void **a) {
       auto *report = static_cast<int64_t *>(a[1]);
       auto index = int64_t(*pointer<float>(a[0]));
       if (index >= 5 && !report[0])
         report[0] = 1, report[1] = index, report[2] = 5, report[3] = reinterpret_cast<int64_t>(a[2]);
     }},
    {"move", 3, [](void **a) { std::memmove(a[1], a[0], reinterpret_cast<size_t>(a[2])); }},
};

/// Of a graph, or of an executable one.
struct Node {
  const Kernel *kernel = nullptr;
  std::vector<void *> args;
  std::function<void()> work; ///< A copy, or what was captured.
  std::vector<Node> child;
  bool isBehind = false; ///< The node before it, or it is the first.
};

/// What handles of nodes point to.
struct Graph {
  std::deque<Node> nodes;
};

struct Executable {
  std::map<const Node *, size_t> places;
  std::vector<Node> nodes;
};

FakeDriver fake;
std::map<void *, std::deque<Operation>> streams;
std::map<void *, Graph *> captures;
std::map<void *, Block> blocks;
int64_t numbers = 0;
int lateError = 0;
} // namespace

extern "C" __attribute__((visibility("default"))) FakeDriver *disc_fake_driver() { return &fake; }

/// What a function returns: 0, or the fault that is set for it.
static int outcome(const char *function) {
  auto it = fake.faults.find(function);
  if (it == fake.faults.end() || it->second.after-- > 0)
    return 0;
  int result = it->second.result;
  if (!it->second.sticky)
    fake.faults.erase(it);
#ifdef DISC_FAKE_HIP
  fake.lastError = result;
#endif
  return result;
}

static int enter(const char *function, const std::string &what = "") {
  fake.calls.push_back(function + (what.empty() ? "" : " " + what));
  return outcome(function);
}

static int failContext() {
#ifdef DISC_FAKE_HIP
  fake.lastError = fake.contextFault;
#endif
  return fake.contextFault;
}

static std::string on(void *stream) { return " on " + std::to_string(reinterpret_cast<uintptr_t>(stream)); }

/// Runs what is in the stream, and in others as far as it waits for them.
static void drain(void *stream, Event *until = nullptr, int64_t count = 0) {
  std::deque<Operation> &queue = streams[stream];
  while (!queue.empty() && !(until && until->passed >= count)) {
    Operation next = std::move(queue.front());
    queue.pop_front();
    if (next.waitsFor && next.waitsFor->passed < next.until)
      drain(next.stream, next.waitsFor, next.until);
    if (next.run)
      next.run();
  }
}

static int finish(void *stream) {
  drain(stream);
  return lateError;
}

/// Device memory that may be touched now.
static void touch(const void *data, size_t bytes) {
  auto it = blocks.upper_bound(const_cast<void *>(data));
  if (it == blocks.begin())
    return (void)++fake.badAccesses;
  --it;
  if (static_cast<const char *>(data) + bytes > static_cast<char *>(it->first) + it->second.bytes)
    ++fake.badAccesses;
}

static void needContext() {
#ifndef DISC_FAKE_HIP
  fake.badAccesses += fake.contexts <= 0;
#endif
}

#define LOCK std::lock_guard<std::mutex> lock(fake.mutex)

__attribute__((visibility("default"))) int disc::test::fakeCall(const char *function, const std::string &what) {
  LOCK;
  return enter(function, what);
}

__attribute__((visibility("default"))) int disc::test::fakeOutcome(const char *function) {
  LOCK;
  return outcome(function);
}

__attribute__((visibility("default"))) void disc::test::fakeEnqueue(void *stream, std::function<void()> work) {
  LOCK;
  auto capture = captures.find(stream);
  if (capture == captures.end())
    return streams[stream].push_back({std::move(work)});
  capture->second->nodes.emplace_back();
  capture->second->nodes.back().work = std::move(work);
}

//===-- Devices and contexts ----------------------------------------------===//

API(cuInit, hipInit)(unsigned) {
  LOCK;
  return enter("init");
}
API(cuDeviceGetCount, hipGetDeviceCount)(int *count) {
  LOCK;
  if (int result = outcome("count"))
    return result;
  *count = fake.devices;
  return fake.devices ? 0 : kNoDevice;
}
API(cuDeviceGet, hipDeviceGet)(int *device, int number) {
  LOCK;
  *device = number;
  return outcome("device");
}
API(cuDeviceGetName, hipDeviceGetName)(char *name, int bytes, int) {
  LOCK;
  std::strncpy(name, "Fake", size_t(bytes));
  return outcome("deviceName");
}
API(cuCtxSynchronize, hipDeviceSynchronize)() {
  LOCK;
  needContext();
  if (int result = enter("synchronizeAll"))
    return result;
  for (auto &[stream, queue] : streams)
    drain(stream);
  return lateError;
}
#ifdef DISC_FAKE_HIP
API(, hipGetDevice)(int *device) {
  LOCK;
  *device = int(fake.contexts);
  return 0;
}
API(, hipSetDevice)(int device) {
  LOCK;
  if (fake.contextFault)
    return failContext();
  fake.contexts = device;
  return 0;
}
API(, hipGetLastError)() {
  LOCK;
  return std::exchange(fake.lastError, 0);
}
API(, hipGetDevicePropertiesR0600)(void *properties, int) {
  LOCK;
  std::strcpy(static_cast<char *>(properties) + 1160, fake.arch.c_str());
  return outcome("arch");
}
extern "C" __attribute__((visibility("default"))) const char *hipGetErrorName(int result) {
  return result == kNoMemory ? "hipErrorOutOfMemory" : result == 700 ? "hipErrorIllegalAddress" : "hipErrorOther";
}
#else
API(cuDevicePrimaryCtxRetain, )(void **context, int) {
  LOCK;
  *context = &fake;
  return outcome("retainContext");
}
API(cuCtxPushCurrent_v2, )(void *) {
  LOCK;
  if (fake.contextFault)
    return failContext();
  ++fake.contexts;
  return 0;
}
API(cuCtxPopCurrent_v2, )(void **) {
  LOCK;
  --fake.contexts;
  return 0;
}
API(cuDeviceGetAttribute, )(int *value, int attribute, int) {
  LOCK;
  *value = attribute == 75 ? fake.major : attribute == 76 ? fake.minor : 0;
  return outcome("arch");
}
API(cuGetErrorName, )(int result, const char **name) {
  *name = result == kNoMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == 700     ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == 218     ? "CUDA_ERROR_INVALID_PTX"
                              : "CUDA_ERROR_OTHER";
  return 0;
}
#endif

//===-- Streams and events ------------------------------------------------===//

API(cuStreamSynchronize, hipStreamSynchronize)(void *stream) {
  LOCK;
  needContext();
  if (int result = enter("synchronize", on(stream).substr(1)))
    return result;
  return finish(stream);
}
API(cuStreamWaitEvent, hipStreamWaitEvent)(void *stream, void *event, unsigned) {
  LOCK;
  needContext();
  auto *waited = static_cast<Event *>(event);
  if (int result = enter("wait", on(stream).substr(1) + " for" + on(waited->stream).substr(3)))
    return result;
  streams[stream].push_back({nullptr, waited, waited->stream, waited->recorded});
  return 0;
}
API(cuStreamIsCapturing, hipStreamIsCapturing)(void *stream, int *capturing) {
  LOCK;
  needContext();
  *capturing = stream == fake.captured;
  return outcome("capturing");
}
API(cuEventCreate, hipEventCreateWithFlags)(void **event, unsigned) {
  LOCK;
  needContext();
  if (int result = enter("createEvent"))
    return result;
  ++fake.events;
  *event = new Event;
  return 0;
}
API(cuEventDestroy_v2, hipEventDestroy)(void *event) {
  LOCK;
  needContext();
  --fake.events;
  auto *destroyed = static_cast<Event *>(event);
  if (destroyed->passed < destroyed->recorded)
    drain(destroyed->stream, destroyed, destroyed->recorded); // the driver keeps it until then
  for (auto &[stream, queue] : streams)
    for (Operation &operation : queue)
      if (operation.waitsFor == destroyed)
        operation.waitsFor = nullptr;
  delete destroyed;
  return 0;
}
API(cuEventRecord, hipEventRecord)(void *event, void *stream) {
  LOCK;
  needContext();
  auto *recorded = static_cast<Event *>(event);
  if (int result = enter("record", on(stream).substr(1)))
    return result;
  recorded->stream = stream;
  int64_t count = ++recorded->recorded;
  streams[stream].push_back({[recorded, count] { recorded->passed = std::max(recorded->passed, count); }});
  return 0;
}
API(cuEventQuery, hipEventQuery)(void *event) {
  LOCK;
  needContext();
  if (int result = outcome("queryEvent"))
    return result;
  return static_cast<Event *>(event)->passed < static_cast<Event *>(event)->recorded ? kNotReady : 0;
}
API(cuEventSynchronize, hipEventSynchronize)(void *event) {
  LOCK;
  needContext();
  auto *waited = static_cast<Event *>(event);
  if (int result = outcome("synchronizeEvent"))
    return result;
  drain(waited->stream, waited, waited->recorded);
  return lateError;
}
API(cuEventElapsedTime, hipEventElapsedTime)(float *milliseconds, void *, void *) {
  *milliseconds = 0.5f;
  return 0;
}

//===-- Memory ------------------------------------------------------------===//

API(cuMemPoolCreate, hipMemPoolCreate)(void **pool, const disc::rt::PoolProperties *) {
  LOCK;
  *pool = &fake;
  return enter("createPool");
}
API(cuMemPoolSetAttribute, hipMemPoolSetAttribute)(void *, int attribute, void *value) {
  LOCK;
  if (int result = outcome("setPool"))
    return result;
  return attribute == 4 && *static_cast<uint64_t *>(value) == UINT64_MAX ? 0 : kInvalid;
}
API(cuMemPoolTrimTo, hipMemPoolTrimTo)(void *, size_t) {
  LOCK;
  return enter("trim");
}
API(cuMemAllocFromPoolAsync, hipMallocFromPoolAsync)(void **data, size_t bytes, void *, void *stream) {
  LOCK;
  needContext();
  if (int result = enter("allocate", std::to_string(numbers) + on(stream)))
    return result;
  Block block = {std::unique_ptr<char[]>(new char[bytes + 256]), bytes, numbers++};
  *data = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(block.memory.get()) + 255) / 256 * 256);
  std::memset(*data, 0xff, bytes);
  blocks.emplace(*data, std::move(block));
  ++fake.blocks;
  return 0;
}
API(cuMemFreeAsync, hipFreeAsync)(void *data, void *stream) {
  LOCK;
  needContext();
  auto it = blocks.find(data);
  if (it == blocks.end() || it->second.freed) {
    ++fake.badAccesses;
    return kInvalid;
  }
  it->second.freed = true;
  --fake.blocks;
  streams[stream].push_back({[data] { blocks.erase(data); }});
  return enter("free", std::to_string(it->second.number) + on(stream));
}
API(cuMemHostAlloc, hipHostMalloc)(void **data, size_t bytes, unsigned flags) {
  LOCK;
  needContext();
  static auto &kept = *new std::vector<std::unique_ptr<char[]>>;
  kept.emplace_back(new char[bytes]);
  *data = kept.back().get();
  fake.pinned += int64_t(bytes);
  return enter("allocateHost", std::to_string(flags));
}
API(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void *to, const void *from, size_t bytes, void *stream) {
  LOCK;
  needContext();
  if (int result = enter("copyIn", std::to_string(bytes) + on(stream)))
    return result;
  streams[stream].push_back({[=] {
    touch(to, bytes);
    std::memcpy(to, from, bytes);
  }});
  return 0;
}
API(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *to, const void *from, size_t bytes, void *stream) {
  LOCK;
  needContext();
  if (int result = enter("copyOut", std::to_string(bytes) + on(stream)))
    return result;
  streams[stream].push_back({[=] {
    touch(from, bytes);
    std::memcpy(to, from, bytes);
  }});
  return 0;
}
API(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void *to, const void *from, size_t bytes, void *stream) {
  LOCK;
  needContext();
  if (int result = enter("copy", std::to_string(bytes) + on(stream)))
    return result;
  streams[stream].push_back({[=] {
    touch(to, bytes);
    touch(from, bytes);
    std::memcpy(to, from, bytes);
  }});
  return 0;
}

//===-- Kernels -----------------------------------------------------------===//

API(cuModuleLoadDataEx, hipModuleLoadDataEx)(void **module, const void *image, unsigned count, int *options,
                                             void **values) {
  LOCK;
  needContext();
  fake.loaded = static_cast<const char *>(image);
  if (int result = enter("loadModule", fake.loaded))
    return result;
  if (!fake.jitLog.empty()) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == 5)
        std::strcpy(static_cast<char *>(values[i]), fake.jitLog.c_str());
    return 218;
  }
  ++fake.modules;
  *module = &fake;
  return 0;
}
API(cuModuleUnload, hipModuleUnload)(void *) {
  LOCK;
  needContext();
  --fake.modules;
  return 0;
}
API(cuModuleGetFunction, hipModuleGetFunction)(void **function, void *, const char *name) {
  LOCK;
  if (int result = outcome("getFunction"))
    return result;
  for (const Kernel &kernel : kKernels)
    if (std::strcmp(kernel.name, name) == 0)
      return *function = const_cast<Kernel *>(&kernel), 0;
  return kNotFound;
}
API(cuFuncSetAttribute, hipFuncSetAttribute)(void *, int attribute, int value) {
  LOCK;
  return enter("setFunction", std::to_string(attribute) + " " + std::to_string(value));
}
/// The driver copies them.
static std::vector<void *> valuesOf(const Kernel *kernel, void **args) {
  std::vector<void *> values;
  for (int i = 0; i < kernel->args; ++i)
    values.push_back(*static_cast<void **>(args[i]));
  return values;
}
static void runKernel(const Kernel *kernel, std::vector<void *> &values) {
  if (enter("run", kernel->name)) {
    lateError = 700; // the context is lost
    fake.lastError = 0;
  } else if (!lateError) {
    kernel->run(values.data());
  }
}
API(cuLaunchKernel, hipModuleLaunchKernel)(void *function, unsigned blocksX, unsigned, unsigned, unsigned, unsigned,
                                           unsigned, unsigned, void *stream, void **args, void **) {
  LOCK;
  needContext();
  auto *kernel = static_cast<const Kernel *>(function);
  if (int result = enter("launch", std::string(kernel->name) + " " + std::to_string(blocksX) + on(stream)))
    return result;
  streams[stream].push_back({[=, values = valuesOf(kernel, args)]() mutable { runKernel(kernel, values); }});
  return 0;
}
#ifndef DISC_FAKE_HIP
API(cuLaunchKernelEx, )(const void *given, void *function, void **args, void **) {
  struct Config {
    unsigned blocks, y, z, threads[3], shared;
    void *stream;
    const int *attributes;
    unsigned count;
  };
  auto *config = static_cast<const Config *>(given);
  LOCK;
  needContext();
  auto *kernel = static_cast<const Kernel *>(function);
  bool isEarly = config->count == 1 && config->attributes[0] == 6 && config->attributes[2] == 1;
  if (int result = enter("launchEarly", std::string(isEarly ? kernel->name : "?") + " " +
                                            std::to_string(config->blocks) + on(config->stream)))
    return result;
  streams[config->stream].push_back({[=, values = valuesOf(kernel, args)]() mutable { runKernel(kernel, values); }});
  return 0;
}
#endif

//===-- Graphs ------------------------------------------------------------===//

namespace {
struct Extents {
  unsigned x, y, z;
};
/// As the driver declares them.
#ifdef DISC_FAKE_HIP
struct KernelParams {
  Extents block;
  void **extra;
  const Kernel *kernel;
  Extents grid;
  void **args;
  unsigned sharedBytes;
};
#else
struct KernelParams {
  const Kernel *kernel;
  Extents grid, block;
  unsigned sharedBytes;
  void **args, **extra;
};
struct CopySide {
  size_t x, y, z, level;
  int memory;
  void *host, *device, *array, *reserved;
  size_t pitch, height;
};
struct CopyParams {
  CopySide from, to;
  size_t width, height, depth;
};
#endif
} // namespace

static std::function<void()> copying(void *to, const void *from, size_t bytes) {
  return [=] {
    touch(to, bytes);
    touch(from, bytes);
    std::memcpy(to, from, bytes);
  };
}
/// A graph is to be a chain, which is checked once it has all of its edges.
static int add(void **node, void *graph, void *const *after, size_t count, Node made) {
  auto &nodes = static_cast<Graph *>(graph)->nodes;
  made.isBehind = nodes.empty() ? count == 0 : count == 1 && *after == &nodes.back();
  nodes.push_back(std::move(made));
  *node = &nodes.back();
  return 0;
}
/// Null: it is not the graph's.
static Node *placeOf(void *executable, void *node) {
  auto &self = *static_cast<Executable *>(executable);
  auto it = self.places.find(static_cast<Node *>(node));
  fake.badAccesses += it == self.places.end();
  return it == self.places.end() ? nullptr : &self.nodes[it->second];
}
static std::vector<Node> copyOf(const Graph &graph) { return {graph.nodes.begin(), graph.nodes.end()}; }
static void runNodes(std::vector<Node> &nodes) {
  for (Node &node : nodes) {
    if (node.kernel)
      runKernel(node.kernel, node.args);
    else if (node.work)
      node.work();
    runNodes(node.child);
  }
}

API(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags) {
  LOCK;
  needContext();
  static intptr_t made = 1000;
  if (int result = enter("createStream", std::to_string(flags)))
    return result;
  *stream = reinterpret_cast<void *>(++made);
  return 0;
}
API(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *stream, int mode) {
  LOCK;
  needContext();
  if (int result = enter("beginCapture", std::to_string(mode)))
    return result;
  fake.badAccesses += captures.count(stream) != 0;
  captures[stream] = new Graph;
  ++fake.graphs;
  return 0;
}
API(cuStreamEndCapture, hipStreamEndCapture)(void *stream, void **graph) {
  LOCK;
  needContext();
  auto it = captures.find(stream);
  if (it == captures.end())
    return ++fake.badAccesses, kInvalid;
  Graph *made = it->second;
  captures.erase(it);
  if (int result = enter("endCapture")) {
    delete made;
    --fake.graphs;
    *graph = nullptr;
    return result;
  }
  *graph = made;
  return 0;
}
API(cuGraphCreate, hipGraphCreate)(void **graph, unsigned) {
  LOCK;
  needContext();
  if (int result = enter("createGraph"))
    return result;
  *graph = new Graph;
  ++fake.graphs;
  return 0;
}
API(cuGraphDestroy, hipGraphDestroy)(void *graph) {
  LOCK;
  needContext();
  delete static_cast<Graph *>(graph);
  --fake.graphs;
  return 0;
}
API(cuGraphAddKernelNode, hipGraphAddKernelNode)(void **node, void *graph, void *const *after, size_t count,
                                                 const void *given) {
  auto *params = static_cast<const KernelParams *>(given);
  LOCK;
  needContext();
  if (int result = enter("addKernel", std::string(params->kernel->name) + " " + std::to_string(params->grid.x)))
    return result;
  Node made;
  made.kernel = params->kernel;
  made.args = valuesOf(params->kernel, params->args);
  return add(node, graph, after, count, std::move(made));
}
#ifndef DISC_FAKE_HIP
/// With the early start of a kernel behind a kernel, the only kind that there is.
API(cuGraphAddDependencies_v2, )(void *graph, void *const *from, void *const *to, const void *given, size_t count) {
  LOCK;
  needContext();
  auto *edge = static_cast<const unsigned char *>(given);
  auto *before = static_cast<Node *>(*from), *after = static_cast<Node *>(*to);
  if (int result = enter("startEarly", before->kernel && after->kernel ? after->kernel->name : "?"))
    return result;
  bool isEarly = edge[0] == 1 && edge[1] == 0 && edge[2] == 1;
  if (count != 1 || !isEarly || !before->kernel || !after->kernel || after->isBehind)
    return kInvalid;
  after->isBehind = true;
  (void)graph;
  return 0;
}
#endif
API(cuGraphExecKernelNodeSetParams, hipGraphExecKernelNodeSetParams)(void *executable, void *node, const void *given) {
  auto *params = static_cast<const KernelParams *>(given);
  LOCK;
  needContext();
  if (int result = enter("setKernel", std::string(params->kernel->name) + " " + std::to_string(params->grid.x)))
    return result;
  Node *place = placeOf(executable, node);
  if (!place || place->kernel != params->kernel)
    return kInvalid;
  place->args = valuesOf(params->kernel, params->args);
  return 0;
}
static int addCopy(void **node, void *graph, void *const *after, size_t count, std::function<void()> work) {
  if (int result = enter("addCopy"))
    return result;
  Node made;
  made.work = std::move(work);
  return add(node, graph, after, count, std::move(made));
}
static int setCopy(void *executable, void *node, std::function<void()> work) {
  if (int result = enter("setCopy"))
    return result;
  Node *place = placeOf(executable, node);
  if (!place || !place->work)
    return kInvalid;
  place->work = std::move(work);
  return 0;
}
#ifdef DISC_FAKE_HIP
API(, hipGraphAddMemcpyNode1D)(void **node, void *graph, void *const *after, size_t count, void *to, const void *from,
                               size_t bytes, int kind) {
  LOCK;
  return kind == 3 ? addCopy(node, graph, after, count, copying(to, from, bytes)) : kInvalid;
}
API(, hipGraphExecMemcpyNodeSetParams1D)(void *executable, void *node, void *to, const void *from, size_t bytes,
                                         int kind) {
  LOCK;
  return kind == 3 ? setCopy(executable, node, copying(to, from, bytes)) : kInvalid;
}
#else
static bool isPlain(const CopyParams &params, void *context) {
  return params.from.memory == 2 && params.to.memory == 2 && params.height == 1 && params.depth == 1 &&
         context == &fake;
}
API(cuGraphAddMemcpyNode, )(void **node, void *graph, void *const *after, size_t count, const void *given,
                            void *context) {
  auto *params = static_cast<const CopyParams *>(given);
  LOCK;
  needContext();
  if (!isPlain(*params, context))
    return kInvalid;
  return addCopy(node, graph, after, count, copying(params->to.device, params->from.device, params->width));
}
API(cuGraphExecMemcpyNodeSetParams, )(void *executable, void *node, const void *given, void *context) {
  auto *params = static_cast<const CopyParams *>(given);
  LOCK;
  needContext();
  if (!isPlain(*params, context))
    return kInvalid;
  return setCopy(executable, node, copying(params->to.device, params->from.device, params->width));
}
#endif
API(cuGraphAddChildGraphNode, hipGraphAddChildGraphNode)(void **node, void *graph, void *const *after, size_t count,
                                                         void *child) {
  LOCK;
  needContext();
  if (int result = enter("addChild"))
    return result;
  Node made;
  made.child = copyOf(*static_cast<Graph *>(child));
  return add(node, graph, after, count, std::move(made));
}
API(cuGraphExecChildGraphNodeSetParams, hipGraphExecChildGraphNodeSetParams)(void *executable, void *node,
                                                                             void *child) {
  LOCK;
  needContext();
  if (int result = enter("setChild"))
    return result;
  Node *place = placeOf(executable, node);
  if (!place || place->child.size() != static_cast<Graph *>(child)->nodes.size())
    return kInvalid;
  place->child = copyOf(*static_cast<Graph *>(child));
  return 0;
}
API(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void **executable, void *graph, unsigned long long) {
  LOCK;
  needContext();
  if (int result = enter("instantiate"))
    return result;
  auto *made = new Executable;
  for (const Node &node : static_cast<Graph *>(graph)->nodes) {
    fake.badAccesses += !node.isBehind;
    made->places[&node] = made->nodes.size();
    made->nodes.push_back(node);
  }
  *executable = made;
  ++fake.graphs;
  return 0;
}
API(cuGraphExecDestroy, hipGraphExecDestroy)(void *executable) {
  LOCK;
  needContext();
  delete static_cast<Executable *>(executable);
  --fake.graphs;
  return enter("destroyExecutable");
}
API(cuGraphLaunch, hipGraphLaunch)(void *executable, void *stream) {
  LOCK;
  needContext();
  if (int result = enter("launchGraph", on(stream).substr(1)))
    return result;
  streams[stream].push_back({[nodes = static_cast<Executable *>(executable)->nodes]() mutable { runNodes(nodes); }});
  return 0;
}

/// A test that lost its context gets another one.
extern "C" __attribute__((visibility("default"))) void disc_fake_recover() {
  LOCK;
  lateError = 0;
}
