//===- PointEmitter.h - code for a tensor's value at a point ------*- C++ -*-===//
//
// A kernel's region says what each tensor is; an emitter walks the points of some domain and asks for the values at
// each. `PointEmitter` answers by recursion through the region: generics become their scalar bodies, views become
// index arithmetic, the kernel's arguments become loads. One index of the point may run along the lanes of a vector.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_COMMON_POINTEMITTER_H
#define DISC_LIB_TARGET_COMMON_POINTEMITTER_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <functional>
#include <map>
#include <tuple>
#include <vector>

namespace mlir::disc {

class ConcatOp;
class ReshapeOp;

/// One coordinate of a point. Four forms:
///   uniform    `base` for every lane
///   lanes      `base + step * [0, 1, .., V)`
///   pattern    `base + pattern[lane]`, as where the lanes run over two dimensions of which the inner is short; and
///              perhaps `+ rows[lane] * stride`, where the lanes fall on a few rows a dynamic stride apart
///   arbitrary  `each`, a vector<V x index>, when nothing is known while compiling of how it runs along the lanes
struct Idx {
  Value base;
  bool lanes = false;
  int64_t step = 1;     // meaningful when lanes
  int64_t multiple = 1; // `base` is known to be a multiple of this; lets blocks of V lanes be split without division
  DenseI64ArrayAttr pattern;
  DenseI64ArrayAttr rows; // null unless the lanes fall on rows
  Value stride;           // of the rows
  Value each;

  Idx() = default;
  Idx(Value base, bool lanes = false, int64_t step = 1, int64_t multiple = 1)
      : base(base), lanes(lanes), step(step), multiple(multiple) {}
  static Idx arbitrary(Value each);

  bool isUniform() const { return !lanes && !each && !pattern && !rows; }
  /// The same coordinate, by the same values.
  bool operator==(const Idx &o) const {
    return base == o.base && each == o.each && pattern == o.pattern && rows == o.rows && stride == o.stride &&
           lanes == o.lanes && (!lanes || step == o.step);
  }
};

/// A run of dimensions of one shape that hold the same elements as a run of another's.
struct ReshapeGroup {
  unsigned fromBegin, fromEnd, toBegin, toEnd;
};
/// The finest such groups, in order; they cover both shapes. A group may be empty on one side (unit extents).
SmallVector<ReshapeGroup> reshapeGroups(ShapeAnalysis &shapes, ArrayRef<SymExpr> from, ArrayRef<SymExpr> to);

/// For each group of a reshape, the stride (in elements) of its elements in a buffer whose `to` dimensions have the
/// given strides; nothing where a group's elements do not lie evenly, so that addresses need a division.
std::optional<SmallVector<SymExpr>> reshapedStrides(ShapeAnalysis &shapes, ArrayRef<ReshapeGroup> groups,
                                                    ArrayRef<SymExpr> toDims, ArrayRef<SymExpr> toStrides);

/// The address of `value` as constant NUL-terminated text; one global for all that say the same.
Value textAddress(OpBuilder &b, Location loc, ModuleOp module, StringRef value);

/// How a kernel's function has its arguments: pointers to operands, then to results, then the symbols' values, then the
/// call if the kernel reports to it. Either each is an argument of the function, or there is one pointer to an array.
class KernelArguments {
public:
  /*implicit*/ KernelArguments(Value array) : array(array) {}
  /*implicit*/ KernelArguments(ValueRange each) : each(each.begin(), each.end()) {}

  /// Argument `slot`, of the type `type`.
  Value get(OpBuilder &b, Location loc, unsigned slot, Type type) const;

private:
  Value array;
  SmallVector<Value> each;
};

class PointEmitter {
public:
  /// Code is emitted through `builder`, at its insertion point at the time of each call. `arguments` are
  /// the kernel function's. Values that hold for the whole function (pointers, symbols, constants) are emitted
  /// at the start of the function's entry block, which must dominate every insertion point used.
  /// `lanes` is V; 1 means that everything is scalar.
  PointEmitter(OpBuilder &builder, KernelFuncOp kernel, KernelArguments arguments, int64_t lanes,
               ShapeAnalysis &shapes);

  OpBuilder &b() { return builder; }
  int64_t lanes() const { return vectorLanes; }
  KernelFuncOp kernel() { return kernelFunc; }
  ShapeAnalysis &shapes() { return shapeAnalysis; }

  //===--- what holds for the whole function -------------------------------===//
  Value expr(const SymExpr &e);       // index; from the symbols' slots
  Value constantIndex(int64_t value); // index
  Value constant(TypedAttr value);
  Value operandPtr(unsigned i); // !llvm.ptr
  Value resultPtr(unsigned i);  // !llvm.ptr
  Value callPtr();              // !llvm.ptr, in kernels that report to the call
  /// The buffer starts at a multiple of so many bytes, so that vectors may; 1 if nothing is said.
  void setAlignment(Value pointer, int64_t bytes) { alignments[pointer] = bytes; }
  /// Emits what a failed check does, in place of a call of the runtime.
  using Report = std::function<void(Value index, Value extent, StringRef what)>;
  void setReport(Report emit) { report = std::move(emit); }
  /// Takes the expressions for multiples of `divisor`: the kernel is launched only where they are.
  void assumeMultiples(ArrayRef<SymExpr> exprs, int64_t divisor);
  /// A number that divides the expression; 0 for 0.
  int64_t divisor(const SymExpr &e) const;
  /// Emits where function-wide values are.
  void atEntry(function_ref<void()> emit);

  //===--- values ------------------------------------------------------------===//
  /// The value of `tensor` at `idx`: a scalar if nothing varies along the lanes, else a vector<V x elem>. Element
  /// type as in the tensor (i1 for booleans). `mask`: vector<V x i1>, null = all lanes on; lanes that are off give
  /// unspecified values, and touch no memory. At least one lane must be on.
  /// Null, with an error reported, for what cannot be evaluated at a point (an unbound reduction or contraction, the
  /// contents of tensor.empty).
  Value eval(Value tensor, ArrayRef<Idx> idx, Value mask = {});

  /// Whether `eval` has the value already.
  bool isKnown(Value tensor, ArrayRef<Idx> idx) const;
  /// What is evaluated from now on is for points that are there only if `condition` (i1) is true; null: for all.
  /// Elsewhere loads give zeros without touching memory, and checks find nothing wrong.
  void setGuard(Value condition) { guard = condition; }

  /// Replaces the computation of a tensor: a contraction's result read from a tile, a reduction's from a register.
  using Computation = std::function<Value(ArrayRef<Idx> idx, Value mask)>;
  void bind(Value tensor, Computation computation);
  void unbind(Value tensor);
  /// The value from the tensor's own definition, even if it is bound.
  Value recompute(Value tensor, ArrayRef<Idx> idx, Value mask = {});

  /// A scalar (index, constant) that the kernel's region computes outside of any tensor operation.
  Value scalar(Value v);

  /// Stores `v` (scalar or vector) to result `i` at `idx`. A scalar is broadcast if the point has lanes.
  LogicalResult store(unsigned result, ArrayRef<Idx> idx, Value v, Value mask = {});

  /// Evaluates all results at a point of `domain`, of which each is a view, and then stores them: a result may lie in
  /// the storage of an operand.
  LogicalResult storeResults(ArrayRef<Idx> at, ArrayRef<SymExpr> domain, Value mask = {}) {
    return storeResultsOf(SmallVector<Idx>(at), domain, mask);
  }
  /// The same at several points: everything is read before anything is stored.
  LogicalResult storeResultsOf(ArrayRef<SmallVector<Idx>> points, ArrayRef<SymExpr> domain, Value mask = {});

  /// Evaluates the inputs of `generic` at the point `iters` of its iteration space and clones its body there, up to
  /// the yield. `outs` stand for the body's output arguments (null: not used by the body). Gives the mapping, in
  /// which yielded values can be looked up. For emitters of reductions.
  LogicalResult emitBody(linalg::GenericOp generic, ArrayRef<Idx> iters, Value mask, ArrayRef<Value> outs,
                         IRMapping &map);

  /// Forgets memoised values: after moving the insertion point, or after memory has changed.
  void newPoint();

  /// Values memoised while a Scope lives are forgotten when it ends; those from before stay visible in it. One per
  /// nested block that code is emitted into.
  class Scope {
  public:
    explicit Scope(PointEmitter &emitter);
    ~Scope();

  private:
    PointEmitter &emitter;
    size_t pointDepth, indexDepth;
  };

  //===--- index arithmetic ----------------------------------------------------===//
  Idx uniform(Value base) { return Idx(base); }
  Idx uniform(int64_t base);
  /// `base + offsets[lane]`, in the simplest form.
  Idx patterned(Value base, ArrayRef<int64_t> offsets, int64_t multiple = 1);
  /// An affine expression of an iteration space's coordinates.
  Idx affine(AffineExpr e, ArrayRef<Idx> iters);
  Idx addIdx(const Idx &a, const Idx &b);
  Idx mulIdx(const Idx &a, const SymExpr &factor);
  /// Quotient and remainder by an extent (both non-negative).
  std::pair<Idx, Idx> divModIdx(const Idx &a, const SymExpr &extent);
  /// Coordinates `from` of a tensor of extents `fromDims` as coordinates of the same elements under `toDims`.
  SmallVector<Idx> reshapeIdx(ArrayRef<Idx> from, ArrayRef<SymExpr> fromDims, ArrayRef<SymExpr> toDims);
  /// The coordinate as an index value: scalar, or vector<V x index>.
  Value materialize(const Idx &a);

  //===--- scalars and vectors ---------------------------------------------------===//
  VectorType vectorOf(Type elem) { return VectorType::get({vectorLanes}, elem); }
  /// `v` as a vector of V lanes.
  Value splat(Value v);
  /// Clones a scalar operation on operands that are scalars or vectors; if any is a vector, so are the results.
  Operation *cloneOn(Operation *op, ArrayRef<Value> operands);
  /// vector<V x i1> of the lanes below `count` (index): a row's tail.
  Value tailMask(Value count);
  /// Loads / stores at `ptr + offset` elements; memory holds booleans as bytes. `offset` uniform, lanes or arbitrary.
  Value load(Value ptr, const Idx &offset, Type elem, Value mask = {});
  void store(Value ptr, const Idx &offset, Value v, Value mask = {});

private:
  using PointKey =
      std::vector<std::tuple<const void *, const void *, const void *, const void *, const void *, int64_t>>;
  using IndexKey = std::tuple<int, const void *, const void *>;

  /// Where a generic's body is evaluated, and those of its index values that run along the lanes in a known way.
  struct BodyPoint {
    ArrayRef<Idx> iters;
    Value mask;
    llvm::DenseMap<Value, Idx> coordinates;
  };
  LogicalResult emitOps(Block &block, IRMapping &map, BodyPoint &point);
  LogicalResult emitBranch(scf::IfOp op, Value condition, IRMapping &map, BodyPoint &point);
  LogicalResult emitWhile(scf::WhileOp op, ArrayRef<Value> inits, IRMapping &map, BodyPoint &point);
  LogicalResult regionValues(ValueRange values, IRMapping &map, bool alongLanes, SmallVectorImpl<Value> &results);
  Value anyLane(Value condition);

  Value evalGeneric(OpResult result, linalg::GenericOp op, ArrayRef<Idx> idx, Value mask);
  Value evalReshape(ReshapeOp op, ArrayRef<Idx> idx, Value mask);
  Idx groupPosition(const ReshapeGroup &group, ArrayRef<Idx> from, ArrayRef<SymExpr> fromDims);
  Value checkIndex(CheckIndexOp op, Value index, Value extent, Value mask);
  Value evalConcat(ConcatOp op, ArrayRef<Idx> idx, Value mask);
  std::optional<Idx> computedCoordinate(Operation &op, const llvm::DenseMap<Value, Idx> &coordinates,
                                        ArrayRef<Value> operands);
  Value evalExtract(tensor::ExtractOp op, IRMapping &map, const DenseMap<Value, Idx> &coordinates, Value mask);
  Idx address(LayoutAttr layout, ArrayRef<Idx> idx);
  SmallVector<int64_t> laneOffsets(const Idx &a) const;
  Value askedFor(Value mask, ArrayRef<int64_t> offsets, ArrayRef<bool> possible, int64_t begin);
  Value loadPattern(Value ptr, const Idx &offset, Type memory, Value mask);
  Value loadAt(Value ptr, const Idx &offset, Type elem, Value mask);
  Value loadRow(Value ptr, const Idx &offset, Type memory, Value mask, ArrayRef<bool> possible);
  unsigned alignmentAt(Value ptr, const Idx &offset, Type memory);
  static PointKey keyOf(Value tensor, ArrayRef<Idx> idx, Value mask);
  enum IndexOpKind { Add, Mul, Div, Rem };
  Value indexOp(IndexOpKind kind, Value lhs, Value rhs);
  Value entryPtr(unsigned slot);
  bool isUniform(Value tensor);
  Value evalUniform(Value tensor);
  Operation *cloneUniform(Operation &op, ArrayRef<Value> operands);
  OpBuilder &builder;
  KernelFuncOp kernelFunc;
  KernelArguments arguments;
  int64_t vectorLanes;
  DenseMap<Value, int64_t> alignments; // of buffers, in bytes
  SmallVector<SymExpr> multiples;      // of `multiplesOf`
  int64_t multiplesOf = 1;
  Value guard;
  Report report;
  ShapeAnalysis &shapeAnalysis;
  Operation *entryAnchor = nullptr; // function-wide values are emitted before it
  Location loc;

  /// Tensors without dimensions that are the same for the whole function, and what is computed of them alone: emitted
  /// at the function's entry, once. `wide` has these values, and constants.
  DenseMap<Value, Value> uniforms;
  DenseMap<Value, bool> uniformTensors;
  llvm::SmallPtrSet<const void *, 16> wide;
  DenseMap<Operation *, std::pair<SmallVector<Value>, Operation *>> uniformOps;

  DenseMap<Value, Computation> bindings;
  // Undo logs beside the maps make Scope cheap.
  std::map<PointKey, Value> points;
  std::vector<PointKey> pointLog;
  std::map<IndexKey, Value> indices;
  std::vector<IndexKey> indexLog;
  std::map<const void *, Value> constants;
  DenseMap<unsigned, Value> pointers;
  std::map<std::string, Value> exprs;
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_COMMON_POINTEMITTER_H
