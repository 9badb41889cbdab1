//===- Schedule.cpp - the numbers of a kernel's schedule ------------------===//
//
// One table per kind of kernel, for CPUs and for devices, of the fields that lib/Transforms/Schedule writes. Bounds are
// far beyond what the schedules choose: they keep generated code and its buffers of a size that can be compiled.
//
// Test: test/lit/Plan/invalid.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/Schedule.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr int64_t kMany = int64_t(1) << 40;

struct Field {
  enum class Type { Number, Numbers, Dims, Expr, Flag, Schedules };

  StringLiteral name;
  Type type = Type::Number;
  bool required = false;
  /// Of a number, of each element of a list, and of an expression that is constant.
  int64_t min = 1, max = 64;
};

constexpr Field::Type kExpr = Field::Type::Expr;

constexpr Field kLoop[] = {{"chunk", {}, false, 1, kMany}, {"unroll"}};
constexpr Field kRow[] = {{"accumulators"}, {"short_rows", {}, false, 0, 4096}};
constexpr Field kColumn[] = {{"blocks"}};
constexpr Field kContraction[] = {{"rows", {}, true},
                                  {"columns", Field::Type::Numbers, true, 1, 1024},
                                  {"k_block", {}, false, 1, kMany},
                                  {"row_tiles", kExpr, true, 1, kMany},
                                  {"lhs_scratch", kExpr, true, 0, kMany},
                                  {"lhs_panel", {}, false, 1, 64},
                                  {"rhs_scratch", kExpr, true, 0, kMany}};
constexpr Field kAttention[] = {{"rows", {}, true},
                                {"keys", {}, true, 1, kMany},
                                {"query_scratch", kExpr, true, 0, kMany},
                                {"score_scratch", kExpr, true, 0, kMany},
                                {"out_scratch", kExpr, true, 0, kMany},
                                {"few_queries", {}, false, 0, kMany}};
/// Beside the others, where `few_queries` is.
constexpr Field kFewQueries[] = {{"shared_dims", Field::Type::Dims, true, 0}, {"row_keys", {}, true, 1, kMany},
                                 {"large_bytes", {}, false, 0, kMany},        {"row_queries", kExpr, true, 0, kMany},
                                 {"row_scores", kExpr, true, 0, kMany},       {"row_results", kExpr, true, 0, kMany},
                                 {"row_stats", kExpr, true, 0, kMany}};
constexpr Field kConvolution[] = {{"rows", {}, true},
                                  {"columns", {}, true, 1, 1024},
                                  {"chunk_rows", kExpr, true, 1, kMany},
                                  {"chunk_tiles", kExpr, true, 1, kMany},
                                  {"input_scratch", kExpr, true, 0, kMany},
                                  {"merges_lines", Field::Type::Flag}};
constexpr Field kWinograd[] = {{"rows", {}, true},
                               {"columns", {}, true, 1, 1024},
                               {"chunk_tiles", kExpr, true, 1, kMany},
                               {"panel_groups", kExpr, true, 1, kMany},
                               {"plane", kExpr, true, 0, kMany},
                               {"sums_scratch", {}, true, 0, kMany}};

constexpr Field kThreads = {"threads", {}, true, 1, 1024};
constexpr Field kVector = {"vector", {}, true, 1, 16};
constexpr Field kPart = {"part", {}, false, 1, kMany};
constexpr Field kBlocksOfThreads[] = {kThreads};
constexpr Field kSchedules = {kVariants, Field::Type::Schedules};
constexpr Field kPoints = {"points", {}, false, 1, 16};
constexpr Field kDeviceLoop[] = {kThreads, kVector, kPoints, kSchedules};
constexpr Field kDeviceSum[] = {kThreads, {"line_threads", {}, true, 1, 1024}};
constexpr Field kDeviceRow[] = {kThreads, kVector, {"group", {}, false, 1, 1024}, kPoints, kPart, kSchedules};
constexpr Field kDeviceColumn[] = {
    kThreads, {"columns", {}, true, 1, 1024}, {"vector", {}, false, 1, 16}, kPart, kSchedules};
constexpr Field kDeviceProduct[] = {kThreads,
                                    {"tile_rows", {}, true, 1, 256},
                                    {"tile_columns", {}, true, 1, 256},
                                    {"tile_depth", {}, true},
                                    {"thread_rows", {}, true, 1, 16},
                                    {"thread_columns", {}, true, 1, 16},
                                    {kLibraryWhen, kExpr, false, -kMany, kMany}};
constexpr Field kDeviceMatrix[] = {kThreads,
                                   {"tile_rows", {}, true, 16, 256},
                                   {"tile_columns", {}, true, 8, 256},
                                   {"warp_rows", {}, true, 16, 256},
                                   {"warp_columns", {}, true, 8, 256},
                                   {"stages", {}, true, 2, 8},
                                   {"slices", {}, true, 1, 32},
                                   kSchedules,
                                   {kLibraryWhen, kExpr, false, -kMany, kMany}};
/// Beside the others, in a variant of these.
constexpr Field kVariant[] = {{kVariantWhen, kExpr, true, -kMany, kMany}, {kVariantTasks, kExpr, true, 0, kMany}};
constexpr Field kKeyParts = {kParts, kExpr, false, 1, 1024}, kShared = {"shared", {}, false, 1, 16};
constexpr Field kDeviceAttention[] = {kThreads,  {"queries", {}, true}, {"keys", {}, true, 1, 1024}, kKeyParts, kShared,
                                      kSchedules};
constexpr Field kMatrixAttention[] = {
    kThreads,  {"queries", {}, true}, {"keys", {}, true, 16, 1024}, {"warp_rows", {}, true, 16, 16}, kKeyParts, kShared,
    kSchedules};

struct Verifier {
  Operation *kernel;
  DictionaryAttr schedule;

  InFlightDiagnostic error() { return kernel->emitOpError("schedule: "); }
  LogicalResult bounds(const Field &field, int64_t value) {
    if (value >= field.min && value <= field.max)
      return success();
    return error() << "'" << field.name << "' must be from " << field.min << " to " << field.max << ", not " << value
                   << " (P8)";
  }
  LogicalResult check(const Field &field);
  LogicalResult check(ArrayRef<Field> fields, ArrayRef<Field> more = {});
  int64_t number(StringRef name) { return schedule.getAs<IntegerAttr>(name).getInt(); }
  /// `name` is a multiple of `divisor`.
  LogicalResult divides(StringRef name, int64_t divisor, StringRef what) {
    if (number(name) % divisor == 0)
      return success();
    return error() << "'" << name << "' is not a multiple of " << what << " (P8)";
  }
};

/// An integer as an attribute that `getInt` accepts.
bool isNumber(Attribute attr) {
  auto number = dyn_cast<IntegerAttr>(attr);
  return number && number.getType().isSignlessInteger(64);
}
} // namespace

LogicalResult Verifier::check(const Field &field) {
  Attribute attr = schedule.get(field.name);
  if (!attr)
    return field.required ? LogicalResult(error() << "'" << field.name << "' is missing (P8)") : success();
  auto wrongType = [&](StringRef wanted) {
    return error() << "'" << field.name << "' must be " << wanted << ", not " << attr << " (P8)";
  };
  switch (field.type) {
  case Field::Type::Number:
    return isNumber(attr) ? bounds(field, cast<IntegerAttr>(attr).getInt()) : wrongType("a 64-bit integer");
  case Field::Type::Numbers: {
    auto list = dyn_cast<ArrayAttr>(attr);
    if (!list || list.empty() || !llvm::all_of(list, isNumber))
      return wrongType("a list of 64-bit integers");
    return success(llvm::all_of(list.getAsRange<IntegerAttr>(),
                                [&](IntegerAttr each) { return succeeded(bounds(field, each.getInt())); }));
  }
  case Field::Type::Dims: {
    auto list = dyn_cast<DenseI64ArrayAttr>(attr);
    if (!list)
      return wrongType("an array of 64-bit integers");
    return success(llvm::all_of(list.asArrayRef(), [&](int64_t each) { return succeeded(bounds(field, each)); }));
  }
  case Field::Type::Expr: {
    auto expr = dyn_cast<ExprAttr>(attr);
    if (!expr || !expr.getValue().isDefined())
      return wrongType("an expression");
    return expr.getValue().isConstant() ? bounds(field, expr.getValue().constant()) : success();
  }
  case Field::Type::Schedules: {
    // verifySchedule() checks each of them.
    auto list = dyn_cast<ArrayAttr>(attr);
    return list && llvm::all_of(list, llvm::IsaPred<DictionaryAttr>) ? success() : wrongType("a list of schedules");
  }
  case Field::Type::Flag:
    return isa<BoolAttr>(attr) ? success() : LogicalResult(wrongType("true or false"));
  }
  llvm_unreachable("unknown type of field");
}

LogicalResult Verifier::check(ArrayRef<Field> fields, ArrayRef<Field> more) {
  auto all = llvm::concat<const Field>(fields, more);
  for (NamedAttribute attr : schedule)
    if (llvm::none_of(all, [&](const Field &field) { return field.name == attr.getName().strref(); }))
      return error() << "no kernel of this kind has a '" << attr.getName().strref() << "' (P8)";
  return success(llvm::all_of(all, [&](const Field &field) { return succeeded(check(field)); }));
}

bool disc::isDeviceSchedule(DictionaryAttr schedule) { return schedule && schedule.contains("threads"); }
bool disc::isMatrixSchedule(DictionaryAttr schedule) { return schedule && schedule.contains("warp_rows"); }

bool disc::isMemory(Value yielded) { return bool(yielded.getDefiningOp<tensor::EmptyOp>()); }

/// Warps of 32 threads divide the tile, or the steps along the sum if there are several slices.
static LogicalResult verifyMatrix(Operation *kernel, DictionaryAttr schedule, ArrayRef<Field> more) {
  Verifier v{kernel, schedule};
  if (failed(v.check(kDeviceMatrix, more)) || failed(v.divides("tile_rows", v.number("warp_rows"), "'warp_rows'")) ||
      failed(v.divides("tile_columns", v.number("warp_columns"), "'warp_columns'")) ||
      failed(v.divides("warp_rows", 16, "16")) || failed(v.divides("warp_columns", 8, "8")))
    return failure();
  int64_t tiles = v.number("tile_rows") / v.number("warp_rows") * (v.number("tile_columns") / v.number("warp_columns"));
  if (v.number("slices") > 1 && tiles > 1)
    return v.error() << "warps that share a tile do not divide it (P8)";
  // Each warp has a queue of so many lines of columns.
  constexpr int64_t kLineBytes = 64, kMostShared = 48 << 10;
  if (v.number("slices") > 1 && v.number("stages") > 2 &&
      v.number("stages") * v.number("slices") * v.number("tile_columns") * kLineBytes > kMostShared)
    return v.error() << "the warps' columns take more than " << kMostShared << " bytes (P8)";
  if (v.number("threads") != 32 * tiles * v.number("slices"))
    return v.error() << "the tile takes " << 32 * tiles * v.number("slices") << " 'threads' (P8)";
  return success();
}

static LogicalResult verifyAttention(Verifier &v, Block &body, ArrayRef<Field> more) {
  if (isMatrixSchedule(v.schedule)) {
    if (failed(v.check(kMatrixAttention, more)) || failed(v.divides("keys", 16, "16")))
      return failure();
    if (v.number("threads") != 2 * v.number("queries"))
      return v.error() << "a warp has 16 'queries' (P8)";
  } else if (failed(v.check(kDeviceAttention, more)) || failed(v.divides("threads", 32, "32")) ||
             failed(v.divides("queries", v.number("threads") / 32, "'threads' / 32"))) {
    return failure(); // 32 threads share a query
  }
  for (AttentionOp op : body.getOps<AttentionOp>()) {
    int64_t heads = cast<RankedTensorType>(op.getQuery().getType()).getRank() - 2;
    if (v.schedule.contains("shared") && v.number("shared") > heads)
      return v.error() << "'shared' is more than the " << heads << " dimensions of heads (P8)";
  }
  auto yield = cast<YieldOp>(body.getTerminator());
  if (v.schedule.contains(kParts) && llvm::none_of(yield.getValues(), [](Value y) { return isMemory(y); }))
    return v.error() << "'" << kParts << "' needs a result that is memory for them (P8)";
  return success();
}

static LogicalResult verifyHostSchedule(Verifier &v, KernelKind kind, Block &body) {
  switch (kind) {
  case KernelKind::Loop:
    return v.check(kLoop);
  case KernelKind::Row:
    return v.check(kRow);
  case KernelKind::Column:
    return v.check(kColumn);
  case KernelKind::Contraction:
    return v.check(kContraction);
  case KernelKind::Attention:
    return v.schedule.contains("few_queries") ? v.check(kAttention, kFewQueries) : v.check(kAttention);
  case KernelKind::Convolution:
    return body.getOps<WinogradOp>().empty() ? v.check(kConvolution) : v.check(kWinograd);
  case KernelKind::Pack:
  case KernelKind::Call:
    return v.check({});
  }
  llvm_unreachable("unknown kernel kind");
}

static LogicalResult verifyDeviceSchedule(Verifier &v, KernelKind kind, Block &body) {
  switch (kind) {
  case KernelKind::Loop: {
    bool isSum = !body.getOps<RunningSumOp>().empty();
    return isSum ? v.check(kDeviceSum) : v.check(kDeviceLoop);
  }
  case KernelKind::Row: {
    if (failed(v.check(kDeviceRow)))
      return failure();
    if (!v.schedule.contains("group")) {
      // It follows from the length of the rows.
      if (!v.schedule.contains("points"))
        return v.error() << "'group' or 'points' is missing (P8)";
      return v.divides("threads", 32, "32");
    }
    if (failed(v.divides("threads", v.number("group"), "'group'")))
      return failure();
    // A part of a warp, or whole ones.
    if (v.number("group") % 32 && !llvm::isPowerOf2_64(uint64_t(v.number("group"))))
      return v.error() << "'group' is neither a power of two nor a multiple of 32 (P8)";
    return success();
  }
  case KernelKind::Column:
    if (failed(v.check(kDeviceColumn)))
      return failure();
    if (v.schedule.contains("vector")) {
      if (failed(v.divides("columns", v.number("vector"), "'vector'")))
        return failure();
      return v.divides("threads", v.number("columns") / v.number("vector"), "'columns' / 'vector'");
    }
    return v.divides("threads", v.number("columns"), "'columns'");
  case KernelKind::Contraction:
  case KernelKind::Convolution: {
    if (isMatrixSchedule(v.schedule))
      return verifyMatrix(v.kernel, v.schedule, {});
    if (failed(v.check(kDeviceProduct)) || failed(v.divides("tile_rows", v.number("thread_rows"), "'thread_rows'")) ||
        failed(v.divides("tile_columns", v.number("thread_columns"), "'thread_columns'")))
      return failure();
    int64_t threads =
        v.number("tile_rows") / v.number("thread_rows") * (v.number("tile_columns") / v.number("thread_columns"));
    if (v.number("threads") != threads)
      return v.error() << "the tile takes " << threads << " 'threads' (P8)";
    return success();
  }
  case KernelKind::Attention:
    return verifyAttention(v, body, {});
  case KernelKind::Pack:
  case KernelKind::Call:
    return v.check(kBlocksOfThreads);
  }
  llvm_unreachable("unknown kernel kind");
}

LogicalResult disc::verifySchedule(Operation *kernel, KernelKind kind, Block &body, DictionaryAttr schedule) {
  Verifier v{kernel, schedule};
  if (!isDeviceSchedule(schedule))
    return verifyHostSchedule(v, kind, body);
  if (failed(verifyDeviceSchedule(v, kind, body)))
    return failure();
  auto variants = schedule.getAs<ArrayAttr>(kVariants);
  if (!variants)
    return success();
  for (auto variant : variants.getAsRange<DictionaryAttr>()) {
    if (variant.contains(kVariants) || !isDeviceSchedule(variant))
      return v.error() << "'variants' must be schedules of a device without variants of their own (P8)";
    Verifier own{kernel, variant};
    LogicalResult valid = kind == KernelKind::Attention ? verifyAttention(own, body, kVariant)
                          : isMatrixSchedule(schedule)  ? verifyMatrix(kernel, variant, kVariant)
                                                        : verifyDeviceSchedule(own, kind, body);
    if (failed(valid))
      return failure();
  }
  return success();
}

LogicalResult disc::verifyLaunch(Operation *kernel, Attribute tasks, Attribute scratch, Attribute cost) {
  for (auto [name, attr] : {std::pair<StringRef, Attribute>("tasks", tasks), {"scratch", scratch}, {"cost", cost}}) {
    auto expr = dyn_cast_if_present<ExprAttr>(attr);
    if (attr && (!expr || !expr.getValue().isDefined()))
      return kernel->emitOpError() << "'" << name << "' must be an expression, not " << attr << " (P9)";
  }
  return success();
}

LogicalResult disc::verifyTarget(Operation *op, Attribute target) {
  auto fields = dyn_cast<DictionaryAttr>(target);
  if (!fields)
    return op->emitOpError("'disc_plan.target' must be a dictionary (P10)");
  struct Number {
    StringLiteral name;
    int64_t min, max;
    bool powerOf2 = false;
  };
  constexpr Number numbers[] = {{"vector_bits", 64, 4096, true}, {"vector_registers", 8, 1024},
                                {"l1d_bytes", 1 << 10, kMany},   {"l1d_ways", 1, 1 << 10},
                                {"l2_bytes", 1 << 10, kMany},    {"l3_bytes", 0, kMany},
                                {"cores", 1, 1 << 20},           {"warp", 1, 1024, true}};
  for (const Number &number : numbers) {
    Attribute attr = fields.get(number.name);
    if (!attr)
      continue;
    int64_t value = isNumber(attr) ? cast<IntegerAttr>(attr).getInt() : -1;
    if (value < number.min || value > number.max || (number.powerOf2 && !llvm::isPowerOf2_64(uint64_t(value))))
      return op->emitOpError() << "'disc_plan.target': '" << number.name << "' must be "
                               << (number.powerOf2 ? "a power of two" : "an integer") << " from " << number.min
                               << " to " << number.max << ", not " << attr << " (P10)";
  }
  return success();
}

namespace {
/// A field of what a device's kernel says of its launches.
struct LaunchField {
  enum class Type { Number, Flag, Unit, Indices, Expr, Dims, Kernel };

  StringLiteral attr, name;
  Type type;
  bool optional = false;
  size_t entries = 0; ///< Of Dims.
};
using LaunchType = LaunchField::Type;

constexpr LaunchField kLaunchFields[] = {
    {"disc_plan.order", "merge", LaunchType::Kernel},
    {"disc_plan.order", "last", LaunchType::Kernel},
    {"disc_plan.order", "rows", LaunchType::Expr},
    {"disc_plan.order", "length", LaunchType::Expr},
    {"disc_plan.split", "part", LaunchType::Kernel},
    {"disc_plan.split", "whole", LaunchType::Kernel},
    {"disc_plan.split", "most", LaunchType::Expr},
    {"disc_plan.split", "values", LaunchType::Expr},
    {"disc_plan.update", "result", LaunchType::Number},
    {"disc_plan.update", "bytes", LaunchType::Expr},
    {"disc_plan.update", "copy", LaunchType::Kernel, true},
    {"disc_plan.library", "operands", LaunchType::Indices},
    {"disc_plan.library", "extents", LaunchType::Dims, false, 7},
    {"disc_plan.library", "dtype", LaunchType::Number},
    {"disc_plan.library", "when", LaunchType::Expr},
    {"disc_plan.library", "a_columns", LaunchType::Flag},
    {"disc_plan.library", "b_columns", LaunchType::Flag},
    {"disc_plan.library", "gelu_tanh", LaunchType::Unit, true},
    {"disc_plan.library", "epilogue", LaunchType::Kernel, true},
};
} // namespace

static bool hasType(const LaunchField &field, Attribute attr) {
  auto isDefined = [](ExprAttr expr) { return expr.getValue().isDefined(); };
  switch (field.type) {
  case LaunchType::Number:
    return isNumber(attr);
  case LaunchType::Flag:
    return isa<BoolAttr>(attr);
  case LaunchType::Unit:
    return isa<UnitAttr>(attr);
  case LaunchType::Indices:
    return isa<DenseI64ArrayAttr>(attr);
  case LaunchType::Expr:
    return isa<ExprAttr>(attr) && isDefined(cast<ExprAttr>(attr));
  case LaunchType::Dims: {
    auto dims = dyn_cast<DimsAttr>(attr);
    return dims && dims.size() == field.entries && llvm::all_of(dims.getExprs(), isDefined);
  }
  case LaunchType::Kernel:
    return isa<FlatSymbolRefAttr>(attr);
  }
  llvm_unreachable("unknown type of field");
}

LogicalResult disc::verifyDeviceLaunch(Operation *op, StringRef name, Attribute attr) {
  if (name == "disc_plan.symbols" || name == "disc_plan.texts") {
    auto list = dyn_cast<ArrayAttr>(attr);
    if (!list || !llvm::all_of(list, llvm::IsaPred<StringAttr>))
      return op->emitOpError() << "'" << name << "' must be a list of strings (P11)";
  }
  if (name == "disc_plan.next" && !isa<FlatSymbolRefAttr>(attr))
    return op->emitOpError() << "'" << name << "' must be a kernel (P11)";
  if (name == "disc_plan.results" && !isNumber(attr))
    return op->emitOpError() << "'" << name << "' must be a 64-bit integer (P11)";
  if (name == "disc_plan.buffer_bytes") {
    auto bytes = dyn_cast<DimsAttr>(attr);
    if (!bytes || !llvm::all_of(bytes.getDims(), [](const SymExpr &expr) { return expr.isDefined(); }))
      return op->emitOpError() << "'" << name << "' must be a list of expressions (P11)";
  }
  if (name == "disc_plan.variants") {
    auto list = dyn_cast<ArrayAttr>(attr);
    auto isVariant = [](Attribute each) {
      auto fields = dyn_cast<DictionaryAttr>(each);
      auto when = fields ? fields.getAs<ExprAttr>("when") : ExprAttr();
      return when && when.getValue().isDefined() && fields.getAs<FlatSymbolRefAttr>("kernel");
    };
    if (!list || !llvm::all_of(list, isVariant))
      return op->emitOpError() << "'" << name << "' must be a list of 'kernel' and 'when' (P11)";
  }
  for (const LaunchField &field : kLaunchFields) {
    if (field.attr != name)
      continue;
    auto fields = dyn_cast<DictionaryAttr>(attr);
    Attribute value = fields ? fields.get(field.name) : Attribute();
    if (!fields || (value ? !hasType(field, value) : !field.optional))
      return op->emitOpError() << "'" << name << "' has no '" << field.name << "', or one of another type (P11)";
  }
  return success();
}
