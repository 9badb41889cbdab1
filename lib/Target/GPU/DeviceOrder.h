//===- DeviceOrder.h - kernels that put things in order -----------*- C++ -*-===//
//
// A call with `ordered` is several kernels, which disc_rt_device_order (lib/Runtime/Core/Abi.h) launches:
//
//   tiles    the keys of 256 things each, sorted
//   merges   pairs of sorted runs become runs twice as long; as often as it takes
//   the rest, which reads what is in order
//
// They take three numbers more than the kernel's own arguments: where in the memory for the order the last step's keys
// are (`from`) and this one's go (`to`), and how long its runs are (`run`). The number of each thing lies `count`
// behind its key. Things with the same key stay in the order that they had.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEORDER_H
#define DISC_LIB_TARGET_GPU_DEVICEORDER_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Target/GPU/DeviceKernel.h"

namespace mlir::disc {

/// What the steps of one call share.
class DeviceOrder {
public:
  static constexpr int64_t kThreads = DISC_RT_ORDER_TILE, kExtra = DISC_RT_ORDER_ARGS;
  /// The key of what is to come last, and to be left out by what follows.
  static constexpr int64_t kNone = INT64_MAX;

  DeviceOrder(DeviceKernel &k, const SymExpr &rows, const SymExpr &length);

  /// `key` is asked for the key (i64) of thing `i` of a row, where there is one.
  void tiles(function_ref<Value(Value row, Value i)> key);
  void merges();

  /// After the last step: the key (i64) in a place of all rows, and the number (index) of the thing that is there.
  Value key(Value place) { return load(m.add(from(), place)); }
  Value thing(Value place) { return m.index(load(m.add(m.add(from(), count), place))); }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  PointEmitter points;
  const Value length, count; // of a row's things, and of all: index

private:
  Value from() { return extra(0); }
  Value to() { return extra(1); }
  Value run() { return extra(2); }
  Value extra(unsigned i);
  Value load(Value at) { return points.load(memory, Idx(at), b.getI64Type()); }
  /// Writes a key and its thing at a place of this step's result.
  void put(Value place, Value key, Value thing);

  Value memory;
};

/// Pairs of runs of a call's keys become one each.
LogicalResult emitMerges(DeviceKernel &k, const SymExpr &rows, const SymExpr &length);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICEORDER_H
