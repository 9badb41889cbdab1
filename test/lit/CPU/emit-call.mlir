// RUN: disc-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

disc_shape.symbol @S min 1

// One view per operand: address, dtype, rank, extents, strides. The input is every second column of a wider buffer.
// CHECK-DAG: llvm.func @disc_fn_nonzero(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr) -> i32
// CHECK-DAG: llvm.func @disc_rt_function_at(!llvm.ptr, i32, !llvm.ptr)
// CHECK-DAG: llvm.mlir.global private constant @disc_check_0("aten.nonzero at model.py:3\00")
// CHECK-LABEL: func.func @nonzero
// CHECK-SAME: (%[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %[[SCRATCH:.*]]: !llvm.ptr)
// CHECK-SAME: disc_plan.reports_to_call
// CHECK-DAG: %[[F64:.*]] = arith.constant 576 : i64
// CHECK-DAG: %[[I64:.*]] = arith.constant 64 : i64
// CHECK: %[[X:.*]] = llvm.load %[[ARGS]]
// CHECK: %[[CALL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// CHECK: %[[VIEWS:.*]] = llvm.alloca %{{.*}} x !llvm.array<15 x i64>
// CHECK: %[[DATA:.*]] = llvm.getelementptr %[[X]][8]
// CHECK: llvm.store %[[DATA]], %[[VIEWS]]
// CHECK: llvm.store %[[F64]]
// CHECK: llvm.store %[[I64]]
// CHECK: %[[STATUS:.*]] = llvm.call @disc_fn_nonzero(%{{.*}}, %[[VIEWS]], %{{.*}}, %[[BEGIN]], %[[END]], %[[SCRATCH]])
// CHECK: arith.cmpi ne, %[[STATUS]]
// CHECK: scf.if
// CHECK: llvm.call @disc_rt_function_at(%{{.*}}, %[[STATUS]], %{{.*}})
disc_plan.kernel_func call @nonzero attributes {schedule = #disc_plan.pieces, symbols = ["S"],
    arg_dims = [#disc_shape.dims<[S, 4]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<1>, #disc_shape.dims<[9, 2]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[2, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[]>>]} {
^bb0(%x: tensor<?x4xf64>):
  %n = disc_shape.dim <4 * S>
  %one = arith.constant 1 : index
  %r:2 = disc_tensor.call "nonzero"(%x) sizes(%n) tasks %one scratch %one "aten.nonzero at model.py:3"
      : (tensor<?x4xf64>) -> (tensor<?x2xi64>, tensor<i64>)
  disc_plan.yield %r#0, %r#1 : tensor<?x2xi64>, tensor<i64>
}

// -----

disc_plan.kernel_func call @missing attributes {schedule = #disc_plan.pieces, symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
  %one = arith.constant 1 : index
  // expected-error@+1 {{the runtime has no function 'frobnicate'}}
  %r = disc_tensor.call "frobnicate"() tasks %one scratch %one "" : () -> tensor<4xf32>
  disc_plan.yield %r : tensor<4xf32>
}

// -----

disc_plan.kernel_func call @type attributes {schedule = #disc_plan.pieces, symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
  %one = arith.constant 1 : index
  // expected-error@+1 {{operand 0 has elements of type 'i4', which functions do not know}}
  %r = disc_tensor.call "nonzero"() tasks %one scratch %one "" : () -> tensor<4xi4>
  disc_plan.yield %r : tensor<4xi4>
}

// -----

// expected-error@+1 {{a call kernel must yield the results of one disc_tensor.call}}
disc_plan.kernel_func call @other attributes {schedule = #disc_plan.pieces, symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%x: tensor<4xf32>):
  disc_plan.yield %x : tensor<4xf32>
}
