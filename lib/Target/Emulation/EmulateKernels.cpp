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
//   disc_rt.device_kernel @k threads 256 writes "1s"
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
//   disc_rt.device_kernel @k threads 256 writes "1s" host @k_emulated
//
// There is one address space then, and shared memory is what the runtime gives to the block.
//
// Lit test: test/lit/Emulation/emulate-kernels.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Emulation/Passes.h"

#include "dialects/Rt/RtDialect.h"
#include "lib/Runtime/Device/Emulator.h"
#include "lib/Target/Common/PointEmitter.h"
#include "lib/Target/Common/SourceLine.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
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

/// Replaces one gpu.func.
class KernelEmulation {
public:
  KernelEmulation(ModuleOp module, gpu::GPUFuncOp kernel)
      : module(module), kernel(kernel), b(module.getContext()), i32(b.getI32Type()), i64(b.getI64Type()),
        ptr(LLVM::LLVMPointerType::get(module.getContext())) {}

  /// The function of one thread; null if there is none, and an error was emitted.
  func::FuncOp emit();

private:
  void takeBody();
  LogicalResult placeShared();
  LogicalResult lower(Operation &op);
  LogicalResult lowerShuffle(gpu::ShuffleOp op);
  void replaceIndex(Operation &op, gpu::Dimension dimension, int32_t field, int64_t otherDims);
  void mergeAddressSpaces();

  Value field(int32_t number);
  Value site(Operation *op, int64_t kind);
  Value call(Location loc, StringRef name, Type result, ValueRange args);
  LLVM::LLVMStructType threadType();

  ModuleOp module;
  gpu::GPUFuncOp kernel;
  OpBuilder b;
  Type i32, i64;
  LLVM::LLVMPointerType ptr;

  func::FuncOp function;
  Value thread;
  DenseMap<int32_t, Value> fields;
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
Value KernelEmulation::site(Operation *op, int64_t kind) {
  Location loc = op->getLoc();
  LLVM::GlobalOp global;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    Type type = LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr, i64});
    global = LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/true, LLVM::Linkage::Private,
                                    (kernel.getName() + "_site_" + Twine(sites++)).str(), Attribute());
    b.createBlock(&global.getInitializerRegion());
    Value value = LLVM::PoisonOp::create(b, loc, type);
    Value fields[] = {textAddress(b, loc, module, sourceLine(loc)), LLVM::ConstantOp::create(b, loc, i64, kind)};
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
    argument.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, argument.getType(), at));
  }
  Region::BlockListType &blocks = function.getBody().getBlocks();
  blocks.splice(blocks.end(), kernel.getBody().getBlocks(), std::next(kernel.getBody().begin()),
                kernel.getBody().end());
  entry->getOperations().splice(entry->end(), body.getOperations());
}

/// What lies in shared memory of its own has a place in the block's memory instead.
LogicalResult KernelEmulation::placeShared() {
  DataLayout layout(module);
  llvm::MapVector<StringAttr, int64_t> offsets;
  SmallVector<LLVM::AddressOfOp> addresses;
  int64_t bytes = 0;
  WalkResult result = function.walk([&](LLVM::AddressOfOp op) {
    auto global = SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(kernel, op.getGlobalNameAttr());
    if (!global || global.getAddrSpace() != kSharedSpace) {
      op.emitOpError("is not of shared memory, the only one that kernels have for themselves");
      return WalkResult::interrupt();
    }
    addresses.push_back(op);
    auto [place, isNew] = offsets.insert({global.getSymNameAttr(), 0});
    if (isNew) {
      Type type = global.getGlobalType();
      uint64_t alignment = std::max<uint64_t>(global.getAlignment().value_or(1), layout.getTypeABIAlignment(type));
      place->second = llvm::alignTo(bytes, alignment);
      bytes = place->second + layout.getTypeSize(type).getFixedValue();
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
    auto offset = static_cast<int32_t>(offsets.find(op.getGlobalNameAttr().getAttr())->second);
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
  int64_t kind = [&] {
    switch (op.getMode()) {
    case gpu::ShuffleMode::XOR:
      return DISC_EMULATED_SHUFFLE_XOR;
    case gpu::ShuffleMode::UP:
      return DISC_EMULATED_SHUFFLE_UP;
    case gpu::ShuffleMode::DOWN:
      return DISC_EMULATED_SHUFFLE_DOWN;
    case gpu::ShuffleMode::IDX:
      return DISC_EMULATED_SHUFFLE_IDX;
    }
    llvm_unreachable("all modes are listed");
  }();
  Value result =
      call(loc, "disc_rt_emulate_shuffle", i64, {thread, site(op, kind), bits, op.getOffset(), op.getWidth()});
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

LogicalResult KernelEmulation::lower(Operation &op) {
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
        call(op.getLoc(), "disc_rt_emulate_barrier", {}, {thread, site(&op, DISC_EMULATED_BARRIER)});
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

void KernelEmulation::mergeAddressSpaces() {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](LLVM::LLVMPointerType type) -> std::optional<Type> { return type.getAddressSpace() ? ptr : type; });
  replacer.recursivelyReplaceElementsIn(function, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
  function.walk([](LLVM::AddrSpaceCastOp op) {
    op.replaceAllUsesWith(op.getArg());
    op.erase();
  });
}

func::FuncOp KernelEmulation::emit() {
  if (kernel.getNumWorkgroupAttributions() || kernel.getNumPrivateAttributions()) {
    kernel.emitOpError("has memory attributions, which can't be emulated: shared memory is an llvm.mlir.global");
    return {};
  }
  takeBody();
  if (failed(placeShared()))
    return {};
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops)
    if (failed(lower(*op)))
      return {};
  mergeAddressSpaces();
  return function;
}

namespace {
struct EmulateKernels : mlir::disc::impl::EmulateKernelsBase<EmulateKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (gpu::GPUModuleOp kernels : llvm::make_early_inc_range(module.getOps<gpu::GPUModuleOp>())) {
      for (gpu::GPUFuncOp kernel : kernels.getOps<gpu::GPUFuncOp>()) {
        auto stub = module.lookupSymbol<DeviceKernelOp>(kernel.getName());
        if (!stub) {
          kernel.emitOpError("has no disc_rt.device_kernel of its name");
          return signalPassFailure();
        }
        func::FuncOp function = KernelEmulation(module, kernel).emit();
        if (!function)
          return signalPassFailure();
        stub.setHostAttr(FlatSymbolRefAttr::get(function.getSymNameAttr()));
      }
      kernels.erase();
    }
  }
};
} // namespace
