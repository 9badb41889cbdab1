//===- Half.h - conversions of 16-bit floats without instructions -*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_HALF_H
#define DISC_RUNTIME_CORE_HALF_H

#include <cstdint>

// Weak: a program may bring its compiler's own.
#define DISC_SUPPORT __attribute__((weak, visibility("hidden")))

extern "C" {
DISC_SUPPORT float __extendhfsf2(_Float16 value);
DISC_SUPPORT double __extendhfdf2(_Float16 value);
DISC_SUPPORT _Float16 __truncsfhf2(float value);
DISC_SUPPORT _Float16 __truncdfhf2(double value);
DISC_SUPPORT __bf16 __truncsfbf2(float value);
DISC_SUPPORT __bf16 __truncdfbf2(double value);
}

#undef DISC_SUPPORT

#endif // DISC_RUNTIME_CORE_HALF_H
