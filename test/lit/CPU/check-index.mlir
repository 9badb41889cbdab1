// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1
disc_shape.symbol @N

// CHECK-DAG: llvm.mlir.global private constant @disc_check_0("aten.embedding at model.py:3\00")
// CHECK-DAG: llvm.func @disc_rt_index_failed(!llvm.ptr, !llvm.ptr, i64, i64)

// One scalar check for all elements of a row; the call comes after two operands, one result and one symbol.
// CHECK-LABEL: func.func @embedding
// CHECK-SAME: disc_plan.reports_to_call
// CHECK-NOT: vector.reduction
// CHECK: %[[TEXT:.*]] = llvm.mlir.addressof @disc_check_0
// CHECK: %[[BAD:.*]] = arith.cmpi uge, %[[ID:.*]], %c10{{.*}} : i64
// CHECK: scf.if %[[BAD]] {
// CHECK: llvm.call @disc_rt_index_failed(%{{.*}}, %[[TEXT]], %[[ID]], %c10{{.*}})
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: llvm.load {{.*}} -> vector<8xf32>
disc_plan.kernel_func loop @embedding attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"],
    arg_dims = [#disc_shape.dims<[10, 16]>, #disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[16, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[16, 1]>>]} {
^bb0(%table: tensor<10x16xf32>, %ids: tensor<?xi64>):
  %B = disc_shape.dim <B>
  %ten = arith.constant 10 : i64
  %e = tensor.empty(%B) : tensor<?x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?x16xf32>) {
  ^bb0(%id: i64, %o: f32):
    %checked = disc_tensor.check_index %id below %ten "aten.embedding at model.py:3"
    %row = arith.index_cast %checked : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %table[%row, %column] : tensor<10x16xf32>
    linalg.yield %v : f32
  } -> tensor<?x16xf32>
  disc_plan.yield %r : tensor<?x16xf32>
}

// The lanes have an index each: wrapped, masked, and reduced to one branch.
// CHECK-LABEL: func.func @take
// CHECK: arith.select
// CHECK: %[[WRONG:.*]] = arith.cmpi uge, {{.*}} : vector<8xi64>
// CHECK: vector.reduction <or>, %[[WRONG]]
// CHECK: scf.if
// CHECK: vector.reduction <minsi>
// CHECK: llvm.call @disc_rt_index_failed
disc_plan.kernel_func loop @take attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"],
    arg_dims = [#disc_shape.dims<[10]>, #disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%table: tensor<10xf32>, %ids: tensor<?xi64>):
  %B = disc_shape.dim <B>
  %ten = arith.constant 10 : i64
  %e = tensor.empty(%B) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%id: i64, %o: f32):
    %checked = disc_tensor.check_index %id below %ten wrap "aten.index at model.py:4"
    %row = arith.index_cast %checked : i64 to index
    %v = tensor.extract %table[%row] : tensor<10xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}

// Of a table without rows none is read, not even the first one.
// CHECK-LABEL: func.func @nothing
// CHECK: disc_rt_index_failed
// CHECK: %[[ANY:.*]] = arith.cmpi ne, %{{.*}}, %c0
// CHECK: scf.if %[[ANY]] -> (vector<8xf32>) {
// CHECK: masked.gather
// CHECK: else
// CHECK-NOT: masked.gather
// CHECK: scf.yield %cst
disc_plan.kernel_func loop @nothing attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B", "N"],
    arg_dims = [#disc_shape.dims<[N]>, #disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%table: tensor<?xf32>, %ids: tensor<?xi64>):
  %B = disc_shape.dim <B>
  %N = disc_shape.dim <N>
  %e = tensor.empty(%B) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%id: i64, %o: f32):
    %n = arith.index_cast %N : index to i64
    %checked = disc_tensor.check_index %id below %n "aten.index at model.py:5"
    %row = arith.index_cast %checked : i64 to index
    %v = tensor.extract %table[%row] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}
}
