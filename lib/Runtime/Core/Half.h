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
}
#pragma GCC visibility pop

#endif // DISC_RUNTIME_CORE_HALF_H
