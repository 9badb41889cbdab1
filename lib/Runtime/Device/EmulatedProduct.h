//===- EmulatedProduct.h - what a device's library of products does -*- C++ -*-===//
#ifndef DISC_RUNTIME_DEVICE_EMULATEDPRODUCT_H
#define DISC_RUNTIME_DEVICE_EMULATEDPRODUCT_H

#include "lib/Runtime/Device/Device.h"

namespace disc::rt {

/// Does the product on the CPU as cuBLASLt and hipBLASLt would, from its description alone, to test what compiled code
/// says of it. False if its elements are of no known type.
bool emulateProduct(const DeviceProduct &product);

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_EMULATEDPRODUCT_H
