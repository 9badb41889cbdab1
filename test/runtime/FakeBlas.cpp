//===- FakeBlas.cpp - cuBLASLt and hipBLASLt over a fake driver -----------===//

#include "FakeDriver.h"

#include <cmath>
#include <cstring>

using namespace disc::test;

#ifdef DISC_FAKE_HIP
#define API(cuda, hip) extern "C" __attribute__((visibility("default"))) int hip
enum { kTransposeA = 0, kTransposeB = 1, kEpilogue = 2, kBias = 3, kTransposed = 112, kBatch = 0, kStride = 1 };
constexpr size_t kAlgorithm = 24;
#else
#define API(cuda, hip) extern "C" __attribute__((visibility("default"))) int cuda
enum { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBias = 8, kTransposed = 1, kBatch = 5, kStride = 6 };
constexpr size_t kAlgorithm = 64;
#endif

namespace {
struct Product {
  int compute = 0, transposeA = 0, transposeB = 0, epilogue = 1;
  const float *bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t stride = 0;
};
int products = 0; ///< Alive, with layouts and preferences.
} // namespace

API(cublasLtCreate, hipblasLtCreate)(void **handle) {
  *handle = &products;
  return fakeCall("createBlas", "");
}
API(cublasLtMatmulDescCreate, hipblasLtMatmulDescCreate)(void **product, int compute, int) {
  if (int result = fakeOutcome("createProduct"))
    return result;
  *product = new Product;
  static_cast<Product *>(*product)->compute = compute;
  return 0;
}
API(cublasLtMatmulDescSetAttribute, hipblasLtMatmulDescSetAttribute)(void *product, int attribute, const void *value,
                                                                     size_t bytes) {
  auto &self = *static_cast<Product *>(product);
  void *field = attribute == kTransposeA   ? static_cast<void *>(&self.transposeA)
                : attribute == kTransposeB ? static_cast<void *>(&self.transposeB)
                : attribute == kEpilogue   ? static_cast<void *>(&self.epilogue)
                : attribute == kBias       ? static_cast<void *>(&self.bias)
                                           : nullptr;
  if (field)
    std::memcpy(field, value, bytes);
  return fakeOutcome("setProduct");
}
API(cublasLtMatmulDescDestroy, hipblasLtMatmulDescDestroy)(void *product) {
  delete static_cast<Product *>(product);
  return 0;
}
API(cublasLtMatrixLayoutCreate, hipblasLtMatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns,
                                                             int64_t leading) {
  if (int result = fakeOutcome("createLayout"))
    return result;
  *layout = new Layout{type, rows, columns, leading};
  return 0;
}
API(cublasLtMatrixLayoutSetAttribute, hipblasLtMatrixLayoutSetAttribute)(void *layout, int attribute, const void *value,
                                                                         size_t bytes) {
  auto &self = *static_cast<Layout *>(layout);
  if (attribute == kBatch)
    std::memcpy(&self.batch, value, bytes);
  if (attribute == kStride)
    std::memcpy(&self.stride, value, bytes);
  return fakeOutcome("setLayout");
}
API(cublasLtMatrixLayoutDestroy, hipblasLtMatrixLayoutDestroy)(void *layout) {
  delete static_cast<Layout *>(layout);
  return 0;
}
API(cublasLtMatmulPreferenceCreate, hipblasLtMatmulPreferenceCreate)(void **preference) {
  if (int result = fakeOutcome("createPreference"))
    return result;
  *preference = new std::string;
  return 0;
}
API(cublasLtMatmulPreferenceSetAttribute, hipblasLtMatmulPreferenceSetAttribute)(void *preference, int attribute,
                                                                                 const void *value, size_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, value, bytes);
  if (attribute == 3 || attribute == 5)
    *static_cast<std::string *>(preference) += (attribute == 3 ? " sums " : " aligned ") + std::to_string(number);
  return fakeOutcome("setPreference");
}
API(cublasLtMatmulPreferenceDestroy, hipblasLtMatmulPreferenceDestroy)(void *preference) {
  delete static_cast<std::string *>(preference);
  return 0;
}

API(cublasLtMatmulAlgoGetHeuristic, hipblasLtMatmulAlgoGetHeuristic)(void *, void *, void *, void *, void *c, void *,
                                                                     void *preference, int, void *results, int *found) {
  auto &layout = *static_cast<Layout *>(c);
  std::string what = std::to_string(layout.columns) + "x" + std::to_string(layout.rows);
  *found = 0;
  if (int result = fakeCall("heuristic", what + *static_cast<std::string *>(preference)))
    return result;
  size_t workspace = 1024;
  int status = fakeCall("state", "");
  std::memcpy(results, &layout.columns, sizeof(layout.columns));
  std::memcpy(static_cast<char *>(results) + kAlgorithm, &workspace, sizeof(workspace));
  std::memcpy(static_cast<char *>(results) + kAlgorithm + sizeof(workspace), &status, sizeof(status));
  *found = 1;
  return 0;
}

#ifndef DISC_FAKE_HIP
/// Needs a workspace of another size than the heuristic said.
API(cublasLtMatmulAlgoCheck, )(void *, void *, void *, void *, void *c, void *, const void *, void *result) {
  auto &layout = *static_cast<Layout *>(c);
  size_t workspace = 512;
  std::memcpy(static_cast<char *>(result) + kAlgorithm, &workspace, sizeof(workspace));
  return fakeCall("check", std::to_string(layout.columns) + "x" + std::to_string(layout.rows));
}
#endif

API(cublasLtMatmul, hipblasLtMatmul)(void *, void *product, const void *alpha, const void *a, void *layoutA,
                                     const void *b, void *layoutB, const void *beta, const void *, void *, void *d,
                                     void *layoutD, const void *algorithm, void *workspace, size_t bytes,
                                     void *stream) {
  uint64_t rows;
  std::memcpy(&rows, algorithm, sizeof(rows));
  Product p = *static_cast<Product *>(product);
  Layout A = *static_cast<Layout *>(layoutA), B = *static_cast<Layout *>(layoutB), D = *static_cast<Layout *>(layoutD);
  if (int result = fakeCall("multiply", "by " + std::to_string(rows) + " compute " + std::to_string(p.compute)))
    return result;
  if (*static_cast<const float *>(alpha) != 1 || *static_cast<const float *>(beta) != 0 ||
      (bytes != 512 && bytes != 1024) || A.type != 0)
    return 14;
  bool ta = p.transposeA == kTransposed, tb = p.transposeB == kTransposed;
  fakeEnqueue(stream, [=] {
    std::memset(workspace, 0x55, bytes);
    uint64_t inner = ta ? A.rows : A.columns;
    for (int64_t batch = 0; batch < D.batch; ++batch) {
      auto *x = static_cast<const float *>(a) + batch * A.stride, *y = static_cast<const float *>(b) + batch * B.stride;
      auto *z = static_cast<float *>(d) + batch * D.stride;
      for (uint64_t i = 0; i < D.rows; ++i)
        for (uint64_t j = 0; j < D.columns; ++j) {
          float sum = p.epilogue & 4 ? p.bias[i] : 0;
          for (uint64_t k = 0; k < inner; ++k)
            sum += (ta ? x[k + i * uint64_t(A.leading)] : x[i + k * uint64_t(A.leading)]) *
                   (tb ? y[j + k * uint64_t(B.leading)] : y[k + j * uint64_t(B.leading)]);
          if (p.epilogue & 32)
            sum = 0.5f * sum * (1 + std::tanh(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
          z[i + j * uint64_t(D.leading)] = sum;
        }
    }
  });
  return 0;
}
