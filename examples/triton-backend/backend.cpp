//===- backend.cpp - the functions that Triton calls ----------------------===//

#include "api.h"
#include "batch.h"
#include "hosted_model.h"

#include <memory>

using namespace triton_disc;

static HostedModel *stateOf(TRITONBACKEND_Model *model) {
  void *state = nullptr;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<HostedModel *>(state);
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *) {
  return guarded([] {
    uint32_t major = 0, minor = 0;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != kTritonApiMajor || minor < kTritonApiMinor)
      throw std::runtime_error("backend 'disc' needs version " + std::to_string(kTritonApiMajor) + "." +
                               std::to_string(kTritonApiMinor) + " of the backend API or a later " +
                               std::to_string(kTritonApiMajor) + ".x; this server has " + std::to_string(major) + "." +
                               std::to_string(minor));
  });
}

TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *,
                                                      TRITONBACKEND_BackendAttribute *attributes) {
  return guarded([&] {
    // Also on a machine with GPUs.
    check(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1,
                                                                  nullptr, 0));
    check(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true));
  });
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  return guarded([&] {
    auto hosted = std::make_unique<HostedModel>(model);
    check(TRITONBACKEND_ModelSetState(model, hosted.get()));
    hosted.release();
  });
}

/// Triton also calls this for a model that could not be initialized.
TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  return guarded([&] {
    std::unique_ptr<HostedModel> hosted(stateOf(model));
    check(TRITONBACKEND_ModelSetState(model, nullptr));
  });
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  return guarded([&] {
    TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
    check(TRITONBACKEND_ModelInstanceKind(instance, &kind));
    const char *name = nullptr;
    check(TRITONBACKEND_ModelInstanceName(instance, &name));
    if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
      throw std::runtime_error("instance '" + std::string(name) +
                               "' is for a GPU; the backend runs libraries for the CPU. Set kind: KIND_CPU in "
                               "instance_group of config.pbtxt");
  });
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests, uint32_t count) {
  // Until the requests are taken over, an error is Triton's to answer them with.
  TRITONBACKEND_Model *model = nullptr;
  const HostedModel *hosted = nullptr;
  if (TRITONSERVER_Error *error = guarded([&] {
        check(TRITONBACKEND_ModelInstanceModel(instance, &model));
        hosted = stateOf(model);
      }))
    return error;
  Batch(*hosted, instance).answer(requests, count);
  return nullptr;
}
