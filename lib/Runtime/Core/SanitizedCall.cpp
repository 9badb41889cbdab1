//===- SanitizedCall.cpp - launches of sanitized kernels ------------------===//
//
// A sanitized kernel finds the bounds of its buffers behind args[-1], see Abi.h. Before an access beyond them it calls
// disc_rt_check_access, which reports; around each launch, disc_call::checkedLaunch looks at whole buffers.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Tensor.h"
#include "lib/Runtime/Functions/Function.h"

#include <cstring>
#include <vector>

using namespace disc::rt;

/// Argument `i` of a launch: each has 8 bytes, also where pointers have 4.
static void *&argument(void *const *args, int64_t i) {
  return *reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(args) + uintptr_t(i * 8));
}

namespace {
struct CheckedBuffer {
  std::string name;
  bool read = false, written = false, isSlot = false, isLast = false;
  char *data = nullptr;
  int64_t bytes = 0;

  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(data); }
  uintptr_t end() const { return begin() + uintptr_t(bytes); }
  bool contains(uintptr_t first, uintptr_t last) const { return begin() <= first && first <= last && last <= end(); }
  bool overlaps(const CheckedBuffer &other) const { return begin() < other.end() && other.begin() < end(); }
};

/// A launch of a sanitized kernel.
struct CheckedLaunch {
  disc_call &call;
  disc_kernel_fn kernel;
  std::string name; ///< "kernel 'k2_linear' (model.py:12)"
  std::vector<CheckedBuffer> buffers;
  std::vector<int64_t> bounds;
  int64_t scratchBytes;

  static CheckedLaunch &of(const int64_t *bounds) {
    return *reinterpret_cast<CheckedLaunch *>(uintptr_t(bounds[DISC_RT_BOUNDS_OWNER]));
  }
  static CheckedLaunch &of(void *const *args) { return of(static_cast<const int64_t *>(argument(args, -1))); }

  void parse(const char *text, void *const *args, disc_call::CheckedBuffers given);
  bool contains(uintptr_t first, uintptr_t last) const {
    for (const CheckedBuffer &buffer : buffers)
      if (buffer.contains(first, last))
        return true;
    return false;
  }
  const CheckedBuffer *at(uintptr_t address) const {
    for (const CheckedBuffer &buffer : buffers)
      if (buffer.begin() <= address && address < buffer.end())
        return &buffer;
    return nullptr;
  }
  void report(const std::string &text) const { call.accessFailed(name + " " + text); }

  static void run(void *const *args, int64_t begin, int64_t end, void *scratch);
};
} // namespace

static std::string kernelText(const disc_model_info_t &info, disc_kernel_fn kernel) {
  for (int64_t i = 0; i < info.num_kernels; ++i)
    if (info.kernels[i].function == reinterpret_cast<const void *>(kernel)) {
      std::string text = "kernel '" + std::string(info.kernels[i].name) + "'";
      return *info.kernels[i].source ? text + " (" + info.kernels[i].source + ")" : text;
    }
  return "a kernel";
}

void CheckedLaunch::parse(const char *text, void *const *args, disc_call::CheckedBuffers given) {
  for (int64_t i = 0; i < given.count; ++i) {
    CheckedBuffer buffer;
    for (; *text && *text != ' '; ++text) {
      buffer.read |= *text == 'r';
      buffer.written |= *text == 'w';
      buffer.isSlot |= *text == 's';
      buffer.isLast |= *text == 'l';
    }
    const char *end = std::strchr(text, '\n');
    end = end ? end : text + std::strlen(text);
    if (*text)
      buffer.name.assign(text + 1, end);
    text = *end ? end + 1 : end;
    buffer.data = static_cast<char *>(argument(args, i));
    buffer.bytes = std::max<int64_t>(given.bytes[i], 0);
    buffers.push_back(std::move(buffer));
  }
}

/// Some of the launch's tasks: what a worker's scratch holds is unspecified, and what follows it is nobody's.
void CheckedLaunch::run(void *const *args, int64_t begin, int64_t end, void *scratch) {
  const CheckedLaunch &launch = of(args);
  size_t bytes = size_t(launch.scratchBytes);
  char *zone = static_cast<char *>(scratch) + bytes;
  Sanitizer::poison(scratch, bytes);
  Sanitizer::fillRedZone(zone, Sanitizer::kRedZone);
  launch.kernel(args, begin, end, scratch);
  int64_t changed = Sanitizer::changedByte(zone, Sanitizer::kRedZone);
  if (changed >= 0)
    launch.report("wrote " + std::to_string(changed) + " bytes beyond the end of its scratch memory of " +
                  std::to_string(bytes) + " bytes");
}

void disc_call::sanitize() { sanitizer = std::make_unique<Sanitizer>(); }

void disc_call::accessFailed(std::string message) {
  std::lock_guard<std::mutex> lock(failing);
  if (status.ok())
    status = Status(Code::Sanitizer, "sanitizer: " + message);
  failureIsNamed = true;
  kernelFailed.store(true, std::memory_order_relaxed);
}

int32_t disc_call::checkedLaunch(disc_kernel_fn kernel, void **args, const char *text, CheckedBuffers given,
                                 int64_t tasks, int64_t costNs, int64_t scratchBytes) {
  CheckedLaunch launch{*this, kernel, kernelText(model.info(), kernel), {}, {}, std::max<int64_t>(scratchBytes, 0)};
  launch.parse(text, args, given);
  launch.bounds.resize(DISC_RT_BOUNDS_BUFFERS + 2 * launch.buffers.size());
  launch.bounds[DISC_RT_BOUNDS_OWNER] = int64_t(reinterpret_cast<uintptr_t>(&launch));
  launch.bounds[DISC_RT_BOUNDS_SCRATCH] = launch.scratchBytes;
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    launch.bounds[DISC_RT_BOUNDS_BUFFERS + 2 * i] = int64_t(launch.buffers[i].begin());
    launch.bounds[DISC_RT_BOUNDS_BUFFERS + 2 * i + 1] = int64_t(launch.buffers[i].end());
  }
  argument(args, -1) = launch.bounds.data();
  if (tasks <= 0)
    return 0;

  for (const CheckedBuffer &buffer : launch.buffers)
    if (buffer.read)
      if (std::string problem = sanitizer->read(buffer.data, size_t(buffer.bytes)); !problem.empty()) {
        launch.report("reads " + buffer.name + ": " + problem);
        return int32_t(Code::Sanitizer);
      }
  for (const CheckedBuffer &buffer : launch.buffers) {
    bool isFresh = buffer.written;
    for (const CheckedBuffer &other : launch.buffers)
      isFresh &= !other.read || !other.overlaps(buffer);
    if (isFresh)
      sanitizer->beginWrite(buffer.data, size_t(buffer.bytes), buffer.name, launch.name, buffer.isSlot);
  }

  bool profiled = model.profile_.on();
  int64_t began = profiled ? Profile::now() : 0;
  Status done =
      model.parallelFor(&CheckedLaunch::run, args, tasks, costNs, launch.scratchBytes + int64_t(Sanitizer::kRedZone),
                        storage->scratch, scratchThreads());
  if (profiled)
    model.profile_.add({kernel, began, Profile::now(), tasks});
  if (kernelFailed.load(std::memory_order_relaxed))
    return int32_t(status.code());
  if (!done.ok())
    return record(std::move(done));
  if (std::string problem = sanitizer->verify(); !problem.empty()) {
    launch.report("wrote out of bounds: " + problem);
    return int32_t(Code::Sanitizer);
  }
  for (const CheckedBuffer &buffer : launch.buffers)
    if (buffer.written)
      sanitizer->endWrite(buffer.data, size_t(buffer.bytes));
  for (const CheckedBuffer &buffer : launch.buffers)
    if (buffer.isLast)
      sanitizer->endLife(buffer.data, size_t(buffer.bytes), buffer.name, launch.name);
  stepsToPoll = model.options_.interrupted ? 0 : stepsToPoll;
  return 0;
}

void disc_call::checkedCopy(void *to, const void *from, int64_t bytes) {
  if (bytes <= 0)
    return;
  if (std::string problem = sanitizer->read(from, size_t(bytes)); !problem.empty())
    accessFailed("a copy of a tensor reads memory that it must not read: " + problem);
  std::memmove(to, from, size_t(bytes));
  sanitizer->endWrite(to, size_t(bytes));
}

//===-- Called by kernels -------------------------------------------------===//

static std::string bytesText(int64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

/// "reads 4 bytes at offset 160 of temporary 'k2_linear', which has 160 bytes"
static std::string accessText(const CheckedLaunch &launch, const disc_access_site &site, uintptr_t address,
                              int64_t bytes, uintptr_t begin, uintptr_t end) {
  std::string text = (site.writes ? "writes " : "reads ") + bytesText(bytes), of;
  size_t count = launch.buffers.size();
  if (site.buffer >= 0 && size_t(site.buffer) < count) {
    of = launch.buffers[size_t(site.buffer)].name;
  } else if (site.buffer == DISC_ACCESS_SCRATCH) {
    of = "its scratch memory";
  } else if (site.buffer == DISC_ACCESS_STACK) {
    of = "an array on its stack";
  } else if (site.buffer == DISC_ACCESS_CONSTANT) {
    of = "a constant";
  } else if (site.buffer == DISC_ACCESS_PANEL && begin != end) {
    const CheckedBuffer *buffer = launch.at(begin);
    of = buffer && buffer->end() == end ? buffer->name : "its scratch memory";
  }
  if (of.empty())
    text += " outside of all its buffers";
  else
    text += " at offset " + std::to_string(intptr_t(address - begin)) + " of " + of + ", which has " +
            bytesText(int64_t(end - begin));
  if (const CheckedBuffer *other = launch.at(address); other && other->begin() != begin)
    text += "; the address is inside " + other->name;
  if (*site.source)
    text += std::string("; the operation is from ") + site.source;
  return text;
}

int32_t disc_rt_check_access(const int64_t *bounds, const disc_access_site *site, int64_t address, int64_t mask,
                             int64_t bytes, int64_t begin, int64_t end) {
  const CheckedLaunch &launch = CheckedLaunch::of(bounds);
  if (bytes <= 0)
    return 0;
  auto check = [&](uintptr_t first) {
    uintptr_t last = first + uintptr_t(bytes);
    bool inside = uintptr_t(begin) <= first && first <= last && last <= uintptr_t(end);
    if (inside || (site->buffer == DISC_ACCESS_ANY && launch.contains(first, last)))
      return true;
    launch.report(accessText(launch, *site, first, bytes, uintptr_t(begin), uintptr_t(end)));
    return false;
  };
  if (site->form == DISC_ACCESS_WHOLE)
    return check(uintptr_t(address)) ? 0 : int32_t(Code::Sanitizer);
  for (int64_t lane = 0; uint64_t(mask) >> lane; ++lane) {
    if (((uint64_t(mask) >> lane) & 1) == 0)
      continue;
    uintptr_t at = uintptr_t(address) + uintptr_t(lane * bytes);
    if (site->form == DISC_ACCESS_ADDRESSES)
      at = uintptr_t(reinterpret_cast<const int64_t *>(uintptr_t(address))[lane]);
    if (!check(at))
      return int32_t(Code::Sanitizer);
    if (lane == 63)
      break;
  }
  return 0;
}

int64_t disc_rt_buffer_begin(const int64_t *bounds, int64_t address, int64_t scratch, int64_t scratch_end) {
  if (scratch <= address && address < scratch_end)
    return scratch;
  const CheckedBuffer *buffer = CheckedLaunch::of(bounds).at(uintptr_t(address));
  return buffer ? int64_t(buffer->begin()) : 0;
}

int64_t disc_rt_buffer_end(const int64_t *bounds, int64_t address, int64_t scratch, int64_t scratch_end) {
  if (scratch <= address && address < scratch_end)
    return scratch_end;
  const CheckedBuffer *buffer = CheckedLaunch::of(bounds).at(uintptr_t(address));
  return buffer ? int64_t(buffer->end()) : 0;
}

int32_t disc_rt_check_views(const int64_t *bounds, const disc_view *views, int64_t count) {
  const CheckedLaunch &launch = CheckedLaunch::of(bounds);
  for (int64_t i = 0; i < count; ++i) {
    const disc_view &view = views[i];
    int64_t first = 0, last = 0, width = elementBytes(view.dtype);
    bool isEmpty = false;
    for (int64_t d = 0; d < view.rank; ++d) {
      isEmpty |= view.dims[d] == 0;
      int64_t step = (view.dims[d] - 1) * view.strides[d];
      (step < 0 ? first : last) += step;
    }
    uintptr_t data = reinterpret_cast<uintptr_t>(view.data);
    uintptr_t begin = data + uintptr_t(first * width), end = data + uintptr_t((last + 1) * width);
    if (isEmpty || launch.contains(begin, end))
      continue;
    const CheckedBuffer *buffer = launch.at(data);
    launch.report("passes operand " + std::to_string(i) + " of " + bytesText(int64_t(end - begin)) + " to a function" +
                  (buffer ? ", at offset " + std::to_string(intptr_t(begin - buffer->begin())) + " of " + buffer->name +
                                ", which has " + bytesText(buffer->bytes)
                          : std::string(", outside of all its buffers")));
    return int32_t(Code::Sanitizer);
  }
  return 0;
}
