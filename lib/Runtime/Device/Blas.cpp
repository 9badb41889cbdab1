//===- Blas.cpp - products by cuBLASLt and hipBLASLt ----------------------===//

#include "lib/Runtime/Device/Blas.h"
#include "lib/Runtime/Device/Driver.h"

#include <cstring>
#include <utility>

namespace disc::rt {

//===-- The libraries -----------------------------------------------------===//

/// What is the same in both.
struct BlasTable {
  int (*create)(void **handle);
  int (*createProduct)(void **product, int compute, int scale);
  int (*setProduct)(void *product, int attribute, const void *value, size_t bytes);
  int (*destroyProduct)(void *product);
  int (*createLayout)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*setLayout)(void *layout, int attribute, const void *value, size_t bytes);
  int (*destroyLayout)(void *layout);
  int (*createPreference)(void **preference);
  int (*setPreference)(void *preference, int attribute, const void *value, size_t bytes);
  int (*destroyPreference)(void *preference);
  int (*heuristic)(void *handle, void *product, void *a, void *b, void *c, void *d, void *preference, int wanted,
                   void *results, int *found);
  /// Whether an algorithm suits a product; the result is one of the heuristic. Null: the library cannot tell, and runs
  /// whatever it is told to.
  int (*check)(void *handle, void *product, void *a, void *b, void *c, void *d, const void *algorithm, void *result);
  int (*multiply)(void *handle, void *product, const void *alpha, const void *a, void *layoutA, const void *b,
                  void *layoutB, const void *beta, const void *c, void *layoutC, void *d, void *layoutD,
                  const void *algorithm, void *workspace, size_t workspaceBytes, void *stream);

  // Numbers that differ.
  int compute, computeTf32;
  int plain, transposed;                                ///< cublasOperation_t
  int transposeA, transposeB, epilogue, bias, biasType; ///< Attributes of a product.
  int batch, batchStride;                               ///< Attributes of a layout.
  int alignment;         ///< The first of four attributes of a preference; -1: there are none.
  int reduction;         ///< An attribute of a preference; -1: there is none.
  size_t algorithmBytes; ///< Of a result of the heuristic; the size of its workspace and its status follow.
  int invalid, mismatch, unsupported; ///< Statuses of what the library does not do.
};

constexpr int kPreferredWorkspace = 1, kEpilogueBias = 4, kEpilogueGeluBias = 36;
/// Parts of a sum are added in the type that they were computed in: float32, not float16.
constexpr uint32_t kReductionInComputeType = 2;
constexpr size_t kWorkspace = size_t(32) << 20;

static Status openCublas(BlasTable &table) {
  table.compute = 68, table.computeTf32 = 77;
  table.plain = 0, table.transposed = 1;
  table.transposeA = 3, table.transposeB = 4, table.epilogue = 7, table.bias = 8, table.biasType = 26;
  table.batch = 5, table.batchStride = 6;
  table.alignment = 5, table.reduction = 3;
  table.algorithmBytes = 64;
  table.invalid = 7, table.mismatch = 8, table.unsupported = 15;
  SharedLibrary library("products", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"});
  library.find(table.create, "cublasLtCreate");
  library.find(table.createProduct, "cublasLtMatmulDescCreate");
  library.find(table.setProduct, "cublasLtMatmulDescSetAttribute");
  library.find(table.destroyProduct, "cublasLtMatmulDescDestroy");
  library.find(table.createLayout, "cublasLtMatrixLayoutCreate");
  library.find(table.setLayout, "cublasLtMatrixLayoutSetAttribute");
  library.find(table.destroyLayout, "cublasLtMatrixLayoutDestroy");
  library.find(table.createPreference, "cublasLtMatmulPreferenceCreate");
  library.find(table.setPreference, "cublasLtMatmulPreferenceSetAttribute");
  library.find(table.destroyPreference, "cublasLtMatmulPreferenceDestroy");
  library.find(table.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(table.check, "cublasLtMatmulAlgoCheck");
  library.find(table.multiply, "cublasLtMatmul");
  return library.take();
}

static Status openHipblas(BlasTable &table) {
  table.compute = 2, table.computeTf32 = 6;
  table.plain = 111, table.transposed = 112;
  table.transposeA = 0, table.transposeB = 1, table.epilogue = 2, table.bias = 3, table.biasType = 4;
  table.batch = 0, table.batchStride = 1;
  table.alignment = table.reduction = -1;
  table.algorithmBytes = 24;
  table.invalid = 3, table.mismatch = 8, table.unsupported = 7;
  SharedLibrary library("products", {"libhipblaslt.so", "libhipblaslt.so.1", "libhipblaslt.so.0"});
  library.find(table.create, "hipblasLtCreate");
  library.find(table.createProduct, "hipblasLtMatmulDescCreate");
  library.find(table.setProduct, "hipblasLtMatmulDescSetAttribute");
  library.find(table.destroyProduct, "hipblasLtMatmulDescDestroy");
  library.find(table.createLayout, "hipblasLtMatrixLayoutCreate");
  library.find(table.setLayout, "hipblasLtMatrixLayoutSetAttribute");
  library.find(table.destroyLayout, "hipblasLtMatrixLayoutDestroy");
  library.find(table.createPreference, "hipblasLtMatmulPreferenceCreate");
  library.find(table.setPreference, "hipblasLtMatmulPreferenceSetAttribute");
  library.find(table.destroyPreference, "hipblasLtMatmulPreferenceDestroy");
  library.find(table.heuristic, "hipblasLtMatmulAlgoGetHeuristic");
  library.find(table.multiply, "hipblasLtMatmul");
  return library.take();
}

std::unique_ptr<Blas> Blas::open(const std::string &device) {
  // Filled once per process and kind; several devices share them.
  static Mutex mutex;
  static BlasTable tables[2];
  static int states[2]; // 0: not tried, 1: open, 2: not there
  std::lock_guard<Mutex> lock(mutex);
  size_t kind = device == "cuda" ? 0 : 1;
  if (states[kind] == 0)
    states[kind] = (kind == 0 ? openCublas(tables[0]) : openHipblas(tables[1])).ok() ? 1 : 2;
  void *handle = nullptr;
  if (states[kind] != 1 || tables[kind].create(&handle) != 0)
    return nullptr;
  return std::unique_ptr<Blas>(new Blas(tables[kind], handle));
}

//===-- One product -------------------------------------------------------===//

/// cudaDataType, hipDataType; -1: not ours.
static int typeOf(int64_t dtype) {
  return dtype == DISC_F32 ? 0 : dtype == DISC_F16 ? 2 : dtype == DISC_BF16 ? 14 : -1;
}

/// The library's descriptions of a product. Its matrices are column-major, so that ours are transposed: it computes
/// cT = bT * aT, and what it calls A is our b.
struct Blas::Operation {
  Operation(const BlasTable &table, const DeviceProduct &p) : table(table) {
    int type = typeOf(p.what->dtype), f32 = 0;
    ok = type >= 0 && !table.createProduct(&product, p.what->tf32 ? table.computeTf32 : table.compute, f32);
    ok = ok && set(table.transposeA, p.what->b_columns ? table.transposed : table.plain) &&
         set(table.transposeB, p.what->a_columns ? table.transposed : table.plain);
    if (p.what->epilogue != DISC_PRODUCT_PLAIN)
      ok = ok && set(table.epilogue, p.what->epilogue == DISC_PRODUCT_BIAS ? kEpilogueBias : kEpilogueGeluBias) &&
           set(table.biasType, type) && setBias(p);
    ok = ok && layout(b, type, p.what->b_columns ? p.k : p.n, p.what->b_columns ? p.n : p.k, p.batch, p.strideB) &&
         layout(a, type, p.what->a_columns ? p.m : p.k, p.what->a_columns ? p.k : p.m, p.batch, p.strideA) &&
         layout(c, type, p.n, p.m, p.batch, p.strideC);
  }
  ~Operation() {
    if (product)
      table.destroyProduct(product);
    for (void *layout : {a, b, c})
      if (layout)
        table.destroyLayout(layout);
  }

  bool setBias(const DeviceProduct &p) {
    return p.what->epilogue == DISC_PRODUCT_PLAIN || !table.setProduct(product, table.bias, &p.bias, sizeof(p.bias));
  }
  bool set(int attribute, int32_t value) { return !table.setProduct(product, attribute, &value, sizeof(value)); }
  bool layout(void *&made, int type, int64_t rows, int64_t columns, int64_t batch, int64_t stride) {
    int32_t count = int32_t(batch);
    return count == batch && !table.createLayout(&made, type, uint64_t(rows), uint64_t(columns), rows) &&
           !table.setLayout(made, table.batch, &count, sizeof(count)) &&
           !table.setLayout(made, table.batchStride, &stride, sizeof(stride));
  }

  const BlasTable &table;
  void *product = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  bool ok;
};

/// A result of the heuristic's.
struct Blas::Found {
  /// False if it is none. What a check wrote has no algorithm: that is the one that was checked.
  bool read(const BlasTable &table, Algorithm &algorithm, bool isNew) const {
    int status = 0;
    const unsigned char *next = bytes + table.algorithmBytes;
    std::memcpy(&algorithm.workspace, next, sizeof(algorithm.workspace));
    std::memcpy(&status, next + sizeof(algorithm.workspace), sizeof(status));
    if (isNew)
      std::memcpy(algorithm.data.data(), bytes, table.algorithmBytes);
    return status == 0 && algorithm.workspace <= kWorkspace;
  }
  alignas(16) unsigned char bytes[256] = {};
};

int64_t Blas::bucket(int64_t extent) {
  if (extent <= 64)
    return extent;
  int64_t step = int64_t(1) << (61 - __builtin_clzll(uint64_t(extent))); // a quarter of its power of 2
  int64_t top = (extent + step - 1) / step * step;
  return top - (top - extent) % 8;
}

Blas::Key Blas::keyOf(const DeviceProduct &p, int64_t alignment) {
  return {p.what->dtype, p.what->a_columns, p.what->b_columns, p.what->epilogue, p.what->tf32, p.batch, p.m, p.n,
          p.k,           p.strideA,         p.strideB,         p.strideC,        alignment};
}

/// Of either table.
constexpr size_t kMost = 1024;

const Blas::Algorithm &Blas::algorithm(const DeviceProduct &p, int64_t alignment) {
  Key key = keyOf(p, alignment);
  auto it = algorithms.find(key);
  if (it != algorithms.end())
    return it->second;
  // Whatever was in it gives the same again.
  if (algorithms.size() >= kMost)
    algorithms.clear();
  Algorithm &result = algorithms[key];
  result = {};
  Operation operation(table, p);
  void *preference = nullptr;
  if (!operation.ok || table.createPreference(&preference))
    return result;
  size_t workspace = kWorkspace;
  bool set = !table.setPreference(preference, kPreferredWorkspace, &workspace, sizeof(workspace));
  uint32_t bytes = uint32_t(alignment);
  for (int i = 0; i < 4 && table.alignment >= 0; ++i)
    set = set && !table.setPreference(preference, table.alignment + i, &bytes, sizeof(bytes));
  if (table.reduction >= 0)
    set = set && !table.setPreference(preference, table.reduction, &kReductionInComputeType, sizeof(uint32_t));
  Found found;
  int count = 0;
  if (set &&
      !table.heuristic(handle, operation.product, operation.b, operation.a, operation.c, operation.c, preference, 1,
                       found.bytes, &count) &&
      count == 1)
    result.exists = found.read(table, result, /*isNew=*/true);
  table.destroyPreference(preference);
  return result;
}

/// How products of one shape and alignment are done.
struct Blas::Plan {
  Plan(const BlasTable &table, const DeviceProduct &p) : operation(table, p) {}

  Mutex mutex; ///< The description has the address of a product's bias.
  Operation operation;
  Algorithm algorithms[2] = {}; ///< For the bucket, and for the shape where that one does not suit.
  bool isAskedForShape = false;
  std::atomic<int> last{kNever}; ///< Which one did the last product; kKernel: neither.
  static constexpr int kNever = -2, kKernel = -1;
};

std::shared_ptr<Blas::Plan> Blas::plan(const DeviceProduct &p) {
  int64_t alignment = p.alignment();
  std::lock_guard<Mutex> lock(mutex);
  Key key = keyOf(p, alignment);
  auto it = plans.find(key);
  if (it != plans.end())
    return it->second;
  auto made = std::make_shared<Plan>(table, p);
  Operation &operation = made->operation;
  // A library that does not check would compute something else with an algorithm for the bucket.
  if (operation.ok && table.check) {
    DeviceProduct shape = p; // of the whole bucket, with matrices close to each other
    shape.m = bucket(p.m), shape.n = bucket(p.n), shape.k = bucket(p.k);
    shape.strideA = p.strideA ? shape.m * shape.k : 0;
    shape.strideB = p.strideB ? shape.k * shape.n : 0;
    shape.strideC = shape.m * shape.n;
    Algorithm &chosen = made->algorithms[0] = algorithm(shape, alignment);
    Found found;
    chosen.exists = chosen.exists &&
                    !table.check(handle, operation.product, operation.b, operation.a, operation.c, operation.c,
                                 chosen.data.data(), found.bytes) &&
                    found.read(table, chosen, /*isNew=*/false);
  }
  if (operation.ok && !made->algorithms[0].exists) {
    made->algorithms[1] = algorithm(p, alignment);
    made->isAskedForShape = true;
  }
  if (plans.size() >= kMost)
    plans.clear();
  plans.emplace(key, made);
  return made;
}

ProductBy Blas::by(const DeviceProduct &p, size_t &memoryBytes) {
  std::shared_ptr<Plan> known;
  {
    std::lock_guard<Mutex> lock(mutex);
    auto it = plans.find(keyOf(p, p.alignment()));
    if (it == plans.end())
      return ProductBy::Unknown;
    known = it->second;
  }
  int last = known->last.load(std::memory_order_acquire);
  if (last < 0)
    return last == Plan::kKernel ? ProductBy::Kernel : ProductBy::Unknown;
  memoryBytes = known->algorithms[last].workspace;
  return ProductBy::Library;
}

Status Blas::multiply(const DeviceProduct &p, const ProductMemory &memory, Stream stream, bool &done) {
  done = false;
  std::shared_ptr<Plan> plan = this->plan(p);
  Operation &operation = plan->operation;
  std::lock_guard<Mutex> lock(plan->mutex);
  // An algorithm for the bucket may not suit all of it; then it is one for the shape.
  for (int i = 0; i < 2 && operation.ok && operation.setBias(p); ++i) {
    if (i == 1 && !std::exchange(plan->isAskedForShape, true)) {
      std::lock_guard<Mutex> lock(mutex);
      plan->algorithms[1] = algorithm(p, p.alignment());
    }
    const Algorithm &chosen = plan->algorithms[i];
    if (!chosen.exists)
      continue;
    void *workspace = chosen.workspace ? memory(chosen.workspace) : nullptr;
    if (chosen.workspace && !workspace)
      return Status(Code::Memory, "no memory for " + std::to_string(chosen.workspace) + " bytes of a product");
    float one = 1, zero = 0;
    int result = table.multiply(handle, operation.product, &one, p.b, operation.b, p.a, operation.a, &zero, p.c,
                                operation.c, p.c, operation.c, chosen.data.data(), workspace, chosen.workspace, stream);
    if (result == 0) {
      done = true;
      plan->last.store(i, std::memory_order_release);
      return Status();
    }
    if (result != table.invalid && result != table.mismatch && result != table.unsupported)
      return Status(Code::Device, "a product by the library failed with status " + std::to_string(result));
  }
  plan->last.store(Plan::kKernel, std::memory_order_release);
  return Status();
}

} // namespace disc::rt
