//===- DeviceModelTest.cpp - models on devices, over drivers that are fake -===//
//
// Each test runs on both drivers. The fake ones (FakeDriver.h) do the work when somebody waits, so that what is read or
// freed too early shows.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "FakeDevices.h"
#include "lib/Runtime/Device/Driver.h"

#include <atomic>
#include <thread>

using namespace disc::rt;
using namespace disc::test;

//===-- Models ------------------------------------------------------------===//
//
//   scale   y[n] = (x[n] * w + g) by way of the arena, where init makes g = 2 * w
//   count   total += x[0] in state; y[k] = x[0..k) where k is read from the device

static const disc_dim_info dimsN[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_dim_info dimsK[] = {{DISC_DATA_DEPENDENT, "k", 0, DISC_UNBOUNDED}};
static const disc_tensor_info inputs[] = {{"x", DISC_F32, 1, dimsN, 0}};
static const disc_tensor_info outputs[] = {{"y", DISC_F32, 1, dimsN, 0}}, counted[] = {{"y", DISC_F32, 1, dimsK, 0}};
static const int64_t shapeW[] = {1};
static const disc_parameter_info weight[] = {{"w", DISC_F32, 1, shapeW, 1, 0}},
                                 state[] = {{"total", DISC_F32, 1, shapeW, 1, 1}};
static const disc_kernel_info kernelInfos[] = {{"scale", "row", "model.py:12", nullptr}};
static const disc_device_kernel kernels[] = {{"twice", 32, 0, nullptr, "01"},
                                             {"scale", 256, 64 << 10, nullptr, "0001s"},
                                             {"move", 256, 0, nullptr, "01s"},
                                             {"add", 32, 0, nullptr, "01"},
                                             {"check", 32, 0, nullptr, "0ess"}};
static int32_t init(disc_call *call) {
  void *args[] = {disc_rt_parameter(call, 0), disc_rt_global(call, 0, 4)};
  return args[0] && args[1] ? disc_rt_device_launch(call, 0, args, 2, 1) : 1;
}

static int32_t runScale(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t n = disc_rt_extent(call, 0, 0);
  void *args[] = {disc_rt_input(call, 0), disc_rt_parameter(call, 0), disc_rt_global(call, 0, 4),
                  disc_rt_arena(call, 0, n * 4), word(n)};
  if (!args[0] || !args[1] || !args[2] || !args[3])
    return 1;
  if (int32_t status = disc_rt_device_launch(call, 1, args, 5, (n + 255) / 256))
    return status;
  void *moved[] = {args[3], disc_rt_output(call, 0, 1, &n), word(n * 4)};
  return moved[1] ? disc_rt_device_launch(call, 2, moved, 3, (n + 255) / 256) : 1;
}

static int32_t runCount(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  void *args[] = {disc_rt_input(call, 0), disc_rt_parameter(call, 0)};
  float first = 0;
  if (!args[0] || !args[1] || disc_rt_device_launch(call, 3, args, 2, 1) ||
      disc_rt_device_read(call, &first, args[0], 4))
    return 1;
  int64_t k = int64_t(first);
  void *y = disc_rt_output(call, 0, 1, &k);
  void *slot = y ? disc_rt_slot(call, 0, k * 4, 0) : nullptr;
  if (!slot || disc_rt_device_copy(call, slot, args[0], k * 4))
    return 1;
  slot = disc_rt_slot(call, 0, 64 * k, 1); // grows, and keeps
  return slot ? disc_rt_device_copy(call, y, slot, k * 4) : 1;
}

static int32_t runCheck(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t n = disc_rt_extent(call, 0, 0);
  static const char text[] = "aten.index at model.py:3";
  void *args[] = {disc_rt_input(call, 0), disc_rt_device_errors(call), const_cast<char *>(text), word(5), word(0)};
  float seen;
  if (!args[0] || !args[1] || !disc_rt_output(call, 0, 1, &n) || disc_rt_device_launch(call, 4, args, 5, 1))
    return 1;
  return n == 7 ? disc_rt_device_read(call, &seen, args[0], 4) : 0;
}

/// y = 2 * x by way of the host.
static void twiceOnHost(void *const *args, int64_t begin, int64_t end, void *) {
  for (int64_t i = begin; i < end; ++i)
    static_cast<float *>(args[1])[i] = 2 * static_cast<float *>(args[0])[i];
}

static int32_t runOnHost(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t n = disc_rt_extent(call, 0, 0);
  void *args[] = {disc_rt_input(call, 0), disc_rt_output(call, 0, 1, &n), word(n * 4), word(n * 4)};
  return args[0] && args[1] ? disc_rt_device_call_host(call, twiceOnHost, args, 2, 2, 1, n, 1000, 0) : 1;
}

namespace {
/// With the code of these models.
struct ModelOn : On {
  explicit ModelOn(const char *name) : On(name, 5, kernels) {}
  disc_model_info_t info(const disc_tensor_info *results, const disc_parameter_info *parameters) const {
    return {DISC_MODEL_INFO_VERSION,
            1,
            inputs,
            1,
            results,
            0,
            nullptr,
            0,
            nullptr,
            1,
            parameters,
            1,
            1,
            kernelInfos,
            &code,
            0,
            nullptr,
            0,
            nullptr,
            0};
  }
};
} // namespace

static void drop(DLManagedTensorVersioned *tensor) { tensor->deleter(tensor); }

static std::string textOf(const Status &status) { return status.ok() ? "" : status.error().message; }

#define SAYS(status, expected)                                                                                         \
  do {                                                                                                                 \
    std::string said = textOf(status);                                                                                 \
    CHECK_TEXT(said, expected);                                                                                        \
  } while (false)

/// A loaded scale, w = `value`.
static std::unique_ptr<Model> loaded(const disc_model_info_t &info, disc_entry_fn main, disc_entry_fn begin,
                                     DLManagedTensorVersioned *parameter, Stream stream = nullptr) {
  std::unique_ptr<Model> model;
  Status status = Model::create({&info, begin, main, nullptr}, {}, model);
  SAYS(status, "");
  if (model)
    SAYS(model->load(&parameter, 1, stream), "");
  return model;
}

//===-- Running -----------------------------------------------------------===//

TEST(deviceModelRuns) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    CHECK(w.deleted == 1); // it is on the device
    OnDevice x(*on.device, 1000);
    on.fake->calls.clear();
    int64_t waits = on.device->counters.synchronizations, launches = on.device->counters.launches;
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    SAYS(model->run(list, 1, &output, 1, stream(1)), "");
    // Nothing waited, and everything is in the caller's stream.
    CHECK(on.device->counters.synchronizations == waits);
    CHECK(on.device->counters.launches == launches + 2);
    CHECK(on.count("synchronize") + on.count("synchronizeAll") == 0);
    CHECK(on.count("launch") == 2 && on.count("allocate") == 2);
    for (const std::string &call : on.fake->calls)
      CHECK(call.find(" on ") == std::string::npos || call.substr(call.size() - 5) == " on 1");
    const DLTensor &y = output.managed->dl_tensor;
    CHECK(y.device.device_type == on.device->where.device_type && y.device.device_id == 0);
    std::vector<float> got = values(*on.device, y, stream(1));
    CHECK(got.size() == 1000 && got[0] == 9 && got[999] == 3006);
    // A second one needs no more memory but its result's.
    on.fake->calls.clear();
    disc_output again = {nullptr, nullptr};
    CHECK(model->run(list, 1, &again, 1, stream(1)).ok());
    CHECK(on.count("allocate") == 1 && on.count("wait") == 0);
    drop(output.managed);
    CHECK(values(*on.device, again.managed->dl_tensor, stream(1)) == got);
    model.reset(); // outputs live on
    CHECK(values(*on.device, again.managed->dl_tensor, stream(1)) == got);
    drop(again.managed);
  }
}

TEST(nullDeviceModelRuns) {
  ModelOn on("null");
  disc_model_info_t info = on.info(outputs, weight);
  Parameter w(3);
  auto model = loaded(info, runScale, init, &w.managed);
  CHECK(w.deleted == 0); // used where it is
  Floats x({10});
  const DLTensor *list[] = {&x.tensor};
  disc_output output = {nullptr, nullptr};
  int64_t launches = on.device->counters.launches, waits = on.device->counters.synchronizations;
  SAYS(model->run(list, 1, &output, 1), "");
  CHECK(on.device->counters.launches == launches + 2 && on.device->counters.synchronizations == waits);
  CHECK(output.managed->dl_tensor.device.device_type == kDLCPU && output.managed->dl_tensor.shape[0] == 10);
  drop(output.managed);
  model.reset();
  CHECK(w.deleted == 1);
}

TEST(deviceInputsMustBeThere) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    std::string there = std::string(name) + ":0";
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 8);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    x.tensor.device = {kDLCPU, 0};
    Status status = model->run(list, 1, &output, 1);
    CHECK(status.code() == Code::Type);
    SAYS(status, "input 'x', device: expected " + there + ", got cpu");
    x.tensor.device = {on.device->where.device_type, 1};
    SAYS(model->run(list, 1, &output, 1), "input 'x', device: expected " + there + ", got " + name + ":1");
    x.tensor.device = on.device->where;
    int64_t stride[] = {2};
    x.shape[0] = 4;
    x.tensor.strides = stride;
    SAYS(model->run(list, 1, &output, 1),
         "input 'x': on " + there + " it must be contiguous and aligned; strided tensors are not copied there");
    x.tensor.strides = nullptr;
    // Nor the caller's outputs.
    Floats y({4});
    output.tensor = &y.tensor;
    SAYS(model->run(list, 1, &output, 1), "output 'y', device: expected " + there + ", got cpu");
    OnDevice target(*on.device, 8);
    target.shape[0] = 4;
    target.tensor.strides = stride;
    output.tensor = &target.tensor;
    SAYS(model->run(list, 1, &output, 1),
         "output 'y': on " + there + " it must be contiguous and begin at a multiple of 16 bytes");
    target.tensor.strides = nullptr;
    SAYS(model->run(list, 1, &output, 1), "");
    CHECK(values(*on.device, target.tensor, nullptr)[3] == 18);
    // Where vectors could not begin a tensor is copied on the device.
    int64_t copies = on.device->counters.copies;
    x.tensor.byte_offset = 4;
    x.shape[0] = target.shape[0] = 3;
    SAYS(model->run(list, 1, &output, 1), "");
    CHECK(on.device->counters.copies == copies + 1);
    x.tensor.byte_offset = 0;
    // Empty ones run nothing.
    x.shape[0] = target.shape[0] = 0;
    x.tensor.data = nullptr;
    on.fake->calls.clear();
    SAYS(model->run(list, 1, &output, 1), "");
    CHECK(on.count("launch") == 0);
    // Nor need they have memory of their own.
    void *memory = target.tensor.data;
    target.tensor.data = nullptr;
    SAYS(model->run(list, 1, &output, 1), "");
    CHECK(on.count("launch") == 0);
    target.tensor.data = memory;
  }
}

TEST(deviceStreamsDoNotShareArenas) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 100);
    const DLTensor *list[] = {&x.tensor};
    std::vector<disc_output> results(24, disc_output{nullptr, nullptr});
    on.fake->calls.clear();
    int64_t waits = on.device->counters.synchronizations;
    // More streams than there will be arenas: the last ones wait for others, by events.
    for (size_t i = 0; i < results.size(); ++i)
      CHECK(model->run(list, 1, &results[i], 1, stream(int64_t(i % 12) + 1)).ok());
    CHECK(on.device->counters.synchronizations == waits);
    int64_t events = on.count("wait");
    CHECK(events >= 4 && events <= 20);
    CHECK(on.count("allocate") == 24 + 8);
    // In any order.
    for (size_t i = results.size(); i-- > 0;) {
      CHECK(values(*on.device, results[i].managed->dl_tensor, stream(int64_t(i % 12) + 1))[99] == 306);
      drop(results[i].managed);
    }
    // Once a stream is done, its arena is anyone's.
    on.fake->calls.clear();
    disc_output last = {nullptr, nullptr};
    CHECK(model->run(list, 1, &last, 1, stream(99)).ok());
    CHECK(on.count("allocate") == 1 && on.count("wait") == 0);
    drop(last.managed);
    CHECK(model->synchronize(stream(99)).ok());
  }
}

TEST(deviceModelRunsFromManyThreads) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(1);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 300);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const DLTensor *list[] = {&x.tensor};
        for (int i = 0; i < 20; ++i) {
          disc_output output = {nullptr, nullptr};
          if (!model->run(list, 1, &output, 1, stream(t + 1)).ok() ||
              values(*on.device, output.managed->dl_tensor, stream(t + 1))[299] != 302)
            ++wrong;
          if (output.managed)
            drop(output.managed);
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    CHECK(wrong == 0);
  }
}

TEST(deviceStateIsUpdatedInOrder) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(counted, state);
    {
      Parameter host(0);
      std::unique_ptr<Model> model;
      CHECK(Model::create({&info, nullptr, runCount, nullptr}, {}, model).ok());
      DLManagedTensorVersioned *list[] = {&host.managed};
      SAYS(model->load(list, 1),
           std::string("parameter 'total' is updated by the model, so it must be contiguous and on ") + name + ":0");
      CHECK(host.deleted == 1);
    }
    OnDevice total(*on.device, 1), x(*on.device, 3);
    Parameter parameter(0);
    parameter.managed.dl_tensor = total.tensor;
    auto model = loaded(info, runCount, nullptr, &parameter.managed);
    const DLTensor *list[] = {&x.tensor};
    on.fake->calls.clear();
    for (int64_t s : {1, 2, 1}) {
      disc_output output = {nullptr, nullptr};
      int64_t waits = on.device->counters.synchronizations;
      SAYS(model->run(list, 1, &output, 1, stream(s)), "");
      CHECK(on.device->counters.synchronizations == waits + 1); // an extent is read
      CHECK(output.managed->dl_tensor.shape[0] == 1);
      CHECK(values(*on.device, output.managed->dl_tensor, stream(s))[0] == 1);
      drop(output.managed);
    }
    CHECK(on.count("wait") >= 2);
    CHECK(values(*on.device, total.tensor, nullptr)[0] == 4);
    model.reset();
    CHECK(parameter.deleted == 1);
  }
}

TEST(deviceKernelsOnTheHost) {
  for (const char *name : {"cuda", "rocm", "null"}) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, nullptr);
    info.num_parameters = 0;
    std::unique_ptr<Model> model;
    CHECK(Model::create({&info, nullptr, runOnHost, nullptr}, {}, model).ok() && model->load(nullptr, 0).ok());
    OnDevice x(*on.device, 3000);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    SAYS(model->run(list, 1, &output, 1, stream(1)), "");
    CHECK(values(*on.device, output.managed->dl_tensor, stream(1))[2999] == 6000);
    drop(output.managed);
  }
}

TEST(deviceKernelsReportIndices) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, nullptr);
    info.num_parameters = 0;
    std::unique_ptr<Model> model;
    CHECK(Model::create({&info, nullptr, runCheck, nullptr}, {}, model).ok() && model->load(nullptr, 0).ok());
    OnDevice x(*on.device, 4), wrong(*on.device, 7);
    float seven = 7;
    {
      DeviceScope scope(on.device);
      CHECK(on.device->copyIn(wrong.data, &seven, 4, nullptr).ok() && on.device->synchronize(nullptr).ok());
    }
    std::string text = "aten.index at model.py:3: index 7 is out of range for a dimension of extent 5";
    const DLTensor *right[] = {&x.tensor}, *bad[] = {&wrong.tensor};
    disc_output output = {nullptr, nullptr};
    auto run = [&](const DLTensor *const *list) {
      output.managed = nullptr;
      Status status = model->run(list, 1, &output, 1, stream(1));
      if (output.managed)
        drop(output.managed);
      return status;
    };
    CHECK(run(right).ok());
    // Where the run waits, it is the one that fails.
    Status status = run(bad);
    CHECK(status.code() == Code::Index);
    SAYS(status, text);
    CHECK(run(right).ok() && model->synchronize(stream(1)).ok());
    // Else whoever waits, or the run behind.
    wrong.shape[0] = 6;
    CHECK(run(bad).ok());
    SAYS(model->synchronize(stream(1)), text);
    CHECK(run(bad).ok());
    DeviceScope scope(on.device);
    CHECK(on.device->synchronize(stream(1)).ok()); // by others
    SAYS(run(right), "in an earlier run: " + text);
    CHECK(run(right).ok());
    CHECK(model->synchronize(stream(1)).ok()); // before the input goes
  }
}

TEST(deviceProfile) {
  for (const char *name : {"cuda", "rocm", "null"}) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 1000);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    CHECK(model->startProfile().ok());
    CHECK(model->run(list, 1, &output, 1).ok());
    std::vector<LaunchRecord> launches;
    CHECK(model->stopProfile(launches).ok());
    CHECK(launches.size() == 2 && launches[0].name == std::string("scale") && launches[0].tasks == 4);
    CHECK(launches.size() == 2 && launches[0].endNs >= launches[0].beginNs && launches[0].beginNs > 0);
    drop(output.managed);
  }
}

//===-- Through disc.h ----------------------------------------------------===//

TEST(deviceLibraryThroughDisc) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    {
      Library library(info, init, runScale, nullptr, {{"w", "F32", {1}, bytesOf({2})}});
      disc_options options = disc_default_options();
      options.device = 7;
      disc_model *model = nullptr;
      CHECK(disc_open(&library.library, &options, &model) == DISC_ERROR_TARGET);
      CHECK_TEXT(disc_last_error(), std::string("target '") + name + "': there is no device 7, the driver found 2");
      CHECK(disc_open(&library.library, nullptr, &model) == DISC_OK);
      disc_model_spec spec;
      spec.size = sizeof(spec);
      CHECK(disc_describe(model, &spec) == DISC_OK);
      CHECK_TEXT(spec.device, name);
      CHECK(spec.device_id == 0);
      OnDevice x(*on.device, 5);
      const DLTensor *list[] = {&x.tensor};
      disc_output output = {nullptr, nullptr};
      CHECK(disc_run_on(model, stream(4), list, 1, &output, 1) == DISC_OK);
      CHECK(disc_synchronize(model, stream(4)) == DISC_OK);
      CHECK(values(*on.device, output.managed->dl_tensor, stream(4))[4] == 14);
      drop(output.managed);
      // Other weights, while the old ones are in use.
      std::string path = temporaryPath("device.safetensors");
      writeFile(path, safetensors({{"w", "F32", {1}, bytesOf({10})}}));
      CHECK(disc_run_on(model, stream(4), list, 1, &output, 1) == DISC_OK);
      CHECK(disc_swap_weights(model, path.c_str()) == DISC_OK);
      CHECK(values(*on.device, output.managed->dl_tensor, stream(4))[4] == 14);
      drop(output.managed);
      CHECK(disc_run(model, list, 1, &output, 1) == DISC_OK);
      CHECK(values(*on.device, output.managed->dl_tensor, nullptr)[4] == 70);
      drop(output.managed);
      CHECK(disc_free(model) == DISC_OK);
    }
    disc_model_info_t counts = on.info(counted, state);
    Library library(counts, nullptr, runCount, nullptr, {{"total", "F32", {1}, bytesOf({5})}});
    disc_model *model = nullptr;
    CHECK(disc_open(&library.library, nullptr, &model) == DISC_OK);
    OnDevice x(*on.device, 5);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    CHECK(disc_run_on(model, stream(1), list, 1, &output, 1) == DISC_OK);
    drop(output.managed);
    CHECK(disc_reset(model) == DISC_OK);
    CHECK(disc_free(model) == DISC_OK);
  }
  CHECK(disc_find_device("cuda", 1) == DISC_OK && disc_find_device("cpu", 0) == DISC_OK);
  CHECK(disc_find_device("abacus", 0) == DISC_ERROR_TARGET && disc_find_device(nullptr, 0) == DISC_ERROR_INVALID);
  auto library = scaleLibrary(2);
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  Floats x({1, 2});
  Longs mask({1, 3});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output output = {nullptr, nullptr};
  CHECK(disc_run_on(model, stream(1), list, 2, &output, 1) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the model runs on the CPU, which has no streams");
  CHECK(disc_run_on(model, nullptr, list, 2, &output, 1) == DISC_OK);
  drop(output.managed);
  CHECK(disc_synchronize(model, nullptr) == DISC_OK);
  CHECK(disc_free(model) == DISC_OK);
}

//===-- What goes wrong ---------------------------------------------------===//

TEST(deviceErrorsAreStatuses) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    std::string there = std::string(name) + ":0";
    std::string noMemory = *name == 'c' ? "CUDA_ERROR_OUT_OF_MEMORY" : "hipErrorOutOfMemory";
    std::string other = *name == 'c' ? "CUDA_ERROR_OTHER" : "hipErrorOther";
    std::string illegal = *name == 'c' ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "hipErrorIllegalAddress";
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 100);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};

    on.fake->faults["allocate"] = {2};
    Status status = model->run(list, 1, &output, 1, stream(1));
    CHECK(status.code() == Code::Memory && !output.managed);
    SAYS(status, "no memory for temporaries of 400 bytes (" + there + ": allocating 448 bytes: " + noMemory + ")");
    on.fake->faults["allocate"] = {2, 1};
    SAYS(model->run(list, 1, &output, 1, stream(1)),
         "no memory for output 'y' of shape [100] (" + there + ": allocating 400 bytes: " + noMemory + ")");
    CHECK(!output.managed);

    on.fake->faults["launch"] = {999};
    status = model->run(list, 1, &output, 1, stream(1));
    CHECK(status.code() == Code::Device);
    SAYS(status, "kernel 'scale' (model.py:12): " + there + ": a launch: " + other);
    on.fake->faults["launch"] = {999, 1};
    SAYS(model->run(list, 1, &output, 1, stream(1)), "kernel 'move': " + there + ": a launch: " + other);
    CHECK(!output.managed);

    // Nothing of a run may become part of a graph, whose memory would be another's when it is launched.
    on.fake->captured = stream(1);
    on.fake->calls.clear();
    SAYS(model->run(list, 1, &output, 1, stream(1)),
         there + ": the stream is being captured into a graph, but what a run allocates and launches depends on its "
                 "inputs; capture without it");
    CHECK(on.fake->calls.empty() && !output.managed);
    on.fake->captured = on.fake;

    // Found when it runs: told by whoever asks next.
    on.fake->faults["run"] = {700};
    CHECK(model->run(list, 1, &output, 1, stream(1)).ok());
    status = model->synchronize(stream(1));
    CHECK(status.code() == Code::Device);
    SAYS(status, there + ": something that was put into a stream before failed when it ran: " + illegal +
                     " (told by waiting for a stream)");
    drop(output.managed);
    on.recover();
    CHECK(model->run(list, 1, &output, 1, stream(1)).ok());
    CHECK(values(*on.device, output.managed->dl_tensor, stream(1))[0] == 9);
    drop(output.managed);
  }
}

TEST(deviceImagesFitTheDevice) {
  ModelOn on("cuda");
  auto load = [&](int major, int minor, int64_t first, int64_t count) {
    on.fake->major = major, on.fake->minor = minor;
    std::unique_ptr<Device> device;
    SAYS(makeCudaDevice(1, device), "");
    disc_device_code code = {"cuda", count, kImages + first, 4, kernels};
    std::unique_ptr<DeviceModule> module;
    DeviceScope scope(device.get());
    Status status = device->load(code, module);
    return status.ok() ? on.fake->loaded : textOf(status);
  };
  CHECK_TEXT(load(9, 0, 0, 4), "cubin");
  CHECK_TEXT(load(8, 0, 0, 4), "PTX of 80");
  CHECK_TEXT(load(8, 9, 0, 4), "PTX of 80");
  CHECK_TEXT(load(12, 0, 0, 4), "PTX of 90");
  CHECK_TEXT(load(7, 5, 0, 4), "cuda:1 is Fake (sm_75); the model has code for compute_80, sm_90, compute_90, gfx942");
  CHECK_TEXT(load(10, 0, 1, 1), "cuda:1 is Fake (sm_100); the model has code for sm_90");
  CHECK_TEXT(load(9, 0, 0, 0), "cuda:1 is Fake (sm_90); the model has code for nothing");
  on.fake->jitLog = "ptxas: line 3: no such register";
  CHECK_TEXT(load(9, 0, 0, 1), "cuda:1 (Fake (sm_90)) does not load the model's code for compute_80: "
                               "CUDA_ERROR_INVALID_PTX: ptxas: line 3: no such register");
  on.fake->jitLog.clear();
  on.fake->major = 9, on.fake->minor = 0;

  // A lesser chip's code where it runs; and what the driver does take, if it is too old for some.
  static const disc_device_image chips[] = {{"sm_80", "cubin of 80", 12, 0},
                                            {"compute_80", kPtx80, sizeof(kPtx80), 0},
                                            {"sm_90a", "cubin of 90a", 13, 0},
                                            {"compute_90a", "PTX of 90a", 11, 0}};
  auto loadChips = [&](int major, int minor) {
    on.fake->major = major, on.fake->minor = minor;
    std::unique_ptr<Device> device;
    SAYS(makeCudaDevice(1, device), "");
    disc_device_code code = {"cuda", 4, chips, 4, kernels};
    std::unique_ptr<DeviceModule> module;
    DeviceScope scope(device.get());
    Status status = device->load(code, module);
    return status.ok() ? on.fake->loaded : textOf(status);
  };
  CHECK_TEXT(loadChips(8, 0), "cubin of 80");
  CHECK_TEXT(loadChips(8, 9), "cubin of 80");
  CHECK_TEXT(loadChips(9, 0), "cubin of 90a");
  CHECK_TEXT(loadChips(10, 0), "PTX of 80");
  on.fake->faults["loadModule"] = {209};
  CHECK_TEXT(loadChips(8, 6), "PTX of 80");
  on.fake->faults["loadModule"] = {200};
  CHECK_TEXT(loadChips(9, 0), "PTX of 90a");
  on.fake->faults["loadModule"] = {209, 0, true};
  CHECK_TEXT(loadChips(8, 6), "cuda:1 (Fake (sm_86)) does not load the model's code for sm_80: CUDA_ERROR_OTHER; "
                              "compute_80: CUDA_ERROR_OTHER");
  on.fake->faults.clear();
  on.fake->major = 9, on.fake->minor = 0;

  // More shared memory than without asking, asked for once.
  on.fake->calls.clear();
  load(9, 0, 0, 4);
  CHECK(on.count("setFunction") == 1);

  ModelOn rocm("rocm");
  std::unique_ptr<Device> device;
  SAYS(makeRocmDevice(0, device), "");
  CHECK_TEXT(device->describe(), "Fake (gfx942)");
}

TEST(deviceKernelsAreInTheImage) {
  ModelOn on("cuda");
  disc_device_kernel kernel = {"unknown", 32, 0, nullptr, ""};
  disc_device_code code = {"cuda", 4, kImages, 1, &kernel};
  std::unique_ptr<DeviceModule> module;
  DeviceScope scope(on.device);
  SAYS(on.device->load(code, module), "cuda:0: the code for sm_90, kernel 'unknown': CUDA_ERROR_OTHER");
  kernel.name = "scale";
  CHECK(on.device->load(code, module).ok());
  DeviceLaunch launch = {0, nullptr, 0, int64_t(1) << 31};
  SAYS(on.device->launch(*module, launch, nullptr), "cuda:0: a launch of 2147483648 blocks of 32 threads is too large");
}

/// A thread that the driver does not let into the device's context does nothing there, and leaves no other one.
TEST(deviceContextsMayBeRefused) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 100);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    std::string refused = std::string(name) + ":0: making it the thread's current device: " +
                          (*name == 'c' ? "CUDA_ERROR_OTHER" : "hipErrorOther");
    int64_t contexts = on.fake->contexts;
    on.fake->calls.clear();
    // HIP's thread is on device 0 already unless it was elsewhere.
    if (*name != 'c')
      contexts = on.fake->contexts = 1;
    on.fake->contextFault = 999;
    Status status = model->run(list, 1, &output, 1, stream(1));
    CHECK(status.code() == Code::Device && !output.managed);
    SAYS(status, refused);
    SAYS(model->synchronize(stream(1)), refused);
    SAYS(model->startProfile(), refused);
    CHECK(on.fake->calls.empty() && on.fake->contexts == contexts);
    on.fake->contextFault = 0;
    if (*name != 'c')
      on.fake->contexts = 0;
    CHECK(model->run(list, 1, &output, 1, stream(1)).ok());
    drop(output.managed);
    CHECK(model->synchronize(stream(1)).ok());
  }
}

// Each function of the driver fails at each of its calls, from opening a device to giving it back: every failure is a
// status with a text, and what follows works.
TEST(everyFaultOfADriverIsAStatus) {
  static const char *const functions[] = {
      "init",          "count",          "device",           "deviceName", "arch",
      "retainContext", "createPool",     "setPool",          "loadModule", "getFunction",
      "setFunction",   "allocateHost",   "createEvent",      "record",     "allocate",
      "copyIn",        "copy",           "copyOut",          "wait",       "launch",
      "synchronize",   "synchronizeAll", "synchronizeEvent", "capturing",  "free",
      "trim"};
  for (const char *name : kDrivers) {
    auto make = *name == 'c' ? &makeCudaDevice : &makeRocmDevice;
    for (const char *function : functions) {
      int64_t failures = 0;
      for (int after = 0; after < 12; ++after) {
        ModelOn on(name);
        disc_model_info_t info = on.info(outputs, weight), counting = on.info(counted, state);
        Parameter w(3), total(0), first(1);
        OnDevice x(*on.device, 100), here(*on.device, 1);
        first.managed.dl_tensor = here.tensor;
        const DLTensor *list[] = {&x.tensor};
        auto told = [&](Status status) {
          CHECK(status.ok() || !status.error().message.empty());
          failures += !status.ok();
          return status.ok();
        };
        on.fake->faults[function] = {999, after};
        {
          std::unique_ptr<Device> other;
          if (told(make(1, other))) {
            DeviceScope scope(other.get());
            std::unique_ptr<DeviceModule> module;
            (void)told(other->load(on.code, module));
            KernelError *record = nullptr;
            if (told(other->takeRecord(record)))
              other->giveBack(record);
          }
          on.fake->contexts = 0; // HIP's is a number of a thread's, of which this fake has one
          for (bool isCount : {false, true}) {
            std::unique_ptr<Model> model;
            DLManagedTensorVersioned *parameter = isCount ? &first.managed : &w.managed;
            if (!told(Model::create(
                    {isCount ? &counting : &info, isCount ? nullptr : init, isCount ? runCount : runScale, nullptr}, {},
                    model)))
              continue;
            // Taken in any case.
            if (!told(model->load(&parameter, 1, stream(2))))
              continue;
            (void)told(model->startProfile());
            for (int run = 0; run < 2; ++run) {
              disc_output output = {nullptr, nullptr};
              if (told(model->run(list, 1, &output, 1, stream(1 + run))))
                drop(output.managed);
            }
            std::vector<LaunchRecord> launches;
            (void)told(model->stopProfile(launches));
            (void)told(model->synchronize(stream(1)));
            (void)told(model->reset());
          }
        }
        on.fake->faults.clear();
        on.fake->lastError = 0;
        on.recover();
        {
          DeviceScope scope(on.device);
          CHECK(on.device->synchronizeAll().ok());
        }
        Parameter again(3);
        auto model = loaded(info, runScale, init, &again.managed);
        disc_output output = {nullptr, nullptr};
        SAYS(model->run(list, 1, &output, 1, stream(1)), "");
        CHECK(values(*on.device, output.managed->dl_tensor, stream(1))[0] == 9);
        drop(output.managed);
        on.fake->contexts = 0;
      }
      // Memory that is not given back, and space that is kept, have nobody to tell; for an image that does not load
      // there is another one.
      bool isSilent = !std::strcmp(function, "free") || !std::strcmp(function, "trim") ||
                      (!std::strcmp(function, "loadModule") && *name == 'c') ||
                      (!std::strcmp(function, "retainContext") && *name != 'c') ||
                      (!std::strcmp(function, "setFunction") && *name != 'c');
      CHECK(isSilent || failures > 0);
    }
  }
}

/// Opening another device leaves the functions alone that the first one is calling.
TEST(deviceTablesAreFilledOnce) {
  for (const char *name : kDrivers) {
    ModelOn on(name);
    disc_model_info_t info = on.info(outputs, weight);
    Parameter w(3);
    auto model = loaded(info, runScale, init, &w.managed);
    OnDevice x(*on.device, 100);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread runner([&] {
      const DLTensor *list[] = {&x.tensor};
      while (!stop) {
        disc_output output = {nullptr, nullptr};
        wrong += !model->run(list, 1, &output, 1, stream(1)).ok();
        drop(output.managed);
      }
    });
    auto make = *name == 'c' ? &makeCudaDevice : &makeRocmDevice;
    for (int i = 0; i < 20; ++i) {
      std::unique_ptr<Device> other;
      CHECK(make(1, other).ok());
    }
    stop = true;
    runner.join();
    CHECK(wrong == 0);
    CHECK(model->synchronize(stream(1)).ok());
    on.fake->contexts = 0; // HIP's is a number of a thread's, of which this fake has one
  }
}
