//===- ParameterTest.cpp - parameters that the host program gives ---------===//

#include "FakeDevices.h"
#include "Script.h"

using namespace disc::rt;
using namespace disc::test;

namespace {
/// A tensor of floats that a model takes; its fields may be changed.
struct Given {
  explicit Given(std::vector<int64_t> dims, size_t room = 0) : floats(std::move(dims), room) {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned *self) { ++static_cast<Given *>(self->manager_ctx)->deleted; };
    managed.flags = 0;
    managed.dl_tensor = floats.tensor;
  }
  DLTensor &tensor() { return managed.dl_tensor; }
  Floats floats;
  DLManagedTensorVersioned managed;
  int deleted = 0;
};

const int64_t shape4[] = {4}, shape22[] = {2, 2}, shape0[] = {0}, shapeHuge[] = {int64_t(1) << 60};

/// A model with one parameter 'w'.
struct WithParameter : Script {
  explicit WithParameter(const disc_parameter_info &parameter, const disc_device_code *device = nullptr)
      : Script(table(parameter, device)) {}
  static disc_model_info_t table(const disc_parameter_info &parameter, const disc_device_code *device) {
    disc_model_info_t info = blankInfo();
    info.num_parameters = 1;
    info.parameters = &parameter;
    info.device = device;
    return info;
  }
  std::string take(Given &given) { return load({}, {&given.managed}); }
  /// What kernels read, on the host.
  std::vector<float> values(size_t count) {
    std::vector<float> result;
    CHECK_TEXT(run([&](disc_call *call) {
                 auto *data = static_cast<float *>(disc_rt_parameter(call, 0));
                 if (data)
                   result.assign(data, data + count);
                 return data ? 0 : 1;
               }),
               "");
    return result;
  }
};
} // namespace

TEST(parametersAreTakenWhereTheyAre) {
  disc_parameter_info info = {"w", DISC_F32, 1, shape4, 1, 0};
  Given dense({4}), strided({8});
  {
    WithParameter script(info);
    CHECK_TEXT(script.take(dense), "");
    CHECK(script.values(4) == (std::vector<float>{0, 1, 2, 3}));
    CHECK_TEXT(
        script.run([&](disc_call *call) { return disc_rt_parameter(call, 0) == dense.floats.data.data() ? 0 : 1; }),
        "");
    CHECK(dense.deleted == 0);
    // Others in their place, of which a copy is read.
    strided.floats.shape[0] = 4;
    strided.floats.setStrides({2});
    strided.tensor().strides = strided.floats.tensor.strides;
    CHECK_TEXT(script.take(strided), "");
    CHECK(dense.deleted == 1 && script.values(4) == (std::vector<float>{0, 2, 4, 6}));
  }
  CHECK(strided.deleted == 1);
  // Signs of integers do not count; nothing has no data.
  disc_parameter_info integer = {"w", DISC_I32, 1, shape4, 1, 0}, nothing = {"w", DISC_F32, 1, shape0, 1, 0};
  Given numbers({4}), none({0});
  numbers.tensor().dtype.code = kDLUInt;
  none.tensor().data = nullptr;
  WithParameter unsignedToo(integer), empty(nothing);
  CHECK_TEXT(unsignedToo.take(numbers), "");
  CHECK_TEXT(empty.take(none), "");
  CHECK(empty.values(0).empty());
  // A tensor without a deleter is nobody's to delete.
  Given plain({4});
  plain.managed.deleter = nullptr;
  WithParameter script(info);
  CHECK_TEXT(script.take(plain), "");
}

TEST(parametersForInitAloneAreLetGo) {
  disc_parameter_info info = {"w", DISC_F32, 1, shape4, 0, 0};
  WithParameter script(info);
  Given given({4});
  CHECK_TEXT(script.take(given), "");
  CHECK(given.deleted == 1);
  CHECK_TEXT(script.run([](disc_call *call) { return disc_rt_parameter(call, 0) ? 0 : 1; }),
             "parameter 0 was let go of after init");
}

TEST(parametersThatAreNotTheTables) {
  disc_parameter_info info = {"w", DISC_F32, 1, shape4, 1, 0}, matrix = {"w", DISC_F32, 2, shape22, 1, 0},
                      state = {"w", DISC_F32, 1, shape4, 1, 1}, huge = {"w", DISC_F32, 1, shapeHuge, 1, 0};
  const struct {
    const disc_parameter_info &expected;
    void (*change)(Given &given);
    const char *message;
  } table[] = {
      {info, [](Given &given) { given.tensor().dtype.bits = 64; }, "parameter 'w': expected float32, got float64"},
      {info, [](Given &given) { given.tensor().dtype.code = kDLInt; }, "parameter 'w': expected float32, got int32"},
      {info, [](Given &given) { given.tensor().dtype.lanes = 4; },
       "parameter 'w': expected float32, got vectors of 4 float32"},
      {info, [](Given &given) { given.tensor().device = {kDLCUDA, 0}; },
       "parameter 'w': expected a tensor on cpu, got cuda:0"},
      {info, [](Given &given) { given.floats.shape[0] = 3; }, "parameter 'w': expected shape [4], got [3]"},
      {matrix, [](Given &) {}, "parameter 'w': expected shape [2, 2], got [4]"},
      {state,
       [](Given &given) {
         given.floats.setStrides({-1});
         given.tensor().strides = given.floats.tensor.strides;
       },
       "parameter 'w' is updated by the model, so it must be contiguous"},
      {huge,
       [](Given &given) {
         given.floats.shape[0] = int64_t(1) << 60;
         given.floats.setStrides({0});
         given.tensor().strides = given.floats.tensor.strides;
       },
       "no memory for a copy of parameter 'w'"},
  };
  for (const auto &row : table) {
    Given given({4});
    row.change(given);
    WithParameter script(row.expected);
    CHECK_TEXT(script.take(given), row.message);
    CHECK(given.deleted == 1); // the model's in any case
  }
  WithParameter script(info);
  CHECK_TEXT(script.load(), "expected 1 parameters, got 0");
}

TEST(parametersOfDevices) {
  for (const char *name : kDrivers) {
    On on(name);
    const std::string there = std::string(name) + ":0";
    disc_parameter_info info = {"w", DISC_F32, 1, shape4, 1, 0}, state = {"w", DISC_F32, 1, shape4, 1, 1},
                        huge = {"w", DISC_F32, 1, shapeHuge, 1, 0};
    OnDevice data(*on.device, 16);
    auto read = [&](WithParameter &script) {
      std::vector<float> result(4);
      CHECK_TEXT(script.run([&](disc_call *call) {
        void *from = disc_rt_parameter(call, 0);
        return from ? disc_rt_device_read(call, result.data(), from, 16) : 1;
      }),
                 "");
      return result;
    };
    auto strided = [](Given &given, int64_t stride) {
      given.floats.setStrides({stride});
      given.tensor().strides = given.floats.tensor.strides;
    };
    auto onDevice = [&](Given &given, int64_t offset) {
      given.tensor().data = static_cast<float *>(data.data) + offset;
      given.tensor().device = on.device->where;
    };
    { // from the host, strided
      Given given({4}, 8);
      strided(given, 2);
      WithParameter script(info, &on.code);
      CHECK_TEXT(script.take(given), "");
      CHECK(given.deleted == 1 && read(script) == (std::vector<float>{0, 2, 4, 6}));
    }
    { // where it is, or as a copy that begins at a multiple of 16 bytes
      for (int64_t offset : {0, 1}) {
        Given given({4});
        onDevice(given, offset);
        WithParameter script(info, &on.code);
        CHECK_TEXT(script.take(given), "");
        CHECK(given.deleted == 0 && read(script)[0] == float(1 + offset));
      }
    }
    auto refuses = [&](const disc_parameter_info &expected, Given &given, const std::string &message) {
      WithParameter script(expected, &on.code);
      CHECK_TEXT(script.take(given), message);
      CHECK(given.deleted == 1);
      on.fake->faults.clear();
    };
    Given host({4}), odd({4}), gaps({4}), far({4}), large({4}), lacking({4}), failing({4}), elsewhere({4});
    refuses(state, host, "parameter 'w' is updated by the model, so it must be contiguous and on " + there);
    onDevice(odd, 1);
    refuses(state, odd, "parameter 'w' is updated by the model, so it must begin at a multiple of 16 bytes");
    onDevice(gaps, 0);
    strided(gaps, 2);
    refuses(info, gaps, "parameter 'w': on " + there + " it must be contiguous and aligned");
    far.tensor().device = {8, 0};
    refuses(info, far, "parameter 'w': expected a tensor on " + there + ", got mps");
    large.floats.shape[0] = int64_t(1) << 60;
    strided(large, 0);
    refuses(huge, large, "no memory for a copy of parameter 'w'");
    const std::string noMemory = *name == 'c' ? "CUDA_ERROR_OUT_OF_MEMORY" : "hipErrorOutOfMemory";
    on.fake->faults["allocate"] = {2};
    refuses(info, lacking,
            "no memory for a copy of parameter 'w' (" + there + ": allocating 64 bytes: " + noMemory + ")");
    onDevice(elsewhere, 1);
    on.fake->faults["allocate"] = {2};
    refuses(info, elsewhere,
            "no memory for a copy of parameter 'w' (" + there + ": allocating 64 bytes: " + noMemory + ")");
    onDevice(failing, 1);
    on.fake->faults["copy"] = {2};
    refuses(info, failing, there + ": a copy within the device: " + noMemory);
  }
}

TEST(packedWeightsAreRestored) {
  disc_parameter_info parameters[] = {{"kept", DISC_F32, 1, shape4, 1, 0}, {"packed", DISC_F32, 1, shape4, 0, 0}};
  disc_model_info_t info = blankInfo();
  info.num_parameters = 2;
  info.parameters = parameters;
  info.num_globals = 1;
  // Eight numbers as bytes, where kernels may read them or where they must be copied.
  auto bytes = [](Given &given, bool aligned) {
    DLTensor &t = given.tensor();
    auto begin = reinterpret_cast<uintptr_t>(given.floats.data.data());
    uintptr_t place = (begin + 63) / 64 * 64 + (aligned ? 0 : 4);
    for (int i = 0; i < 8; ++i)
      reinterpret_cast<float *>(place)[i] = float(i);
    t.dtype = {kDLUInt, 8, 1};
    t.data = reinterpret_cast<void *>(place);
    given.floats.shape[0] = 32;
    t.shape = given.floats.shape.data();
  };
  for (bool aligned : {true, false}) {
    Given kept({4}), packed({64});
    bytes(packed, aligned);
    {
      Script script(info);
      DLManagedTensorVersioned *tensors[] = {&kept.managed, nullptr}, *globals[] = {&packed.managed};
      CHECK_TEXT(Script::textOf(script.model->restore(tensors, 2, globals, 1)), "");
      CHECK_TEXT(script.run([&](disc_call *call) {
        auto *data = static_cast<float *>(disc_rt_global(call, 0, 32));
        CHECK((data == packed.tensor().data) == aligned && data[7] == 7);
        return static_cast<float *>(disc_rt_parameter(call, 0))[3] == 3 ? 0 : 1;
      }),
                 "");
    }
    CHECK(kept.deleted == 1 && packed.deleted == 1);
  }
  auto said = [&](Given *kept, Given &packed, size_t count) {
    Script script(info);
    DLManagedTensorVersioned *tensors[] = {kept ? &kept->managed : nullptr, nullptr}, *globals[] = {&packed.managed};
    return Script::textOf(script.model->restore(tensors, count, globals, 1));
  };
  Given good({4}), other({3}), numbers({64}), fine({64});
  bytes(fine, true);
  CHECK_TEXT(said(&good, fine, 1), "expected 2 parameters and 1 packed weights, got 1 and 1");
  CHECK_TEXT(said(nullptr, fine, 2), "parameter 'kept' is missing");
  CHECK_TEXT(said(&other, fine, 2), "parameter 'kept': expected shape [4], got [3]");
  CHECK_TEXT(said(&good, numbers, 2), "packed weights 0: expected bytes on the CPU");
  CHECK(good.deleted == 2 && other.deleted == 1 && fine.deleted == 3 && numbers.deleted == 1);
}
