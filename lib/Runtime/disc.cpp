//===- disc.cpp - the public C interface ----------------------------------===//

#include "lib/Runtime/Core/Direct.h"
#include "lib/Runtime/Core/Model.h"

using namespace disc::rt;

static_assert(int32_t(Code::Type) == DISC_ERROR_TYPE && int32_t(Code::Shape) == DISC_ERROR_SHAPE &&
                  int32_t(Code::Memory) == DISC_ERROR_MEMORY && int32_t(Code::Invalid) == DISC_ERROR_INVALID &&
                  int32_t(Code::Index) == DISC_ERROR_INDEX,
              "one set of codes");

struct disc_model {
  Model model;
};

static thread_local std::string lastError;

static disc_status report(const Status &status) {
  if (!status.ok())
    lastError = status.error().message;
  return disc_status(status.code());
}

disc_status disc_model_create(const disc_model_info_t *info, disc_entry_fn init, disc_entry_fn main, int32_t threads,
                              DLManagedTensorVersioned *const *parameters, int64_t num_parameters, disc_model **model) {
  *model = nullptr;
  auto *created = new disc_model{Model(*info, init, main, unsigned(threads < 0 ? 0 : threads))};
  Status status = created->model.load(parameters, size_t(num_parameters));
  if (status.ok())
    *model = created;
  else
    delete created;
  return report(status);
}

disc_status disc_model_run(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                           DLManagedTensorVersioned **outputs, int64_t num_outputs) {
  return report(model->model.run(inputs, size_t(num_inputs), outputs, size_t(num_outputs)));
}

void disc_model_destroy(disc_model *model) { delete model; }

const char *disc_last_error(void) { return lastError.c_str(); }
