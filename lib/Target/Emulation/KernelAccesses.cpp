//===- KernelAccesses.cpp - where a kernel uses memory --------------------===//

#include "lib/Target/Emulation/KernelAccesses.h"

#include "lib/Runtime/Device/Emulator.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

/// What a pointer is computed from; false if that is not known. Nothing is added for what holds no address.
static bool addSources(Value pointer, gpu::GPUFuncOp kernel, SmallVectorImpl<Value> &sources) {
  if (auto argument = dyn_cast<BlockArgument>(pointer)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (!loop)
      return false;
    sources.append({loop.getTiedLoopInit(argument)->get(), loop.getTiedLoopYieldedValue(argument)->get()});
    return true;
  }
  unsigned number = cast<OpResult>(pointer).getResultNumber();
  return llvm::TypeSwitch<Operation *, bool>(pointer.getDefiningOp())
      .Case([&](LLVM::GEPOp op) { return sources.push_back(op.getBase()), true; })
      .Case<LLVM::AddrSpaceCastOp, vector::BroadcastOp>(
          [&](Operation *op) { return sources.push_back(op->getOperand(0)), true; })
      .Case<arith::SelectOp, LLVM::SelectOp>(
          [&](Operation *op) { return sources.append({op->getOperand(1), op->getOperand(2)}), true; })
      .Case([&](scf::ForOp op) {
        sources.append({op.getInits()[number], op.getYieldedValues()[number]});
        return true;
      })
      .Case([&](scf::IfOp op) {
        sources.append({op.thenYield().getResults()[number], op.elseYield().getResults()[number]});
        return true;
      })
      .Case<ub::PoisonOp, LLVM::PoisonOp>([](Operation *) { return true; })
      .Default([](Operation *) { return false; });
}

static MemoryOrigin originOf(Value address, gpu::GPUFuncOp kernel) {
  using Kind = MemoryOrigin::Kind;
  MemoryOrigin origin;
  SmallVector<Value> work = {address};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    MemoryOrigin root;
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == &kernel.getBody().front())
      root = {Kind::Argument, argument.getArgNumber(), {}};
    else if (auto global = value.getDefiningOp<LLVM::AddressOfOp>())
      root = {Kind::Shared, 0, global.getGlobalNameAttr().getAttr()};
    else if (value.getDefiningOp<LLVM::AllocaOp>())
      root = {Kind::Private, 0, {}};
    else if (!addSources(value, kernel, work))
      root = {Kind::Any, 0, {}};
    if (root.kind == Kind::None)
      continue;
    if (origin.kind == Kind::None)
      origin = root;
    else if (!(origin == root))
      return {Kind::Any, 0, {}};
  }
  return origin;
}

static int64_t bytesOf(Type type, const DataLayout &layout) {
  if (auto vector = dyn_cast<VectorType>(type)) // without what its size is rounded up by
    return vector.getNumElements() * bytesOf(vector.getElementType(), layout);
  return layout.getTypeSize(type).getFixedValue();
}

/// An access without its origin; nothing if the operation does not use memory in a way that is known here.
static std::optional<KernelAccess> accessOf(Operation *op, const DataLayout &layout) {
  auto whole = [&](int64_t kind, OpOperand &address, Type type, std::optional<uint64_t> alignment) {
    int64_t bytes = bytesOf(type, layout);
    auto multiple = static_cast<int64_t>(alignment.value_or(llvm::PowerOf2Ceil(bytes)));
    return KernelAccess{kind, &address, nullptr, 1, bytes, multiple, {}};
  };
  auto lanes = [&](int64_t kind, OpOperand &address, OpOperand &mask, Type type, int64_t alignment) {
    auto vector = cast<VectorType>(type);
    int64_t bytes = bytesOf(vector.getElementType(), layout);
    return KernelAccess{kind, &address, &mask, vector.getNumElements(), bytes, alignment, {}};
  };
  return llvm::TypeSwitch<Operation *, std::optional<KernelAccess>>(op)
      .Case([&](LLVM::LoadOp load) {
        return whole(DISC_EMULATED_READ, load.getAddrMutable(), load.getType(), load.getAlignment());
      })
      .Case([&](LLVM::StoreOp store) {
        return whole(DISC_EMULATED_WRITE, store.getAddrMutable(), store.getValue().getType(), store.getAlignment());
      })
      .Case<LLVM::AtomicRMWOp, LLVM::AtomicCmpXchgOp>([&](auto atomic) {
        return whole(DISC_EMULATED_ATOMIC, atomic.getPtrMutable(), atomic.getVal().getType(), atomic.getAlignment());
      })
      .Case([&](LLVM::MaskedLoadOp load) {
        return lanes(DISC_EMULATED_READ, load.getDataMutable(), load.getMaskMutable(), load.getType(),
                     load.getAlignment());
      })
      .Case([&](LLVM::MaskedStoreOp store) {
        return lanes(DISC_EMULATED_WRITE, store.getDataMutable(), store.getMaskMutable(), store.getValue().getType(),
                     store.getAlignment());
      })
      .Case([&](LLVM::masked_gather gather) {
        return lanes(DISC_EMULATED_READ, gather.getPtrsMutable(), gather.getMaskMutable(), gather.getType(),
                     gather.getAlignment());
      })
      .Case([&](LLVM::masked_scatter scatter) {
        return lanes(DISC_EMULATED_WRITE, scatter.getPtrsMutable(), scatter.getMaskMutable(),
                     scatter.getValue().getType(), scatter.getAlignment());
      })
      .Default([](Operation *) { return std::nullopt; });
}

FailureOr<SmallVector<KernelAccess>> mlir::disc::findAccesses(gpu::GPUFuncOp kernel) {
  SmallVector<KernelAccess> accesses;
  DataLayout layout(kernel->getParentOfType<ModuleOp>());
  WalkResult result = kernel.walk([&](Operation *op) {
    if (auto load = dyn_cast<NVVM::LdMatrixOp>(op)) {
      // Each lane's row.
      OpOperand &address = load.getPtrMutable();
      accesses.push_back({DISC_EMULATED_READ, &address, nullptr, 1, 16, 16, originOf(address.get(), kernel)});
      return WalkResult::advance();
    }
    if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op)) {
      auto bytes = int64_t(copy.getSize());
      for (auto [kind, address] :
           {std::make_pair(DISC_EMULATED_READ, &copy.getSrcMutable()), {DISC_EMULATED_WRITE, &copy.getDstMutable()}})
        accesses.push_back({kind, address, nullptr, 1, bytes, bytes, originOf(address->get(), kernel)});
      return WalkResult::advance();
    }
    if (std::optional<KernelAccess> access = accessOf(op, layout)) {
      access->origin = originOf(access->address->get(), kernel);
      if (access->origin.kind != MemoryOrigin::Kind::Private)
        accesses.push_back(*access);
      return WalkResult::advance();
    }
    auto effects = dyn_cast<MemoryEffectOpInterface>(op);
    if (!isa<gpu::GPUDialect>(op->getDialect()) && effects &&
        (effects.hasEffect<MemoryEffects::Read>() || effects.hasEffect<MemoryEffects::Write>())) {
      op->emitOpError("uses memory in a way that can't be checked");
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return accesses;
}
