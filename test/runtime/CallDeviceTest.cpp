//===- CallDeviceTest.cpp - what compiled code asks of its device ---------===//
//
// On a device that records what it is asked for, and over the fake drivers where memory is apart.
//
//===----------------------------------------------------------------------===//

#include "FakeDevices.h"
#include "Script.h"
#include "lib/Runtime/Device/Driver.h"

#include <array>
#include <cmath>
#include <cstdlib>

using namespace disc::rt;
using namespace disc::test;

namespace {
/// Launches become text: "merge*3 0 512" is a kernel's name, its blocks, and its arguments that are numbers.
class Recorder : public HostDevice {
public:
  Recorder() : HostDevice("recorder") {}
  static Recorder *made;

  Status load(const disc_device_code &code, std::unique_ptr<DeviceModule> &module) override {
    kernels = code.kernels;
    module = std::make_unique<DeviceModule>();
    return loads ? Status() : Status(Code::Target, "no image for it");
  }

  std::vector<std::string> launches;
  std::string failingKernel;
  bool lacksMemory = false, loads = true;

protected:
  Status doLaunch(DeviceModule &, const DeviceLaunch &launch, Stream) override {
    const disc_device_kernel &kernel = kernels[launch.kernel];
    if (kernel.name == failingKernel)
      return Status(Code::Device, "it does not run");
    std::string text = std::string(kernel.name) + "*" + std::to_string(launch.blocks);
    for (int64_t i = 0; i < launch.count; ++i) {
      int64_t value;
      std::memcpy(&value, launch.args[i], sizeof(value));
      text += kernel.writes[0] == 's' ? " " + std::to_string(value) : "";
    }
    launches.push_back(text);
    return Status();
  }
  Status doAllocate(size_t bytes, Stream stream, void *&data) override {
    if (lacksMemory)
      return Status(Code::Memory, "it has none");
    return HostDevice::doAllocate(bytes, stream, data);
  }

private:
  const disc_device_kernel *kernels = nullptr;
};
Recorder *Recorder::made = nullptr;

const disc_device_kernel kRecorded[] = {{"tiles", 256, 0, nullptr, "sss"}, {"merge", 256, 0, nullptr, "sss"},
                                        {"last", 256, 0, nullptr, "sss"},  {"all", 256, 0, nullptr, ""},
                                        {"part", 256, 0, nullptr, ""},     {"whole", 256, 0, nullptr, ""}};
const disc_kernel_info kSources[] = {{"other", "row", "model.py:1", nullptr}, {"part", "row", "", nullptr}};

struct Recorded : Script {
  Recorded() : Script(table()) { CHECK_TEXT(load(), ""); }
  static disc_model_info_t table() {
    auto make = [](int32_t, std::unique_ptr<Device> &device) {
      auto created = std::make_unique<Recorder>();
      Recorder::made = created.get();
      device = std::move(created);
      return Status();
    };
    static bool added = DeviceRegistry::get().add("recorder", make);
    CHECK(added && !DeviceRegistry::get().add("recorder", make) && !DeviceRegistry::get().add("cuda", make));
    static const disc_device_code code = {"recorder", 0, nullptr, 6, kRecorded};
    disc_model_info_t info = blankInfo();
    info.device = &code;
    info.num_kernels = 2;
    info.kernels = kSources;
    return info;
  }
  /// What was launched, or the error.
  std::string launches(Body body) {
    Recorder &device = *Recorder::made;
    device.launches.clear();
    std::string text = run(std::move(body));
    for (const std::string &launch : device.launches)
      text += (text.empty() ? "" : "; ") + launch;
    return text;
  }
};
} // namespace

TEST(ordersAreTilesAndMerges) {
  Recorded script;
  auto order = [&](int64_t rows, int64_t length, int64_t firstOwn = 0) {
    return script.launches([=](disc_call *call) {
      void *args[3] = {};
      return disc_rt_device_order(call, 0, 1, 2, args, 3, firstOwn, rows, length, 7);
    });
  };
  CHECK_TEXT(order(2, 100), "tiles*2 400 0 0; last*7 0 400 0");
  // Runs of 256 and 512 are merged, back and forth between the halves of the memory.
  CHECK_TEXT(order(1, 1000), "tiles*4 2000 0 0; merge*4 0 2000 256; merge*4 2000 0 512; last*7 0 2000 0");
  CHECK_TEXT(order(0, 100), "");
  CHECK_TEXT(order(3, 0), "");
  for (auto [rows, length, own] : {std::array<int64_t, 3>{-1, 4, 0}, {1, -4, 0}, {1, 4, -1}, {1, 4, 1}})
    CHECK(mentions(order(rows, length, own), "the compiled code puts "));
  for (const char *kernel : {"tiles", "merge"}) {
    Recorder::made->failingKernel = kernel;
    CHECK(mentions(order(1, 1000), "kernel '" + std::string(kernel) + "': it does not run"));
  }
  Recorder::made->failingKernel = "";
}

TEST(reductionsAreSplitWhereTheyAreFew) {
  Recorded script;
  auto reduce = [&](int64_t blocks, int64_t most, int64_t firstOwn = 0) {
    return script.launches([=](disc_call *call) {
      void *args[2] = {};
      int32_t status = disc_rt_device_reduce(call, 3, 4, 5, args, 2, firstOwn, blocks, most, 10, 10);
      CHECK(status || int64_t(args[1]) == std::min<int64_t>(most, 1024 / blocks));
      return status;
    });
  };
  CHECK_TEXT(reduce(1024, 64), "all*1024");
  CHECK_TEXT(reduce(4, 1), "all*4");
  CHECK_TEXT(reduce(4, 64), "part*256; whole*10");
  CHECK_TEXT(reduce(512, 64), "part*1024; whole*10");
  CHECK(mentions(reduce(4, 64, -1), "without arguments"));
  CHECK(mentions(reduce(4, 64, 1), "without arguments"));
  Recorder::made->failingKernel = "part";
  CHECK_TEXT(reduce(4, 64), "kernel 'part': it does not run");
  Recorder::made->failingKernel = "";
  Recorder::made->lacksMemory = true;
  CHECK_TEXT(reduce(4, 32), "part*128; whole*10"); // memory that it had before
  CHECK_TEXT(reduce(2, 256), "no memory for the parts of a reduction (it has none)");
  CHECK_TEXT(script.run([](disc_call *call) {
    (void)disc_rt_arena(call, 0, 1 << 20);
    return 0;
  }),
             "no memory for temporaries of 1048576 bytes (it has none)");
  Recorder::made->lacksMemory = false;
}

TEST(launchesOfADeviceAreChecked) {
  Recorded script;
  auto launch = [&](int64_t kernel, int64_t count, int64_t blocks) {
    return script.launches([=](disc_call *call) {
      std::vector<void *> args(40);
      return disc_rt_device_launch(call, kernel, args.data(), count, blocks);
    });
  };
  CHECK_TEXT(launch(3, 40, 2), "all*2"); // more arguments than fit on the stack
  CHECK_TEXT(launch(3, 4, 0), "");
  for (auto [kernel, count, blocks] : {std::array<int64_t, 3>{-1, 0, 1}, {6, 0, 1}, {3, -1, 1}, {3, 0, -1}})
    CHECK(mentions(launch(kernel, count, blocks), "which its table does not have"));
  char memory[8] = "abc", other[8] = "";
  CHECK_TEXT(script.run([&](disc_call *call) { return disc_rt_device_copy(call, other, memory, 4); }), "");
  CHECK_TEXT(script.run([&](disc_call *call) { return disc_rt_device_copy(call, other, other, 4); }), "");
  CHECK(std::strcmp(other, "abc") == 0);
  CHECK(mentions(script.run([&](disc_call *call) { return disc_rt_device_copy(call, other, memory, -4); }),
                 "copies -4 bytes"));
  CHECK(mentions(script.run([&](disc_call *call) { return disc_rt_device_read(call, other, memory, -4); }),
                 "reads -4 bytes"));
  CHECK_TEXT(script.run([&](disc_call *call) { return disc_rt_device_read(call, other, memory, 0); }), "");
  auto onHost = [&](int64_t count, int64_t buffers, int64_t results) {
    return script.run([=](disc_call *call) {
      static int64_t ran;
      ran = 0;
      auto kernel = [](void *const *, int64_t begin, int64_t end, void *) { ran += end - begin; };
      int32_t status = disc_rt_device_call_host(call, kernel, nullptr, count, buffers, results, 5, 0, 0);
      CHECK(ran == (status ? 0 : 5));
      return status;
    });
  };
  CHECK_TEXT(onHost(2, 2, 1), "");
  for (auto [count, buffers, results] : {std::array<int64_t, 3>{2, -1, 0}, {1, 2, 0}, {2, 2, -1}, {2, 1, 2}})
    CHECK(mentions(onHost(count, buffers, results), "runs a kernel on the host beside no device"));
}

// A kernel's report of a wrong index comes out when a synchronous device's run is over.
TEST(recordsOfErrorsAreRead) {
  Recorded script;
  auto wrong = [](disc_call *call) {
    auto *record = static_cast<KernelError *>(disc_rt_device_errors(call));
    CHECK(record == disc_rt_device_errors(call) && !record->raised);
    *record = {1, 0, 9, 4, "gather at model.py:2"};
    return 0;
  };
  CHECK_TEXT(script.run(wrong), "gather at model.py:2: index 9 is out of range for a dimension of extent 4");
  CHECK_TEXT(script.run([](disc_call *call) { return disc_rt_device_errors(call) ? 0 : 1; }), "");
  // All records of a device in use, and no memory for more.
  std::vector<KernelError *> records;
  for (int i = 0; i < 200; ++i) {
    KernelError *record = nullptr;
    Recorder::made->lacksMemory = i >= 100;
    if (!Recorder::made->takeRecord(record).ok())
      break;
    records.push_back(record);
  }
  CHECK(records.size() > 60 && records.size() < 200);
  Script another(Recorded::table());
  CHECK_TEXT(another.load(), "");
  CHECK_TEXT(another.run([](disc_call *call) { return disc_rt_device_errors(call) ? 0 : 1; }), "it has none");
  Recorder::made->lacksMemory = false;
  for (KernelError *record : records)
    Recorder::made->giveBack(record);
}

TEST(modelsThatADeviceDoesNotLoad) {
  Recorded first; // makes the device
  Recorder::made->loads = false;
  std::unique_ptr<Model> model;
  CHECK_TEXT(Script::textOf(Model::create({&first.info, nullptr, nullptr, nullptr}, {}, model)), "no image for it");
  Recorder::made->loads = true;
  disc_model_info_t info = first.info;
  disc_device_code code = *info.device;
  code.device = "nowhere";
  info.device = &code;
  CHECK(mentions(Script::textOf(Model::create({&info, nullptr, nullptr, nullptr}, {}, model)),
                 "this runtime has no device 'nowhere', only 'cuda', 'rocm', 'emulated', 'null'"));
  ModelOptions second;
  second.device = 1;
  for (const char *kind : {"null", "emulated"}) {
    code.device = kind;
    CHECK_TEXT(Script::textOf(Model::create({&info, nullptr, nullptr, nullptr}, second, model)),
               "there is one device '" + std::string(kind) + "', not 2");
  }
}

//===-- Drivers that fail -------------------------------------------------===//

static const disc_device_kernel kTwice[] = {{"twice", 32, 0, nullptr, "01"}};

// Each of these calls of the driver may be the one that fails: the run says so, and the next one works.
TEST(callsSurviveWhatTheirDriverRefuses) {
  for (const char *name : kDrivers) {
    On on(name, 1, kTwice);
    disc_model_info_t info = blankInfo();
    info.device = &on.code;
    Script script(info);
    CHECK_TEXT(script.load(), "");
    float from = 3, seen = 0;
    auto body = [&](disc_call *call) {
      auto *memory = static_cast<float *>(disc_rt_arena(call, 0, 64));
      if (!memory)
        return 1;
      auto fill = [](void *const *args, int64_t, int64_t, void *) { *static_cast<float *>(args[0]) = 3; };
      void *host[] = {memory, word(4)}, *args[] = {memory, memory + 4};
      if (int32_t status = disc_rt_device_call_host(call, fill, host, 1, 1, 1, 1, 0, 0))
        return status;
      if (int32_t status = disc_rt_device_launch(call, 0, args, 2, 1))
        return status;
      if (int32_t status = disc_rt_device_copy(call, memory + 8, memory + 4, 4))
        return status;
      return disc_rt_device_read(call, &seen, memory + 8, 4);
    };
    CHECK_TEXT(script.run(body, {}, nullptr, stream(1)), "");
    CHECK(seen == 2 * from);
    std::vector<std::string> functions;
    for (const std::string &call : on.fake->calls) {
      std::string function = call.substr(0, call.find(' '));
      if (function != "run" && std::find(functions.begin(), functions.end(), function) == functions.end())
        functions.push_back(function);
    }
    CHECK(functions.size() > 5);
    for (const std::string &function : functions)
      for (int after = 0; after < 3; ++after) {
        on.fake->faults.clear();
        on.fake->faults[function] = {999, after};
        (void)script.run(body, {}, nullptr, stream(1));
        bool used = on.fake->faults.empty();
        on.fake->faults.clear();
        on.fake->lastError = 0;
        seen = 0;
        std::string again = script.run(body, {}, nullptr, stream(1));
        CHECK_TEXT(again, "");
        CHECK(seen == 2 * from);
        if (!used)
          break;
      }
    CHECK_TEXT(Script::textOf(script.model->synchronize(nullptr)), "");
    // A host kernel's buffers, of which there may be no memory on the host.
    CHECK(mentions(script.run([](disc_call *call) {
      void *host[] = {disc_rt_arena(call, 0, 64), word(int64_t(1) << 60)};
      return disc_rt_device_call_host(call, nullptr, host, 1, 1, 1, 1, 0, 0);
    }),
                   "bytes on the host, of a kernel that runs there"));
  }
}

// Blocks times threads are bounded by the driver, and blocks by their type.
TEST(launchesBeyondADriversLimits) {
  for (const char *name : kDrivers) {
    On on(name, 1, kTwice);
    disc_model_info_t info = blankInfo();
    info.device = &on.code;
    Script script(info);
    CHECK_TEXT(script.load(), "");
    for (int64_t blocks : {int64_t(INT32_MAX) + 1, int64_t(INT32_MAX)}) {
      std::string text = script.run([&](disc_call *call) {
        void *memory = disc_rt_arena(call, 0, 64), *args[] = {memory, memory};
        return memory ? disc_rt_device_launch(call, 0, args, 2, blocks) : 1;
      });
      bool isTooLarge = blocks > INT32_MAX || *name != 'c'; // HIP counts threads in 32 bits
      CHECK_TEXT(text, isTooLarge ? "kernel 'twice': " + std::string(name) + ":0: a launch of " +
                                        std::to_string(blocks) + " blocks of 32 threads is too large"
                                  : "");
    }
    CHECK_TEXT(Script::textOf(script.model->synchronize(nullptr)), "");
    std::unique_ptr<Device> device;
    auto make = *name == 'c' ? &makeCudaDevice : &makeRocmDevice;
    for (int32_t id : {-1, 2})
      CHECK_TEXT(Script::textOf(make(id, device)), "target '" + std::string(name) + "': there is no device " +
                                                       std::to_string(id) + ", the driver found 2");
  }
}

// What is no architecture's name fits no device.
TEST(imagesWithOddNames) {
  On on("cuda", 1, kTwice);
  for (const char *arch : {"", "sm_", "sm_12345678", "sm_9x", "sm_9/", "sm_a", "compute_", "gfx942", "a"}) {
    const disc_device_image image = {arch, "code", 4, 0};
    on.code.num_images = 1;
    on.code.images = &image;
    std::unique_ptr<DeviceModule> module;
    DeviceScope scope(on.device);
    CHECK(mentions(Script::textOf(on.device->load(on.code, module)), "; the model has code for " + std::string(arch)));
  }
}

//===-- Products on the emulated device -----------------------------------===//

template <typename T> static void checkEmulatedProduct(Device &device, int64_t dtype, double tolerance) {
  const int64_t batch = 2, m = 3, n = 4, k = 5;
  for (bool aColumns : {false, true})
    for (bool bColumns : {false, true})
      for (int64_t epilogue : {DISC_PRODUCT_PLAIN, DISC_PRODUCT_BIAS, DISC_PRODUCT_BIAS_GELU_TANH}) {
        std::vector<T> a(static_cast<size_t>(batch * m * k)), b(static_cast<size_t>(k * n)),
            c(static_cast<size_t>(batch * m * n)), bias(static_cast<size_t>(n));
        for (size_t i = 0; i < a.size(); ++i)
          a[i] = T(float(i % 7) / 4 - 0.75f);
        for (size_t i = 0; i < b.size(); ++i)
          b[i] = T(float(i % 5) / 4 - 0.5f);
        for (size_t i = 0; i < bias.size(); ++i)
          bias[i] = T(float(i) - 1);
        disc_device_product what = {0, dtype, aColumns, bColumns, epilogue, 0};
        DeviceProduct product = {&what, a.data(), b.data(), c.data(), bias.data(), batch, m, n, k, m * k, 0, m * n};
        bool done = false;
        CHECK(device.multiply(product, nullptr, nullptr, done).ok() && done);
        for (int64_t s = 0; s < batch; ++s)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double sum = epilogue == DISC_PRODUCT_PLAIN ? 0 : double(bias[size_t(j)]);
              for (int64_t l = 0; l < k; ++l)
                sum += double(a[size_t(s * m * k + (aColumns ? l * m + i : i * k + l))]) *
                       double(b[size_t(bColumns ? j * k + l : l * n + j)]);
              if (epilogue == DISC_PRODUCT_BIAS_GELU_TANH)
                sum *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
              CHECK(std::fabs(double(c[size_t((s * m + i) * n + j)]) - sum) < tolerance);
            }
      }
}

TEST(emulatedLibraryOfProducts) {
  Device *device = nullptr;
  CHECK(DeviceRegistry::get().find("emulated", 0, device).ok());
  disc_device_product what = {0, DISC_F64, 0, 0, DISC_PRODUCT_PLAIN, 0};
  DeviceProduct product = {&what, nullptr, nullptr, nullptr, nullptr, 1, 1, 1, 1, 1, 1, 1};
  bool done = true;
  CHECK(device->multiply(product, nullptr, nullptr, done).ok() && !done); // there is no library
  setenv("DISC_EMULATE_LIBRARY", "0", 1);
  CHECK(device->multiply(product, nullptr, nullptr, done).ok() && !done);
  setenv("DISC_EMULATE_LIBRARY", "1", 1);
  CHECK(device->multiply(product, nullptr, nullptr, done).ok() && !done); // not of this type
  checkEmulatedProduct<float>(*device, DISC_F32, 1e-6);
  checkEmulatedProduct<_Float16>(*device, DISC_F16, 1e-2);
  checkEmulatedProduct<__bf16>(*device, DISC_BF16, 5e-2);
  unsetenv("DISC_EMULATE_LIBRARY");
  void *data = nullptr;
  for (size_t bytes : {SIZE_MAX, size_t(INT64_MAX), size_t(1) << 60})
    CHECK(device->allocate(bytes, nullptr, data).code() == Code::Memory);
}

// Products without elements, or of a kernel that the table has not.
TEST(productsOfModels) {
  Recorded script;
  auto multiply = [&](int64_t kernel, int64_t m, int64_t k) {
    int32_t result = -7;
    std::string text = script.run([&](disc_call *call) {
      disc_device_product what = {kernel, DISC_F32, 0, 0, DISC_PRODUCT_BIAS, 0};
      float memory[4] = {};
      void *buffers[] = {memory, memory, memory, memory};
      const int64_t extents[] = {1, m, 2, k, 0, 0, 0};
      result = disc_rt_device_matmul(call, &what, buffers, extents);
      return result == DISC_RT_UNSUPPORTED ? 0 : result;
    });
    return std::to_string(result) + text;
  };
  CHECK_TEXT(multiply(3, 0, 2), "0");
  CHECK_TEXT(multiply(3, 2, 0), "-1"); // a kernel writes zeros, or the bias
  CHECK_TEXT(multiply(3, 2, 2), "-1"); // this device has no library
  for (int64_t kernel : {-1, 6})
    CHECK(mentions(multiply(kernel, 2, 2), "a product of a kernel that is not in its table"));
}
