//===- CheckAccesses.cpp - memory accesses of kernels, checked -------------===//
//
//   llvm.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) {
//     %x = llvm.load %args[0] ; %p = llvm.getelementptr %x[%i]
//     %v = llvm.load %p : vector<16xf32>
// becomes
//   llvm.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) {
//     %bounds = llvm.load %args[-1] ; %first = llvm.load %bounds[2] ; %last = llvm.load %bounds[3]
//     ...
//     %a = llvm.ptrtoint %p ; %wrong = (%a < %first) | (%a + 64 > %last)
//     llvm.cond_br %wrong, ^report(%site, %a, 64, %first, %last), ^next
//   ^next:
//     %v = llvm.load %p : vector<16xf32>
//   ^report(...):                                        // one for all accesses of the function
//     llvm.call @disc_rt_check_access(%bounds, %site, %a, ...) ; llvm.return
//
// The bounds are those of the argument that an address derives from, so that an access beyond one buffer is found even
// where it hits another. Addresses of which that is not known may be anywhere in the launch's buffers; of a masked
// access outside of the bounds, the runtime looks at the active lanes. Functions that several kernels share get the
// bounds of their pointers as further arguments.
//
// Lit test: test/lit/CPU/check-accesses.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/Passes.h"

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Functions/Function.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/Common/PointEmitter.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::disc {
#define GEN_PASS_DEF_CPUCHECKACCESSES
#include "lib/Target/CPU/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// The memory that an address is in, as far as it can be followed back.
struct Origin {
  enum Kind { None, Any, Buffer, Scratch, Stack, Constant, Panel, Arguments } kind = None;
  unsigned number = 0;     ///< Of a kernel's buffer, or of the argument of a shared function.
  Operation *op = nullptr; ///< The array on the stack, or the address of the constant.

  bool operator==(const Origin &o) const { return kind == o.kind && number == o.number && op == o.op; }
};

struct Access {
  Operation *op;
  Value address; ///< A pointer, or a vector of them.
  Value mask;    ///< Null: all lanes.
  bool writes;
  int64_t lanes; ///< That have a mask or an address of their own; 1 if the access is a whole.
  int64_t bytes; ///< Of a lane; of the whole if there is one.
  Value length;  ///< In place of `bytes`, where it is computed.
  Origin origin;

  bool scattered() const { return isa<VectorType>(address.getType()); }
};

/// Adds the checks to one function.
class Checker {
public:
  Checker(LLVM::LLVMFuncOp func, bool isKernel, llvm::StringMap<LLVM::GlobalOp> &sites)
      : func(func), module(func->getParentOfType<ModuleOp>()), isKernel(isKernel), sites(sites), layout(module),
        b(func.getContext()), loc(func.getLoc()), i32(b.getI32Type()), i64(b.getI64Type()),
        ptr(LLVM::LLVMPointerType::get(func.getContext())) {}

  /// Gives a shared function the bounds of its launch, and of what its pointers point to, as arguments.
  LogicalResult extendSignature();
  LogicalResult run();

private:
  using Bounds = std::pair<Value, Value>;

  LogicalResult collect(SmallVectorImpl<Access> &accesses, SmallVectorImpl<LLVM::CallOp> &calls);
  std::optional<SmallVector<Access>> accessesOf(Operation *op);
  std::optional<SmallVector<Access>> ofTiles(LLVM::CallIntrinsicOp call);
  Origin originOf(Value address);
  bool addSources(Value pointer, SmallVectorImpl<Value> &sources);
  int64_t bytesOf(Type type);

  void begin();
  Bounds boundsOf(const Origin &origin);
  void check(const Access &access);
  LogicalResult extendCall(LLVM::CallOp call);
  LogicalResult checkViews(LLVM::CallOp call);
  Block *reportBlock();
  Value site(const Access &access);
  Value runtimeCall(StringRef name, Type result, ValueRange args);

  Value number(int64_t value) { return LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(value)); }
  Value toInt(Value pointer) { return LLVM::PtrToIntOp::create(b, loc, i64, pointer); }
  Value less(Value x, Value y) { return LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ult, x, y); }
  Value add(Value x, Value y) { return LLVM::AddOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return LLVM::OrOp::create(b, loc, x, y); }
  Value slot(Value array, int32_t i, Type type) {
    Value at = LLVM::GEPOp::create(b, loc, ptr, i64, array, ArrayRef<LLVM::GEPArg>{i});
    return LLVM::LoadOp::create(b, loc, type, at);
  }

  LLVM::LLVMFuncOp func;
  ModuleOp module;
  const bool isKernel;
  llvm::StringMap<LLVM::GlobalOp> &sites; // of the module, by contents
  DataLayout layout;
  OpBuilder b;
  Location loc;
  Type i32, i64, ptr;

  Value bounds;        // of the launch
  unsigned numOwn = 0; // arguments of a shared function before the signature was extended
  llvm::DenseMap<unsigned, Bounds> ofBuffers;
  Bounds ofScratch;
  Block *report = nullptr;
  Value addresses; // an array for the addresses of one access
};
} // namespace

//===-- Where addresses come from -----------------------------------------===//

/// What a pointer is computed from; false if that is not known.
bool Checker::addSources(Value pointer, SmallVectorImpl<Value> &sources) {
  if (auto argument = dyn_cast<BlockArgument>(pointer)) {
    Block *block = argument.getOwner();
    for (auto it = block->pred_begin(), end = block->pred_end(); it != end; ++it) {
      auto branch = dyn_cast<BranchOpInterface>((*it)->getTerminator());
      if (!branch)
        return false;
      Value given = branch.getSuccessorOperands(it.getSuccessorIndex())[argument.getArgNumber()];
      if (!given)
        return false;
      sources.push_back(given);
    }
    return !block->isEntryBlock();
  }
  return llvm::TypeSwitch<Operation *, bool>(pointer.getDefiningOp())
      .Case([&](LLVM::GEPOp op) { return sources.push_back(op.getBase()), true; })
      .Case([&](LLVM::SelectOp op) { return sources.append({op.getTrueValue(), op.getFalseValue()}), true; })
      .Case<LLVM::BitcastOp, LLVM::AddrSpaceCastOp>(
          [&](Operation *op) { return sources.push_back(op->getOperand(0)), true; })
      .Case([&](LLVM::InsertElementOp op) { return sources.append({op.getVector(), op.getValue()}), true; })
      .Case([&](LLVM::ShuffleVectorOp op) { return sources.append({op.getV1(), op.getV2()}), true; })
      .Case<LLVM::PoisonOp, LLVM::UndefOp>([](Operation *) { return true; })
      .Default([](Operation *) { return false; });
}

Origin Checker::originOf(Value address) {
  Block *entry = &func.getBody().front();
  Origin origin;
  SmallVector<Value> work = {address};
  llvm::SmallDenseSet<Value> seen;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    Origin root;
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == entry) {
      unsigned i = argument.getArgNumber();
      root = isKernel ? Origin{i == 0 ? Origin::Arguments : Origin::Scratch} : Origin{Origin::Panel, i};
    } else if (auto load = value.getDefiningOp<LLVM::LoadOp>(); load && isKernel) {
      // args[i]
      Value at = load.getAddr();
      auto gep = at.getDefiningOp<LLVM::GEPOp>();
      if (at == entry->getArgument(0))
        root = {Origin::Buffer, 0};
      else if (gep && gep.getBase() == entry->getArgument(0) && gep.getDynamicIndices().empty() &&
               gep.getRawConstantIndices().size() == 1 && layout.getTypeSize(gep.getElemType()).getFixedValue() == 8)
        root = {Origin::Buffer, unsigned(gep.getRawConstantIndices()[0])};
      else
        root = {Origin::Any};
    } else if (auto array = value.getDefiningOp<LLVM::AllocaOp>()) {
      root = {Origin::Stack, 0, array};
    } else if (auto global = value.getDefiningOp<LLVM::AddressOfOp>()) {
      root = {Origin::Constant, 0, global};
    } else if (!addSources(value, work)) {
      root = {Origin::Any};
    }
    if (root.kind == Origin::None)
      continue;
    if (origin.kind == Origin::None)
      origin = root;
    else if (!(origin == root))
      return {Origin::Any};
  }
  return origin;
}

int64_t Checker::bytesOf(Type type) {
  if (auto vector = dyn_cast<VectorType>(type)) // without what its size is rounded up by
    return llvm::divideCeil(vector.getNumElements() * vector.getElementTypeBitWidth(), 8);
  return layout.getTypeSize(type).getFixedValue();
}

//===-- Which operations access memory ------------------------------------===//

/// Tiles are read and written row by row, of registers whose shape is where LDTILECFG read it. Between the first and
/// the last row lie the others.
std::optional<SmallVector<Access>> Checker::ofTiles(LLVM::CallIntrinsicOp call) {
  bool reads = call.getIntrin() == "llvm.x86.tileloadd64", writes = call.getIntrin() == "llvm.x86.tilestored64";
  if (call.getIntrin() == "llvm.x86.ldtilecfg")
    return SmallVector<Access>{{call, call.getArgs()[0], {}, false, 1, 64, {}, {}}};
  if (!reads && !writes) {
    bool any = llvm::any_of(call.getArgs(), [](Value v) { return isa<LLVM::LLVMPointerType>(v.getType()); });
    return any ? std::nullopt : std::optional<SmallVector<Access>>(std::in_place);
  }
  Value shape;
  func.walk([&](LLVM::CallIntrinsicOp other) {
    if (other.getIntrin() == "llvm.x86.ldtilecfg")
      shape = other.getArgs()[0];
  });
  auto number = call.getArgs()[0].getDefiningOp<LLVM::ConstantOp>();
  if (!shape || !number)
    return std::nullopt;
  int64_t tile = cast<IntegerAttr>(number.getValue()).getInt();
  Value first = call.getArgs()[1], stride = call.getArgs()[2];
  b.setInsertionPoint(call);
  auto field = [&](int64_t at, Type type) -> Value {
    Value place = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), shape, LLVM::GEPArg(int32_t(at)));
    return LLVM::ZExtOp::create(b, loc, i64, LLVM::LoadOp::create(b, loc, type, place));
  };
  Value width = field(16 + 2 * tile, b.getI16Type()), rows = field(48 + tile, b.getI8Type());
  Value one = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
  Value down = LLVM::MulOp::create(b, loc, LLVM::SubOp::create(b, loc, rows, one), stride);
  Value last = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), first, LLVM::GEPArg(down));
  return SmallVector<Access>{{call, first, {}, writes, 1, 0, width, {}}, {call, last, {}, writes, 1, 0, width, {}}};
}

/// Nothing if the operation uses memory in a way that is not known here.
std::optional<SmallVector<Access>> Checker::accessesOf(Operation *op) {
  using Result = std::optional<SmallVector<Access>>;
  auto whole = [&](bool writes, Value address, Type type) -> Result {
    return SmallVector<Access>{{op, address, {}, writes, 1, bytesOf(type), {}, {}}};
  };
  auto lanes = [&](bool writes, Value address, Value mask, Type type) -> Result {
    auto vector = cast<VectorType>(type);
    int64_t bytes = bytesOf(vector.getElementType());
    return SmallVector<Access>{{op, address, mask, writes, vector.getNumElements(), bytes, {}, {}}};
  };
  auto copy = [&](Value to, Value from, Value length) -> Result {
    return SmallVector<Access>{{op, from, {}, false, 1, 0, length, {}}, {op, to, {}, true, 1, 0, length, {}}};
  };
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](LLVM::LoadOp load) { return whole(false, load.getAddr(), load.getType()); })
      .Case([&](LLVM::StoreOp store) { return whole(true, store.getAddr(), store.getValue().getType()); })
      .Case<LLVM::AtomicRMWOp, LLVM::AtomicCmpXchgOp>(
          [&](auto atomic) { return whole(true, atomic.getPtr(), atomic.getVal().getType()); })
      .Case([&](LLVM::MaskedLoadOp load) { return lanes(false, load.getData(), load.getMask(), load.getType()); })
      .Case([&](LLVM::MaskedStoreOp store) {
        return lanes(true, store.getData(), store.getMask(), store.getValue().getType());
      })
      .Case([&](LLVM::masked_gather gather) {
        return lanes(false, gather.getPtrs(), gather.getMask(), gather.getType());
      })
      .Case([&](LLVM::masked_scatter scatter) {
        return lanes(true, scatter.getPtrs(), scatter.getMask(), scatter.getValue().getType());
      })
      .Case<LLVM::MemcpyOp, LLVM::MemmoveOp>(
          [&](auto move) { return copy(move.getDst(), move.getSrc(), move.getLen()); })
      .Case([&](LLVM::MemsetOp set) -> Result {
        return SmallVector<Access>{{op, set.getDst(), {}, true, 1, 0, set.getLen(), {}}};
      })
      .Case([&](LLVM::CallIntrinsicOp call) { return ofTiles(call); })
      // Fetching what is not there has no effect.
      .Case<LLVM::Prefetch, LLVM::LifetimeStartOp, LLVM::LifetimeEndOp, LLVM::CallOp, LLVM::GEPOp, LLVM::SelectOp,
            LLVM::PtrToIntOp, LLVM::ICmpOp, LLVM::BitcastOp, LLVM::AddrSpaceCastOp, LLVM::InsertElementOp,
            LLVM::ShuffleVectorOp, LLVM::AssumeOp>([](Operation *) { return Result(std::in_place); })
      .Default([](Operation *other) -> Result {
        auto isPointer = [](Type type) { return isa<LLVM::LLVMPointerType>(getElementTypeOrSelf(type)); };
        if (isa<BranchOpInterface>(other) || llvm::none_of(other->getOperandTypes(), isPointer))
          return Result(std::in_place);
        return std::nullopt;
      });
}

LogicalResult Checker::collect(SmallVectorImpl<Access> &accesses, SmallVectorImpl<LLVM::CallOp> &calls) {
  WalkResult result = func.walk([&](Operation *op) {
    std::optional<SmallVector<Access>> found = accessesOf(op);
    if (!found) {
      op->emitOpError("uses memory in a way that cannot be checked");
      return WalkResult::interrupt();
    }
    for (Access &access : *found) {
      access.origin = originOf(access.address);
      if (access.lanes > 64) {
        op->emitOpError("has more than 64 lanes, which cannot be checked");
        return WalkResult::interrupt();
      }
      // The kernel's own arguments are no tensors.
      if (access.origin.kind != Origin::Arguments)
        accesses.push_back(access);
    }
    if (auto call = dyn_cast<LLVM::CallOp>(op))
      calls.push_back(call);
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

//===-- Checks ------------------------------------------------------------===//

static SmallVector<unsigned> pointerArguments(TypeRange types) {
  SmallVector<unsigned> pointers;
  for (auto [i, type] : llvm::enumerate(types))
    if (isa<LLVM::LLVMPointerType>(type))
      pointers.push_back(i);
  return pointers;
}

LogicalResult Checker::extendSignature() {
  auto type = func.getFunctionType();
  if (!isa<LLVM::LLVMVoidType>(type.getReturnType()) || type.isVarArg())
    return func.emitOpError("is called by kernels and returns a value: its accesses cannot be checked");
  SmallVector<Type> types(type.getParams());
  numOwn = types.size();
  // The launch's, the scratch's, and those of each pointer.
  SmallVector<Type> added = {ptr, i64, i64};
  added.append(2 * pointerArguments(types).size(), i64);
  for (Type extra : added) {
    types.push_back(extra);
    func.getBody().front().addArgument(extra, loc);
  }
  func.setFunctionType(LLVM::LLVMFunctionType::get(type.getReturnType(), types));
  if (ArrayAttr attrs = func.getArgAttrsAttr()) {
    SmallVector<Attribute> all(attrs.getValue());
    all.append(added.size(), b.getDictionaryAttr({}));
    func.setArgAttrsAttr(b.getArrayAttr(all));
  }
  return success();
}

/// The bounds of the launch, at the function's begin.
void Checker::begin() {
  Block *entry = &func.getBody().front();
  b.setInsertionPointToStart(entry);
  if (isKernel) {
    bounds = slot(entry->getArgument(0), -1, ptr);
    Value first = toInt(entry->getArgument(3));
    ofScratch = {first, add(first, slot(bounds, DISC_RT_BOUNDS_SCRATCH, i64))};
    return;
  }
  bounds = entry->getArgument(numOwn);
  ofScratch = {entry->getArgument(numOwn + 1), entry->getArgument(numOwn + 2)};
  unsigned next = numOwn + 3;
  for (unsigned i : pointerArguments(func.getFunctionType().getParams().take_front(numOwn))) {
    ofBuffers[i] = {entry->getArgument(next), entry->getArgument(next + 1)};
    next += 2;
  }
}

Checker::Bounds Checker::boundsOf(const Origin &origin) {
  switch (origin.kind) {
  case Origin::Buffer: {
    Bounds &known = ofBuffers[origin.number];
    if (!known.first) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointAfterValue(bounds);
      int32_t at = DISC_RT_BOUNDS_BUFFERS + 2 * int32_t(origin.number);
      Value first = slot(bounds, at, i64);
      known = {first, slot(bounds, at + 1, i64)};
    }
    return known;
  }
  case Origin::Panel:
    return ofBuffers.lookup(origin.number);
  case Origin::Stack: {
    auto array = cast<LLVM::AllocaOp>(origin.op);
    Value first = toInt(array);
    Value size = number(layout.getTypeSize(array.getElemType()).getFixedValue());
    Value count = array.getArraySize();
    if (count.getType() != i64)
      count = LLVM::ZExtOp::create(b, loc, i64, count);
    return {first, add(first, LLVM::MulOp::create(b, loc, count, size))};
  }
  case Origin::Constant: {
    auto address = cast<LLVM::AddressOfOp>(origin.op);
    auto global = module.lookupSymbol<LLVM::GlobalOp>(address.getGlobalName());
    Value first = toInt(address);
    int64_t size = global ? layout.getTypeSize(global.getType()).getFixedValue() : 0;
    return {first, add(first, number(size))};
  }
  default:
    return ofScratch; // of any buffer, the runtime knows the others
  }
}

Value Checker::runtimeCall(StringRef name, Type result, ValueRange args) {
  auto callee = LLVM::lookupOrCreateFn(b, module, name, llvm::to_vector(args.getTypes()), result);
  assert(succeeded(callee));
  return LLVM::CallOp::create(b, loc, *callee, args).getResult();
}

/// The description of an access: a disc_access_site.
Value Checker::site(const Access &access) {
  int64_t buffer = DISC_ACCESS_ANY;
  switch (access.origin.kind) {
  case Origin::Buffer:
    buffer = access.origin.number;
    break;
  case Origin::Scratch:
    buffer = DISC_ACCESS_SCRATCH;
    break;
  case Origin::Stack:
    buffer = DISC_ACCESS_STACK;
    break;
  case Origin::Constant:
    buffer = DISC_ACCESS_CONSTANT;
    break;
  case Origin::Panel:
    buffer = DISC_ACCESS_PANEL;
    break;
  default:
    break;
  }
  int64_t form = access.scattered() ? DISC_ACCESS_ADDRESSES : access.lanes == 1 ? DISC_ACCESS_WHOLE : DISC_ACCESS_LANES;
  std::string source = isKernel ? sourceLine(access.op->getLoc()) : "";
  std::string key =
      source + "|" + std::to_string(access.writes) + "|" + std::to_string(buffer) + "|" + std::to_string(form);
  LLVM::GlobalOp &global = sites[key];
  if (!global) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr, i64, i64, i64});
    // A pointer of 32 bits is followed by what fills its 8 bytes.
    if (layout.getTypeSize(ptr).getFixedValue() == 4)
      type = LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr, i32, i64, i64, i64});
    global = LLVM::GlobalOp::create(b, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Private,
                                    "disc_site_" + std::to_string(sites.size()), Attribute());
    b.createBlock(&global.getInitializerRegion());
    Value value = LLVM::UndefOp::create(b, module.getLoc(), type);
    auto field = [&](Value v, int64_t at) { value = LLVM::InsertValueOp::create(b, module.getLoc(), value, v, at); };
    field(textAddress(b, module.getLoc(), module, source), 0);
    int64_t last = type.getBody().size() - 1;
    field(number(access.writes), last - 2);
    field(number(buffer), last - 1);
    field(number(form), last);
    LLVM::ReturnOp::create(b, module.getLoc(), value);
  }
  return LLVM::AddressOfOp::create(b, loc, ptr, global.getSymName());
}

/// Where accesses go that are wrong for certain.
Block *Checker::reportBlock() {
  if (report)
    return report;
  OpBuilder::InsertionGuard guard(b);
  report =
      b.createBlock(&func.getBody(), func.getBody().end(), {ptr, i64, i64, i64, i64}, SmallVector<Location>(5, loc));
  ValueRange args = report->getArguments();
  runtimeCall("disc_rt_check_access", i32, {bounds, args[0], args[1], number(1), args[2], args[3], args[4]});
  LLVM::ReturnOp::create(b, loc, ValueRange());
  return report;
}

void Checker::check(const Access &access) {
  Block *before = access.op->getBlock(), *next = before->splitBlock(access.op);
  b.setInsertionPointToEnd(before);
  auto [first, last] = boundsOf(access.origin);
  Value bytes = access.length ? access.length : number(access.bytes);
  if (bytes.getType() != i64)
    bytes = LLVM::ZExtOp::create(b, loc, i64, bytes);
  bool anywhere = access.origin.kind == Origin::Any || access.origin.kind == Origin::None;
  if (!access.scattered() && access.lanes == 1 && !anywhere) {
    Value at = toInt(access.address);
    Value wrong = either(less(at, first), less(last, add(at, bytes)));
    if (access.length) {
      Value some = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, bytes, number(0));
      wrong = LLVM::AndOp::create(b, loc, wrong, some);
    }
    LLVM::CondBrOp::create(b, loc, wrong, reportBlock(), ValueRange{site(access), at, bytes, first, last}, next,
                           ValueRange());
    return;
  }

  // The runtime looks at each lane, unless all of them are right.
  Value at, mask = number(1), wrong;
  Type bits = b.getIntegerType(access.lanes);
  if (access.lanes != 1)
    mask = access.mask ? LLVM::BitcastOp::create(b, loc, bits, access.mask).getResult() : number(-1);
  if (access.scattered()) {
    auto type = VectorType::get({access.lanes}, i64);
    auto splat = [&](Value scalar) -> Value {
      Value vector = LLVM::UndefOp::create(b, loc, type);
      vector = LLVM::InsertElementOp::create(b, loc, vector, scalar, number(0));
      return LLVM::ShuffleVectorOp::create(b, loc, vector, vector, SmallVector<int32_t>(access.lanes, 0));
    };
    at = LLVM::PtrToIntOp::create(b, loc, type, access.address);
    wrong = either(less(at, splat(first)), less(splat(last), add(at, splat(bytes))));
    wrong = LLVM::BitcastOp::create(b, loc, bits, wrong);
    if (access.mask)
      wrong = LLVM::AndOp::create(b, loc, wrong, mask);
    Value zero = LLVM::ConstantOp::create(b, loc, bits, b.getIntegerAttr(bits, 0));
    wrong = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, wrong, zero);
  } else {
    at = toInt(access.address);
    wrong = either(less(at, first), less(last, add(at, number(access.bytes * access.lanes))));
  }
  Block *slow = b.createBlock(next);
  if (access.scattered()) {
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&func.getBody().front());
      if (!addresses)
        addresses = LLVM::AllocaOp::create(b, loc, ptr, LLVM::LLVMArrayType::get(i64, 64), number(1), 64);
    }
    LLVM::StoreOp::create(b, loc, at, addresses, /*alignment=*/8);
    at = toInt(addresses);
  }
  if (mask.getType() != i64)
    mask = LLVM::ZExtOp::create(b, loc, i64, mask);
  Value failed = runtimeCall("disc_rt_check_access", i32, {bounds, site(access), at, mask, bytes, first, last});
  Value isBad = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, failed,
                                     LLVM::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(0)));
  Block *leave = b.createBlock(next);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  b.setInsertionPointToEnd(slow);
  LLVM::CondBrOp::create(b, loc, isBad, leave, next);
  b.setInsertionPointToEnd(before);
  LLVM::CondBrOp::create(b, loc, wrong, slow, next);
}

/// A call of a function that kernels share.
LogicalResult Checker::extendCall(LLVM::CallOp call) {
  b.setInsertionPoint(call);
  SmallVector<Value> operands(call.getArgOperands());
  SmallVector<unsigned> pointers = pointerArguments(TypeRange(ValueRange(operands)));
  SmallVector<Value> extra = {bounds, ofScratch.first, ofScratch.second};
  for (unsigned i : pointers) {
    Origin origin = originOf(operands[i]);
    if (origin.kind != Origin::Any && origin.kind != Origin::None && origin.kind != Origin::Arguments) {
      auto [first, last] = boundsOf(origin);
      extra.append({first, last});
      continue;
    }
    Value at = toInt(operands[i]);
    for (StringRef name : {"disc_rt_buffer_begin", "disc_rt_buffer_end"})
      extra.push_back(runtimeCall(name, i64, {bounds, at, ofScratch.first, ofScratch.second}));
  }
  operands.append(extra);
  auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(*call.getCallee());
  LLVM::CallOp::create(b, call.getLoc(), callee, operands);
  call.erase();
  return success();
}

/// A call of one of the runtime's functions: call(%call, %views, ...).
LogicalResult Checker::checkViews(LLVM::CallOp call) {
  Value views = call.getArgOperands()[1];
  auto array = views.getDefiningOp<LLVM::AllocaOp>();
  auto type = array ? dyn_cast<LLVM::LLVMArrayType>(array.getElemType()) : LLVM::LLVMArrayType();
  if (!type)
    return call.emitOpError("has operands of which the number is not known");
  Block *before = call->getBlock(), *next = before->splitBlock(call);
  b.setInsertionPointToEnd(before);
  int64_t count = type.getNumElements() * 8 / int64_t(sizeof(disc_view));
  Value failed = runtimeCall("disc_rt_check_views", i32, {bounds, views, number(count)});
  Value isBad = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, failed,
                                     LLVM::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(0)));
  Block *leave = b.createBlock(next);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  b.setInsertionPointToEnd(before);
  LLVM::CondBrOp::create(b, loc, isBad, leave, next);
  return success();
}

LogicalResult Checker::run() {
  SmallVector<Access> accesses;
  SmallVector<LLVM::CallOp> calls;
  if (failed(collect(accesses, calls)))
    return failure();
  begin();
  for (const Access &access : accesses)
    check(access);
  for (LLVM::CallOp call : calls) {
    StringRef name = call.getCallee().value_or("");
    auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
    if (!callee)
      return call.emitOpError("calls a function that is not known: its accesses cannot be checked");
    if (!callee.isExternal() && failed(extendCall(call)))
      return failure();
    if (name.starts_with("disc_fn_") && failed(checkViews(call)))
      return failure();
  }
  return success();
}

namespace {
struct CpuCheckAccesses : mlir::disc::impl::CpuCheckAccessesBase<CpuCheckAccesses> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    // Kernels, then the functions that they call.
    llvm::MapVector<LLVM::LLVMFuncOp, bool> functions;
    SmallVector<LLVM::LLVMFuncOp> open;
    for (auto func : module.getOps<LLVM::LLVMFuncOp>())
      if (func->hasAttr(kKernelKindAttr) && !func.isExternal()) {
        functions[func] = true;
        open.push_back(func);
      }
    while (!open.empty())
      open.pop_back_val().walk([&](LLVM::CallOp call) {
        auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(call.getCallee().value_or(""));
        if (callee && !callee.isExternal() && functions.insert({callee, false}).second)
          open.push_back(callee);
      });
    llvm::StringMap<LLVM::GlobalOp> sites;
    std::vector<Checker> checkers;
    checkers.reserve(functions.size());
    for (auto [func, isKernel] : functions) {
      checkers.emplace_back(func, isKernel, sites);
      if (!isKernel && failed(checkers.back().extendSignature()))
        return signalPassFailure();
    }
    for (Checker &checker : checkers)
      if (failed(checker.run()))
        return signalPassFailure();
  }
};
} // namespace
