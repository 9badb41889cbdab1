//===- Dense.h - Eigen on the memory of the functions -----------*- C++ -*-===//
//
// Eigen's decompositions take their workspaces from malloc, and throw if there is none: a function that uses them runs
// within decomposing().
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_DENSE_H
#define DISC_RUNTIME_FUNCTIONS_DENSE_H

#define EIGEN_MPL2_ONLY
// A host program's threads may have small stacks; larger temporaries are allocated.
#define EIGEN_STACK_ALLOCATION_LIMIT 16384
#define EIGEN_DEFAULT_DENSE_INDEX_TYPE int64_t // also where pointers have 32 bits

#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Functions/Matrices.h"

#include <Eigen/Core>

namespace disc::rt {

using ColumnMajor = Eigen::MatrixXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline Eigen::Map<RowMajor> inRows(Matrix a) { return {a.data, a.rows, a.cols}; }

/// What `body` returns; DISC_ERROR_MEMORY if Eigen found no memory.
template <typename Body> int32_t decomposing(disc_call *call, Body body) {
  return guarded([&]() -> int32_t { return body(); },
                 [&] {
                   return disc_rt_function_failed(call, DISC_ERROR_MEMORY,
                                                  "no memory for the workspace of a decomposition");
                 });
}

} // namespace disc::rt

#endif // DISC_RUNTIME_FUNCTIONS_DENSE_H
