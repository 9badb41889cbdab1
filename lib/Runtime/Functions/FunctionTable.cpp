//===- FunctionTable.cpp - all functions, by name --------------------------===//

#include "lib/Runtime/Functions/Function.h"

const disc::rt::FunctionEntry disc::rt::functionTable[] = {
#define DISC_FUNCTION(name) {#name, disc_fn_##name},
#include "lib/Runtime/Functions/Functions.def"
#undef DISC_FUNCTION
    {nullptr, nullptr}};
