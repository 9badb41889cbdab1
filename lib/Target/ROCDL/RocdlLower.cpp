//===- RocdlLower.cpp - kernels to the LLVM dialect for AMD ---------------===//
//
//   %n = gpu.grid_dim x
// becomes a load of the first hidden argument (code object version 5: `hidden_block_count_x`), which every launch
// fills in. Upstream's conversion would call OCKL.
//
//   %v, %ok = gpu.shuffle xor %x, %c1, %c64 : f32
// becomes `rocdl.update.dpp` (distances 1, 2, 3, 7, 8 and 15: no LDS at all), `rocdl.ds_swizzle` (others below 32) or
// `rocdl.ds_bpermute`, on words of 32 bits. Lanes that have no partner keep what is theirs.
//
// Lit test: test/lit/ROCDL/lower.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/ROCDL/Passes.h"

#include "mlir/Conversion/GPUToROCDL/GPUToROCDLPass.h"
#include "mlir/Dialect/AMDGPU/Utils/Chipset.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace mlir::disc {
#define GEN_PASS_DEF_ROCDLLOWER
#include "lib/Target/ROCDL/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;

static constexpr int64_t kWavefront = 64;

static void readGridSize(gpu::GridDimOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  constexpr unsigned constantMemory = 4;
  auto ptr = LLVM::LLVMPointerType::get(b.getContext(), constantMemory);
  auto hidden =
      LLVM::CallIntrinsicOp::create(b, loc, ptr, b.getStringAttr("llvm.amdgcn.implicitarg.ptr"), ValueRange());
  Value count = LLVM::LoadOp::create(b, loc, b.getI32Type(), hidden.getResult(0), /*alignment=*/4,
                                     /*isVolatile=*/false, /*isNonTemporal=*/false, /*isInvariant=*/true);
  op.replaceAllUsesWith(arith::IndexCastUIOp::create(b, loc, b.getIndexType(), count).getResult());
  op.erase();
}

/// The control word of a DPP move by which lane i reads lane i ^ distance.
static std::optional<uint32_t> dppXor(int64_t distance) {
  switch (distance) {
  case 1:
    return 0xB1; // quad_perm:[1,0,3,2]
  case 2:
    return 0x4E; // quad_perm:[2,3,0,1]
  case 3:
    return 0x1B; // quad_perm:[3,2,1,0]
  case 7:
    return 0x141; // row_half_mirror
  case 8:
    return 0x128; // row_ror:8
  case 15:
    return 0x140; // row_mirror
  default:
    return std::nullopt;
  }
}

namespace {
/// Moves words of 32 bits between lanes as one shuffle says.
class Shuffle {
public:
  Shuffle(ImplicitLocOpBuilder &b, gpu::ShuffleOp op) : b(b) {
    APInt constant;
    bool known = matchPattern(op.getOffset(), m_ConstantInt(&constant));
    if (op.getMode() == gpu::ShuffleMode::XOR && known && constant.ult(32)) {
      distance = constant.getZExtValue();
      valid = arith::ConstantIntOp::create(b, 1, 1);
      return;
    }
    Value minusOne = c(-1), offset = op.getOffset();
    lane = ROCDL::MbcntLoOp::create(b, b.getI32Type(), minusOne, c(0), nullptr, nullptr);
    lane = ROCDL::MbcntHiOp::create(b, b.getI32Type(), minusOne, lane, nullptr, nullptr);
    Value source;
    switch (op.getMode()) {
    case gpu::ShuffleMode::XOR:
      source = arith::XOrIOp::create(b, lane, offset);
      break;
    case gpu::ShuffleMode::UP:
      source = arith::SubIOp::create(b, lane, offset);
      break;
    case gpu::ShuffleMode::DOWN:
      source = arith::AddIOp::create(b, lane, offset);
      break;
    case gpu::ShuffleMode::IDX:
      source = offset;
      break;
    }
    valid = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, source, c(kWavefront));
    source = arith::SelectOp::create(b, valid, source, lane);
    address = arith::ShLIOp::create(b, source, c(2));
  }

  Value word(Value x) {
    if (address)
      return ROCDL::DsBpermuteOp::create(b, b.getI32Type(), address, x);
    if (std::optional<uint32_t> control = dppXor(distance))
      return ROCDL::DPPUpdateOp::create(b, b.getI32Type(), x, x, *control, 0xF, 0xF, true);
    return ROCDL::DsSwizzleOp::create(b, b.getI32Type(), x, c(distance << 10 | 0x1F));
  }

  Value valid;

private:
  Value c(int64_t v) { return arith::ConstantIntOp::create(b, v, 32); }

  ImplicitLocOpBuilder &b;
  int64_t distance = 0;
  Value lane, address; // null where the distance says it all
};
} // namespace

static LogicalResult lowerShuffle(gpu::ShuffleOp op) {
  APInt width;
  if (!matchPattern(op.getWidth(), m_ConstantInt(&width)) || width != kWavefront)
    return op.emitOpError("needs the constant width ") << kWavefront << " on this device";
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Type type = op.getValue().getType();
  if (type.getIntOrFloatBitWidth() != 32)
    return op.emitOpError("moves values of 32 or 64 bits, not ") << type;
  Shuffle shuffle(b, op);
  Value moved = shuffle.word(arith::BitcastOp::create(b, b.getI32Type(), op.getValue()));
  op.getShuffleResult().replaceAllUsesWith(arith::BitcastOp::create(b, type, moved));
  op.getValid().replaceAllUsesWith(shuffle.valid);
  op.erase();
  return success();
}

namespace {
struct RocdlLower : disc::impl::RocdlLowerBase<RocdlLower> {
  void runOnOperation() override {
    if (failed(disc::prepareKernels(getOperation())))
      return signalPassFailure();
    getOperation().walk(readGridSize);
    // Code generation plans its registers for the block's size.
    getOperation().walk([](gpu::GPUFuncOp kernel) {
      std::string threads = std::to_string(kernel.getKnownBlockSizeAttr()[0]);
      kernel->setAttr("rocdl.flat_work_group_size", StringAttr::get(kernel.getContext(), threads + "," + threads));
    });
    WalkResult shuffles = getOperation().walk(
        [](gpu::ShuffleOp op) { return failed(lowerShuffle(op)) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (shuffles.wasInterrupted())
      return signalPassFailure();
    // The oldest that we make code for; nothing that is left of kernels depends on it.
    amdgpu::Chipset chipset(9, 0, 0xa);
    for (auto module : getOperation().getOps<gpu::GPUModuleOp>())
      if (failed(disc::convertKernels(module, [&](LLVMTypeConverter &types, RewritePatternSet &patterns) {
            populateGpuToROCDLConversionPatterns(types, patterns, gpu::amd::Runtime::HIP, chipset);
          })))
        return signalPassFailure();
  }
};
} // namespace
