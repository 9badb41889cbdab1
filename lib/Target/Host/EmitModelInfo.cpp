//===- EmitModelInfo.cpp - The model's table for the runtime --------------===//

#include "lib/Target/Host/EmitModelInfo.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/LLVMIR/ROCDLDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// One field of a row: a number, or the address of a global (null: NULL) or of a function.
struct Field {
  Field(int64_t number) : number(number) {}
  Field(StringAttr target) : isPointer(true), target(target) {}
  Field(func::FuncOp function) : isPointer(true), function(function) {}
  bool isPointer = false;
  int64_t number = 0;
  StringAttr target;
  func::FuncOp function;
};
using Row = SmallVector<Field>;

class TableEmitter {
public:
  TableEmitter(ModuleOp module, EntryOp main, const ModelInfo &info, const ShapeAnalysis &shapes)
      : module(module), main(main), info(info), shapes(shapes), b(OpBuilder::atBlockEnd(module.getBody())),
        i64(b.getI64Type()), ptr(LLVM::LLVMPointerType::get(module.getContext())) {}

  LogicalResult emit();

private:
  StringAttr text(StringRef value);
  StringAttr table(StringRef name, ArrayRef<Row> rows);
  StringAttr numbers(ArrayRef<int64_t> values);
  Value row(const Row &fields, Type type);
  Type rowType(const Row &fields);

  FailureOr<StringAttr> tensors(StringRef name, ArrayAttr interface);
  SmallVector<Row> repeats();
  StringAttr symbols();
  StringAttr guards();
  FailureOr<StringAttr> parameters();
  StringAttr kernels();
  StringAttr regions();
  StringAttr bytes(const Twine &name, StringRef content);
  FailureOr<StringAttr> device();

  ModuleOp module;
  EntryOp main;
  const ModelInfo &info;
  const ShapeAnalysis &shapes;
  OpBuilder b;
  Type i64, ptr;
  llvm::StringMap<StringAttr> texts;
  llvm::StringMap<StringAttr> tables;
};
} // namespace

StringAttr TableEmitter::text(StringRef value) {
  StringAttr &name = texts[value];
  if (name)
    return name;
  name = b.getStringAttr("disc_text_" + Twine(texts.size() - 1));
  std::string bytes = value.str();
  bytes.push_back('\0');
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size());
  LLVM::GlobalOp::create(b, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Private, name,
                         b.getStringAttr(bytes));
  return name;
}

Type TableEmitter::rowType(const Row &fields) {
  SmallVector<Type> types;
  for (const Field &field : fields)
    types.push_back(field.isPointer ? ptr : i64);
  return LLVM::LLVMStructType::getLiteral(b.getContext(), types);
}

Value TableEmitter::row(const Row &fields, Type type) {
  Location loc = module.getLoc();
  Value value = LLVM::PoisonOp::create(b, loc, type);
  for (auto [i, field] : llvm::enumerate(fields)) {
    Value element;
    if (!field.isPointer)
      element = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(field.number));
    else if (field.function)
      element = functionAddress(b, loc, field.function);
    else if (!field.target)
      element = LLVM::ZeroOp::create(b, loc, ptr);
    else
      element = LLVM::AddressOfOp::create(b, loc, ptr, field.target.getValue());
    value = LLVM::InsertValueOp::create(b, loc, value, element, static_cast<int64_t>(i));
  }
  return value;
}

/// A private array of rows; no symbol (NULL) for an empty one.
StringAttr TableEmitter::table(StringRef name, ArrayRef<Row> rows) {
  if (rows.empty())
    return {};
  Type type = rowType(rows.front());
  auto arrayType = LLVM::LLVMArrayType::get(type, rows.size());
  auto global = LLVM::GlobalOp::create(b, module.getLoc(), arrayType,
                                       /*isConstant=*/true, LLVM::Linkage::Private, name,
                                       /*value=*/Attribute());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&global.getInitializerRegion());
  Value array = LLVM::PoisonOp::create(b, module.getLoc(), arrayType);
  // Whole rows are inserted: inserting fields would rebuild the array for each.
  for (auto [i, fields] : llvm::enumerate(rows))
    array = LLVM::InsertValueOp::create(b, module.getLoc(), array, row(fields, type), static_cast<int64_t>(i));
  LLVM::ReturnOp::create(b, module.getLoc(), array);
  return b.getStringAttr(name);
}

/// A private array of integers; shapes repeat, so equal ones are shared.
StringAttr TableEmitter::numbers(ArrayRef<int64_t> values) {
  if (values.empty())
    return {};
  std::string key;
  for (int64_t value : values)
    key += std::to_string(value) + ",";
  StringAttr &name = tables[key];
  if (name)
    return name;
  name = b.getStringAttr("disc_numbers_" + Twine(tables.size() - 1));
  auto type = LLVM::LLVMArrayType::get(i64, values.size());
  LLVM::GlobalOp::create(b, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Private, name,
                         b.getI64TensorAttr(values));
  return name;
}

FailureOr<StringAttr> TableEmitter::tensors(StringRef name, ArrayAttr interface) {
  SmallVector<Row> rows;
  for (auto [i, entry] : llvm::enumerate(interface)) {
    auto tensor = cast<InterfaceTensorAttr>(entry);
    RankedTensorType type = tensor.getType();
    auto dtype = interfaceDtype(type.getElementType(), tensor.getIsUnsigned());
    if (!dtype)
      return main.emitOpError() << name << " " << i << " has element type " << type.getElementType()
                                << ", which can't cross the interface";
    SmallVector<Row> dimRows;
    for (auto [extent, expr] : llvm::zip_equal(type.getShape(), tensor.getDims().getDims())) {
      ShapeAnalysis::Range range = shapes.range(expr);
      bool computed = llvm::any_of(expr.symbols(), [&](StringRef symbol) {
        return info.computed.contains(StringAttr::get(module.getContext(), symbol));
      });
      dimRows.push_back({computed                        ? DISC_DATA_DEPENDENT
                         : ShapedType::isDynamic(extent) ? DISC_DYNAMIC
                                                         : extent,
                         text(expr.str()), std::max<int64_t>(range.min.value_or(0), 0),
                         range.max.value_or(DISC_UNBOUNDED)});
    }
    rows.push_back({text(tensor.getName()), *dtype, type.getRank(),
                    table(("disc_" + name + "_" + Twine(i)).str(), dimRows),
                    static_cast<int64_t>(tensor.getUpdated())});
  }
  return table(("disc_" + name + "s").str(), rows);
}

/// All dims of the symbols that a dim that may be repeated has.
SmallVector<Row> TableEmitter::repeats() {
  llvm::MapVector<StringRef, SmallVector<Row>> rows;
  llvm::SmallDenseSet<StringRef> wanted;
  for (bool collecting : {true, false})
    for (auto [i, entry] : llvm::enumerate(main.getInputs())) {
      auto tensor = cast<InterfaceTensorAttr>(entry);
      DenseI64ArrayAttr repeated = tensor.getRepeats();
      for (auto [d, expr] : llvm::enumerate(tensor.getDims().getDims())) {
        bool repeats = repeated && llvm::is_contained(repeated.asArrayRef(), static_cast<int64_t>(d));
        std::optional<StringRef> name = expr.asSymbol();
        if (!name)
          continue;
        StringRef symbol = StringAttr::get(module.getContext(), *name).getValue();
        if (collecting && repeats)
          wanted.insert(symbol);
        if (!collecting && wanted.contains(symbol)) {
          auto number = static_cast<int64_t>(rows.insert({symbol, {}}).first - rows.begin());
          rows[symbol].push_back(
              {number, static_cast<int64_t>(i), static_cast<int64_t>(d), static_cast<int64_t>(repeats)});
        }
      }
    }
  SmallVector<Row> all;
  for (auto &[symbol, dims] : rows)
    llvm::append_range(all, dims);
  return all;
}

StringAttr TableEmitter::symbols() {
  SmallVector<Row> rows;
  for (auto symbol : module.getOps<SymbolOp>()) {
    if (info.indices.contains(symbol.getSymNameAttr()))
      continue;
    ModelInfo::Source source = info.symbols.lookup(symbol.getSymNameAttr());
    rows.push_back({text(symbol.getSymName()), static_cast<int64_t>(symbol.getMin()),
                    symbol.getMax() ? static_cast<int64_t>(*symbol.getMax()) : DISC_UNBOUNDED,
                    static_cast<int64_t>(symbol.getDivisor()), source.input, source.dim});
  }
  return table("disc_symbols", rows);
}

StringAttr TableEmitter::guards() {
  SmallVector<Row> rows;
  for (const ModelInfo::Guard &guard : info.guards) {
    // The blamed extent's own expression says what came, in the user's words.
    std::string symbol, lhs;
    if (guard.input >= 0 && guard.dim >= 0 && guard.input < static_cast<int64_t>(main.getInputs().size())) {
      auto tensor = cast<InterfaceTensorAttr>(main.getInputs()[guard.input]);
      SmallVector<SymExpr> dims = tensor.getDims().getDims();
      if (guard.dim < static_cast<int64_t>(dims.size())) {
        lhs = dims[guard.dim].str();
        if (std::optional<StringRef> name = dims[guard.dim].asSymbol())
          symbol = name->str();
      }
    }
    rows.push_back({static_cast<int64_t>(guard.predicate), guard.input, guard.dim, text(symbol), text(lhs),
                    text(guard.expected), text(guard.message)});
  }
  return table("disc_guards", rows);
}

FailureOr<StringAttr> TableEmitter::parameters() {
  SmallVector<Row> rows;
  for (const auto &[name, type] : info.parameters) {
    auto dtype = interfaceDtype(type.getElementType(), /*isUnsigned=*/false);
    if (!dtype)
      return main.emitOpError() << "parameter '" << name.getValue() << "' has element type " << type.getElementType()
                                << ", which can't cross the interface";
    rows.push_back({text(name), *dtype, type.getRank(), numbers(type.getShape()),
                    static_cast<int64_t>(info.kept.contains(name)), static_cast<int64_t>(info.updated.contains(name))});
  }
  return table("disc_parameters", rows);
}

Value mlir::disc::functionAddress(OpBuilder &b, Location loc, func::FuncOp function) {
  Value value = func::ConstantOp::create(b, loc, function.getFunctionType(), function.getSymName());
  return UnrealizedConversionCastOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), value).getResult(0);
}

/// Kernels stay where they are in the module, which is the order that they were formed in.
StringAttr TableEmitter::kernels() {
  SmallVector<Row> rows;
  for (auto [op, kind] : info.kernels) {
    auto function = dyn_cast<func::FuncOp>(op);
    rows.push_back({text(SymbolTable::getSymbolName(op)), text(kind), text(sourceLine(op->getLoc())),
                    function ? Field(function) : Field(StringAttr())});
  }
  return table("disc_kernels", rows);
}

/// The tables of functions are the back ends': the JIT or the linker finds them.
StringAttr TableEmitter::regions() {
  SmallVector<Row> rows;
  for (auto region : module.getOps<ExternOp>()) {
    SmallVector<int64_t> constants;
    for (auto name : region.getConstants().getAsRange<StringAttr>())
      constants.push_back(info.parameters.find(name) - info.parameters.begin());
    if (!module.lookupSymbol(region.getTable()))
      LLVM::GlobalOp::create(b, region.getLoc(), b.getI8Type(), /*isConstant=*/true, LLVM::Linkage::External,
                             region.getTable(), Attribute());
    rows.push_back({text(region.getSymName()), text(region.getBackend()), text(region.getDescription()),
                    region.getTableAttr(), static_cast<int64_t>(constants.size()), numbers(constants)});
  }
  return table("disc_regions", rows);
}

/// A private constant of these bytes, where a device's driver may want it to lie.
StringAttr TableEmitter::bytes(const Twine &name, StringRef content) {
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), content.size());
  auto global = LLVM::GlobalOp::create(b, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Private,
                                       name.str(), b.getStringAttr(content), /*alignment=*/64);
  return global.getSymNameAttr();
}

/// What a model on a device needs, which may have no kernel at all: NULL for one on the CPU.
FailureOr<StringAttr> TableEmitter::device() {
  SmallVector<Row> kernels, images;
  for (auto kernel : module.getOps<DeviceKernelOp>()) {
    Field host = StringAttr();
    if (FlatSymbolRefAttr name = kernel.getHostAttr()) {
      auto function = module.lookupSymbol<func::FuncOp>(name);
      if (!function)
        return kernel.emitOpError() << "names no function: " << name;
      host = Field(function);
    }
    // As disc_device_kernel writes them.
    std::string uses;
    for (ArgumentUse use : kernel.getArgumentUses())
      uses += use == ArgumentUse::Reads ? '0' : use == ArgumentUse::Writes ? '1' : 's';
    kernels.push_back({text(kernel.getSymName()), static_cast<int64_t>(kernel.getThreads()), 0, host, text(uses)});
  }
  StringAttr name = deviceOf(module);
  if (!name && kernels.empty())
    return StringAttr();
  if (!name)
    return module.emitError("has kernels for a device, but 'disc_plan.target' names none");
  for (auto binary : module.getOps<gpu::BinaryOp>())
    for (Attribute attr : binary.getObjects()) {
      auto object = cast<gpu::ObjectAttr>(attr);
      std::string arch;
      bool isText = object.getFormat() == gpu::CompilationTarget::Assembly;
      if (auto nvvm = dyn_cast<NVVM::NVVMTargetAttr>(object.getTarget())) {
        StringRef chip = nvvm.getChip();
        arch = isText && chip.consume_front("sm_") ? ("compute_" + chip).str() : nvvm.getChip().str();
      } else if (auto rocdl = dyn_cast<ROCDL::ROCDLTargetAttr>(object.getTarget())) {
        arch = rocdl.getChip().str();
      } else {
        return binary.emitOpError() << "has an image for an unknown kind of device: " << object.getTarget();
      }
      std::string content = object.getObject().getValue().str();
      if (isText)
        content.push_back('\0');
      bool isEarly = object.getProperties() && object.getProperties().contains(kEarlyAttr);
      images.push_back({text(arch), bytes("disc_image_" + Twine(images.size()), content),
                        static_cast<int64_t>(content.size()), static_cast<int64_t>(isEarly)});
    }
  return table("disc_device_code",
               {Row{text(name.getValue()), static_cast<int64_t>(images.size()), table("disc_device_images", images),
                    static_cast<int64_t>(kernels.size()), table("disc_device_kernels", kernels)}});
}

LogicalResult TableEmitter::emit() {
  FailureOr<StringAttr> inputs = tensors("input", main.getInputs());
  FailureOr<StringAttr> outputs = tensors("output", main.getOutputs());
  FailureOr<StringAttr> params = parameters();
  FailureOr<StringAttr> code = device();
  if (failed(inputs) || failed(outputs) || failed(params) || failed(code))
    return failure();
  auto count = [](auto range) { return static_cast<int64_t>(llvm::range_size(range)); };
  SmallVector<Row> repeated = repeats();
  Row fields = {DISC_MODEL_INFO_VERSION,
                static_cast<int64_t>(main.getInputs().size()),
                *inputs,
                static_cast<int64_t>(main.getOutputs().size()),
                *outputs,
                count(llvm::make_filter_range(module.getOps<SymbolOp>(),
                                              [&](SymbolOp s) { return !info.indices.contains(s.getSymNameAttr()); })),
                symbols(),
                static_cast<int64_t>(info.guards.size()),
                guards(),
                static_cast<int64_t>(info.parameters.size()),
                *params,
                static_cast<int64_t>(info.globals.size()),
                static_cast<int64_t>(info.kernels.size()),
                kernels(),
                *code,
                static_cast<int64_t>(repeated.size()),
                table("disc_repeats", repeated),
                static_cast<int64_t>(llvm::range_size(module.getOps<ExternOp>())),
                regions(),
                info.memoryBudget};
  Type type = rowType(fields);
  auto global = LLVM::GlobalOp::create(b, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::External,
                                       "disc_model_info", /*value=*/Attribute());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&global.getInitializerRegion());
  Value value = row(fields, type);
  LLVM::ReturnOp::create(b, module.getLoc(), value);
  return success();
}

StringAttr disc::deviceOf(ModuleOp module) {
  StringRef device = TargetAttr::of(module).getDevice();
  return device.empty() ? StringAttr() : StringAttr::get(module.getContext(), device);
}

LogicalResult mlir::disc::emitModelInfo(ModuleOp module, EntryOp main, const ModelInfo &info,
                                        const ShapeAnalysis &shapes) {
  return TableEmitter(module, main, info, shapes).emit();
}
