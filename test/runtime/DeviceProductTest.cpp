//===- DeviceProductTest.cpp - products by libraries, which are fake ------===//

#include "Check.h"
#include "FakeDevices.h"
#include "lib/Runtime/Device/Blas.h"

#include <algorithm>
#include <cmath>

using namespace disc::rt;
using namespace disc::test;

namespace {
/// a[batch, m, k] * b[batch, k, n] of small integers, and what comes out.
struct Product {
  Product(On &on, int64_t batch, int64_t m, int64_t n, int64_t k, bool aColumns, bool bColumns, int64_t epilogue)
      : a(*on.device, batch * m * k), b(*on.device, batch * k * n), c(*on.device, batch * m * n), bias(*on.device, n),
        what{0, DISC_F32, aColumns, bColumns, epilogue, 0},
        product{&what, a.data, b.data, c.data, bias.data, batch, m, n, k, m * k, k * n, m * n} {}

  /// Whether the elements are right; a's are 1, 2, 3, ... modulo what keeps sums exact.
  bool right(On &on, Stream stream) {
    auto x = values(*on.device, a.tensor, stream), y = values(*on.device, b.tensor, stream);
    auto z = values(*on.device, c.tensor, stream), w = values(*on.device, bias.tensor, stream);
    const DeviceProduct &p = product;
    for (int64_t s = 0; s < p.batch; ++s)
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
          double sum = what.epilogue ? w[size_t(j)] : 0;
          for (int64_t l = 0; l < p.k; ++l)
            sum += double(x[size_t(s * p.strideA + (what.a_columns ? l * p.m + i : i * p.k + l))]) *
                   double(y[size_t(s * p.strideB + (what.b_columns ? j * p.k + l : l * p.n + j))]);
          // Of positive numbers, GELU changes nothing.
          if (std::fabs(double(z[size_t(s * p.strideC + i * p.n + j)]) - sum) > 1e-5 * sum)
            return false;
        }
    return true;
  }
  OnDevice a, b, c, bias;
  disc_device_product what;
  DeviceProduct product;
};
} // namespace

TEST(deviceProducts) {
  for (const char *name : kDrivers) {
    On on(name);
    DeviceScope scope(on.device);
    for (int64_t epilogue : {DISC_PRODUCT_PLAIN, DISC_PRODUCT_BIAS, DISC_PRODUCT_BIAS_GELU_TANH})
      for (bool aColumns : {false, true})
        for (bool bColumns : {false, true}) {
          Product test(on, 2, 3, 5, 4, aColumns, bColumns, epilogue);
          bool done = false;
          int64_t launches = on.device->counters.launches, waits = on.device->counters.synchronizations;
          CHECK(compute(*on.device, test.product, stream(3), done).ok() && done);
          CHECK(on.device->counters.launches == launches + 1 && on.device->counters.synchronizations == waits);
          CHECK(test.right(on, stream(3)));
        }
    // Without rounding to TF32, unless asked.
    Product test(on, 1, 3, 5, 4, false, false, 0);
    bool done = false;
    CHECK(compute(*on.device, test.product, nullptr, done).ok());
    CHECK(on.fake->calls.end() != std::find(on.fake->calls.begin(), on.fake->calls.end(),
                                            std::string("multiply by 3 compute ") + (*name == 'c' ? "68" : "2")));
    test.what.tf32 = 1;
    CHECK(compute(*on.device, test.product, nullptr, done).ok());
    CHECK(on.fake->calls.end() != std::find(on.fake->calls.begin(), on.fake->calls.end(),
                                            std::string("multiply by 3 compute ") + (*name == 'c' ? "77" : "6")));
    test.what.dtype = DISC_F64;
    CHECK(compute(*on.device, test.product, nullptr, done).ok() && !done);
    CHECK(on.device->synchronize(nullptr).ok());
  }
}

TEST(deviceProductAlgorithmsAreOfBuckets) {
  CHECK(Blas::bucket(1) == 1 && Blas::bucket(64) == 64);
  for (int64_t extent : {65, 100, 127, 1000, 1023, 4097, 100000}) {
    int64_t bucket = Blas::bucket(extent);
    CHECK(bucket >= extent && bucket % 8 == extent % 8 && bucket <= extent + extent / 4);
    CHECK(Blas::bucket(bucket) == bucket);
  }
  for (const char *name : kDrivers) {
    On on(name);
    DeviceScope scope(on.device);
    auto multiply = [&](int64_t m) {
      Product test(on, 1, m, 8, 8, false, true, 0);
      bool done = false;
      on.fake->calls.clear();
      CHECK(compute(*on.device, test.product, stream(1), done).ok());
      CHECK(!done || test.right(on, stream(1)));
      CHECK(on.device->synchronize(stream(1)).ok());
      return done;
    };
    bool checks = *name == 'c'; // hipBLASLt runs what it is told to: each shape has an algorithm of its own
    CHECK(multiply(200) && on.fake->calls[0] == (checks ? "heuristic 224x8 aligned 16 sums 2" : "heuristic 200x8"));
    CHECK(multiply(200) && on.count("heuristic") == 0 && on.count("check") == 0); // it is known
    CHECK(multiply(208) && on.count("heuristic") == !checks);                     // of the same bucket
    CHECK(multiply(201) && on.count("heuristic") == 1);                           // aligned otherwise
    // One that does not suit the shape.
    on.fake->faults["check"] = {15, 0, true};
    CHECK(multiply(216) && on.count("heuristic") == 1 && on.count("multiply") == 1);
    on.fake->faults.clear();
    CHECK(multiply(216) && on.count("heuristic") == 0 && on.count("multiply") == 1);
    for (int unsupported : checks ? std::vector<int>{7, 8, 15} : std::vector<int>{3, 7, 8}) {
      on.fake->faults["multiply"] = {unsupported};
      CHECK(multiply(224) == checks && on.count("multiply") == 1 + checks);
      on.fake->faults["multiply"] = {unsupported, 0, true};
      CHECK(!multiply(200)); // nothing was done: a kernel does it
      on.fake->faults.clear();
    }
    on.fake->faults["multiply"] = {13};
    Product test(on, 1, 200, 8, 8, false, true, 0);
    bool done = false;
    CHECK(compute(*on.device, test.product, stream(1), done).code() == Code::Device && !done);
    on.fake->faults.clear();
    on.fake->faults["heuristic"] = {15, 0, true};
    CHECK(!multiply(2000));
    on.fake->faults.clear();
    CHECK(!multiply(2000)); // and so it stays
    on.fake->faults["state"] = {15, 0, true};
    CHECK(!multiply(3000) && on.count("multiply") == 0);
    on.fake->faults.clear();
    CHECK(on.device->synchronize(stream(1)).ok());
  }
}

// Whatever the library refuses to describe is left to a kernel, and nothing of it stays.
TEST(deviceProductsThatAreNotDescribed) {
  for (const char *name : kDrivers) {
    On on(name);
    DeviceScope scope(on.device);
    int64_t m = 300;
    for (int64_t epilogue : {DISC_PRODUCT_BIAS, DISC_PRODUCT_BIAS_GELU_TANH})
      for (const char *function :
           {"createProduct", "setProduct", "createLayout", "setLayout", "createPreference", "setPreference"})
        for (int after = 0;; ++after) {
          // A shape of its own, not the bucket's: the library is asked for an algorithm once.
          do
            ++m;
          while (Blas::bucket(m) == m);
          Product test(on, 1, m, 3, 3, after % 2, after % 3, epilogue);
          on.fake->faults[function] = {15, after, true};
          bool done = false;
          CHECK(compute(*on.device, test.product, stream(1), done).ok());
          bool failed = on.fake->faults[function].after < 0;
          on.fake->faults.clear();
          CHECK(on.device->synchronize(stream(1)).ok());
          CHECK(done != failed && (!done || test.right(on, stream(1))));
          if (!failed)
            break;
        }
    // No memory for what the library needs.
    Product test(on, 1, 8, 8, 8, false, false, 0);
    bool done = false;
    on.fake->faults["allocate"] = {2};
    CHECK(compute(*on.device, test.product, stream(1), done).code() == Code::Memory && !done);
    on.fake->faults.clear();
    // One matrix for the whole batch.
    Product shared(on, 2, 4, 4, 4, false, false, 0);
    shared.product.strideA = shared.product.strideB = 0;
    CHECK(compute(*on.device, shared.product, stream(1), done).ok() && done && shared.right(on, stream(1)));
    // A library whose handle it does not make.
    std::string device = name;
    on.fake->faults["createBlas"] = {1};
    CHECK(!Blas::open(device));
    on.fake->lastError = 0; // that the device would ask for
    on.fake->faults.clear();
    CHECK(on.device->synchronize(stream(1)).ok());
  }
}

// The table of algorithms is of a bounded size, and asks again for what was dropped.
TEST(deviceProductAlgorithmsAreForgotten) {
  On on("rocm");
  DeviceScope scope(on.device);
  Product test(on, 1, 2000, 1, 1, false, false, 0);
  int64_t asked = 0;
  for (int again = 0; again < 2; ++again)
    for (int64_t m = 700; m < 1800; ++m) {
      test.product.m = m;
      bool done = false;
      on.fake->calls.clear();
      CHECK(compute(*on.device, test.product, stream(1), done).ok() && done);
      asked += on.count("heuristic");
    }
  CHECK(asked > 1200 && asked <= 2200);
  CHECK(on.device->synchronize(stream(1)).ok());
}

TEST(nullDeviceHasNoProducts) {
  On on("null");
  Product test(on, 1, 3, 5, 4, false, false, 0);
  bool done = true;
  CHECK(compute(*on.device, test.product, nullptr, done).ok() && !done);
}

//===-- In a model --------------------------------------------------------===//

static const disc_device_product modelProduct = {1, DISC_F32, 0, 0, 0, 0};
static const disc_dim_info dims44[] = {{4, "4", 4, 4}, {4, "4", 4, 4}};
static const disc_tensor_info in44[] = {{"x", DISC_F32, 2, dims44, 0}}, out44[] = {{"y", DISC_F32, 2, dims44, 0}};
static const disc_kernel_info info44[] = {{"move", "product", "model.py:7", nullptr}};
static const disc_device_kernel kernels44[] = {{"twice", 32, 0, nullptr, "01"}, {"move", 32, 0, nullptr, "01s"}};

static int32_t runProduct(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t dims[] = {4, 4}, extents[] = {1, 4, 4, 4, 16, 16, 16};
  void *x = disc_rt_input(call, 0), *y = disc_rt_output(call, 0, 2, dims), *buffers[] = {x, x, y};
  if (!x || !y)
    return 1;
  int32_t status = disc_rt_device_matmul(call, &modelProduct, buffers, extents);
  if (status != DISC_RT_UNSUPPORTED)
    return status;
  void *args[] = {x, y, reinterpret_cast<void *>(int64_t(64))};
  return disc_rt_device_launch(call, 1, args, 3, 1);
}

TEST(deviceModelChoosesTheLibrary) {
  for (const char *name : kDrivers) {
    On on(name, 2, kernels44);
    disc_model_info_t info = {DISC_MODEL_INFO_VERSION,
                              1,
                              in44,
                              1,
                              out44,
                              0,
                              nullptr,
                              0,
                              nullptr,
                              0,
                              nullptr,
                              0,
                              1,
                              info44,
                              &on.code,
                              0,
                              nullptr,
                              0,
                              nullptr,
                              0};
    std::unique_ptr<Model> model;
    CHECK(Model::create({&info, nullptr, runProduct, nullptr}, {}, model).ok() && model->load(nullptr, 0).ok());
    OnDevice x(*on.device, 16);
    int64_t shape[] = {4, 4};
    DLTensor input = x.tensor;
    input.ndim = 2;
    input.shape = shape;
    const DLTensor *list[] = {&input};
    for (bool supported : {true, false}) {
      on.fake->faults.clear();
      if (!supported)
        on.fake->faults["multiply"] = {7, 0, true};
      CHECK(model->startProfile().ok());
      disc_output output = {nullptr, nullptr};
      CHECK(model->run(list, 1, &output, 1, stream(1)).ok());
      std::vector<LaunchRecord> launches;
      CHECK(model->stopProfile(launches).ok());
      CHECK(launches.size() == 1 && launches[0].name == std::string("move") && launches[0].isLibrary == supported);
      float got = values(*on.device, output.managed->dl_tensor, stream(1))[0];
      CHECK(got == (supported ? 1 * 1 + 2 * 5 + 3 * 9 + 4 * 13 : 1));
      output.managed->deleter(output.managed);
    }
    on.fake->faults.clear();
    on.fake->faults["multiply"] = {13};
    disc_output output = {nullptr, nullptr};
    Status status = model->run(list, 1, &output, 1, stream(1));
    CHECK_TEXT(status.ok() ? "" : status.error().message,
               "kernel 'move' (model.py:7): a product by the library failed with status 13");
  }
}
