//===- Sanitizer.cpp - the memory of a sanitized call ---------------------===//

#include "lib/Runtime/Core/Sanitizer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace disc::rt {

static uintptr_t addressOf(const void *data) { return reinterpret_cast<uintptr_t>(data); }

//===-- Ranges ------------------------------------------------------------===//

void Sanitizer::Ranges::cut(uintptr_t begin, uintptr_t end) {
  if (begin >= end)
    return;
  auto it = ranges.lower_bound(begin);
  if (it != ranges.begin() && std::prev(it)->second.end > begin)
    --it;
  while (it != ranges.end() && it->first < end) {
    uintptr_t first = it->first;
    Range range = std::move(it->second);
    it = ranges.erase(it);
    if (range.end > end)
      it = ranges.emplace(end, Range{range.end, range.text}).first;
    if (first < begin)
      ranges.emplace(first, Range{begin, std::move(range.text)});
  }
}

void Sanitizer::Ranges::set(uintptr_t begin, uintptr_t end, const std::string &text) {
  cut(begin, end);
  if (begin < end)
    ranges.emplace(begin, Range{end, text});
}

std::map<uintptr_t, Sanitizer::Ranges::Range>::const_iterator Sanitizer::Ranges::find(uintptr_t begin,
                                                                                      uintptr_t end) const {
  if (begin >= end)
    return ranges.end();
  auto it = ranges.lower_bound(begin);
  if (it != ranges.begin() && std::prev(it)->second.end > begin)
    return std::prev(it);
  return it != ranges.end() && it->first < end ? it : ranges.end();
}

bool Sanitizer::Ranges::covers(uintptr_t begin, uintptr_t end) const {
  auto it = find(begin, end);
  return it != ranges.end() && it->first <= begin && end <= it->second.end;
}

//===-- Patterns ----------------------------------------------------------===//

void Sanitizer::poison(void *data, size_t bytes) {
  auto *at = static_cast<unsigned char *>(data);
  for (size_t i = 0; i + 1 < bytes; i += 2)
    std::memcpy(at + i, &kPoison, 2);
  if (bytes % 2)
    at[bytes - 1] = kPoison >> 8;
}

void Sanitizer::fillRedZone(void *data, size_t bytes) { std::memset(data, kCanary, bytes); }

int64_t Sanitizer::changedByte(const void *zone, size_t bytes) {
  auto *begin = static_cast<const unsigned char *>(zone), *end = begin + bytes;
  auto *at = std::find_if(begin, end, [](unsigned char byte) { return byte != kCanary; });
  return at == end ? -1 : at - begin;
}

//===-- Buffers -----------------------------------------------------------===//

void Sanitizer::setRedZone(uintptr_t begin, uintptr_t end, const std::string &name) {
  if (begin >= end)
    return;
  fillRedZone(reinterpret_cast<void *>(begin), end - begin);
  undefined.set(begin, end, "is a red zone of " + name);
  zones.set(begin, end, name);
}

void Sanitizer::track(void *data, size_t bytes, const std::string &name, bool hasRedZones) {
  uintptr_t begin = addressOf(data), end = begin + bytes;
  zones.cut(begin, end);
  tracked.set(begin, end, name);
  poison(data, bytes);
  undefined.set(begin, end, "was never written");
  if (hasRedZones) {
    setRedZone(begin - kRedZone, begin, name);
    setRedZone(end, end + kRedZone, name);
  }
}

void Sanitizer::trackPart(int64_t part, void *data, size_t bytes) {
  // The part may have moved; what was in it is lost.
  if (auto before = parts.find(part); before != parts.end())
    if (auto range = tracked.all().find(before->second); range != tracked.all().end()) {
      uintptr_t begin = range->first, end = range->second.end;
      undefined.cut(begin, end);
      zones.cut(begin, end);
      tracked.cut(begin, end);
    }
  parts[part] = addressOf(data);
  track(data, bytes, "the arena");
}

std::string Sanitizer::read(const void *data, size_t bytes) const {
  uintptr_t begin = addressOf(data), end = begin + bytes;
  auto found = undefined.find(begin, end);
  if (found == undefined.all().end())
    return "";
  uintptr_t first = std::max(begin, found->first), last = std::min(end, found->second.end);
  return "its memory from offset " + std::to_string(first - begin) + " to " + std::to_string(last - begin) + " of " +
         std::to_string(bytes) + " bytes " + found->second.text;
}

void Sanitizer::beginWrite(void *data, size_t bytes, const std::string &name, const std::string &by, bool isSlot) {
  uintptr_t begin = addressOf(data), end = begin + bytes;
  // Elsewhere, such as in the memory of loops that grows, this class does not know what is still needed.
  auto range = tracked.find(begin, std::max(end, begin + 1));
  if (range == tracked.all().end() || begin < range->first || end > range->second.end)
    return;
  poison(data, bytes);
  undefined.set(begin, end, "was reused for " + name + " by " + by);
  zones.cut(begin, end);
  if (isSlot && bytes != 0) {
    // Within the arena the planner has left room for them.
    setRedZone(std::max(begin - kRedZone, range->first), begin, name);
    setRedZone(end, std::min(end + kRedZone, range->second.end), name);
  }
}

void Sanitizer::endWrite(const void *data, size_t bytes) {
  uintptr_t begin = addressOf(data), end = begin + bytes;
  undefined.cut(begin, end);
  zones.cut(begin, end);
}

void Sanitizer::endLife(void *data, size_t bytes, const std::string &name, const std::string &by) {
  uintptr_t begin = addressOf(data), end = begin + bytes;
  if (bytes == 0 || !tracked.covers(begin, end))
    return;
  poison(data, bytes);
  undefined.set(begin, end, "was poisoned after the last planned use of " + name + ", in " + by);
}

std::string Sanitizer::verify() const {
  for (const auto &[begin, zone] : zones.all()) {
    int64_t changed = changedByte(reinterpret_cast<const void *>(begin), zone.end - begin);
    if (changed >= 0)
      return "byte " + std::to_string(changed) + " of the " + std::to_string(zone.end - begin) +
             " bytes of a red zone of " + zone.text + " was overwritten";
  }
  return "";
}

} // namespace disc::rt
