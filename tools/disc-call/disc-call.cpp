//===- disc-call.cpp - runs a compiled library on tensors from files ------===//
//
//   disc-call libminilm.so inputs.safetensors outputs.safetensors [INPUTS OUTPUTS ...]
//   disc-call libminilm.so --threads 2 < lines of INPUTS<tab>OUTPUTS
//
// Inputs are found by their names; outputs, and inputs that the model updates, are written by theirs. Without files it
// serves: of each line it answers a line of JSON, {"status": "DISC_OK"} or what disc_last_error_details says. One start
// is then enough for many calls, which is what counts under an emulator. It needs a machine's C and C++ libraries
// alone.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Safetensors.h"
#include "lib/Runtime/disc.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rt = disc::rt;
using Json = nlohmann::ordered_json;

namespace {
/// What a call may end with: "" or a description for the caller.
struct Outcome {
  bool ok() const { return description.empty(); }
  Json description;
};
} // namespace

static Outcome failed(const std::string &message) {
  return {Json{{"status", "DISC_ERROR_FILE"}, {"message", message}}};
}

static Outcome lastError() {
  disc_error error = {};
  error.size = sizeof(error);
  disc_last_error_details(&error);
  return {Json{{"status", disc_status_name(error.status)},
               {"message", error.message},
               {"input", error.input},
               {"dim", error.dim},
               {"symbol", error.symbol},
               {"expected", error.expected},
               {"got", error.got}}};
}

static int64_t bytesOf(const DLTensor &tensor) {
  int64_t count = (tensor.dtype.bits + 7) / 8;
  for (int32_t d = 0; d < tensor.ndim; ++d)
    count *= tensor.shape[d];
  return count;
}

/// The names of inputs or outputs, and which of them a run updates.
template <typename Describe>
static std::vector<disc_tensor_spec> specs(const disc_model *model, int64_t count, Describe describe) {
  std::vector<disc_tensor_spec> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].size = sizeof(disc_tensor_spec);
    describe(model, int64_t(i), &result[i]);
  }
  return result;
}

static Outcome write(const std::string &path, const std::vector<std::pair<std::string, const DLTensor *>> &tensors) {
  Json header = Json::object();
  int64_t offset = 0;
  for (const auto &[name, tensor] : tensors) {
    int64_t end = offset + bytesOf(*tensor);
    header[name] = {{"dtype", rt::storedTypeName(tensor->dtype.code << 8 | tensor->dtype.bits)},
                    {"shape", std::vector<int64_t>(tensor->shape, tensor->shape + tensor->ndim)},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char *>(&length), sizeof(length)).write(text.data(), std::streamsize(length));
  for (const auto &[name, tensor] : tensors)
    file.write(static_cast<const char *>(tensor->data) + tensor->byte_offset, std::streamsize(bytesOf(*tensor)));
  return file.flush() ? Outcome() : failed(path + ": cannot be written");
}

static Outcome call(disc_model *model, const std::string &inputPath, const std::string &outputPath) {
  disc_model_spec about = {};
  about.size = sizeof(about);
  disc_describe(model, &about);
  std::vector<disc_tensor_spec> takes = specs(model, about.num_inputs, disc_describe_input);
  std::vector<disc_tensor_spec> gives = specs(model, about.num_outputs, disc_describe_output);

  std::ifstream file(inputPath, std::ios::binary);
  std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file)
    return failed(inputPath + ": cannot be read");
  rt::Safetensors stored;
  if (rt::Status status = rt::Safetensors::read(image.data(), image.size(), inputPath, stored); !status.ok())
    return failed(status.error().message);

  std::vector<DLTensor> tensors(takes.size());
  std::vector<std::vector<int64_t>> shapes(takes.size());
  std::vector<std::vector<char>> contents(takes.size()); // aligned, and writable
  std::vector<const DLTensor *> inputs;
  std::vector<std::pair<std::string, const DLTensor *>> results;
  for (size_t i = 0; i < takes.size(); ++i) {
    const rt::StoredTensor *found = stored.find(takes[i].name);
    if (!found)
      return failed(inputPath + ": there is no tensor '" + takes[i].name + "' in it");
    shapes[i] = found->shape;
    contents[i].assign(found->data, found->data + found->bytes);
    tensors[i] = {};
    tensors[i].data = contents[i].data();
    tensors[i].device = {kDLCPU, 0};
    tensors[i].ndim = int32_t(shapes[i].size());
    tensors[i].dtype = {uint8_t(found->dtype >> 8), uint8_t(found->dtype & 0xff), 1};
    tensors[i].shape = shapes[i].data();
    inputs.push_back(&tensors[i]);
    if (takes[i].flags & DISC_TENSOR_UPDATED)
      results.emplace_back(takes[i].name, &tensors[i]);
  }
  std::vector<disc_output> outputs(gives.size(), disc_output{nullptr, nullptr});
  if (disc_run(model, inputs.data(), int64_t(inputs.size()), outputs.data(), int64_t(outputs.size())) != DISC_OK)
    return lastError();
  for (size_t i = 0; i < gives.size(); ++i)
    results.emplace_back(gives[i].name, &outputs[i].managed->dl_tensor);
  Outcome outcome = write(outputPath, results);
  for (disc_output &output : outputs)
    output.managed->deleter(output.managed);
  return outcome;
}

/// One answer for each line, until there are no more.
static int serve(disc_model *model) {
  for (std::string line; std::getline(std::cin, line);) {
    size_t tab = line.find('\t');
    Outcome outcome = tab == std::string::npos ? failed("expected INPUTS<tab>OUTPUTS, got '" + line + "'")
                                               : call(model, line.substr(0, tab), line.substr(tab + 1));
    std::cout << (outcome.ok() ? Json{{"status", "DISC_OK"}} : outcome.description).dump() << std::endl;
  }
  return 0;
}

int main(int argc, char **argv) {
  disc_options options = disc_default_options();
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--threads" && i + 1 < argc)
      options.threads = std::atoi(argv[++i]);
    else if (argument == "--weights" && i + 1 < argc)
      options.weights = argv[++i];
    else
      files.push_back(argument);
  }
  if (files.size() % 2 != 1 || files.front()[0] == '-') {
    std::fprintf(stderr, "usage: disc-call LIBRARY [INPUTS.safetensors OUTPUTS.safetensors]... [--threads N] "
                         "[--weights FILE]\n");
    return 2;
  }
  disc_model *model = nullptr;
  if (disc_load(files.front().c_str(), &options, &model) != DISC_OK) {
    std::fprintf(stderr, "disc-call: %s\n", disc_last_error());
    return 1;
  }
  int status = files.size() == 1 ? serve(model) : 0;
  for (size_t i = 1; i < files.size() && status == 0; i += 2)
    if (Outcome outcome = call(model, files[i], files[i + 1]); !outcome.ok()) {
      std::fprintf(stderr, "disc-call: %s\n", outcome.description["message"].get<std::string>().c_str());
      status = 1;
    }
  disc_free(model);
  return status;
}
