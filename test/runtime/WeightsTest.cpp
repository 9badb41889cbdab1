//===- WeightsTest.cpp - where a model's weights come from ----------------===//

#include "Check.h"
#include "HandModel.h"

#include <cstring>

using namespace disc::test;

/// What the model computes for x = 1: w + 2 * w. Negative if it fails.
static float factor(disc_model *model) {
  Floats x({1, 2});
  Longs mask({1, 3});
  x.data = {1, 1};
  Floats y({1, 2});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output output = {&y.tensor, nullptr};
  return disc_run(model, list, 2, &output, 1) == DISC_OK ? y.data[0] / 3 : -1;
}

static disc_model *open(const Library &library, const char *weights = nullptr, uint32_t flags = 0) {
  disc_options options = disc_default_options();
  options.weights = weights;
  options.flags = flags;
  disc_model *model = nullptr;
  CHECK((disc_open(&library.library, &options, &model) == DISC_OK) == (model != nullptr));
  return model;
}

static void refuses(const Library &library, const std::string &weights, disc_status code, const std::string &message,
                    uint32_t flags = 0) {
  disc_options options = disc_default_options();
  options.weights = weights.empty() ? nullptr : weights.c_str();
  options.flags = flags;
  disc_model *model = nullptr;
  CHECK(disc_open(&library.library, &options, &model) == code && !model);
  CHECK_TEXT(disc_last_error(), message);
}

TEST(weightsEmbedded) {
  auto library = scaleLibrary(3);
  int before = scaleInits();
  disc_model *model = open(*library);
  CHECK(factor(model) == 3 && scaleInits() == before + 1);
  disc_free(model);
  library->library.weights_bytes -= 1;
  refuses(
      *library, "", DISC_ERROR_FILE,
      "the weights in library 'hand': tensor 'scale': data_offsets [0, 4] are beyond the end of the data (3 bytes)");
}

TEST(weightsPacked) {
  auto library = scaleLibrary(3, /*packed=*/true);
  int before = scaleInits();
  disc_model *model = open(*library);
  CHECK(factor(model) == 3 && scaleInits() == before);
  // Swapped weights are not packed yet.
  std::string path = temporaryPath("swap.safetensors");
  writeFile(path, scaleWeights(5));
  CHECK(disc_swap_weights(model, path.c_str()) == DISC_OK);
  CHECK(factor(model) == 5 && scaleInits() == before + 1);
  disc_free(model);
  library->variant.cpu = "other";
  refuses(*library, "", DISC_ERROR_WEIGHTS, "the weights in library 'hand': there is no 'disc.packed.other.0'");
}

TEST(weightsPackedOfTheWrongSize) {
  std::vector<StoredData> data = {{"disc.packed.test.0", "U8", {2}, "xy"}, {"scale", "F32", {1}, bytesOf({1})}};
  Library library(kScaleInfo, scaleInit, scaleMain, scaleShapes, data);
  library.variant.packed = 1;
  disc_model *model = open(library);
  CHECK(factor(model) == -1);
  CHECK_TEXT(disc_last_error(), "global 0 has 2 bytes, 4 are needed");
  disc_free(model);
}

TEST(weightsFromAFile) {
  for (bool packed : {false, true}) {
    auto library = scaleLibrary(3, packed, "beside.safetensors");
    std::string right = temporaryPath("right.safetensors"), wrong = temporaryPath("wrong.safetensors");
    writeFile(right, safetensors(library->data));
    library->data.back().bytes = bytesOf({4});
    writeFile(wrong, safetensors(library->data));
    disc_model *model = open(*library, right.c_str());
    CHECK(factor(model) == 3);
    disc_free(model);
    refuses(*library, wrong, DISC_ERROR_WEIGHTS,
            wrong + ": 'scale' has other contents than the library was compiled with");
    model = open(*library, wrong.c_str(), DISC_TRUST_FILES);
    CHECK(factor(model) > 3);
    disc_free(model);
  }
}

TEST(weightsBesideTheProgram) {
  // disc_open looks in the folder of the file that the descriptor lies in. Ours is on the heap, so: here.
  auto library = scaleLibrary(3, false, "no-such-file.safetensors");
  refuses(*library, "", DISC_ERROR_FILE, "./no-such-file.safetensors: cannot open: No such file or directory");
}

TEST(weightsThatAreNotTheModels) {
  auto library = scaleLibrary(3, false, "beside.safetensors");
  std::string path = temporaryPath("w.safetensors");
  auto refusesFile = [&](const std::string &bytes, disc_status code, const std::string &message) {
    writeFile(path, bytes);
    refuses(*library, path, code, path + ": " + message, DISC_TRUST_FILES);
  };
  refusesFile(safetensors({{"other", "F32", {1}, bytesOf({1})}}), DISC_ERROR_WEIGHTS, "there is no 'scale'");
  refusesFile(safetensors({{"scale", "F32", {1, 1}, bytesOf({1})}}), DISC_ERROR_WEIGHTS,
              "'scale': expected float32 [1], got float32 [1, 1]");
  refusesFile(safetensors({{"scale", "I32", {1}, bytesOf({1})}}), DISC_ERROR_WEIGHTS,
              "'scale': expected float32 [1], got int32 [1]");
  refusesFile("nonsense", DISC_ERROR_FILE, "not a safetensors file: a header of 7310308002159816558 bytes");
  // Tensors that the model does not know are no harm.
  writeFile(path, safetensors({{"other", "F32", {1}, bytesOf({1})}, {"scale", "F32", {1}, bytesOf({7})}}));
  disc_model *model = open(*library, path.c_str(), DISC_TRUST_FILES);
  CHECK(factor(model) == 7);
  disc_free(model);
}

TEST(weightsAreAlignedWhereTheFileIsNot) {
  auto library = scaleLibrary(3, false, "beside.safetensors");
  std::string path = temporaryPath("odd.safetensors");
  writeFile(path, safetensors({{"odd", "U8", {1}, "x"}, {"scale", "F32", {1}, bytesOf({3})}}));
  disc_model *model = open(*library, path.c_str());
  CHECK(factor(model) == 3);
  disc_free(model);
}

TEST(manyMissingWeights) {
  static const int64_t shape[] = {1};
  std::vector<std::string> names;
  std::vector<disc_parameter_info> parameters;
  for (int i = 0; i < 20; ++i)
    names.push_back("p" + std::to_string(i));
  for (const std::string &name : names)
    parameters.push_back({name.c_str(), DISC_F32, 1, shape, 1, 0});
  disc_model_info_t info = kScaleInfo;
  info.num_parameters = 20;
  info.parameters = parameters.data();
  Library library(info, scaleInit, scaleMain, scaleShapes, {{"p3", "F32", {1}, bytesOf({1})}});
  refuses(library, "", DISC_ERROR_WEIGHTS,
          "the weights in library 'hand': there is no 'p0'; there is no 'p1'; there is no 'p2'; there is no 'p4'; "
          "there is no 'p5'; and 14 more");
}

TEST(swapKeepsTheOldWeightsOnFailure) {
  auto library = scaleLibrary(3);
  disc_model *model = open(*library);
  std::string path = temporaryPath("bad.safetensors");
  writeFile(path, safetensors({{"scale", "F32", {2}, bytesOf({1, 2})}}));
  CHECK(disc_swap_weights(model, path.c_str()) == DISC_ERROR_WEIGHTS);
  CHECK(disc_swap_weights(model, "/no/such/file") == DISC_ERROR_FILE);
  CHECK(disc_swap_weights(model, nullptr) == DISC_ERROR_INVALID);
  CHECK(factor(model) == 3);
  for (float w : {4.f, 5.f, 6.f}) {
    writeFile(path, scaleWeights(w));
    CHECK(disc_swap_weights(model, path.c_str()) == DISC_OK);
    CHECK(factor(model) == w);
  }
  disc_free(model);
}

/// scale, of which a run doubles the parameter.
static int32_t doublingMain(disc_call *call) {
  auto *w = static_cast<float *>(disc_rt_parameter(call, 0));
  if (!w)
    return 1;
  *w *= 2;
  return scaleMain(call);
}

// A model's state begins with what the file has, each model's its own, and does so again after a reset.
TEST(stateIsOfEachModel) {
  static const int64_t shape[] = {1};
  static const disc_parameter_info state[] = {{"scale", DISC_F32, 1, shape, 1, 1}};
  disc_model_info_t info = kScaleInfo;
  info.parameters = state;
  Library library(info, scaleInit, doublingMain, scaleShapes, {{"scale", "F32", {1}, bytesOf({3})}});
  disc_model *first = open(library), *second = open(library);
  // w doubles with each run; g, which init made, does not.
  CHECK(factor(first) * 3 == 12 && factor(first) * 3 == 18);
  CHECK(factor(second) * 3 == 12);
  CHECK(disc_reset(first) == DISC_OK && factor(first) * 3 == 12);
  CHECK(factor(second) * 3 == 18);
  disc_free(first);
  disc_free(second);
}

static const int64_t kOne[] = {1};
static const disc_parameter_info kCount[] = {{"scale", DISC_F32, 1, kOne, 1, 1}};

// A file has the state of one model, and of its random numbers; another model goes on from there.
TEST(stateInFiles) {
  disc_model_info_t info = kScaleInfo;
  info.parameters = kCount;
  Library library(info, scaleInit, doublingMain, scaleShapes, {{"scale", "F32", {1}, bytesOf({3})}});
  disc_model *first = open(library), *second = open(library);
  std::string path = temporaryPath("state.safetensors");
  CHECK(factor(first) * 3 == 12 && disc_seed(first, 7) == DISC_OK);
  CHECK(disc_save_state(first, path.c_str()) == DISC_OK);
  CHECK(factor(first) * 3 == 18);
  CHECK(disc_load_state(second, path.c_str()) == DISC_OK && factor(second) * 3 == 18);
  CHECK(disc_load_state(first, path.c_str()) == DISC_OK && factor(first) * 3 == 18);
  // It replaces a file, or leaves it as it is.
  CHECK(disc_save_state(second, path.c_str()) == DISC_OK);
  CHECK(disc_reset(first) == DISC_OK && disc_load_state(first, path.c_str()) == DISC_OK && factor(first) * 3 == 30);
  std::string nowhere = temporaryPath("no/state.safetensors");
  CHECK(disc_save_state(first, nowhere.c_str()) == DISC_ERROR_FILE);
  CHECK_TEXT(disc_last_error(), nowhere + ": cannot create: No such file or directory");
  CHECK(disc_load_state(first, nowhere.c_str()) == DISC_ERROR_FILE);
  CHECK(disc_save_state(first, nullptr) == DISC_ERROR_INVALID && disc_load_state(first, nullptr) == DISC_ERROR_INVALID);
  auto refused = [&](std::vector<StoredData> tensors, const std::string &what) {
    writeFile(path, safetensors(tensors));
    CHECK(disc_load_state(first, path.c_str()) == DISC_ERROR_WEIGHTS);
    CHECK_TEXT(disc_last_error(), path + what);
  };
  refused({{"other", "F32", {1}, bytesOf({3})}}, ": there is no 'scale'");
  refused({{"scale", "F32", {2}, bytesOf({3, 3})}}, ": 'scale': expected float32 [1], got float32 [2]");
  refused({{"disc.random", "F32", {1}, bytesOf({3})}, {"scale", "F32", {1}, bytesOf({3})}},
          ": 'disc.random' is not two numbers of type uint64");
  CHECK(factor(first) * 3 == 54);
  disc_free(first);
  disc_free(second);
}

TEST(stateInMemory) {
  disc_model_info_t info = kScaleInfo;
  info.parameters = kCount;
  Library library(info, scaleInit, doublingMain, scaleShapes, {{"scale", "F32", {1}, bytesOf({3})}});
  disc_model *model = open(library);
  float value = 0;
  CHECK(disc_read_state(model, 0, &value, sizeof(value)) == DISC_OK && value == 3);
  value = 5;
  CHECK(disc_write_state(model, 0, &value, sizeof(value)) == DISC_OK && factor(model) * 3 == 16);
  CHECK(disc_read_state(model, 0, &value, sizeof(value)) == DISC_OK && value == 10);
  CHECK(disc_read_state(model, 1, &value, sizeof(value)) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "there is no parameter 1: the model has 1");
  CHECK(disc_write_state(model, 0, &value, 8) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "parameter 'scale': expected 4 bytes, got 8");
  CHECK(disc_read_state(model, 0, nullptr, 4) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "parameter 'scale': the place for its data is null");
  disc_free(model);
  auto fixed = scaleLibrary(3);
  model = open(*fixed);
  CHECK(disc_read_state(model, 0, &value, sizeof(value)) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "parameter 'scale' is not state: runs do not update it");
  disc_free(model);
}

TEST(weightsWhoseHashesAreNotThere) {
  auto library = scaleLibrary(3, /*packed=*/true, "beside.safetensors");
  std::string path = temporaryPath("hashes.safetensors");
  writeFile(path, safetensors(library->data));
  for (const char *other : {"a", "z"}) { // before all names, and behind
    library->tensors[1].name = other;
    refuses(*library, path, DISC_ERROR_WEIGHTS, path + ": the library records no hash of 'scale'");
  }
  library->library.num_tensors = 0;
  refuses(*library, path, DISC_ERROR_WEIGHTS,
          path + ": the library records no hash of 'scale'; the library records no hash of 'disc.packed.test.0'");
}

TEST(packedWeightsAreBytes) {
  auto library = scaleLibrary(3, /*packed=*/true, "beside.safetensors");
  std::string path = temporaryPath("packed.safetensors");
  auto refusesPacked = [&](StoredData packed, const std::string &got) {
    writeFile(path, safetensors({{"scale", "F32", {1}, bytesOf({3})}, std::move(packed)}));
    refuses(*library, path, DISC_ERROR_WEIGHTS, path + ": 'disc.packed.test.0': expected bytes, got " + got,
            DISC_TRUST_FILES);
  };
  refusesPacked({"disc.packed.test.0", "F32", {1}, bytesOf({6})}, "float32 [1]");
  refusesPacked({"disc.packed.test.0", "U8", {2, 2}, "abcd"}, "uint8 [2, 2]");
}

// What init alone reads is neither needed nor compared where packed weights are there; else it is let go of afterwards.
TEST(weightsForInitAlone) {
  static const int64_t shape[] = {1};
  static const disc_parameter_info unused[] = {{"scale", DISC_F32, 1, shape, 1, 0}, {"raw", DISC_F32, 1, shape, 0, 0}};
  disc_model_info_t info = kScaleInfo;
  info.num_parameters = 2;
  info.parameters = unused;
  const StoredData scale = {"scale", "F32", {1}, bytesOf({3})}, raw = {"raw", "F32", {1}, bytesOf({1})},
                   packed = {"disc.packed.test.0", "U8", {64}, bytesOf({6}) + std::string(60, '\0')};
  std::string path = temporaryPath("unused.safetensors");
  for (bool isPacked : {false, true})
    for (bool hasRaw : {false, true}) {
      std::vector<StoredData> data = {scale};
      if (isPacked)
        data.push_back(packed);
      if (hasRaw)
        data.push_back(raw);
      Library library(info, scaleInit, scaleMain, scaleShapes, data, "beside.safetensors");
      library.variant.packed = isPacked;
      writeFile(path, safetensors(data));
      if (!isPacked && !hasRaw) {
        refuses(library, path, DISC_ERROR_WEIGHTS, path + ": there is no 'raw'");
        continue;
      }
      disc_model *model = open(library, path.c_str());
      CHECK(factor(model) == 3);
      disc_free(model);
    }
}

TEST(modelsAreOpenedAsOptionsSay) {
  auto library = scaleLibrary(3);
  disc_options options = disc_default_options();
  options.device = -1;
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, &options, &model) == DISC_ERROR_INVALID && !model);
  // A library that calls its own runtime with a descriptor of another version.
  library->library.version += 1;
  CHECK(disc_rt_api.open(&library->library, nullptr, nullptr, &model) == DISC_ERROR_VERSION && !model);
}
