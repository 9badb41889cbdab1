//===- EmulateKernels.cpp - kernels of a GPU become functions of one thread --===//
//
//   gpu.module @kernels {
//     llvm.mlir.global internal @k_shared() {addr_space = 3 : i32} : !llvm.array<8 x f32>
//     gpu.func @k(%x: !llvm.ptr<1>, %B: i64) kernel {
//       %t = gpu.thread_id x
//       %s = llvm.mlir.addressof @k_shared : !llvm.ptr<3>
//       ...
//       gpu.barrier
//       %v, %valid = gpu.shuffle xor %f, %offset, %width : f32
//       gpu.return
//     }
//   }
//   disc_rt.device_kernel @k threads 256 [writes, number]
//
// becomes
//
//   func.func private @k_emulated(%thread: !llvm.ptr, %args: !llvm.ptr) {
//     %x = llvm.load (llvm.load %args[0]) : !llvm.ptr
//     %t = llvm.load %thread[0] : i32 ...
//     %s = llvm.call @disc_rt_emulate_shared(%thread, 32)
//     ...
//     llvm.call @disc_rt_emulate_barrier(%thread, @k_site_0)
//     %v = llvm.call @disc_rt_emulate_shuffle(%thread, @k_site_1, %bits, %offset, %width) ...
//     return
//   }
//   disc_rt.device_kernel @k threads 256 [writes, number] host @k_emulated
//
// There is one address space then, and shared memory is what the runtime gives to the block. With `check` there is
//
//     llvm.call @disc_rt_emulate_access(%thread, @k_site_2, %at, %lanes)
//
// before each access, and before all of them a call of disc_rt_emulate_check.
//
// Lit tests: test/lit/Emulation/emulate-kernels.mlir, check.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Emulation/Passes.h"

#include "dialects/Rt/RtDialect.h"
#include "lib/Runtime/Device/Emulator.h"
#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/Common/ExprEmitter.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/Common/PointEmitter.h"
#include "lib/Target/Emulation/KernelAccesses.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::disc {
#define GEN_PASS_DEF_EMULATEKERNELS
#include "lib/Target/Emulation/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr unsigned kSharedSpace = 3;
/// On arguments of a gpu.func: an expression of the kernel's symbols.
constexpr llvm::StringLiteral kBufferBytesAttr = "disc_plan.bytes";

/// Replaces one gpu.func.
class KernelEmulation {
public:
  KernelEmulation(ModuleOp module, gpu::GPUFuncOp kernel, DeviceKernelOp stub, bool check)
      : module(module), kernel(kernel), stub(stub), check(check), b(module.getContext()), i32(b.getI32Type()),
        i64(b.getI64Type()), ptr(LLVM::LLVMPointerType::get(module.getContext())) {}

  /// The function of one thread; null if there is none, and an error was emitted.
  func::FuncOp emit();

private:
  void takeBody();
  LogicalResult placeShared();
  LogicalResult lower(Operation &op);
  LogicalResult lowerNvvm(Operation &op);
  void lowerMultiply(NVVM::MmaOp op);
  void lowerConversion(NVVM::ConvertFloatToTF32Op op);
  void lowerLoad(NVVM::LdMatrixOp op);
  void lowerCopy(NVVM::CpAsyncOp op);
  Value fragmentMemory(Location loc);
  LogicalResult lowerShuffle(gpu::ShuffleOp op);
  void replaceIndex(Operation &op, gpu::Dimension dimension, int32_t field, int64_t otherDims);
  void mergeAddressSpaces();

  Value field(int32_t number);
  LogicalResult emitExtents();
  LogicalResult checkWaits(ArrayRef<KernelAccess> accesses);
  void emitCheck(const KernelAccess &access);

  Value site(Operation *op, disc_emulated_site numbers);
  Value call(Location loc, StringRef name, Type result, ValueRange args);
  LLVM::LLVMStructType threadType();

  ModuleOp module;
  gpu::GPUFuncOp kernel;
  DeviceKernelOp stub;
  const bool check;
  OpBuilder b;
  Type i32, i64;
  LLVM::LLVMPointerType ptr;
  Value fragment; ///< A disc_emulated_fragment, once there is a use for it.
  SmallVector<NVVM::CpAsyncOp> copies;
  SmallVector<NVVM::LdMatrixOp> loads;
  DenseMap<Operation *, disc_emulated_site> copySites; ///< Of their writes.

  func::FuncOp function;
  Value thread;
  SmallVector<Value> arguments; ///< The kernel's own.
  DenseMap<int32_t, Value> fields;
  /// Where arrays in shared memory begin and end in the block's memory.
  llvm::MapVector<StringAttr, std::pair<int64_t, int64_t>> arrays;
  unsigned sites = 0;
};
} // namespace

Value KernelEmulation::call(Location loc, StringRef name, Type result, ValueRange args) {
  auto callee = LLVM::lookupOrCreateFn(b, module, name, llvm::to_vector(args.getTypes()),
                                       result ? result : LLVM::LLVMVoidType::get(b.getContext()));
  assert(succeeded(callee) && "declared once, here");
  return result ? LLVM::CallOp::create(b, loc, *callee, args).getResult()
                : (LLVM::CallOp::create(b, loc, *callee, args), Value());
}

/// disc_thread, as far as kernels know it.
LLVM::LLVMStructType KernelEmulation::threadType() {
  return LLVM::LLVMStructType::getLiteral(b.getContext(), {i32, i32, i32, i32, i32});
}

/// One of its fields that never change, as an index.
Value KernelEmulation::field(int32_t number) {
  Value &value = fields[number];
  if (!value) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&function.front());
    Location loc = kernel.getLoc();
    Value at = LLVM::GEPOp::create(b, loc, ptr, threadType(), thread, ArrayRef<LLVM::GEPArg>{0, number});
    value = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), LLVM::LoadOp::create(b, loc, i32, at));
  }
  return value;
}

/// The address of a constant that tells the runtime of an operation.
Value KernelEmulation::site(Operation *op, disc_emulated_site numbers) {
  Location loc = op->getLoc();
  LLVM::GlobalOp global;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    Type type = LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr, i64, i64, i64, i64, i64, i64});
    global = LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/true, LLVM::Linkage::Private,
                                    (kernel.getName() + "_site_" + Twine(sites++)).str(), Attribute());
    b.createBlock(&global.getInitializerRegion());
    Value value = LLVM::PoisonOp::create(b, loc, type);
    SmallVector<Value> fields = {textAddress(b, loc, module, sourceLine(loc))};
    for (int64_t number :
         {numbers.kind, numbers.bytes, numbers.alignment, numbers.argument, numbers.begin, numbers.end})
      fields.push_back(LLVM::ConstantOp::create(b, loc, i64, number));
    for (auto [i, field] : llvm::enumerate(fields))
      value = LLVM::InsertValueOp::create(b, loc, value, field, static_cast<int64_t>(i));
    LLVM::ReturnOp::create(b, loc, value);
  }
  return LLVM::AddressOfOp::create(b, loc, global);
}

/// Moves the kernel's body into the new function, whose arguments it reads from `args`.
void KernelEmulation::takeBody() {
  Location loc = kernel.getLoc();
  b.setInsertionPoint(module.lookupSymbol(kernel.getName()));
  function = func::FuncOp::create(b, loc, (kernel.getName() + "_emulated").str(), b.getFunctionType({ptr, ptr}, {}));
  function.setPrivate();
  Block *entry = function.addEntryBlock();
  thread = entry->getArgument(0);
  b.setInsertionPointToStart(entry);
  Block &body = kernel.getBody().front();
  for (BlockArgument argument : body.getArguments()) {
    Value at = LLVM::GEPOp::create(b, loc, ptr, ptr, entry->getArgument(1),
                                   ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(argument.getArgNumber())});
    at = LLVM::LoadOp::create(b, loc, ptr, at);
    arguments.push_back(LLVM::LoadOp::create(b, loc, argument.getType(), at));
    argument.replaceAllUsesWith(arguments.back());
  }
  Region::BlockListType &blocks = function.getBody().getBlocks();
  blocks.splice(blocks.end(), kernel.getBody().getBlocks(), std::next(kernel.getBody().begin()),
                kernel.getBody().end());
  entry->getOperations().splice(entry->end(), body.getOperations());
}

/// Tells how large buffers are, where the kernel says so.
LogicalResult KernelEmulation::emitExtents() {
  if (arguments.empty())
    return success();
  b.setInsertionPointAfterValue(arguments.back());
  ShapeAnalysis shapes(module);
  auto names = stub->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr);
  SmallVector<ArgumentUse> uses = stub.getArgumentUses();
  size_t first = std::min<size_t>(llvm::find(uses, ArgumentUse::Number) - uses.begin(), arguments.size());
  ExprEmitter exprs(b, shapes, [&](StringRef name) -> Value {
    for (size_t i = 0; names && i < names.size() && first + i < arguments.size(); ++i)
      if (cast<StringAttr>(names[i]).getValue() == name)
        return arith::IndexCastOp::create(b, kernel.getLoc(), b.getIndexType(), arguments[first + i]);
    return {};
  });
  for (unsigned i = 0; i < arguments.size(); ++i) {
    auto bytes = kernel.getArgAttrOfType<ExprAttr>(i, kBufferBytesAttr);
    if (!bytes)
      continue;
    Value value = exprs.emit(bytes.getValue(), kernel.getLoc());
    if (!value)
      return kernel.emitOpError() << "says that argument " << i << " has " << bytes.getValue().str()
                                  << " bytes, but has no value of '" << exprs.missingSymbol() << "'";
    disc_emulated_site numbers = {};
    numbers.kind = DISC_EMULATED_BUFFER;
    numbers.argument = i;
    value = arith::IndexCastOp::create(b, kernel.getLoc(), i64, value);
    call(kernel.getLoc(), "disc_rt_emulate_extent", {}, {thread, site(kernel, numbers), value});
  }
  return success();
}

/// Before an access: whether it is allowed.
void KernelEmulation::emitCheck(const KernelAccess &access) {
  Operation *op = access.address->getOwner();
  Location loc = op->getLoc();
  b.setInsertionPoint(op);
  disc_emulated_site numbers = {};
  numbers.kind = access.kind;
  numbers.bytes = access.bytes;
  numbers.alignment = access.alignment;
  numbers.argument = DISC_EMULATED_ANY;
  if (access.origin.kind == MemoryOrigin::Kind::Argument) {
    numbers.argument = access.origin.argument;
  } else if (access.origin.kind == MemoryOrigin::Kind::Shared) {
    numbers.argument = DISC_EMULATED_SHARED;
    std::tie(numbers.begin, numbers.end) = arrays.lookup(access.origin.global);
  }
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op); copy && access.kind == DISC_EMULATED_WRITE)
    copySites[op] = numbers;
  Value address = access.address->get();
  Value place = site(op, numbers);
  Value lanes = LLVM::ConstantOp::create(b, loc, i64, int64_t(1));
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op); copy && access.kind == DISC_EMULATED_READ && copy.getCpSize()) {
    // Nothing is read where the size is 0; a part of the bytes is not used so far.
    Value zero = LLVM::ConstantOp::create(b, loc, i32, int64_t(0));
    lanes = LLVM::ZExtOp::create(b, loc, i64,
                                 LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, copy.getCpSize(), zero));
  }
  if (access.mask) {
    Type bits = b.getIntegerType(static_cast<unsigned>(access.lanes));
    lanes = LLVM::BitcastOp::create(b, loc, bits, access.mask->get());
    if (bits != i64)
      lanes = LLVM::ZExtOp::create(b, loc, i64, lanes);
  }
  if (!isa<VectorType>(address.getType())) {
    call(loc, "disc_rt_emulate_access", {}, {thread, place, address, lanes});
    return;
  }
  Value one = LLVM::ConstantOp::create(b, loc, i64, int64_t(1));
  for (int64_t lane = 0; lane < access.lanes; ++lane) {
    Value number = LLVM::ConstantOp::create(b, loc, i64, lane);
    Value at = LLVM::ExtractElementOp::create(b, loc, address, number);
    Value bit = LLVM::AndOp::create(b, loc, LLVM::LShrOp::create(b, loc, lanes, number), one);
    call(loc, "disc_rt_emulate_access", {}, {thread, place, at, bit});
  }
}

/// What lies in shared memory of its own has a place in the block's memory instead.
LogicalResult KernelEmulation::placeShared() {
  DataLayout layout(module);
  SmallVector<LLVM::AddressOfOp> addresses;
  int64_t bytes = 0;
  WalkResult result = function.walk([&](LLVM::AddressOfOp op) {
    auto global = SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(kernel, op.getGlobalNameAttr());
    if (!global || global.getAddrSpace() != kSharedSpace) {
      op.emitOpError("is not of shared memory, the only one that kernels have for themselves");
      return WalkResult::interrupt();
    }
    addresses.push_back(op);
    auto [place, isNew] = arrays.insert({global.getSymNameAttr(), {0, 0}});
    if (isNew) {
      Type type = global.getGlobalType();
      uint64_t alignment = std::max<uint64_t>(global.getAlignment().value_or(1), layout.getTypeABIAlignment(type));
      auto begin = static_cast<int64_t>(llvm::alignTo(bytes, alignment));
      bytes = begin + static_cast<int64_t>(layout.getTypeSize(type).getFixedValue());
      place->second = {begin, bytes};
    }
    return WalkResult::advance();
  });
  if (result.wasInterrupted() || addresses.empty())
    return failure(result.wasInterrupted());
  b.setInsertionPointToStart(&function.front());
  Location loc = kernel.getLoc();
  Value memory =
      call(loc, "disc_rt_emulate_shared", ptr, {thread, LLVM::ConstantOp::create(b, loc, i64, bytes).getResult()});
  for (LLVM::AddressOfOp op : addresses) {
    b.setInsertionPoint(op);
    auto offset = static_cast<int32_t>(arrays.lookup(op.getGlobalNameAttr().getAttr()).first);
    Value at = LLVM::GEPOp::create(b, op.getLoc(), ptr, b.getI8Type(), memory, ArrayRef<LLVM::GEPArg>{offset});
    op.replaceAllUsesWith(at);
    op.erase();
  }
  return success();
}

/// There is one dimension of blocks and threads; the others have the extent 1.
void KernelEmulation::replaceIndex(Operation &op, gpu::Dimension dimension, int32_t number, int64_t otherwise) {
  b.setInsertionPoint(&op);
  Value value = dimension == gpu::Dimension::x ? field(number)
                                               : arith::ConstantIndexOp::create(b, op.getLoc(), otherwise).getResult();
  op.getResult(0).replaceAllUsesWith(value);
  op.erase();
}

/// The bits of a value of at most 64 bits, and back.
LogicalResult KernelEmulation::lowerShuffle(gpu::ShuffleOp op) {
  Location loc = op.getLoc();
  Type type = op.getValue().getType();
  if (!type.isIntOrFloat() || type.getIntOrFloatBitWidth() > 64)
    return op.emitOpError() << "shuffles a value of type " << type << "; numbers of at most 64 bits can be";
  b.setInsertionPoint(op);
  Type bitsType = b.getIntegerType(type.getIntOrFloatBitWidth());
  Value bits = op.getValue();
  if (type != bitsType)
    bits = arith::BitcastOp::create(b, loc, bitsType, bits);
  if (bitsType != i64)
    bits = arith::ExtUIOp::create(b, loc, i64, bits);
  disc_emulated_site numbers = {};
  switch (op.getMode()) {
  case gpu::ShuffleMode::XOR:
    numbers.kind = DISC_EMULATED_SHUFFLE_XOR;
    break;
  case gpu::ShuffleMode::UP:
    numbers.kind = DISC_EMULATED_SHUFFLE_UP;
    break;
  case gpu::ShuffleMode::DOWN:
    numbers.kind = DISC_EMULATED_SHUFFLE_DOWN;
    break;
  case gpu::ShuffleMode::IDX:
    numbers.kind = DISC_EMULATED_SHUFFLE_IDX;
    break;
  }
  Value result =
      call(loc, "disc_rt_emulate_shuffle", i64, {thread, site(op, numbers), bits, op.getOffset(), op.getWidth()});
  if (bitsType != i64)
    result = arith::TruncIOp::create(b, loc, bitsType, result);
  if (type != bitsType)
    result = arith::BitcastOp::create(b, loc, type, result);
  op.getShuffleResult().replaceAllUsesWith(result);
  if (!op.getValid().use_empty()) {
    Value at = LLVM::GEPOp::create(b, loc, ptr, threadType(), thread, ArrayRef<LLVM::GEPArg>{0, 4});
    Value inRange = LLVM::LoadOp::create(b, loc, i32, at);
    op.getValid().replaceAllUsesWith(arith::TruncIOp::create(b, loc, b.getI1Type(), inRange).getResult());
  }
  op.erase();
  return success();
}

/// Memory of the thread for the values that it exchanges with its warp.
Value KernelEmulation::fragmentMemory(Location loc) {
  if (!fragment) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&function.front());
    Value one = LLVM::ConstantOp::create(b, loc, i32, int64_t(1));
    fragment = LLVM::AllocaOp::create(b, loc, ptr, LLVM::LLVMArrayType::get(i32, 10), one, /*alignment=*/8);
  }
  return fragment;
}

void KernelEmulation::lowerLoad(NVVM::LdMatrixOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  Value memory = fragmentMemory(loc);
  disc_emulated_site numbers = {};
  numbers.kind = DISC_EMULATED_MATRIX_LOAD;
  call(loc, "disc_rt_emulate_load_transposed", {}, {thread, site(op, numbers), op.getPtr(), memory});
  Value result = LLVM::PoisonOp::create(b, loc, op.getRes().getType());
  for (int32_t i = 0; i < 4; ++i) {
    Value at = LLVM::GEPOp::create(b, loc, ptr, i32, memory, ArrayRef<LLVM::GEPArg>{i});
    result = LLVM::InsertValueOp::create(b, loc, result, LLVM::LoadOp::create(b, loc, i32, at, 4), int64_t(i));
  }
  op.getRes().replaceAllUsesWith(result);
  op.erase();
}

void KernelEmulation::lowerMultiply(NVVM::MmaOp op) {
  Location loc = op.getLoc();
  fragmentMemory(loc);
  b.setInsertionPoint(op);
  auto place = [&](unsigned number) -> Value {
    return LLVM::GEPOp::create(b, loc, ptr, i32, fragment, ArrayRef<LLVM::GEPArg>{int32_t(number)});
  };
  for (auto [i, v] : llvm::enumerate(op->getOperands()))
    LLVM::StoreOp::create(b, loc, v, place(i), 4);
  disc_emulated_site numbers = {};
  NVVM::MMATypes type = op.getMultiplicandAPtxType().value_or(NVVM::MMATypes::f16);
  numbers.kind = type == NVVM::MMATypes::tf32   ? DISC_EMULATED_MATRIX_TF32
                 : type == NVVM::MMATypes::bf16 ? DISC_EMULATED_MATRIX_BF16
                                                : DISC_EMULATED_MATRIX_F16;
  call(loc, "disc_rt_emulate_multiply", {}, {thread, site(op, numbers), fragment});
  Value result = LLVM::PoisonOp::create(b, loc, op.getRes().getType());
  for (unsigned i = 0; i < 4; ++i)
    result = LLVM::InsertValueOp::create(b, loc, result, LLVM::LoadOp::create(b, loc, b.getF32Type(), place(6 + i), 4),
                                         int64_t(i));
  op.getRes().replaceAllUsesWith(result);
  op.erase();
}

/// Rounds to the nearest, ties away from zero; infinities and NaN become zero (NvvmLower.cpp).
void KernelEmulation::lowerConversion(NVVM::ConvertFloatToTF32Op op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto constant = [&](uint32_t v) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(v)));
  };
  Value bits = arith::BitcastOp::create(b, loc, i32, op.getSrc());
  Value rounded =
      arith::AndIOp::create(b, loc, arith::AddIOp::create(b, loc, bits, constant(0x1000)), constant(0xffffe000));
  Value exponent = arith::AndIOp::create(b, loc, bits, constant(0x7f800000));
  Value isFinite = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, exponent, constant(0x7f800000));
  op.getRes().replaceAllUsesWith(arith::SelectOp::create(b, loc, isFinite, rounded, constant(0)).getResult());
  op.erase();
}

void KernelEmulation::lowerCopy(NVVM::CpAsyncOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  disc_emulated_site numbers = copySites.lookup(op);
  numbers.kind = DISC_EMULATED_WRITE;
  numbers.bytes = op.getSize();
  Value bytes = op.getCpSize();
  if (!bytes)
    bytes = LLVM::ConstantOp::create(b, loc, i32, int64_t(op.getSize()));
  call(loc, "disc_rt_emulate_copy", {}, {thread, site(op, numbers), op.getDst(), op.getSrc(), bytes});
  op.erase();
}

LogicalResult KernelEmulation::lowerNvvm(Operation &op) {
  auto number = [&](int64_t v) -> Value { return LLVM::ConstantOp::create(b, op.getLoc(), i32, v); };
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](NVVM::MmaOp mma) { return lowerMultiply(mma), success(); })
      .Case([&](NVVM::ConvertFloatToTF32Op convert) { return lowerConversion(convert), success(); })
      .Case([&](NVVM::CpAsyncOp copy) { return copies.push_back(copy), success(); }) // after its checks
      .Case([&](NVVM::LdMatrixOp load) {
        if (load.getNum() != 4 || load.getLayout() != NVVM::MMALayout::col)
          return LogicalResult(load.emitOpError("can't be emulated: four matrices, transposed, can be"));
        return loads.push_back(load), success(); // after its checks
      })
      .Case([&](NVVM::CpAsyncCommitGroupOp commit) {
        b.setInsertionPoint(commit);
        call(op.getLoc(), "disc_rt_emulate_commit", {}, {thread});
        return commit.erase(), success();
      })
      .Case([&](NVVM::CpAsyncWaitGroupOp wait) {
        b.setInsertionPoint(wait);
        call(op.getLoc(), "disc_rt_emulate_wait", {}, {thread, number(wait.getN())});
        return wait.erase(), success();
      })
      .Case([&](NVVM::GriddepcontrolOp control) { return control.erase(), success(); }) // after its check
      .Default([](Operation *op) { return op->emitOpError("can't be emulated"); });
}

LogicalResult KernelEmulation::lower(Operation &op) {
  if (isa<NVVM::NVVMDialect>(op.getDialect()))
    return lowerNvvm(op);
  if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op)) {
    StringRef name = intrinsic.getIntrin();
    b.setInsertionPoint(&op);
    auto constant = [&](float v) -> Value { return arith::ConstantOp::create(b, op.getLoc(), b.getF32FloatAttr(v)); };
    // Denormals become zeros.
    auto flush = [&](Value v) -> Value {
      Value magnitude = math::AbsFOp::create(b, op.getLoc(), v);
      Value isTiny = arith::CmpFOp::create(b, op.getLoc(), arith::CmpFPredicate::OLT, magnitude, constant(0x1p-126f));
      Value zero = math::CopySignOp::create(b, op.getLoc(), constant(0.0f), v);
      return arith::SelectOp::create(b, op.getLoc(), isTiny, zero, v);
    };
    auto power = [&](Value v) -> Value { return call(op.getLoc(), "disc_rt_emulate_power", b.getF32Type(), v); };
    auto args = intrinsic.getArgs();
    auto isF32 = [](Type type) { return type.isF32(); };
    if (op.getNumResults() != 1 || !llvm::all_of(op.getResultTypes(), isF32) || !llvm::all_of(args.getTypes(), isF32))
      return op.emitOpError() << name << " can't be emulated";
    Value result;
    if (name == "llvm.nvvm.ex2.approx" && args.size() == 1)
      result = power(args[0]);
    else if (name == "llvm.nvvm.ex2.approx.ftz" && args.size() == 1)
      result = flush(power(flush(args[0])));
    else if (name == "llvm.nvvm.div.full" && args.size() == 2)
      result = arith::DivFOp::create(b, op.getLoc(), args[0], args[1]);
    else if (name == "llvm.nvvm.rcp.approx.ftz.f" && args.size() == 1)
      result = flush(arith::DivFOp::create(b, op.getLoc(), constant(1.0f), flush(args[0])));
    else
      return op.emitOpError() << name << " can't be emulated";
    return op.getResult(0).replaceAllUsesWith(result), op.erase(), success();
  }
  if (!isa<gpu::GPUDialect>(op.getDialect()))
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](gpu::ThreadIdOp id) { return replaceIndex(op, id.getDimension(), 0, 0), success(); })
      .Case([&](gpu::BlockIdOp id) { return replaceIndex(op, id.getDimension(), 1, 0), success(); })
      .Case([&](gpu::BlockDimOp dim) { return replaceIndex(op, dim.getDimension(), 2, 1), success(); })
      .Case([&](gpu::GridDimOp dim) { return replaceIndex(op, dim.getDimension(), 3, 1), success(); })
      .Case([&](gpu::ShuffleOp shuffle) { return lowerShuffle(shuffle); })
      .Case([&](gpu::BarrierOp barrier) {
        b.setInsertionPoint(barrier);
        call(op.getLoc(), "disc_rt_emulate_barrier", {}, {thread, site(&op, {})});
        barrier.erase();
        return success();
      })
      .Case([&](gpu::ReturnOp end) {
        b.setInsertionPoint(end);
        func::ReturnOp::create(b, op.getLoc());
        end.erase();
        return success();
      })
      .Default([](Operation *op) { return op->emitOpError("can't be emulated"); });
}

/// There is one, and addresses need not be aligned: a GPU has its own way of failing, which is not to end the process.
void KernelEmulation::mergeAddressSpaces() {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](LLVM::LLVMPointerType type) -> std::optional<Type> { return type.getAddressSpace() ? ptr : type; });
  replacer.recursivelyReplaceElementsIn(function, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
  function.walk([](LLVM::AddrSpaceCastOp op) {
    op.replaceAllUsesWith(op.getArg());
    op.erase();
  });
  function.walk([](Operation *op) {
    if (auto load = dyn_cast<LLVM::LoadOp>(op); load && isa<VectorType>(load.getType()))
      load.setAlignment(1);
    if (auto store = dyn_cast<LLVM::StoreOp>(op); store && isa<VectorType>(store.getValue().getType()))
      store.setAlignment(1);
  });
}

/// Launches run one after the other here, so that no run shows what a kernel does before it waits for those before it:
/// it may read constants only.
LogicalResult KernelEmulation::checkWaits(ArrayRef<KernelAccess> accesses) {
  SmallVector<Operation *> waits;
  kernel.walk([&](NVVM::GriddepcontrolOp op) {
    if (op.getKind() == NVVM::GridDepActionKind::wait)
      waits.push_back(op);
  });
  if (waits.empty())
    return success();
  DominanceInfo dominance(kernel);
  for (const KernelAccess &access : accesses) {
    Operation *op = access.address->getOwner();
    bool isConstant = access.kind == DISC_EMULATED_READ && access.origin.kind == MemoryOrigin::Kind::Argument &&
                      kernel.getArgAttr(access.origin.argument, kConstantAttr);
    if (access.origin.kind == MemoryOrigin::Kind::Shared || isConstant ||
        llvm::any_of(waits, [&](Operation *wait) { return dominance.properlyDominates(wait, op); }))
      continue;
    return op->emitOpError("uses memory before the kernel has waited for those before it");
  }
  return success();
}

func::FuncOp KernelEmulation::emit() {
  if (kernel.getNumWorkgroupAttributions() || kernel.getNumPrivateAttributions()) {
    kernel.emitOpError("has memory attributions, which can't be emulated: shared memory is an llvm.mlir.global");
    return {};
  }
  FailureOr<SmallVector<KernelAccess>> accesses = SmallVector<KernelAccess>();
  if (check)
    accesses = findAccesses(kernel); // while there are address spaces
  if (failed(accesses) || failed(checkWaits(*accesses)))
    return {};
  takeBody();
  if (failed(placeShared()))
    return {};
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops)
    if (failed(lower(*op)))
      return {};
  mergeAddressSpaces();
  for (const KernelAccess &access : *accesses)
    emitCheck(access);
  for (NVVM::CpAsyncOp copy : copies)
    lowerCopy(copy);
  for (NVVM::LdMatrixOp load : loads)
    lowerLoad(load);
  if (check) {
    if (failed(emitExtents()))
      return {};
    b.setInsertionPointToStart(&function.front());
    Location loc = kernel.getLoc();
    int64_t most = mostBlocks(stub, ShapeAnalysis(module)).value_or(0);
    Value blocks = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(most));
    call(loc, "disc_rt_emulate_check", {}, {thread, blocks});
  }
  return function;
}

namespace {
struct EmulateKernels : mlir::disc::impl::EmulateKernelsBase<EmulateKernels> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (gpu::GPUModuleOp kernels : llvm::make_early_inc_range(module.getOps<gpu::GPUModuleOp>())) {
      for (gpu::GPUFuncOp kernel : kernels.getOps<gpu::GPUFuncOp>()) {
        auto stub = module.lookupSymbol<DeviceKernelOp>(kernel.getName());
        if (!stub) {
          kernel.emitOpError("has no disc_rt.device_kernel of its name");
          return signalPassFailure();
        }
        func::FuncOp function = KernelEmulation(module, kernel, stub, check).emit();
        if (!function)
          return signalPassFailure();
        stub.setHostAttr(FlatSymbolRefAttr::get(function.getSymNameAttr()));
      }
      kernels.erase();
    }
  }
};
} // namespace
