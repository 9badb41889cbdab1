//===- Schedules.td - how kernels are computed -------------------*- tablegen -*-===//
//
// lib/Transforms/Schedule writes these, the emitters of lib/Target read them.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN_SCHEDULES
#define DISC_DIALECTS_PLAN_SCHEDULES

include "dialects/Plan/ScheduleInterface.td"

/// A schedule of kernels of `kinds`.
class Plan_Schedule<string name, string schedule, string kinds, bit onDevice = 0>
    : AttrDef<Plan_Dialect, name # "Schedule", [Plan_ScheduleInterface]> {
  let mnemonic = schedule;
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  string common = [{
    bool serves(KernelKind kind) const {
      return ::llvm::isa<}] # kinds # [{>(kind);
    }
  }] # !if(onDevice, "int64_t getBlockThreads() const { return getThreads(); }", "");
  code more = "";
  let extraClassDeclaration = common # more;
}

/// A number that a schedule may lack: it is 0 then.
def Plan_MayLack : DefaultValuedParameter<"int64_t", "0">;
def Plan_MayLackExpr : OptionalParameter<"::mlir::disc::ExprAttr">;
/// Declares the check of the kernel.
defvar VerifiesKernel = "::llvm::LogicalResult verifyKernel(::mlir::Operation *kernel, ::mlir::Block &body) const;";

//===----------------------------------------------------------------------===//
// The host
//===----------------------------------------------------------------------===//

def Plan_LoopSchedule : Plan_Schedule<"Loop", "loop", "LoopKindAttr"> {
  let summary = "a loop in chunks of so many elements, in so many vectors at a time";
  let parameters = (ins "int64_t":$chunk, "int64_t":$unroll);
}

def Plan_RowSchedule : Plan_Schedule<"Row", "row", "RowKindAttr"> {
  let summary = "reductions along rows in so many accumulators; rows of up to `short_rows` a vector of rows at a time";
  let parameters = (ins "int64_t":$accumulators, Plan_MayLack:$short_rows);
}

def Plan_ColumnSchedule : Plan_Schedule<"Column", "column", "ColumnKindAttr"> {
  let summary = "reductions of so many vectors of columns";
  let parameters = (ins "int64_t":$blocks);
}

def Plan_ProductSchedule : Plan_Schedule<"Product", "product", "ContractionKindAttr"> {
  let summary = "products in tiles of `rows` x `columns`, which are of each part; see ScheduleContraction.cpp";
  let parameters = (ins "int64_t":$rows, "::mlir::DenseI64ArrayAttr":$columns, "int64_t":$k_block,
                        "::mlir::disc::ExprAttr":$row_tiles, "::mlir::disc::ExprAttr":$lhs_scratch,
                        "::mlir::disc::ExprAttr":$rhs_scratch, Plan_MayLack:$lhs_panel);
}

def Plan_FewQueries : AttrDef<Plan_Dialect, "FewQueries"> {
  let mnemonic = "few_queries";
  let summary = "how up to `queries` queries are done, row by row";
  let description = [{
    A task is all queries that share a head of keys, those of the dimensions `shared_dims` included. It takes runs of
    `keys` keys; `large` is from how many bytes of keys on they are read ahead. The others are offsets in scratch memory.
  }];
  let parameters = (ins "int64_t":$queries, "::mlir::DenseI64ArrayAttr":$shared_dims, "int64_t":$keys, "int64_t":$large,
                        "::mlir::disc::ExprAttr":$query_scratch, "::mlir::disc::ExprAttr":$score_scratch,
                        "::mlir::disc::ExprAttr":$result_scratch, "::mlir::disc::ExprAttr":$stat_scratch);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Plan_AttentionSchedule : Plan_Schedule<"Attention", "attention", "AttentionKindAttr"> {
  let summary = "attention in tiles of `rows` queries and runs of `keys` keys; offsets in scratch memory";
  let parameters = (ins "int64_t":$rows, "int64_t":$keys, "::mlir::disc::ExprAttr":$query_scratch,
                        "::mlir::disc::ExprAttr":$score_scratch, "::mlir::disc::ExprAttr":$out_scratch,
                        OptionalParameter<"::mlir::disc::FewQueriesAttr">:$few);
}

def Plan_LinesOfTiles : I32EnumAttr<"LinesOfTiles", "how tiles of a convolution go through the lines of the result", [
    I32EnumAttrCase<"Apart", 0, "apart">,     // each ends with its line
    I32EnumAttrCase<"Joined", 1, "joined">,   // through all lines, and what is between them in the copy of the input
    I32EnumAttrCase<"Merged", 2, "merged">]> { // from line to line: there is a copy of the input for each tap
  let cppNamespace = "::mlir::disc";
  let genSpecializedAttr = 0;
}

def Plan_ConvolutionSchedule : Plan_Schedule<"Convolution", "convolution", "ConvolutionKindAttr"> {
  let summary = "a convolution in chunks of images, of lines and of tiles along them; see ScheduleConvolution.cpp";
  let parameters = (ins "int64_t":$rows, "int64_t":$columns, "::mlir::disc::ExprAttr":$chunk_images,
                        "::mlir::disc::ExprAttr":$chunk_rows, "::mlir::disc::ExprAttr":$chunk_tiles,
                        "::mlir::disc::ExprAttr":$input_scratch, EnumParameter<Plan_LinesOfTiles>:$lines);
  let more = VerifiesKernel;
}

def Plan_WinogradSchedule : Plan_Schedule<"Winograd", "winograd", "ConvolutionKindAttr"> {
  let summary = "a convolution by Winograd's sums in chunks of tiles of blocks; see ScheduleWinograd.cpp";
  let parameters = (ins "int64_t":$rows, "int64_t":$columns, "::mlir::disc::ExprAttr":$chunk_tiles,
                        "::mlir::disc::ExprAttr":$panel_groups, "::mlir::disc::ExprAttr":$plane,
                        "int64_t":$sums_scratch);
  let more = VerifiesKernel;
}

def Plan_PieceSchedule : Plan_Schedule<"Piece", "pieces", "PackKindAttr, CallKindAttr"> {
  let summary = "as many pieces as the operation itself says";
  let assemblyFormat = "";
  let genVerifyDecl = 0;
}

//===----------------------------------------------------------------------===//
// Devices: blocks of `threads` threads. See ScheduleBlocks.cpp.
//===----------------------------------------------------------------------===//

def Plan_DevicePieceSchedule
    : Plan_Schedule<"DevicePiece", "device_pieces", "PackKindAttr, CallKindAttr", 1> {
  let summary = "a function in blocks of threads";
  let parameters = (ins "int64_t":$threads);
}

def Plan_DeviceLoopSchedule : Plan_Schedule<"DeviceLoop", "device_loop",
    "LoopKindAttr, ContractionKindAttr, ConvolutionKindAttr", 1> {
  let summary = "elements in row-major order, in vectors, of which each thread has `points`";
  let description = "Of products, where a library computes the product itself: their epilogues.";
  let parameters = (ins "int64_t":$threads, "int64_t":$vector, Plan_MayLack:$points);
}

def Plan_DeviceSumSchedule : Plan_Schedule<"DeviceSum", "device_sum", "LoopKindAttr", 1> {
  let summary = "running sums, of whose lines each has `line_threads` threads";
  let parameters = (ins "int64_t":$threads, "int64_t":$line_threads);
  let more = VerifiesKernel;
}

def Plan_DeviceRowSchedule : Plan_Schedule<"DeviceRow", "device_row", "RowKindAttr", 1> {
  let summary = "rows, each by `group` threads that are neighbours";
  let description = [{
    Without `group` a row has as many warps as its length needs. With `points` a thread keeps so many vectors of its row
    in registers. With `part`, blocks may have so many elements or more of a row each.
  }];
  let parameters = (ins "int64_t":$threads, Plan_MayLack:$group, "int64_t":$vector, Plan_MayLack:$points,
                        Plan_MayLack:$part);
}

def Plan_DeviceColumnSchedule : Plan_Schedule<"DeviceColumn", "device_column", "ColumnKindAttr", 1> {
  let summary = "columns side by side, each by `threads / columns` threads; with `vector`, in vectors of columns";
  let parameters = (ins "int64_t":$threads, "int64_t":$columns, Plan_MayLack:$vector, Plan_MayLack:$part);
}

defvar ProductKinds = "ContractionKindAttr, ConvolutionKindAttr";

def Plan_DeviceProductSchedule : Plan_Schedule<"DeviceProduct", "device_product", ProductKinds, 1> {
  let summary = "tiles of results over steps of `tile_depth`";
  let description = "Where `library` is positive, a library of the device computes the product, if there is one.";
  let parameters = (ins "int64_t":$threads, "int64_t":$tile_rows, "int64_t":$tile_columns, "int64_t":$tile_depth,
                        "int64_t":$thread_rows, "int64_t":$thread_columns, Plan_MayLackExpr:$library);
}

def Plan_DeviceMatrixSchedule : Plan_Schedule<"DeviceMatrix", "device_matrix", ProductKinds, 1> {
  let summary = "tiles of results on a matrix unit: copies `stages` steps ahead, by `slices` warps that share the steps";
  let description = "Where `library` is positive, a library of the device computes the product, if there is one.";
  let parameters = (ins "int64_t":$threads, "int64_t":$tile_rows, "int64_t":$tile_columns, "int64_t":$warp_rows,
                        "int64_t":$warp_columns, "int64_t":$stages, "int64_t":$slices, Plan_MayLackExpr:$library);
  let more = "bool usesMatrixUnit() const { return true; }";
}

def Plan_DeviceAttentionSchedule : Plan_Schedule<"DeviceAttention", "device_attention", "AttentionKindAttr", 1> {
  let summary = "queries of one head, over steps of `keys` keys; with `warp_rows` on a matrix unit";
  let description = [{
    With `parts`, of the keys, each of which has blocks of its own. Along so many dimensions before that of the queries
    as `shared` says, keys and values are the same.
  }];
  let parameters = (ins "int64_t":$threads, "int64_t":$queries, "int64_t":$keys, Plan_MayLack:$warp_rows,
                        Plan_MayLackExpr:$parts, Plan_MayLack:$shared);
  let more = [{
    bool usesMatrixUnit() const { return getWarpRows() != 0; }
    ::llvm::LogicalResult verifyKernel(::mlir::Operation *kernel, ::mlir::Block &body) const;
  }];
}

def Plan_VariantAttr : AttrDef<Plan_Dialect, "Variant"> {
  let mnemonic = "variant";
  let summary = "another schedule of a kernel, for some shapes";
  let description = [{
    Of a product on a matrix unit and of attention: for the shapes for which `when` is positive, with as many blocks as
    `tasks` says. For others both follow from the layouts of buffers (lib/Target/GPU/KernelVariants.cpp).
  }];
  let parameters = (ins "::mlir::disc::ScheduleAttrInterface":$schedule, Plan_MayLackExpr:$when, Plan_MayLackExpr:$tasks);
  let assemblyFormat = "`<` $schedule (`,` `when` `=` $when^ `,` `tasks` `=` $tasks)? `>`";
}

def Plan_ScheduleAttr : Attr<CPred<"::llvm::isa<::mlir::disc::ScheduleAttrInterface>($_self)">, "a schedule"> {
  let storageType = "::mlir::disc::ScheduleAttrInterface";
  let returnType = "::mlir::disc::ScheduleAttrInterface";
  let convertFromStorage = "$_self";
}
def Plan_Variants : TypedArrayAttrBase<Plan_VariantAttr, "variants">;

#endif // DISC_DIALECTS_PLAN_SCHEDULES
