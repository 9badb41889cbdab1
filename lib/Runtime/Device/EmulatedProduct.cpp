//===- EmulatedProduct.cpp - what a device's library of products does -----===//

#include "lib/Runtime/Device/EmulatedProduct.h"

#include <cmath>

using namespace disc::rt;

static float geluTanh(float x) { return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x))); }

/// Sums, the row and GELU are of float32; the result is rounded once.
template <typename T> static void multiply(const DeviceProduct &p) {
  const auto *a = static_cast<const T *>(p.a), *b = static_cast<const T *>(p.b), *bias = static_cast<const T *>(p.bias);
  auto *c = static_cast<T *>(p.c);
  int64_t aRow = p.what->a_columns ? 1 : p.k, aColumn = p.what->a_columns ? p.m : 1;
  int64_t bRow = p.what->b_columns ? 1 : p.n, bColumn = p.what->b_columns ? p.k : 1;
  std::vector<float> sums(size_t(p.n));
  for (int64_t z = 0; z < p.batch; ++z, a += p.strideA, b += p.strideB, c += p.strideC)
    for (int64_t i = 0; i < p.m; ++i) {
      sums.assign(size_t(p.n), 0.0f);
      for (int64_t k = 0; k < p.k; ++k)
        for (int64_t j = 0; j < p.n; ++j)
          sums[size_t(j)] += float(a[i * aRow + k * aColumn]) * float(b[k * bRow + j * bColumn]);
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = sums[size_t(j)] + (p.what->epilogue == DISC_PRODUCT_PLAIN ? 0.0f : float(bias[j]));
        c[i * p.n + j] = T(p.what->epilogue == DISC_PRODUCT_BIAS_GELU_TANH ? geluTanh(sum) : sum);
      }
    }
}

bool disc::rt::emulateProduct(const DeviceProduct &product) {
  switch (product.what->dtype) {
  case DISC_F32:
    return multiply<float>(product), true;
  case DISC_F16:
    return multiply<_Float16>(product), true;
  case DISC_BF16:
    return multiply<__bf16>(product), true;
  default:
    return false;
  }
}
