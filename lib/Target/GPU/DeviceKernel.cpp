//===- DeviceKernel.cpp - what emitters of device kernels share -----------===//

#include "lib/Target/GPU/DeviceKernel.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/GPU/BufferAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::disc;

SmallVector<StringRef> disc::checkTexts(KernelFuncOp kernel) {
  llvm::SetVector<StringRef> texts;
  kernel.walk([&](CheckIndexOp check) { texts.insert(check.getWhat()); });
  // Of the functions that a device does, this one has indices from tensors.
  kernel.walk([&](CallFunctionOp call) {
    if (call.getFunction() == "scatter")
      texts.insert(call.getWhat());
  });
  return texts.takeVector();
}

PointEmitter DeviceKernel::points(int64_t lanes) {
  ValueRange arguments = function.getArguments();
  PointEmitter points(b, kernel, KernelArguments(arguments), lanes, shapes);
  for (auto [i, bytes] : llvm::enumerate(bufferAlignments(kernel, shapes)))
    points.setAlignment(arguments[i], bytes);
  points.assumeMultiples(multiples, multiplesOf);
  if (!checkTexts(kernel).empty())
    points.setReport([this](Value seen, Value extent, StringRef what) { report(seen, extent, what); });
  return points;
}

void DeviceKernel::report(Value seen, Value extent, StringRef what) {
  SmallVector<StringRef> texts = checkTexts(kernel);
  unsigned first = function.getNumArguments() - texts.size();
  Value errors = function.getArgument(first - 1),
        text = function.getArgument(first + (llvm::find(texts, what) - texts.begin()));
  // The first thread to fail says what it saw.
  Type i32 = b.getI32Type();
  Value one = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1));
  Value before =
      LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::xchg, errors, one, LLVM::AtomicOrdering::monotonic);
  Value zero = arith::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(0));
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, before, zero);
  auto branch = scf::IfOp::create(b, loc, isFirst, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  for (auto [i, v] : llvm::enumerate(ArrayRef<Value>{seen, extent, text}))
    LLVM::StoreOp::create(b, loc, v, m.advance(errors, m.constant(8 * (i + 1))), 8);
}

Value DeviceKernel::shared(Type element, int64_t count) {
  auto module = function->getParentOfType<gpu::GPUModuleOp>();
  if (element.isInteger(1))
    element = b.getI8Type();
  std::string name = (function.getName() + "_shared" + Twine(numShared++)).str();
  if (auto other = module.lookupSymbol<LLVM::GlobalOp>(name)) {
    // Of another part.
    auto type = cast<LLVM::LLVMArrayType>(other.getGlobalType());
    assert(type.getElementType() == element && "parts of a kernel are emitted alike");
    if (int64_t(type.getNumElements()) < count)
      other.setGlobalTypeAttr(TypeAttr::get(LLVM::LLVMArrayType::get(element, count)));
  } else {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(element, count), /*isConstant=*/false,
                           LLVM::Linkage::Internal, name, Attribute(), /*alignment=*/16, /*addrSpace=*/3);
  }
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), name);
}

void DeviceKernel::keepRolled(ValueRange results) {
  auto loop = results.front().getDefiningOp<scf::ForOp>();
  if (!loop)
    return;
  MLIRContext *context = loop.getContext();
  auto unroll = LLVM::LoopUnrollAttr::get(context, BoolAttr::get(context, true), {}, {}, {}, {}, {}, {});
  loop->setAttr("loop_annotation",
                LLVM::LoopAnnotationAttr::get(context, {}, {}, {}, unroll, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}));
}

void DeviceKernel::startEarly() {
  next = NVVM::GriddepcontrolOp::create(b, loc, NVVM::GridDepActionKind::launch_dependents);
  wait = NVVM::GriddepcontrolOp::create(b, loc, NVVM::GridDepActionKind::wait);
  isEarly = true;
}

void DeviceKernel::delayWait() {
  if (!wait)
    return;
  NVVM::GriddepcontrolOp::create(b, loc, NVVM::GridDepActionKind::wait);
  std::exchange(wait, nullptr)->erase();
}

void DeviceKernel::delayNext() {
  if (!isEarly)
    return;
  NVVM::GriddepcontrolOp::create(b, loc, NVVM::GridDepActionKind::launch_dependents);
  // Blocks of parts that do not delay it say so by ending.
  if (next)
    std::exchange(next, nullptr)->erase();
}

void DeviceKernel::share(Value first, Value count, function_ref<void()> part) {
  Value block = gpu::BlockIdOp::create(b, loc, b.getIndexType(), gpu::Dimension::x);
  Value end = m.add(first, count), isBehind = m.less(block, first);
  Value isBefore = m.less(block, end), yes = arith::ConstantIntOp::create(b, loc, 1, 1);
  Value isIn = arith::AndIOp::create(b, loc, isBefore, arith::XOrIOp::create(b, loc, isBehind, yes));
  auto branch = scf::IfOp::create(b, loc, isIn, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  int64_t before = std::exchange(numShared, 0);
  firstBlock = first;
  if (isEarly) {
    // Each part has a wait of its own, which it may delay.
    if (wait)
      wait->erase();
    wait = NVVM::GriddepcontrolOp::create(b, loc, NVVM::GridDepActionKind::wait);
  }
  part();
  wait = nullptr;
  firstBlock = {};
  numShared = std::max(numShared, before);
}

static Value elementAt(DeviceKernel &k, Value memory, Type element, Value at) {
  return LLVM::GEPOp::create(k.b, k.loc, memory.getType(), element, memory, ArrayRef<LLVM::GEPArg>{k.m.i64(at)},
                             LLVM::GEPNoWrapFlags::inbounds);
}

Value DeviceKernel::loadShared(Value memory, Type element, Value at) {
  if (!element.isInteger(1))
    return LLVM::LoadOp::create(b, loc, element, elementAt(*this, memory, element, at));
  Type i8 = b.getI8Type();
  Value byte = LLVM::LoadOp::create(b, loc, i8, elementAt(*this, memory, i8, at));
  return arith::TruncIOp::create(b, loc, element, byte);
}

void DeviceKernel::storeShared(Value memory, Value v, Value at) {
  if (v.getType().isInteger(1))
    v = arith::ExtUIOp::create(b, loc, b.getI8Type(), v);
  LLVM::StoreOp::create(b, loc, v, elementAt(*this, memory, v.getType(), at));
}

Value DeviceKernel::shuffle(Value v, int64_t offset, gpu::ShuffleMode mode) {
  Type type = v.getType(), i32 = b.getI32Type();
  unsigned bits = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  // Narrow values travel in 32 bits.
  Value wide = v;
  if (bits < 32) {
    Type integer = b.getIntegerType(bits);
    if (type != integer)
      wide = arith::BitcastOp::create(b, loc, integer, wide);
    wide = arith::ExtUIOp::create(b, loc, i32, wide);
  } else if (type.isIndex()) {
    wide = m.i64(wide);
  }
  wide = gpu::ShuffleOp::create(b, loc, wide, offset, warp, mode).getShuffleResult();
  if (type.isIndex())
    return m.index(wide);
  if (bits >= 32)
    return wide;
  Type integer = b.getIntegerType(bits);
  wide = arith::TruncIOp::create(b, loc, integer, wide);
  return type == integer ? wide : arith::BitcastOp::create(b, loc, type, wide).getResult();
}
