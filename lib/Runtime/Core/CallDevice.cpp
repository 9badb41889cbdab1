//===- CallDevice.cpp - a call whose kernels run on a device --------------===//

#include "lib/Runtime/Core/Call.h"

#include <iterator>

using namespace disc::rt;

int32_t disc_call::deviceLaunch(int64_t kernel, void *const *args, int64_t count, int64_t blocks) {
  const disc_device_code *code = model.info().device;
  if (!code || kernel < 0 || kernel >= code->num_kernels || count < 0 || blocks < 0)
    return record(Status(Code::Invalid, "the compiled code launches kernel " + std::to_string(kernel) + " in " +
                                            std::to_string(blocks) + " blocks, which its table does not have"));
  if (blocks == 0)
    return 0;
  void *few[32];
  std::vector<void *> many(size_t(count) > std::size(few) ? size_t(count) : 0);
  void **places = many.empty() ? few : many.data();
  for (int64_t i = 0; i < count; ++i)
    places[i] = const_cast<void **>(&args[i]);
  return record(model.device()->launch(*model.module_, {kernel, places, count, blocks}, nullptr));
}

int32_t disc_call::deviceCopy(void *to, const void *from, int64_t bytes) {
  if (!model.device() || bytes < 0)
    return record(Status(Code::Invalid, "the compiled code copies " + std::to_string(bytes) + " bytes on no device"));
  return record(model.device()->copy(to, from, size_t(bytes), nullptr));
}

int32_t disc_call::deviceRead(void *to, const void *from, int64_t bytes) {
  if (!model.device() || bytes < 0)
    return record(Status(Code::Invalid, "the compiled code reads " + std::to_string(bytes) + " bytes from no device"));
  return record(model.device()->read(to, from, size_t(bytes), nullptr));
}
