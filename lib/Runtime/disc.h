/*===- disc.h - run a compiled model --------------------------------------===
 *
 * The public C interface of the runtime. No C++ type and no exception crosses it. Every
 * function may be called from any thread; any number of threads may run one model.
 *
 *   disc_model *model;
 *   if (disc_model_create(&disc_model_info, disc_init, disc_main, 0, parameters,
 *                         num_parameters, &model))
 *     fprintf(stderr, "%s\n", disc_last_error());
 *   const DLTensor *inputs[] = {&ids, &mask};
 *   DLManagedTensorVersioned *outputs[1];
 *   if (!disc_model_run(model, inputs, 2, outputs, 1))
 *     outputs[0]->deleter(outputs[0]);
 *   disc_model_destroy(model);
 *
 *===----------------------------------------------------------------------===*/

#ifndef DISC_RUNTIME_DISC_H
#define DISC_RUNTIME_DISC_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/DLPack.h"
#include "lib/Runtime/Core/ModelInfo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum disc_status {
  DISC_OK = 0,
  DISC_ERROR_TYPE = 1,    /* dtype, device or number of inputs */
  DISC_ERROR_SHAPE = 2,   /* rank, or extents the model was not compiled for */
  DISC_ERROR_MEMORY = 3,  /* an allocation failed */
  DISC_ERROR_INVALID = 4, /* misuse */
  DISC_ERROR_INDEX = 5    /* an element of an input indexes beyond a dimension */
} disc_status;

typedef struct disc_model disc_model;

/* Loads a model: takes ownership of the parameters (also on failure), in the order of
 * `info`, and does the work that depends on them alone. `threads` counts the caller; 0
 * means every core. `info` and the code must outlive the model. */
disc_status disc_model_create(const disc_model_info_t *info, disc_entry_fn init, disc_entry_fn main, int32_t threads,
                              DLManagedTensorVersioned *const *parameters, int64_t num_parameters, disc_model **model);

/* Outputs live until their own deleter is called, also beyond the model. */
disc_status disc_model_run(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                           DLManagedTensorVersioned **outputs, int64_t num_outputs);

void disc_model_destroy(disc_model *model);

/* What the last failing call on this thread said. Valid until the next one fails. */
const char *disc_last_error(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DISC_RUNTIME_DISC_H */
