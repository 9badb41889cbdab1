// RUN: disc-opt %s -disc-add-line-tables --mlir-print-debuginfo | FileCheck %s

// CHECK: llvm.func @k0_add
llvm.func @k0_add(%p: !llvm.ptr) {
  // CHECK: llvm.load {{.*}} loc(#[[INNER:.*]])
  %0 = llvm.load %p : !llvm.ptr -> f32 loc(callsite("/tmp/layers.py":7:3 at "/tmp/model.py":12:0))
  // CHECK: llvm.call @helper{{.*}} loc(#[[LINE:loc[0-9]*]])
  llvm.call @helper() : () -> () loc(unknown)
  llvm.return loc(unknown)
// CHECK: } loc(#[[FUNCTION:.*]])
} loc("/tmp/model.py":12:0)
// A function without a place has no lines.
// CHECK: llvm.func @helper
llvm.func @helper() {
  llvm.return loc(unknown)
// CHECK: } loc(#[[UNKNOWN:.*]])
} loc(unknown)

// CHECK-DAG: #[[MODEL:.*]] = #llvm.di_file<"model.py" in "/tmp">
// CHECK-DAG: #[[LAYERS:.*]] = #llvm.di_file<"layers.py" in "/tmp">
// CHECK-DAG: #[[LINE]] = loc("/tmp/model.py":12:0)
// CHECK-DAG: #[[AT:.*]] = loc("/tmp/layers.py":7:3)
// CHECK-DAG: #[[UNKNOWN]] = loc(unknown)
// CHECK: #[[UNIT:.*]] = #llvm.di_compile_unit<{{.*}}file = #[[MODEL]], producer = "disc", isOptimized = true, emissionKind = Full>
// CHECK: #[[K:.*]] = #llvm.di_subprogram<{{.*}}compileUnit = #[[UNIT]], scope = #[[MODEL]], name = "k0_add", linkageName = "k0_add", file = #[[MODEL]], line = 12,
// CHECK: #[[OTHER:.*]] = #llvm.di_lexical_block_file<scope = #[[K]], file = #[[LAYERS]], discriminator = 0>
// CHECK-DAG: #[[FUNCTION]] = loc(fused<#[[K]]>[#[[LINE]]])
// CHECK-DAG: #[[INNER]] = loc(fused<#[[OTHER]]>[#[[AT]]])
