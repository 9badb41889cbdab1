//===- Half.cpp - conversions of 16-bit floats without instructions -------===//
//
// What LLVM calls where a CPU cannot convert (x86-64 before F16C, ARMv7): the functions that compilers' own support
// libraries have under these names, some of which are only there at link time, and not in every version. Rounding is to
// nearest, ties to even; a NaN stays one.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Half.h"

#include <cstring>

namespace {
template <typename To, typename From> To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

/// `value` without its low `drop` bits, rounded to the nearest, ties to even.
template <typename Word> Word roundOff(Word value, int drop) {
  if (drop == 0)
    return value;
  if (drop >= int(sizeof(Word) * 8))
    return 0;
  Word half = Word(1) << (drop - 1), rest = value & ((Word(1) << drop) - 1), kept = value >> drop;
  return kept + (rest > half || (rest == half && (kept & 1)));
}

/// A float of `Word` bits with `fraction` bits of fraction, to one of 16 bits with `kFraction`.
template <int kFraction, typename Word> uint16_t narrow(Word from, int fraction) {
  constexpr int kExponents = 15 - kFraction;
  constexpr int kBias = (1 << (kExponents - 1)) - 1, kMax = (1 << kExponents) - 1;
  int exponents = int(sizeof(Word) * 8) - 1 - fraction;
  int bias = (1 << (exponents - 1)) - 1, maxExponent = (1 << exponents) - 1;
  auto sign = uint16_t(uint16_t(from >> (sizeof(Word) * 8 - 1)) << 15);
  int exponent = int((from >> fraction) & Word(maxExponent));
  Word mantissa = from & ((Word(1) << fraction) - 1);
  if (exponent == maxExponent) {
    auto payload = uint16_t(mantissa >> (fraction - kFraction));
    return uint16_t(sign | kMax << kFraction | (mantissa ? payload | 1 << (kFraction - 1) : 0));
  }
  // Numbers that are subnormal before are zero or subnormal after: the smallest exponent stands for theirs.
  if (exponent == 0)
    exponent = 1;
  else
    mantissa |= Word(1) << fraction;
  int wanted = exponent - bias + kBias;
  int drop = fraction - kFraction;
  if (wanted < 1) {
    drop += 1 - wanted;
    wanted = 1;
  }
  Word rounded = roundOff(mantissa, drop);
  // The leading bit of the mantissa counts as one exponent; so does a carry out of it.
  Word result = (Word(wanted - 1) << kFraction) + rounded;
  if (result >= Word(kMax) << kFraction)
    result = Word(kMax) << kFraction;
  return uint16_t(sign | uint16_t(result));
}

float widen(uint16_t from) {
  uint32_t sign = uint32_t(from & 0x8000) << 16, exponent = (from >> 10) & 31, mantissa = from & 0x3ff;
  if (exponent == 31)
    return bits<float>(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  if (exponent == 0) // Exact: a subnormal of f16 is a normal number of f32.
    return bits<float>(sign | bits<uint32_t>(float(mantissa) * 0x1p-24f));
  return bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}
} // namespace

// A program may bring its compiler's own. (Weak here alone: a weak reference would not pull this file in.)
#define WEAK __attribute__((weak))

WEAK float __extendhfsf2(_Float16 value) { return widen(bits<uint16_t>(value)); }
WEAK double __extendhfdf2(_Float16 value) { return double(widen(bits<uint16_t>(value))); }
WEAK _Float16 __truncsfhf2(float value) { return bits<_Float16>(narrow<10>(bits<uint32_t>(value), 23)); }
WEAK _Float16 __truncdfhf2(double value) { return bits<_Float16>(narrow<10>(bits<uint64_t>(value), 52)); }
WEAK __bf16 __truncsfbf2(float value) { return bits<__bf16>(narrow<7>(bits<uint32_t>(value), 23)); }
WEAK __bf16 __truncdfbf2(double value) { return bits<__bf16>(narrow<7>(bits<uint64_t>(value), 52)); }
#ifdef __arm__
WEAK uint32_t __gnu_h2f_ieee(uint32_t half) { return bits<uint32_t>(widen(uint16_t(half))); }
WEAK uint32_t __gnu_f2h_ieee(uint32_t value) { return narrow<10>(value, 23); }
WEAK uint32_t __aeabi_d2h(uint64_t value) { return narrow<10>(value, 52); }
#endif
