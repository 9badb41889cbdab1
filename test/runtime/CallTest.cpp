//===- CallTest.cpp - what compiled code asks of its call -----------------===//
//
// Requests that a compiler's mistake or a lack of memory would make, and those that only some models make: loops,
// procedures, kernels that fail, tensors that are updated in place.
//
//===----------------------------------------------------------------------===//

#include "HandModel.h"
#include "Script.h"

#include <cstring>

using namespace disc::rt;
using namespace disc::test;

static const disc_dim_info dimsN[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_tensor_info twoInputs[] = {{"x", DISC_F32, 1, dimsN, 0}, {"", DISC_F32, 1, dimsN, 0}};
static const disc_tensor_info updatedInputs[] = {{"x", DISC_F32, 1, dimsN, 1}, {"", DISC_F32, 1, dimsN, 0}};
static const disc_tensor_info twoOutputs[] = {{"y", DISC_F32, 1, dimsN, 0}, {"", DISC_F32, 1, dimsN, 0}};

static disc_model_info_t infoOf(int64_t numInputs, const disc_tensor_info *inputs, int64_t numOutputs) {
  disc_model_info_t info = blankInfo();
  info.num_inputs = numInputs;
  info.inputs = inputs;
  info.num_outputs = numOutputs;
  info.outputs = twoOutputs;
  return info;
}

/// What a model without tensors says after this.
static std::string said(const Script::Body &body, const ModelOptions &options = {}) {
  disc_model_info_t info = blankInfo();
  info.num_globals = 1;
  Script script(info, options);
  CHECK_TEXT(script.load(), "");
  return script.run(body);
}

TEST(requestsBeyondTheTables) {
  auto is = [](const void *data) { return data ? 0 : 1; };
  const struct {
    Script::Body body;
    const char *message;
  } table[] = {
      {[&](disc_call *call) { return is(disc_rt_input(call, -1)); }, "no input -1"},
      {[&](disc_call *call) { return is(disc_rt_input(call, 0)); }, "no input 0"},
      {[&](disc_call *call) { return is(disc_rt_parameter(call, -1)); }, "no parameter -1"},
      {[&](disc_call *call) { return is(disc_rt_parameter(call, 0)); }, "no parameter 0"},
      {[&](disc_call *call) { return is(disc_rt_global(call, -1, 4)); }, "no global -1"},
      {[&](disc_call *call) { return is(disc_rt_global(call, 1, 4)); }, "no global 1"},
      {[&](disc_call *call) { return is(disc_rt_global(call, 0, -4)); }, "no global 0"},
      {[&](disc_call *call) { return is(disc_rt_global(call, 0, 4)); }, "global 0 was never filled"},
      {[&](disc_call *call) { return is(disc_rt_arena(call, 0, -1)); }, "no memory for temporaries of -1 bytes"},
      {[&](disc_call *call) { return is(disc_rt_arena(call, -1, 8)); }, "no memory for temporaries of 8 bytes"},
      {[&](disc_call *call) { return is(disc_rt_arena(call, 1 << 24, 8)); }, "no memory for temporaries of 8 bytes"},
      {[&](disc_call *call) { return is(disc_rt_slot(call, 0, -1, 0)); }, "no memory for a loop's tensor of -1 bytes"},
      {[&](disc_call *call) { return is(disc_rt_slot(call, -1, 8, 1)); }, "no memory for a loop's tensor of 8 bytes"},
      {[&](disc_call *call) { return is(disc_rt_slot(call, 0, INT64_MAX, 1)); },
       "no memory for a loop's tensor of 9223372036854775807 bytes"},
      {[&](disc_call *call) { return is(disc_rt_push(call, -1)); }, "no memory for temporaries of -1 bytes"},
      {[&](disc_call *call) { return is(disc_rt_push(call, int64_t(1) << 60)); },
       "no memory for temporaries of 1152921504606846976 bytes"},
      {[&](disc_call *call) { return is(disc_rt_output(call, 0, 1, nullptr)); }, "cannot make output 0"},
      {[&](disc_call *call) { return disc_rt_output_shape(call, 0, 0, nullptr); }, "cannot tell the shape of output 0"},
      {[&](disc_call *call) { return disc_rt_guard_failed(call, 3, 0, 0); },
       "guard 3 failed, which the model does not list"},
      {[&](disc_call *) { return 7; }, "the compiled code gave up with status 7"},
      {[&](disc_call *call) { return disc_rt_device_launch(call, 0, nullptr, 0, 1); },
       "the compiled code launches kernel 0 in 1 blocks, which its table does not have"},
      {[&](disc_call *call) { return disc_rt_device_copy(call, nullptr, nullptr, 4); },
       "the compiled code copies 4 bytes on no device"},
      {[&](disc_call *call) { return disc_rt_device_read(call, nullptr, nullptr, 4); },
       "the compiled code reads 4 bytes from no device"},
      {[&](disc_call *call) { return disc_rt_device_reduce(call, 0, 0, 0, nullptr, 2, 0, 1, 1, 1, 1); },
       "the compiled code reduces in parts without arguments for them"},
      {[&](disc_call *call) { return disc_rt_device_order(call, 0, 0, 0, nullptr, 3, 0, -1, 4, 1); },
       "the compiled code puts -1 rows of 4 things in order"},
      {[&](disc_call *call) { return disc_rt_device_call_host(call, nullptr, nullptr, 0, 0, 0, 1, 0, 0); },
       "the compiled code runs a kernel on the host beside no device"},
      {[&](disc_call *call) {
         disc_device_product product = {};
         return disc_rt_device_matmul(call, &product, nullptr, nullptr);
       },
       "the compiled code has a product of a kernel that is not in its table"},
  };
  for (const auto &row : table)
    CHECK_TEXT(said(row.body), row.message);
}

TEST(globalsOfInitAreThoseOfEveryCall) {
  disc_model_info_t info = blankInfo();
  info.num_globals = 2;
  Script script(info, {}, /*hasInit=*/true);
  CHECK(mentions(script.load([](disc_call *call) { return disc_rt_global(call, 0, int64_t(1) << 60) ? 0 : 1; }),
                 "no memory for a global of"));
  CHECK_TEXT(script.run({}), "the model is not loaded: it has no weights");
  CHECK_TEXT(Script::textOf(script.model->reset()), "the model is not loaded: it has no weights");
  // It has neither inputs nor outputs to ask for.
  CHECK_TEXT(script.load([](disc_call *call) { return disc_rt_output(call, 0, 0, nullptr) ? 0 : 1; }),
             "cannot make output 0");
  CHECK_TEXT(script.load([](disc_call *call) {
    CHECK(disc_rt_check_inputs(call) == 0);
    auto *data = static_cast<int64_t *>(disc_rt_global(call, 0, 8));
    *data = 42;
    return 0;
  }),
             "");
  CHECK_TEXT(script.run([](disc_call *call) {
    CHECK(*static_cast<int64_t *>(disc_rt_global(call, 0, 8)) == 42);
    return disc_rt_global(call, 0, 9) ? 0 : 1;
  }),
             "global 0 has 8 bytes, 9 are needed");
}

//===-- Inputs and outputs ------------------------------------------------===//

TEST(inputsWithoutMemory) {
  Script script(infoOf(2, twoInputs, 0));
  CHECK_TEXT(script.load(), "");
  auto run = [&](const Floats &x, const Floats &second) {
    return script.run(
        [](disc_call *call) {
          if (int32_t status = disc_rt_check_inputs(call))
            return status;
          return disc_rt_input(call, 0) && disc_rt_input(call, 1) ? 0 : 1;
        },
        {&x.tensor, &second.tensor});
  };
  Floats x({4}), other({4});
  CHECK_TEXT(run(x, other), "");
  other.tensor.data = nullptr;
  CHECK_TEXT(run(x, other), "input 1: its data is null");
  other.shape[0] = 0;
  CHECK_TEXT(run(x, other), ""); // an empty tensor may have none
  other.shape[0] = int64_t(1) << 60;
  other.setStrides({0}); // a copy would be larger than the address space
  other.tensor.data = other.data.data();
  CHECK_TEXT(run(x, other), "no memory for a contiguous copy of input 1");
  other.tensor.ndim = -1;
  CHECK_TEXT(run(x, other), "input 1: the tensor has no shape");
  other.tensor.ndim = 1;
  other.tensor.shape = nullptr;
  CHECK_TEXT(run(x, other), "input 1: the tensor has no shape");
}

TEST(updatedInputsAreWrittenWhereTheyAre) {
  Script script(infoOf(2, updatedInputs, 0));
  CHECK_TEXT(script.load(), "");
  auto run = [&](const DLTensor &x, const DLTensor &second) {
    return script.run(
        [](disc_call *call) {
          if (int32_t status = disc_rt_check_inputs(call))
            return status;
          int64_t n = disc_rt_extent(call, 0, 0);
          auto *data = static_cast<float *>(disc_rt_input(call, 0));
          for (int64_t i = 0; i < n; ++i)
            data[i] = float(-i);
          return 0;
        },
        {&x, &second});
  };
  Floats dense({4}), other({4});
  CHECK_TEXT(run(dense.tensor, other.tensor), "");
  CHECK(dense.data[3] == -3);
  // Strided, and at an address that is no multiple of 4: by way of a copy.
  Floats strided({8});
  strided.shape[0] = 3;
  strided.setStrides({2});
  CHECK_TEXT(run(strided.tensor, other.tensor), "");
  CHECK(strided.data[2] == -1 && strided.data[4] == -2 && strided.data[3] == 3);
  Floats odd({4}, 8);
  odd.tensor.byte_offset = 1;
  CHECK_TEXT(run(odd.tensor, other.tensor), "");
  float last;
  std::memcpy(&last, reinterpret_cast<char *>(odd.data.data()) + 13, 4);
  CHECK(last == -3);
  strided.setStrides({0});
  CHECK_TEXT(run(strided.tensor, other.tensor),
             "input 'x': it is updated in place, but a stride of 0 puts several elements at one place");
  CHECK_TEXT(run(dense.tensor, dense.tensor), "input 'x': it is updated in place, but overlaps input 1");
}

TEST(outputsOfTheCallers) {
  Script script(infoOf(1, twoInputs, 2));
  CHECK_TEXT(script.load(), "");
  Floats x({4});
  /// y = 0, 1, 2, ... and z = 0, -1, -2, ... of `n` elements.
  auto run = [&](DLTensor *y, DLTensor *z, int64_t n = 4) {
    std::vector<disc_output> list = {{y, nullptr}, {z, nullptr}};
    std::string text = script.run(
        [&](disc_call *call) {
          if (int32_t status = disc_rt_check_inputs(call))
            return status;
          auto *first = static_cast<float *>(disc_rt_output(call, 0, 1, &n));
          auto *second = static_cast<float *>(first ? disc_rt_output(call, 1, 1, &n) : nullptr);
          if (!second)
            return 1;
          for (int64_t i = 0; i < n; ++i)
            first[i] = float(i), second[i] = float(-i);
          return 0;
        },
        {&x.tensor}, &list);
    for (disc_output &output : list)
      if (output.managed)
        output.managed->deleter(output.managed);
    return text;
  };
  Floats y({4}), z({4}), wide({8});
  CHECK_TEXT(run(&y.tensor, &z.tensor), "");
  CHECK(y.data[3] == 3 && z.data[3] == -3);
  wide.shape[0] = 4;
  wide.setStrides({2});
  CHECK_TEXT(run(&wide.tensor, nullptr), "");
  CHECK(wide.data[6] == 3 && wide.data[7] == 7);
  CHECK_TEXT(run(nullptr, &y.tensor, 3), "output 1, dim 0: expected 3, got 4");
  CHECK_TEXT(run(&y.tensor, &y.tensor), "output 1 overlaps output 'y'");
  CHECK_TEXT(run(&x.tensor, nullptr), "output 'y' overlaps input 'x'");
  Floats none({4});
  none.tensor.ndim = -1;
  CHECK_TEXT(run(nullptr, &none.tensor), "output 1: the tensor has no shape");
  none.tensor.ndim = 1;
  none.tensor.shape = nullptr;
  CHECK_TEXT(run(nullptr, &none.tensor), "output 1: the tensor has no shape");
  none.tensor.shape = none.shape.data();
  none.shape[0] = -4;
  CHECK_TEXT(run(nullptr, &none.tensor), "output 1, dim 0: expected an extent of at least 0, got -4");
  // An output that is made twice, not at all, or larger than memory.
  auto twice = [&](disc_call *call) {
    const int64_t n = 1;
    return disc_rt_output(call, 0, 1, &n) && disc_rt_output(call, 0, 1, &n) ? 0 : 1;
  };
  std::vector<disc_output> list(2);
  CHECK_TEXT(script.run(twice, {&x.tensor}, &list), "cannot make output 0");
  CHECK_TEXT(script.run([](disc_call *) { return 0; }, {&x.tensor}, &list), "the compiled code made no output 0");
  CHECK_TEXT(script.run(
                 [](disc_call *call) {
                   const int64_t huge = INT64_MAX;
                   return disc_rt_output(call, 1, 1, &huge) ? 0 : 1;
                 },
                 {&x.tensor}, &list),
             "no memory for output 1 of shape [9223372036854775807]");
  CHECK_TEXT(script.run(
                 [](disc_call *call) {
                   const int64_t n = 1, less = -1;
                   return disc_rt_output(call, 0, 1, &n) && disc_rt_output(call, 1, 1, &less) ? 0 : 1;
                 },
                 {&x.tensor}, &list),
             "output 1 would have the shape [-1]: the inputs are too small for the model");
  // Too many elements for the caller's tensor, whose byte range is fine: all its strides are 0.
  std::vector<int64_t *> shapes(2);
  CHECK_TEXT(
      script.shapes([](disc_call *call) { return disc_rt_output(call, 0, 0, nullptr) ? 0 : 1; }, {&x.tensor}, shapes),
      "cannot make output 0");
  CHECK_TEXT(script.shapes([](disc_call *call) { return disc_rt_input(call, 0) ? 0 : 1; }, {&x.tensor}, shapes),
             "no input 0");
  CHECK_TEXT(script.shapes(
                 [](disc_call *call) {
                   const int64_t n = 1;
                   (void)disc_rt_output_shape(call, 0, 1, &n);
                   return disc_rt_output_shape(call, 0, 1, &n);
                 },
                 {&x.tensor}, shapes),
             "cannot tell the shape of output 0");
  CHECK_TEXT(
      script.shapes([](disc_call *call) { return disc_rt_output_shape(call, 0, 2, nullptr); }, {&x.tensor}, shapes),
      "cannot tell the shape of output 0");
  CHECK_TEXT(script.shapes([](disc_call *) { return 0; }, {&x.tensor}, shapes), "the compiled code made no output 0");
}

// Of an output's dims that are static, those of the caller's tensor are known to be wrong before the run.
TEST(outputsOfStaticExtents) {
  static const disc_dim_info dims[] = {{3, "3", 3, 3}};
  static const disc_tensor_info outputs[] = {{"y", DISC_F32, 1, dims, 0}};
  disc_model_info_t info = infoOf(0, nullptr, 1);
  info.outputs = outputs;
  Script script(info);
  CHECK_TEXT(script.load(), "");
  Floats y({4});
  std::vector<disc_output> list = {{&y.tensor, nullptr}}, none(1);
  CHECK_TEXT(script.run([](disc_call *call) { return disc_rt_check_inputs(call); }, {}, &list),
             "output 'y', dim 0: expected 3, got 4");
  const int64_t extents[] = {3, 3};
  for (auto request : {std::pair<int64_t, int64_t>{-1, 1}, {1, 1}, {0, 2}}) {
    const int64_t index = request.first, rank = request.second;
    const std::string number = std::to_string(index);
    CHECK_TEXT(
        script.run([&](disc_call *call) { return disc_rt_output(call, index, rank, extents) ? 0 : 1; }, {}, &none),
        "cannot make output " + number);
    std::vector<int64_t *> shapes(1);
    CHECK_TEXT(
        script.shapes([&](disc_call *call) { return disc_rt_output_shape(call, index, rank, extents); }, {}, shapes),
        "cannot tell the shape of output " + number);
  }
  CHECK_TEXT(Script::textOf(script.model->run(nullptr, 0, nullptr, 1)), "the array of outputs is null");
  // More elements than there are addresses, or than there is memory for, of a tensor that is not dense.
  static const disc_dim_info unknown[] = {{DISC_DATA_DEPENDENT, "k", 0, DISC_UNBOUNDED}};
  static const disc_tensor_info open[] = {{"y", DISC_F32, 1, unknown, 0}};
  info.outputs = open;
  Script dependent(info);
  CHECK_TEXT(dependent.load(), "");
  Floats wide({int64_t(1)});
  wide.shape[0] = int64_t(1) << 55;
  wide.setStrides({2});
  list = {{&wide.tensor, nullptr}};
  CHECK_TEXT(dependent.run(
                 [](disc_call *call) {
                   const int64_t k = int64_t(1) << 54;
                   return disc_rt_output(call, 0, 1, &k) ? 0 : 1;
                 },
                 {}, &list),
             "no memory for output 'y' before it is scattered");
}

TEST(runsNeedTheirArrays) {
  Script script(infoOf(1, twoInputs, 1));
  const DLTensor *input = nullptr;
  disc_output output = {};
  int64_t *shape = nullptr;
  Model &model = *script.model;
  auto text = [](const Status &status) { return Script::textOf(status); };
  CHECK_TEXT(text(model.run(&input, 2, &output, 1)), "expected 1 tensor inputs, got 2");
  CHECK_TEXT(text(model.run(&input, 1, &output, 0)), "expected 1 outputs, got 0");
  CHECK_TEXT(text(model.run(nullptr, 1, &output, 1)), "the array of inputs is null");
  CHECK_TEXT(text(model.run(&input, 1, nullptr, 1)), "the array of outputs is null");
  CHECK_TEXT(text(model.run(&input, 1, &output, 1, &output)), "the model runs on the CPU, which has no streams");
  CHECK_TEXT(text(model.synchronize(&output)), "the model runs on the CPU, which has no streams");
  CHECK_TEXT(text(model.synchronize(nullptr)), "");
  CHECK_TEXT(text(model.outputShapes(&input, 1, &shape, 1)), "the model is not loaded: it has no weights");
  CHECK_TEXT(text(model.outputShapes(&input, 1, nullptr, 1)), "the array of outputs is null");
  std::unique_ptr<Model> mute;
  CHECK(Model::create({&script.info, nullptr, script.model->program().main, nullptr}, {}, mute).ok());
  CHECK_TEXT(text(mute->outputShapes(&input, 1, &shape, 1)),
             "the model was compiled without the function that computes output shapes");
  CHECK_TEXT(script.load(), "");
  CHECK_TEXT(script.run({}, {nullptr}, nullptr), "expected 1 outputs, got 0");
  std::vector<disc_output> list(1);
  CHECK_TEXT(script.run([](disc_call *call) { return disc_rt_check_inputs(call); }, {nullptr}, &list),
             "input 'x': the tensor is null");
  disc_model_info_t old = script.info;
  old.version = 1;
  CHECK_TEXT(text(Model::create({&old, nullptr, nullptr, nullptr}, {}, mute)),
             "the model's table has version 1, this runtime reads version 9");
  ModelOptions options;
  options.threads = 100000;
  CHECK(mentions(text(Model::create({&script.info, nullptr, nullptr, nullptr}, options, mute)), "threads, got 100000"));
}

// A strided input is repeated along a dim by a stride of 0; the others keep theirs.
TEST(stridedInputsAreRepeated) {
  static const disc_dim_info rows[] = {{DISC_DYNAMIC, "b", 0, 64}, {DISC_DYNAMIC, "b", 0, 64}, {2, "2", 2, 2}};
  static const disc_tensor_info table[] = {{"x", DISC_F32, 3, rows, 0}};
  static const disc_repeat_info repeats[] = {{0, 0, 0, 1}, {0, 0, 1, 1}};
  disc_model_info_t info = infoOf(1, table, 0);
  info.num_repeats = 2;
  info.repeats = repeats;
  Script script(info);
  CHECK_TEXT(script.load(), "");
  auto run = [&](const Floats &x, int64_t extent, std::vector<float> expected) {
    CHECK_TEXT(script.run(
                   [&](disc_call *call) {
                     if (int32_t status = disc_rt_check_inputs(call))
                       return status;
                     CHECK(disc_rt_extent(call, 0, 0) == extent && disc_rt_extent(call, 0, 1) == extent);
                     auto *data = static_cast<float *>(disc_rt_input(call, 0));
                     CHECK(std::equal(expected.begin(), expected.end(), data));
                     return 0;
                   },
                   {&x.tensor}),
               "");
  };
  Floats one({1, 1, 2}), row({1, 2, 2}), column({2, 1, 2}, 16);
  run(one, 1, {0, 1});
  run(row, 2, {0, 1, 2, 3, 0, 1, 2, 3});
  column.setStrides({5, 3, 2});
  run(column, 2, {0, 2, 0, 2, 5, 7, 5, 7});
}

//===-- Kernels that fail, loops, procedures ------------------------------===//

static disc_call *failing = nullptr;

TEST(failuresOfKernelsAreNamedOnce) {
  const struct {
    disc_kernel_fn kernel;
    const char *message;
  } table[] = {
      {[](void *const *, int64_t, int64_t, void *) {
         disc_rt_function_at(failing, disc_rt_function_failed(failing, DISC_ERROR_TYPE, "no such type"),
                             "sort at m.py:1");
       },
       "sort at m.py:1: no such type"},
      {[](void *const *, int64_t, int64_t, void *) { disc_rt_function_at(failing, DISC_ERROR_TYPE, "sort at m.py:1"); },
       "sort at m.py:1: failed"},
      {[](void *const *, int64_t, int64_t, void *) {
         disc_rt_index_failed(failing, "index at m.py:2", 7, 5);
         // What comes after is not told.
         disc_rt_index_failed(failing, "index at m.py:3", 8, 5);
         disc_rt_function_at(failing, disc_rt_function_failed(failing, DISC_ERROR_TYPE, "no"), "sort at m.py:1");
       },
       "index at m.py:2: index 7 is out of range for a dimension of extent 5"},
  };
  for (const auto &row : table) {
    bool failed = false;
    CHECK_TEXT(said([&](disc_call *call) {
                 failing = call;
                 int32_t status = disc_rt_parallel_for(call, row.kernel, nullptr, 1, 0, 0);
                 failed = status != 0;
                 return status;
               }),
               row.message);
    CHECK(failed);
  }
}

TEST(launchesWithoutTasksOrMemory) {
  static std::atomic<int64_t> ran{0};
  auto kernel = [](void *const *, int64_t begin, int64_t end, void *) { ran += end - begin; };
  auto launch = [&](int64_t tasks, int64_t scratch, int64_t cost = 0) {
    return [=](disc_call *call) { return disc_rt_parallel_for(call, kernel, nullptr, tasks, cost, scratch); };
  };
  ModelOptions options, foreign;
  options.threads = foreign.threads = 3;
  foreign.parallelFor = [](void *, int64_t ranges, disc_task_fn run, void *job) {
    for (int64_t i = 0; i < ranges; ++i)
      run(job, i, i + 1);
  };
  for (const ModelOptions &with : {options, foreign}) {
    ran = 0;
    CHECK_TEXT(said(launch(0, 0), with), "");
    CHECK_TEXT(said(launch(-5, 0), with), "");
    CHECK(ran == 0);
    CHECK_TEXT(said(launch(10, 100), with), "");
    CHECK_TEXT(said(launch(1000, 100, 1000000), with), "");
    // Costs whose sum is beyond 64 bits are still costs.
    CHECK_TEXT(said(launch(1000, 0, INT64_MAX), with), "");
    CHECK(ran == 2010);
    for (int64_t cost : {0, 1000000})
      for (int64_t scratch : {int64_t(-1), int64_t(1) << 60})
        CHECK(mentions(said(launch(10, scratch, cost), with), "no memory for scratch of"));
  }
  // Ranges that the host program runs wrongly.
  foreign.parallelFor = [](void *, int64_t ranges, disc_task_fn run, void *job) { run(job, 1, ranges + 1); };
  CHECK(mentions(said(launch(1000, 0, 1000000), foreign), "parallel_for must run each of 3 ranges once, but ran 0"));
  foreign.parallelFor = [](void *, int64_t, disc_task_fn run, void *job) { run(job, 2, 1); };
  CHECK(mentions(said(launch(1000, 0, 1000000), foreign), "but ran 0"));
  foreign.parallelFor = [](void *, int64_t ranges, disc_task_fn run, void *job) {
    run(job, 0, ranges);
    run(job, 0, 0);                        // nothing to do
    run(job, 0, -1 + ranges - ranges + 0); // and less
  };
  CHECK(mentions(said(launch(1000, 0, 1000000), foreign), "ranges once, but ran 3"));
}

TEST(profilesOfLaunches) {
  Script script(blankInfo());
  CHECK_TEXT(script.load(), "");
  CHECK(script.model->startProfile().ok());
  CHECK_TEXT(script.run([](disc_call *call) {
    auto kernel = [](void *const *, int64_t, int64_t, void *) {};
    (void)disc_rt_parallel_for(call, kernel, nullptr, 4, 0, 0);
    return disc_rt_parallel_for(call, kernel, nullptr, 2, 0, 0);
  }),
             "");
  std::vector<LaunchRecord> launches;
  CHECK(script.model->stopProfile(launches).ok() && launches.size() == 2);
  CHECK(launches[0].tasks == 4 && launches[1].tasks == 2 && launches[0].beginNs <= launches[0].endNs);
}

// The host is asked once polls are some milliseconds apart, or behind a kernel that takes that long.
TEST(runsAreCancelledByTheHost) {
  static int asked = 0, answer = 0;
  ModelOptions options;
  options.interrupted = [](void *) -> int { return ++asked > 1 ? answer : 0; };
  auto loop = [](disc_call *call) {
    for (;;)
      if (int32_t status = disc_rt_poll(call))
        return status;
  };
  answer = 1;
  asked = 0;
  CHECK_TEXT(said(loop, options), "the run was cancelled by the host program (disc_options.interrupted)");
  CHECK(asked == 2);
  asked = 0;
  auto kernels = [](disc_call *call) {
    auto nothing = [](void *const *, int64_t, int64_t, void *) {};
    CHECK(disc_rt_parallel_for(call, nothing, nullptr, 0, 1'000'000'000, 0) == 0);
    CHECK(disc_rt_parallel_for(call, nothing, nullptr, 1, 10, 0) == 0);
    CHECK(asked == 0 && call->stepsToPoll == 0);
    for (;;)
      if (int32_t status = disc_rt_parallel_for(call, nothing, nullptr, 1, 1'000'000'000, 0))
        return status;
  };
  CHECK_TEXT(said(kernels, options), "the run was cancelled by the host program (disc_options.interrupted)");
  CHECK(asked == 2);
  // Without such a function, compiled code is told not to ask.
  CHECK_TEXT(said([](disc_call *call) {
               CHECK(disc_rt_poll(call) == 0);
               CHECK(call->stepsToPoll == INT64_MAX);
               return 0;
             }),
             "");
}

static int64_t deepest = 0;
// Without sanitizers: their stacks of their own make it slow. ThreadSanitizer's has room for 65,536 calls, so that
// frames are large.
__attribute__((no_sanitize("address", "thread"))) static int32_t recurse(disc_call *call) {
  int64_t mark = -1, first = disc_rt_enter(call, 2, &mark);
  if (first < 0)
    return 1;
  ++deepest;
  if (deepest < 3 && !disc_rt_slot(call, first + 1, 100, 0))
    return 1;
  char frame[32768] = "";
  asm volatile("" : : "r"(frame) : "memory"); // all of it stays
  return recurse(call) + frame[0];
}

TEST(procedures) {
  Script script(blankInfo());
  CHECK_TEXT(script.load(), "");
  for (int again = 0; again < 2; ++again) { // slots that the error left are gone then
    deepest = 0;
    std::string text = script.run([](disc_call *call) { return disc_rt_on_stack(call, recurse); });
    CHECK(deepest > 100);
    CHECK(
        mentions(text, "recursion is too deep: " + std::to_string(deepest) + " activations have used up the stack of"));
  }
  // An activation's memory and slots are its own, and free when it ends.
  CHECK_TEXT(script.run([](disc_call *call) {
    return disc_rt_on_stack(call, [](disc_call *inner) {
      int64_t outerMark = -1, innerMark = -1;
      int64_t outer = disc_rt_enter(inner, 1, &outerMark);
      auto *kept = static_cast<int64_t *>(disc_rt_push(inner, 8));
      *kept = 5;
      int64_t next = disc_rt_enter(inner, 3, &innerMark);
      CHECK(next == outer + 1 && innerMark > outerMark);
      void *slot = disc_rt_slot(inner, next, 64, 0), *pushed = disc_rt_push(inner, 64);
      CHECK(slot && pushed);
      disc_rt_leave(inner, next, innerMark);
      CHECK(disc_rt_enter(inner, 1, &innerMark) == next);
      CHECK(disc_rt_push(inner, 64) == pushed && *kept == 5);
      int64_t here = disc_rt_mark(inner);
      CHECK(disc_rt_push(inner, 64) != pushed);
      disc_rt_pop(inner, here);
      disc_rt_leave(inner, next, innerMark);
      disc_rt_leave(inner, outer, outerMark);
      CHECK(disc_rt_mark(inner) == outerMark);
      return int32_t(0);
    });
  }),
             "");
}
