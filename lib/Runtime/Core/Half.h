//===- Half.h - conversions of 16-bit floats without instructions -*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_HALF_H
#define DISC_RUNTIME_CORE_HALF_H

#include <cstdint>

#pragma GCC visibility push(hidden)
extern "C" {
float __extendhfsf2(_Float16 value);
double __extendhfdf2(_Float16 value);
_Float16 __truncsfhf2(float value);
_Float16 __truncdfhf2(double value);
__bf16 __truncsfbf2(float value);
__bf16 __truncdfbf2(double value);
#ifdef __arm__
// By their bits: these do not take floats in registers for floats.
uint32_t __gnu_h2f_ieee(uint32_t half);
uint32_t __gnu_f2h_ieee(uint32_t value);
uint32_t __aeabi_d2h(uint64_t value);
#endif
}
#pragma GCC visibility pop

#endif // DISC_RUNTIME_CORE_HALF_H
