//===- Blas.h - products by cuBLASLt and hipBLASLt --------------*- C++ -*-===//
//
// The two libraries differ, as the drivers do, in names and numbers. They are opened when the first product asks for
// them; without one, products are "unsupported" and the compiled code runs kernels of its own.
//
// Which algorithm a product gets follows from its shape alone: the library's heuristic is asked about the largest shape
// of the bucket that the shape lies in, once, and nothing is ever timed. hipBLASLt does not check whether an algorithm
// suits a shape, so it is asked about each.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_BLAS_H
#define DISC_RUNTIME_DEVICE_BLAS_H

#include "lib/Runtime/Device/Device.h"

#include <array>
#include <map>

namespace disc::rt {

struct BlasTable;

class Blas {
public:
  /// Null if the driver's library is not there. The device is the current one.
  static std::unique_ptr<Blas> open(const std::string &device);

  /// Puts the product into the stream. `done` is false if the library cannot do it.
  Status multiply(Device &device, const DeviceProduct &product, Stream stream, bool &done);

  /// The largest extent of the bucket of `extent`, of the same remainder by 8: what is aligned decides much.
  static int64_t bucket(int64_t extent);

private:
  struct Algorithm {
    std::array<unsigned char, 64> data;
    size_t workspace;
    bool exists;
  };
  using Key = std::array<int64_t, 12>;
  struct Operation;
  struct Found;

  Blas(const BlasTable &table, void *handle) : table(table), handle(handle) {}
  const Algorithm &algorithm(const DeviceProduct &product, int64_t alignment);

  const BlasTable &table;
  void *const handle;
  Mutex mutex;
  std::map<Key, Algorithm> algorithms;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_BLAS_H
