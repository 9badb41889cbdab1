//===- State.cpp - reading, writing, saving and loading state -------------===//
//
// State is what runs update: parameters of the table, and how far the random numbers are.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

namespace disc::rt {

/// The tensor of a file that has the seed and the number of the next run.
static constexpr const char *kRandomName = "disc.random";
static constexpr size_t kAlignmentInFile = 64;

static size_t bytesOf(const disc_parameter_info &parameter) {
  int64_t bytes = 0;
  (void)denseBytes(parameter.shape, parameter.rank, elementBytes(parameter.dtype), bytes);
  return size_t(bytes);
}

namespace {
/// The state of a model, while no run uses it.
class HeldState {
public:
  explicit HeldState(Model &model) : info(model.info()), device(model.device()), weights(model.weights()) {
    if (!weights) {
      failure = Status(Code::Invalid, "the model is not loaded: it has no weights");
      return;
    }
    turn = std::unique_lock<Mutex>(weights->updating);
    isAbandoned = weights->updating.takeAbandoned();
    if (!device)
      return;
    scope.emplace(device);
    failure = scope->status().ok() ? device->synchronizeAll() : scope->status();
  }

  /// Also of a run that a fork() left incomplete, unless all of it is about to be written.
  Status status(bool isReplaced = false) {
    if (failure.ok() && isAbandoned && !isReplaced)
      return Status(Code::Invalid, "the model's state is incomplete: fork() made this process while another thread's "
                                   "call was updating it. Set the state again (disc_reset, disc_load_state)");
    return std::move(failure);
  }

  Status read(int64_t index, void *to) const {
    size_t bytes = bytesOf(info.parameters[index]);
    const void *from = weights->parameters[size_t(index)];
    if (device)
      return device->read(to, from, bytes, nullptr);
    if (bytes)
      std::memcpy(to, from, bytes);
    return Status();
  }

  Status write(int64_t index, const void *from) const {
    size_t bytes = bytesOf(info.parameters[index]);
    void *to = weights->parameters[size_t(index)];
    if (device)
      return device->copyIn(to, from, bytes, nullptr);
    if (bytes)
      std::memcpy(to, from, bytes);
    return Status();
  }

  Status finish() const { return device ? device->synchronize(nullptr) : Status(); }

private:
  const disc_model_info_t &info;
  Device *device;
  std::shared_ptr<Weights> weights;
  std::unique_lock<Mutex> turn;
  std::optional<DeviceScope> scope;
  bool isAbandoned = false;
  Status failure;
};

/// A file in the making, which takes the place of another one when it is complete.
class NewFile {
public:
  explicit NewFile(const std::string &path) : path(path) {
    static std::atomic<unsigned> count{0};
    fresh = path + ".new-" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
    fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
      fail("create");
  }
  ~NewFile() {
    if (fd < 0)
      return;
    close(fd);
    unlink(fresh.c_str());
  }
  NewFile(const NewFile &) = delete;
  NewFile &operator=(const NewFile &) = delete;

  void write(const void *data, size_t bytes) {
    auto *from = static_cast<const char *>(data);
    while (bytes && failure.ok()) {
      ssize_t written = ::write(fd, from, std::min<size_t>(bytes, size_t(1) << 30));
      if (written < 0 && errno == EINTR)
        continue;
      if (written < 0)
        return fail("write");
      from += written;
      bytes -= size_t(written);
    }
  }

  Status finish() {
    if (failure.ok() && fsync(fd) != 0)
      fail("write");
    if (failure.ok() && std::rename(fresh.c_str(), path.c_str()) != 0)
      fail("replace");
    if (failure.ok()) {
      close(fd);
      fd = -1;
    }
    return std::move(failure);
  }

  Status failure;

private:
  void fail(const char *what) {
    int error = errno;
    failure = Status(Code::File, path + ": cannot " + what + ": " + std::strerror(error));
  }

  std::string path, fresh;
  int fd = -1;
};
} // namespace

/// A text of the header's JSON.
static std::string quoted(const char *text) {
  std::string result = "\"";
  for (; *text; ++text) {
    char escape[8];
    if (*text == '"' || *text == '\\') {
      (result += '\\') += *text;
    } else if (static_cast<unsigned char>(*text) < 0x20) {
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(*text));
      result += escape;
    } else {
      result += *text;
    }
  }
  return result += '"';
}

static std::string entryOf(const std::string &name, const std::string &type, const std::string &shape, size_t begin,
                           size_t bytes) {
  return name + ":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" + std::to_string(begin) +
         "," + std::to_string(begin + bytes) + "]}";
}

static std::string shapeOf(const disc_parameter_info &parameter) {
  std::string text = "[";
  for (int64_t d = 0; d < parameter.rank; ++d)
    text += (d ? "," : "") + std::to_string(parameter.shape[d]);
  return text += ']';
}

Status Model::checkState(int64_t index, const void *data, size_t bytes) const {
  if (index < 0 || index >= info().num_parameters)
    return Status(Code::Invalid, "there is no parameter " + std::to_string(index) + ": the model has " +
                                     std::to_string(info().num_parameters));
  const disc_parameter_info &parameter = info().parameters[index];
  std::string name = "parameter '" + std::string(parameter.name) + "'";
  if (!parameter.updated)
    return Status(Code::Invalid, name + " is not state: runs do not update it");
  if (bytes != bytesOf(parameter))
    return Status(Code::Invalid,
                  name + ": expected " + std::to_string(bytesOf(parameter)) + " bytes, got " + std::to_string(bytes));
  if (!data && bytes)
    return Status(Code::Invalid, name + ": the place for its data is null");
  return Status();
}

Status Model::readState(int64_t index, void *data, size_t bytes) {
  if (Status status = checkState(index, data, bytes); !status.ok())
    return status;
  HeldState state(*this);
  Status status = state.status();
  return status.ok() ? state.read(index, data) : std::move(status);
}

Status Model::writeState(int64_t index, const void *data, size_t bytes) {
  if (Status status = checkState(index, data, bytes); !status.ok())
    return status;
  HeldState state(*this);
  Status status = state.status();
  if (status.ok())
    status = state.write(index, data);
  return status.ok() ? state.finish() : std::move(status);
}

Status Model::saveState(const std::string &path) {
  // As the compiler writes such files: what is no multiple of a cache line comes last, so that the rest stays aligned.
  std::vector<int64_t> order;
  for (bool isAligned : {true, false})
    for (int64_t i = 0; i < info().num_parameters; ++i)
      if (info().parameters[i].updated && (bytesOf(info().parameters[i]) % kAlignmentInFile == 0) == isAligned)
        order.push_back(i);
  size_t offset = 0, largest = 0;
  std::string header = "{";
  for (int64_t i : order) {
    const disc_parameter_info &parameter = info().parameters[i];
    size_t bytes = bytesOf(parameter);
    header += entryOf(quoted(parameter.name), storedTypeName(parameter.dtype), shapeOf(parameter), offset, bytes) + ",";
    offset += bytes;
    largest = std::max(largest, bytes);
  }
  header += entryOf(quoted(kRandomName), "U64", "[2]", offset, 2 * sizeof(uint64_t)) + "}";
  header.resize((header.size() + 8 + kAlignmentInFile - 1) / kAlignmentInFile * kAlignmentInFile - 8, ' ');

  // By way of host memory, since it may lie on a device.
  Buffer copy(allocator());
  void *data = copy.reserve(memorySize(int64_t(largest)));
  if (!data)
    return Status(Code::Memory, "no memory for a copy of the state");
  HeldState state(*this);
  if (Status status = state.status(); !status.ok())
    return status;
  NewFile file(path);
  uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (int64_t i : order) {
    if (!file.failure.ok())
      return std::move(file.failure);
    if (Status status = state.read(i, data); !status.ok())
      return status;
    file.write(data, bytesOf(info().parameters[i]));
  }
  uint64_t numbers[2];
  {
    std::lock_guard<Mutex> lock(randomMutex_);
    numbers[0] = random_.seed;
    numbers[1] = random_.run;
  }
  file.write(numbers, sizeof(numbers));
  return file.finish();
}

Status Model::loadState(const std::string &path) {
  std::shared_ptr<StoredFile> stored;
  if (Status status = StoredFile::open(path, StoredFile::Access::Copy, stored); !status.ok())
    return status;
  Safetensors file;
  if (Status status = Safetensors::read(stored->data(), stored->size(), path, file); !status.ok())
    return status;
  std::vector<std::pair<int64_t, const StoredTensor *>> found;
  for (int64_t i = 0; i < info().num_parameters; ++i) {
    const disc_parameter_info &expected = info().parameters[i];
    if (!expected.updated)
      continue;
    const StoredTensor *tensor = file.find(expected.name);
    if (!tensor)
      return Status(Code::Weights, path + ": there is no '" + expected.name + "'");
    if (!sameStorage(tensor->dtype, expected.dtype) || int64_t(tensor->shape.size()) != expected.rank ||
        !std::equal(tensor->shape.begin(), tensor->shape.end(), expected.shape))
      return Status(Code::Weights, path + ": '" + expected.name + "': expected " + dtypeName(expected.dtype) + " " +
                                       shapeText(expected.shape, expected.rank) + ", got " + dtypeName(tensor->dtype) +
                                       " " + shapeText(tensor->shape.data(), int64_t(tensor->shape.size())));
    found.emplace_back(i, tensor);
  }
  const StoredTensor *random = file.find(kRandomName);
  if (random && (random->dtype != DISC_U64 || random->bytes != 2 * sizeof(uint64_t)))
    return Status(Code::Weights, path + ": '" + kRandomName + "' is not two numbers of type uint64");

  HeldState state(*this);
  if (Status status = state.status(/*isReplaced=*/true); !status.ok())
    return status;
  for (auto [index, tensor] : found)
    if (Status status = state.write(index, tensor->data); !status.ok())
      return status;
  if (Status status = state.finish(); !status.ok())
    return status;
  if (random) {
    uint64_t numbers[2];
    std::memcpy(numbers, random->data, sizeof(numbers));
    std::lock_guard<Mutex> lock(randomMutex_);
    random_ = {numbers[0], numbers[1]};
  }
  return Status();
}

} // namespace disc::rt
