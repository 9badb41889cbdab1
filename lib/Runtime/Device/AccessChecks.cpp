//===- AccessChecks.cpp - what an emulated kernel may do to memory --------===//

#include "lib/Runtime/Device/AccessChecks.h"

#include <algorithm>
#include <cstring>

namespace disc::rt {

//===-- Blocks of memory --------------------------------------------------===//

void EmulatedMemory::eraseWithin(Blocks &blocks, uintptr_t begin, uintptr_t end) {
  for (auto it = blocks.lower_bound(begin); it != blocks.end() && it->first < end;)
    it = it->second <= end ? blocks.erase(it) : std::next(it);
}

size_t EmulatedMemory::bytesIn(const Blocks &blocks, uintptr_t address) {
  auto it = blocks.upper_bound(address);
  return it == blocks.begin() || std::prev(it)->second <= address ? 0 : std::prev(it)->second - address;
}

void EmulatedMemory::add(const void *data, size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard<Mutex> lock(mutex);
  eraseWithin(lent, begin, begin + bytes);
  own[begin] = begin + bytes;
}

void EmulatedMemory::remove(const void *data) {
  std::lock_guard<Mutex> lock(mutex);
  own.erase(reinterpret_cast<uintptr_t>(data));
}

void EmulatedMemory::lend(const void *data, size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard<Mutex> lock(mutex);
  if (bytesIn(own, begin))
    return;
  eraseWithin(lent, begin, begin + bytes);
  if (bytes)
    lent[begin] = begin + bytes; // in place of a larger one that began there, too
}

size_t EmulatedMemory::bytesFrom(const void *address) const {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<Mutex> lock(mutex);
  if (size_t bytes = bytesIn(own, at))
    return bytes;
  if (size_t bytes = bytesIn(lent, at))
    return bytes;
  for (auto [begin, end] : lent)
    if (begin <= at && at < end)
      return end - at;
  return 0;
}

//===-- A launch ----------------------------------------------------------===//

AccessChecks::AccessChecks(const disc_device_kernel &kernel, void *const *args, const EmulatedMemory &memory)
    : buffers(std::strlen(kernel.writes)) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (kernel.writes[i] == 's')
      continue;
    Buffer &buffer = buffers[i];
    auto *data = *static_cast<const char *const *>(args[i]);
    buffer.begin = reinterpret_cast<uintptr_t>(data);
    buffer.end = buffer.begin + memory.bytesFrom(data);
    buffer.isPointer = true;
    buffer.writable = kernel.writes[i] != '0';
  }
  findOverlaps();
}

void AccessChecks::findOverlaps() {
  for (Buffer &buffer : buffers)
    buffer.mayRace = std::any_of(buffers.begin(), buffers.end(), [&](const Buffer &other) {
      return other.writable && other.begin < buffer.end && buffer.begin < other.end;
    });
}

static std::string argumentText(int64_t argument) { return "argument " + std::to_string(argument); }

std::string AccessChecks::narrow(int64_t argument, int64_t bytes) {
  if (argument < 0 || size_t(argument) >= buffers.size() || !buffers[argument].isPointer)
    return argumentText(argument) + " is no buffer";
  Buffer &buffer = buffers[size_t(argument)];
  if (bytes <= 0) {
    buffer.end = buffer.begin;
  } else if (uintptr_t(bytes) > buffer.end - buffer.begin) {
    return "takes " + std::to_string(bytes) + " bytes of " + argumentText(argument) + ", where the device has " +
           std::to_string(buffer.end - buffer.begin);
  } else {
    buffer.end = buffer.begin + uintptr_t(bytes);
  }
  findOverlaps();
  return "";
}

static const char *verb(int64_t kind) {
  switch (kind) {
  case DISC_EMULATED_READ:
    return "reads ";
  case DISC_EMULATED_WRITE:
    return "writes ";
  default:
    return "updates ";
  }
}

std::string AccessChecks::access(const disc_thread &thread, const disc_emulated_site &site, const char *address,
                                 uint64_t lanes, const char *shared, const char *sharedEnd) {
  std::string problem;
  auto at = reinterpret_cast<uintptr_t>(address);
  for (; lanes && problem.empty(); lanes >>= 1, at += uintptr_t(site.bytes))
    if (lanes & 1)
      problem = check(thread, site, at, shared, sharedEnd);
  return problem;
}

/// One lane.
std::string AccessChecks::check(const disc_thread &thread, const disc_emulated_site &site, uintptr_t address,
                                const char *shared, const char *sharedEnd) {
  auto sharedBegin = reinterpret_cast<uintptr_t>(shared);
  auto size = uintptr_t(site.bytes);
  bool writes = site.kind != DISC_EMULATED_READ;
  // Of which memory the address should be, and whether it is.
  bool isShared = site.argument == DISC_EMULATED_SHARED;
  const Buffer *buffer = nullptr;
  int64_t argument = site.argument;
  uintptr_t begin = 0, end = 0;
  if (site.argument == DISC_EMULATED_ANY) {
    // Buffers may overlap; one that may be written says more.
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].begin <= address && address < buffers[i].end && (argument < 0 || buffers[i].writable))
        argument = int64_t(i);
    if (argument < 0)
      isShared = sharedBegin <= address && address < reinterpret_cast<uintptr_t>(sharedEnd);
    if (isShared)
      begin = sharedBegin, end = reinterpret_cast<uintptr_t>(sharedEnd);
  } else if (isShared) {
    begin = sharedBegin + uintptr_t(site.begin), end = sharedBegin + uintptr_t(site.end);
  }
  if (!isShared && argument >= 0) {
    buffer = &buffers[size_t(argument)];
    begin = buffer->begin, end = buffer->end;
  }

  auto what = [&] {
    std::string text = verb(site.kind) + std::to_string(site.bytes) + " bytes ";
    if (!isShared && !buffer)
      return text + "at " + std::to_string(address) + ", where no buffer of the launch is";
    return text + "at " + std::to_string(intptr_t(address - begin)) + " of " +
           (isShared ? "an array in shared memory" : argumentText(argument));
  };
  if (!isShared && !buffer)
    return what();
  if (address < begin || address > end || size > end - address)
    return what() + (begin == end && !isShared ? ", where the device has no memory"
                                               : ", which has " + std::to_string(end - begin));
  if (site.alignment > 1 && address % uintptr_t(site.alignment) != 0)
    return what() + ", which is no multiple of " + std::to_string(site.alignment);
  if (buffer && writes && !buffer->writable)
    return what() + ", which it may only read";
  if (buffer && !buffer->mayRace)
    return "";

  uint32_t self = thread.thread + 1, block = thread.block + 1;
  for (uintptr_t at = address; at < address + size; ++at) {
    Byte &byte = byteAt(at);
    auto whatByte = [&] {
      return verb(site.kind) + ("byte " + std::to_string(at - begin)) + " of " +
             (isShared ? "an array in shared memory" : argumentText(argument));
    };
    auto by = [&](const char *who, uint32_t number, bool written) {
      std::string text = number == Users::kSeveral ? std::string("several ") + who + "s have "
                                                   : std::string(who) + " " + std::to_string(number - 1) + " has ";
      text += written ? "written" : "read";
      return written && *byte.site->where ? text + " (" + byte.site->where + ")" : text;
    };
    if (byte.interval != interval) {
      byte.interval = interval;
      byte.threads = Users();
    }
    if (byte.pending)
      return whatByte() + ", which a copy writes that nobody has waited for";
    if (isShared) {
      if (site.kind != DISC_EMULATED_WRITE && byte.blocks.writer != block)
        return whatByte() + ", which its block has not written";
      if (writes)
        byte.blocks.writer = block;
    }
    bool written = false;
    if (uint32_t other = byte.threads.use(self, site.kind, written))
      return whatByte() + ", which " + by("thread", other, written) + " since the last barrier";
    if (!isShared)
      if (uint32_t other = byte.blocks.use(block, site.kind, written))
        return whatByte() + ", which " + by("block", other, written);
    if (writes)
      byte.site = &site;
  }
  return "";
}

uint32_t AccessChecks::Users::use(uint32_t user, int64_t kind, bool &written) {
  bool together = kind == DISC_EMULATED_ATOMIC && atomic;
  written = writer != kNone && writer != user && !together;
  if (written)
    return writer;
  if (kind == DISC_EMULATED_READ) {
    reader = reader == kNone || reader == user ? user : kSeveral;
    return kNone;
  }
  if (reader != kNone && reader != user)
    return reader;
  atomic = kind == DISC_EMULATED_ATOMIC && (writer == kNone || atomic);
  writer = writer == kNone || writer == user ? user : kSeveral;
  return kNone;
}

AccessChecks::Byte &AccessChecks::byteAt(uintptr_t address) {
  uintptr_t line = address / kLine;
  if (!last || line != lastLine) {
    std::unique_ptr<Line> &found = lines[line];
    if (!found)
      found = std::make_unique<Line>();
    last = found.get();
    lastLine = line;
  }
  return (*last)[address % kLine];
}

} // namespace disc::rt
