//===- Blas.h - products by cuBLASLt and hipBLASLt --------------*- C++ -*-===//
//
// The two libraries differ, as the drivers do, in names and numbers. They are opened when the first product asks for
// them; without one, products are "unsupported" and the compiled code runs kernels of its own.
//
// Which algorithm a product gets follows from its shape alone: the library's heuristic is asked about the largest shape
// of the bucket that the shape lies in, once, and nothing is ever timed. hipBLASLt does not check whether an algorithm
// suits a shape, so it is asked about each. What a shape gets is kept, with the library's descriptions of it: later
// products of the shape ask nothing.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_BLAS_H
#define DISC_RUNTIME_DEVICE_BLAS_H

#include "lib/Runtime/Device/Device.h"

#include <array>
#include <atomic>
#include <map>

namespace disc::rt {

struct BlasTable;

class Blas {
public:
  /// Null if the driver's library is not there. The device is the current one.
  static std::unique_ptr<Blas> open(const std::string &device);

  /// Puts the product into the stream. `done` is false if the library cannot do it.
  Status multiply(const DeviceProduct &product, const ProductMemory &memory, Stream stream, bool &done);
  /// Who did the last one that was like it, and with how much memory.
  ProductBy by(const DeviceProduct &product, size_t &memoryBytes);

  /// The largest extent of the bucket of `extent`, of the same remainder by 8: what is aligned decides much.
  static int64_t bucket(int64_t extent);

private:
  struct Algorithm {
    std::array<unsigned char, 64> data;
    size_t workspace;
    bool exists;
  };
  using Key = std::array<int64_t, 13>;
  struct Operation;
  struct Found;
  struct Plan;

  Blas(const BlasTable &table, void *handle) : table(table), handle(handle) {}
  static Key keyOf(const DeviceProduct &product, int64_t alignment);
  const Algorithm &algorithm(const DeviceProduct &product, int64_t alignment);
  std::shared_ptr<Plan> plan(const DeviceProduct &product);

  const BlasTable &table;
  void *const handle;
  Mutex mutex;
  std::map<Key, Algorithm> algorithms;
  std::map<Key, std::shared_ptr<Plan>> plans;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_BLAS_H
