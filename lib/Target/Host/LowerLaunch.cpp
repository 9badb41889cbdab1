//===- LowerLaunch.cpp - launches of kernels in the host flow ---------------===//
//
//   disc_rt.launch %call @k(%x, %y)
// becomes, for a kernel of the CPU's,
//   llvm.store %x, %slots[0] ... ; %s = llvm.call @disc_rt_parallel_for(%call, @k, %slots, tasks, cost, scratch)
// for a device's
//   llvm.store %x, %slots[0] ... ; %s = llvm.call @disc_rt_device_launch(%call, <number of @k>, %slots, count, blocks)
// for a call that a device's own kernels do, which put things in order,
//   %s = llvm.call @disc_rt_device_order(%call, <numbers of its kernels>, %slots, count, ...)
// and for a large product on a device that a library may do
//   %s = llvm.call @disc_rt_device_matmul(...) ; if it is unsupported, the launch as above
//
// Tests: test/lit/Host/host-lower.mlir, host-lower-device.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Host/EntryLowering.h"

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/Common/PointEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"

using namespace mlir;
using namespace mlir::disc;

/// What a kernel says of its buffers must fit the launch.
static LogicalResult checkBuffer(LaunchOp op, int64_t index) {
  if (index >= 0 && index < int64_t(op.getBuffers().size()))
    return success();
  return op.emitOpError() << "has " << op.getBuffers().size() << " buffers, of which " << op.getKernel()
                          << " uses number " << index;
}

LogicalResult EntryLowering::lowerLaunch(LaunchOp op) {
  Location loc = op.getLoc();
  Operation *symbol = module.lookupSymbol(op.getKernelAttr());
  if (auto kernel = dyn_cast_if_present<DeviceKernelOp>(symbol))
    return lowerDeviceLaunch(op, kernel);
  auto kernel = dyn_cast_if_present<func::FuncOp>(symbol);
  if (!kernel)
    return op.emitOpError() << "names no function: " << op.getKernel();
  auto symbolNames = kernel->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr);
  if (!symbolNames)
    return op.emitOpError() << "needs '" << kKernelSymbolsAttr << "' on " << op.getKernel();

  SymExpr tasks = exprAttr(kernel, kKernelTasksAttr, 1);
  SymExpr scratch = exprAttr(kernel, kKernelScratchAttr, 0);
  SymExpr cost = exprAttr(kernel, kKernelCostAttr, 1000);
  Value taskCount = emitExpr(op, tasks);
  if (!taskCount)
    return failure();

  bool reports = kernel->hasAttr(kKernelCallAttr);
  if (op.getBytes())
    return lowerCheckedLaunch(op, kernel, taskCount, cost, scratch);
  auto bytes = kernel->getAttrOfType<DimsAttr>(kKernelBuffersAttr);
  size_t numArgs = op.getBuffers().size() + symbolNames.size() + reports;
  Value args = slots(loc, numArgs + (bytes ? op.getBuffers().size() : 0));
  size_t slot = 0;
  if (failed(storeArguments(op, symbolNames, args, slot)))
    return failure();
  if (reports)
    store(loc, call, args, slot++);

  if (bytes) {
    for (auto [i, size] : llvm::enumerate(bytes.getDims())) {
      Value value = emitExpr(op, size);
      if (!value)
        return failure();
      store(loc, toI64(loc, value), args, numArgs + i);
    }
    Value costValue = emitExpr(op, cost), scratchValue = emitExpr(op, scratch);
    if (!costValue || !scratchValue)
      return failure();
    auto resultsAttr = kernel->getAttrOfType<IntegerAttr>(kKernelResultsAttr);
    if (!resultsAttr)
      return kernel.emitError() << "'" << kKernelBuffersAttr << "' needs '" << kKernelResultsAttr << "' beside it";
    int64_t results = resultsAttr.getInt();
    checkStatus(loc, runtime.call(b, loc, "disc_rt_device_call_host", i32,
                                  {call, functionAddress(b, loc, kernel), args, constant64(loc, numArgs),
                                   constant64(loc, bytes.getDims().size()), constant64(loc, results),
                                   toI64(loc, taskCount), toI64(loc, costValue), toI64(loc, scratchValue)}));
    return success();
  }

  // Waking the pool for a kernel that is over in a microsecond costs more than
  // it saves, so what is always that small, and cannot fail, skips the runtime altogether.
  std::optional<int64_t> worst = shapes.range(tasks * cost).max;
  if (scratch.isConstant(0) && !reports && worst && *worst <= serialNs) {
    // Kernels count on a task: extents that they divide by are not 0 then.
    Block *next = nullptr;
    if (!shapes.lessEqual(SymExpr(1), tasks)) {
      Block *here = b.getInsertionBlock(), *work = b.createBlock(exit);
      next = b.createBlock(exit);
      b.setInsertionPointToEnd(here);
      Value zero = arith::ConstantIndexOp::create(b, loc, 0);
      Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, taskCount, zero);
      cf::CondBranchOp::create(b, loc, some, work, next);
      b.setInsertionPointToStart(work);
    }
    Value null = LLVM::ZeroOp::create(b, loc, ptr);
    func::CallOp::create(b, loc, kernel, ValueRange{args, constant64(loc, 0), toI64(loc, taskCount), null});
    if (next) {
      cf::BranchOp::create(b, loc, next);
      b.setInsertionPointToStart(next);
    }
    return success();
  }

  Value costValue = emitExpr(op, cost), scratchValue = emitExpr(op, scratch);
  if (!costValue || !scratchValue)
    return failure();
  Value address = functionAddress(b, loc, kernel);
  checkStatus(
      loc, runtime.call(b, loc, "disc_rt_parallel_for", i32,
                        {call, address, args, toI64(loc, taskCount), toI64(loc, costValue), toI64(loc, scratchValue)}));
  return success();
}

/// The slot before the arguments is the runtime's, behind them are the sizes of the buffers.
LogicalResult EntryLowering::lowerCheckedLaunch(LaunchOp op, func::FuncOp kernel, Value taskCount, const SymExpr &cost,
                                                const SymExpr &scratch) {
  Location loc = op.getLoc();
  auto symbolNames = kernel->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr);
  bool reports = kernel->hasAttr(kKernelCallAttr);
  size_t numBuffers = op.getBuffers().size(), numArgs = numBuffers + symbolNames.size() + reports, slot = 0;
  auto from = [&](Value array, size_t first) -> Value {
    return LLVM::GEPOp::create(b, loc, ptr, i64, array, ArrayRef<LLVM::GEPArg>{int32_t(first)});
  };
  Value args = from(slots(loc, 1 + numArgs + numBuffers), 1);
  if (failed(storeArguments(op, symbolNames, args, slot)))
    return failure();
  if (reports)
    store(loc, call, args, slot++);
  std::string buffers;
  for (auto [size, text] :
       llvm::zip(cast<DimsAttr>(*op.getBytes()).getDims(), op.getTextsAttr().getAsRange<StringAttr>())) {
    Value value = emitExpr(op, size);
    if (!value)
      return failure();
    store(loc, toI64(loc, value), args, slot++);
    buffers += (text.getValue() + "\n").str();
  }
  Value costValue = emitExpr(op, cost), scratchValue = emitExpr(op, scratch);
  if (!costValue || !scratchValue)
    return failure();
  checkStatus(loc, runtime.call(b, loc, "disc_rt_checked_launch", i32,
                                {call, functionAddress(b, loc, kernel), args, textAddress(b, loc, module, buffers),
                                 constant64(loc, numBuffers), from(args, numArgs), toI64(loc, taskCount),
                                 toI64(loc, costValue), toI64(loc, scratchValue)}));
  return success();
}

/// Buffers and symbols' values.
LogicalResult EntryLowering::storeArguments(LaunchOp op, ArrayAttr symbolNames, Value args, size_t &slot) {
  Location loc = op.getLoc();
  for (Value buffer : op.getBuffers())
    store(loc, mapped(buffer), args, slot++);
  for (Attribute name : symbolNames) {
    Value value = emitExpr(op, SymExpr::symbol(cast<StringAttr>(name)));
    if (!value)
      return failure();
    store(loc, toI64(loc, value), args, slot++);
  }
  return success();
}

/// A large product goes to the device's library, if there is one; what it cannot do, and small ones, to the kernel.
LogicalResult EntryLowering::lowerDeviceLaunch(LaunchOp op, DeviceKernelOp kernel) {
  if (auto name = kernel->getAttrOfType<FlatSymbolRefAttr>(kKernelBeforeAttr)) {
    auto before = module.lookupSymbol<DeviceKernelOp>(name);
    if (!before)
      return op.emitOpError() << "names no kernel: " << name;
    if (failed(launchOnDevice(op, before)))
      return failure();
  }
  auto product = kernel->getAttrOfType<LibraryProductAttr>(kKernelLibraryAttr);
  if (!product)
    return launchOnDevice(op, kernel);
  Location loc = op.getLoc();
  ArrayRef<int64_t> operands = product.getOperands().asArrayRef();
  for (int64_t operand : operands)
    if (failed(checkBuffer(op, operand)))
      return failure();
  SmallVector<Value> extents;
  for (const SymExpr &e : product.getExtents().getDims())
    if (Value value = emitExpr(op, e))
      extents.push_back(toI64(loc, value));
    else
      return failure();
  Value when = emitExpr(op, product.getWhen().getValue());
  if (!when)
    return failure();
  Value isLarge = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, toI64(loc, when), constant64(loc, 0));
  Block *before = b.getInsertionBlock(), *large = b.createBlock(exit);
  Value array = slots(loc, operands.size() + extents.size());
  for (auto [i, operand] : llvm::enumerate(operands))
    store(loc, mapped(op.getBuffers()[operand]), array, i);
  for (auto [i, extent] : llvm::enumerate(extents))
    store(loc, extent, array, operands.size() + i);
  Value numbers = LLVM::GEPOp::create(b, loc, ptr, i64, array, ArrayRef<LLVM::GEPArg>{int32_t(operands.size())});
  Value status =
      runtime.call(b, loc, "disc_rt_device_matmul", i32, {call, productTable(kernel, product), array, numbers});
  Value none = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(DISC_RT_UNSUPPORTED));
  Value isDone = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, status, none);

  // Each side in a chain of blocks of its own, as its checks expect.
  auto side = [&](function_ref<LogicalResult()> emit) -> std::pair<Block *, Block *> {
    ExprEmitter::Scope scope(exprs);
    Block *first = b.createBlock(exit);
    return failed(emit()) ? std::pair<Block *, Block *>() : std::make_pair(first, b.getInsertionBlock());
  };
  auto done = side([&] {
    checkStatus(loc, status);
    FlatSymbolRefAttr name = product.getEpilogue();
    if (!name)
      return success();
    auto epilogue = module.lookupSymbol<DeviceKernelOp>(name);
    return epilogue ? launchOnDevice(op, epilogue) : op.emitOpError() << "names no kernel: " << name;
  });
  auto own = side([&] { return launchOnDevice(op, kernel); });
  if (!done.first || !own.first)
    return failure();
  Block *after = b.createBlock(exit);
  b.setInsertionPointToEnd(before);
  cf::CondBranchOp::create(b, loc, isLarge, large, own.first);
  b.setInsertionPointToEnd(large);
  cf::CondBranchOp::create(b, loc, isDone, done.first, own.first);
  for (Block *end : {done.second, own.second}) {
    b.setInsertionPointToEnd(end);
    cf::BranchOp::create(b, loc, after);
  }
  b.setInsertionPointToStart(after);
  return success();
}

/// The address of a disc_device_product.
Value EntryLowering::productTable(DeviceKernelOp kernel, LibraryProductAttr product) {
  std::string name = ("disc_product_" + kernel.getSymName()).str();
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    int64_t epilogue = product.getGeluTanh()               ? DISC_PRODUCT_BIAS_GELU_TANH
                       : product.getOperands().size() == 4 ? DISC_PRODUCT_BIAS
                                                           : DISC_PRODUCT_PLAIN;
    int64_t fields[] = {numberOf(kernel),      product.getDtype(), product.getAColumns(),
                        product.getBColumns(), epilogue,           /*tf32=*/0};
    LLVM::GlobalOp::create(b, kernel.getLoc(), LLVM::LLVMArrayType::get(i64, std::size(fields)), /*isConstant=*/true,
                           LLVM::Linkage::Private, name, b.getI64TensorAttr(fields));
  }
  return LLVM::AddressOfOp::create(b, kernel.getLoc(), ptr, name);
}

/// Among the kernels of the device.
int64_t EntryLowering::numberOf(DeviceKernelOp kernel) {
  int64_t number = 0;
  for (auto other : module.getOps<DeviceKernelOp>()) {
    if (other == kernel)
      break;
    ++number;
  }
  return number;
}

FailureOr<std::pair<Value, size_t>> EntryLowering::deviceArguments(LaunchOp op, DeviceKernelOp kernel, size_t extra) {
  Location loc = op.getLoc();
  auto symbolNames = kernel->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr);
  if (!symbolNames)
    return op.emitOpError() << "needs '" << kKernelSymbolsAttr << "' on " << op.getKernel();
  auto texts = kernel->getAttrOfType<ArrayAttr>(kKernelTextsAttr);
  size_t count = op.getBuffers().size() + symbolNames.size() + extra + (texts ? 1 + texts.size() : 0), slot = 0;
  Value args = slots(loc, count);
  if (failed(storeArguments(op, symbolNames, args, slot)))
    return failure();
  slot += extra;
  if (texts) {
    Value errors = runtime.call(b, loc, "disc_rt_device_errors", ptr, call);
    store(loc, checkPointer(loc, errors), args, slot++);
    for (Attribute text : texts)
      store(loc, textAddress(b, loc, module, cast<StringAttr>(text).getValue()), args, slot++);
  }
  return std::make_pair(args, count);
}

/// The number of the kernel's blocks (i64).
Value EntryLowering::blocksOf(LaunchOp op, DeviceKernelOp kernel) {
  Value blocks = emitExpr(op, exprAttr(kernel, kKernelTasksAttr, 1));
  return blocks ? toI64(op.getLoc(), blocks) : Value();
}

/// The value (i64) for the first variant whose condition holds at this launch, or for the kernel itself. Null, with an
/// error reported, if it cannot be computed for one of them.
Value EntryLowering::ofVariant(LaunchOp op, DeviceKernelOp kernel, function_ref<Value(DeviceKernelOp)> value) {
  Location loc = op.getLoc();
  Value result = value(kernel);
  auto variants = kernel->getAttrOfType<ArrayAttr>(kKernelVariantsAttr);
  if (!variants || !result)
    return result;
  for (Attribute attr : llvm::reverse(variants)) {
    auto variant = cast<KernelVariantAttr>(attr);
    auto other = module.lookupSymbol<DeviceKernelOp>(variant.getKernel());
    if (!other) {
      op.emitOpError() << "names no kernel: " << variant.getKernel();
      return {};
    }
    Value own = value(other), when = emitExpr(op, variant.getWhen().getValue());
    if (!own || !when)
      return {};
    Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, toI64(loc, when), constant64(loc, 0));
    result = arith::SelectOp::create(b, loc, fits, own, result);
  }
  return result;
}

/// The kernel's tasks are its blocks; a grid is put into the call's stream.
LogicalResult EntryLowering::launchOnDevice(LaunchOp op, DeviceKernelOp kernel) {
  if (auto update = kernel->getAttrOfType<UpdateAttr>(kKernelUpdateAttr))
    if (failed(bringOperand(op, update)))
      return failure();
  if (auto order = kernel->getAttrOfType<OrderAttr>(kKernelOrderAttr))
    return launchOrdered(op, kernel, order);
  if (auto split = kernel->getAttrOfType<SplitAttr>(kKernelSplitAttr))
    return launchInParts(op, kernel, split);
  Location loc = op.getLoc();
  Value blocks = ofVariant(op, kernel, [&](DeviceKernelOp own) { return blocksOf(op, own); });
  auto args = deviceArguments(op, kernel, /*extra=*/0);
  Value number = ofVariant(op, kernel, [&](DeviceKernelOp own) { return constant64(loc, numberOf(own)); });
  if (!number || !blocks || failed(args))
    return failure();
  auto launch = [&](Value number, Value blocks) {
    checkStatus(loc, runtime.call(b, loc, "disc_rt_device_launch", i32,
                                  {call, number, args->first, constant64(loc, args->second), blocks}));
  };
  auto nextName = kernel->getAttrOfType<FlatSymbolRefAttr>(kKernelNextAttr);
  if (!nextName) {
    launch(number, blocks);
    return success();
  }
  auto next = module.lookupSymbol<DeviceKernelOp>(nextName);
  if (!next)
    return op.emitOpError() << "names no kernel: " << nextName;
  Value nextBlocks = blocksOf(op, next);
  if (!nextBlocks)
    return failure();
  launch(number, blocks);
  launch(constant64(loc, numberOf(next)), nextBlocks);
  return success();
}

/// The first operand goes to where the first result is, unless it is there.
LogicalResult EntryLowering::bringOperand(LaunchOp op, UpdateAttr update) {
  Location loc = op.getLoc();
  if (failed(checkBuffer(op, 0)) || failed(checkBuffer(op, update.getResult())))
    return failure();
  if (FlatSymbolRefAttr name = update.getCopy()) {
    auto copy = module.lookupSymbol<DeviceKernelOp>(name);
    return copy ? launchOnDevice(op, copy) : op.emitOpError() << "names no kernel: " << name;
  }
  Value bytes = emitExpr(op, update.getBytes().getValue());
  if (!bytes)
    return failure();
  checkStatus(loc, runtime.call(b, loc, "disc_rt_device_copy", i32,
                                {call, mapped(op.getBuffers()[update.getResult()]), mapped(op.getBuffers()[0]),
                                 toI64(loc, bytes)}));
  return success();
}

/// Whether there are parts follows from the number of blocks, which the runtime sees.
LogicalResult EntryLowering::launchInParts(LaunchOp op, DeviceKernelOp kernel, SplitAttr split) {
  Location loc = op.getLoc();
  auto whole = module.lookupSymbol<DeviceKernelOp>(split.getWhole());
  Value part = ofVariant(op, kernel, [&](DeviceKernelOp own) {
    auto attr = own->getAttrOfType<SplitAttr>(kKernelSplitAttr);
    auto makesPart = attr ? module.lookupSymbol<DeviceKernelOp>(attr.getPart()) : DeviceKernelOp();
    return makesPart ? constant64(loc, numberOf(makesPart)) : Value();
  });
  if (!part || !whole)
    return op.emitOpError() << "names no kernels that reduce in parts: " << op.getKernel();
  Value blocks = ofVariant(op, kernel, [&](DeviceKernelOp own) { return blocksOf(op, own); });
  Value most = emitExpr(op, split.getMost().getValue());
  Value points = emitExpr(op, exprAttr(whole, kKernelTasksAttr, 1)),
        values = emitExpr(op, split.getValues().getValue());
  auto args = deviceArguments(op, kernel, DISC_RT_SPLIT_ARGS);
  Value number = ofVariant(op, kernel, [&](DeviceKernelOp own) { return constant64(loc, numberOf(own)); });
  if (!number || !blocks || !most || !points || !values || failed(args))
    return failure();
  size_t firstOwn = op.getBuffers().size() + kernel->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr).size();
  checkStatus(loc, runtime.call(b, loc, "disc_rt_device_reduce", i32,
                                {call, number, part, constant64(loc, numberOf(whole)), args->first,
                                 constant64(loc, args->second), constant64(loc, firstOwn), blocks, toI64(loc, most),
                                 toI64(loc, points), toI64(loc, values)}));
  return success();
}

/// How often runs are merged follows from their length, which the runtime sees.
LogicalResult EntryLowering::launchOrdered(LaunchOp op, DeviceKernelOp kernel, OrderAttr order) {
  Location loc = op.getLoc();
  auto merge = module.lookupSymbol<DeviceKernelOp>(order.getMerge()),
       last = module.lookupSymbol<DeviceKernelOp>(order.getLast());
  if (!merge || !last)
    return op.emitOpError() << "names no kernels that put things in order: " << op.getKernel();
  Value rows = emitExpr(op, order.getRows().getValue()), length = emitExpr(op, order.getLength().getValue());
  Value blocks = emitExpr(op, exprAttr(last, kKernelTasksAttr, 1));
  auto args = deviceArguments(op, kernel, DISC_RT_ORDER_ARGS);
  if (!rows || !length || !blocks || failed(args))
    return failure();
  size_t firstOwn = op.getBuffers().size() + kernel->getAttrOfType<ArrayAttr>(kKernelSymbolsAttr).size();
  checkStatus(loc, runtime.call(b, loc, "disc_rt_device_order", i32,
                                {call, constant64(loc, numberOf(kernel)), constant64(loc, numberOf(merge)),
                                 constant64(loc, numberOf(last)), args->first, constant64(loc, args->second),
                                 constant64(loc, firstOwn), toI64(loc, rows), toI64(loc, length), toI64(loc, blocks)}));
  return success();
}

/// What lies on the device is copied to this stack to be read.
Value EntryLowering::readDevice(LLVM::LoadOp load) {
  Location loc = load.getLoc();
  Type type = load.getType();
  Value to = slots(loc, 1);
  Value bytes = constant64(loc, type.isIndex() ? 8 : (type.getIntOrFloatBitWidth() + 7) / 8);
  checkStatus(loc, runtime.call(b, loc, "disc_rt_device_read", i32, {call, to, mapped(load.getAddr()), bytes}));
  return LLVM::LoadOp::create(b, loc, type, to);
}
