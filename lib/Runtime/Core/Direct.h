//===- Direct.h - a model from its functions, for tests of the runtime -----===//

#ifndef DISC_RUNTIME_CORE_DIRECT_H
#define DISC_RUNTIME_CORE_DIRECT_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/disc.h"

extern "C" {
disc_status disc_model_create(const disc_model_info_t *info, disc_entry_fn init, disc_entry_fn main, int32_t threads,
                              DLManagedTensorVersioned *const *parameters, int64_t num_parameters, disc_model **model);
disc_status disc_model_run(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                           DLManagedTensorVersioned **outputs, int64_t num_outputs);
void disc_model_destroy(disc_model *model);
}

#endif // DISC_RUNTIME_CORE_DIRECT_H
