//===- DLPack.h - tensors as they cross the boundary -----------------------===//
//
// The data structures of DLPack 1.x (https://dmlc.github.io/dlpack), which every tensor
// framework understands. Written out here so that the runtime depends on no package;
// skipped when the caller has already included DLPack's own header.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_DLPACK_H
#define DISC_RUNTIME_CORE_DLPACK_H

#include <stdint.h>

#ifndef DLPACK_DLPACK_H_

#ifdef __cplusplus
extern "C" {
#endif

enum { kDLCPU = 1 };
enum { kDLFloat = 2 };

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; ///< In elements. NULL means row-major contiguous.
  uint64_t byte_offset;
} DLTensor;

typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  /// Releases the tensor and the structure itself.
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
} // extern "C"
#endif

#endif // DLPACK_DLPACK_H_
#endif // DISC_RUNTIME_CORE_DLPACK_H
