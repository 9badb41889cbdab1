//===- model.cpp - what the service asks of a model of tensors ------------===//

#include "model.h"

namespace service {

Shape TensorSpec::shape() const {
  Shape result = min;
  for (size_t d = 0; d < result.size(); ++d)
    if (min[d] != max[d])
      result[d] = -1;
  return result;
}

} // namespace service
