// Calls with `on_device`: the runtime's functions as kernels.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' -split-input-file -verify-diagnostics | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @N min 0
disc_shape.symbol @E min 0

// Three kernels put updates in order and do them; where the memory is that they read and write, and how long runs are,
// are numbers behind the symbols. The old value is copied unless it lies there.
// CHECK: disc_rt.device_kernel @add threads 256 [reads, reads, reads, writes, writes, number, number, number, number, number, writes, number]
// CHECK-SAME: disc_plan.order = #disc_plan.order<merge = @add_merge, last = @add_last, rows = <1>, length = <E>>
// CHECK-SAME: disc_plan.texts = ["aten.index_add at model.py:3"]
// CHECK-SAME: disc_plan.update = #disc_plan.update<result = 3, bytes = <N * 32>>
// CHECK: disc_rt.device_kernel @add_merge threads 256
// CHECK: disc_rt.device_kernel @add_last threads 256 {{.*}}disc_plan.tasks = #disc_shape.expr<(E + 31) floordiv 32>
// CHECK-NOT: @add_copy

// What does not lie dense is copied by a kernel.
// CHECK: disc_rt.device_kernel @put
// CHECK-SAME: disc_plan.update = #disc_plan.update<result = 4, bytes = {{.*}}, copy = @put_copy>
// CHECK: disc_rt.device_kernel @put_copy threads 256 {{.*}}disc_plan.tasks = #disc_shape.expr<1>

// CHECK: disc_rt.device_kernel @maximum threads 256 [reads, writes, writes, number] {{.*}}disc_plan.tasks = #disc_shape.expr<N>

// A key is where the update's row begins; an index that is out of range is reported, and has the last key.
// CHECK-LABEL: gpu.func @add(
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> i64
// CHECK: arith.cmpi ult
// CHECK: llvm.atomicrmw xchg
// CHECK: arith.select {{.*}}, %c9223372036854775807_i64 : i64
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: llvm.store {{.*}} : i64, !llvm.ptr<1>
// CHECK: llvm.store {{.*}} : i64, !llvm.ptr<1>

// CHECK-LABEL: gpu.func @add_merge(
// CHECK: scf.while
// CHECK-NOT: gpu.barrier

// The first thread of a place adds up all of its updates, in order.
// CHECK-LABEL: gpu.func @add_last(
// CHECK: scf.while (%{{.*}}, %[[SUM:.*]] = %{{.*}}) : (index, f32)
// CHECK: arith.addf %[[SUM]]
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
disc_plan.kernel_func call @add attributes {symbols = ["N", "E"], tasks = #disc_shape.expr<1>,
    arg_dims = [#disc_shape.dims<[N, 8]>, #disc_shape.dims<[E, 8]>, #disc_shape.dims<[E, 8]>],
    layouts = [#disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[1, 0]>>,
               #disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<?x8xf32>, %v: tensor<?x8xf32>, %i: tensor<?x8xi64>):
  %n = disc_shape.dim <N>
  %memory = disc_shape.dim <4 * E>
  %none = arith.constant -1 : index
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %2 = arith.constant 2 : index
  %f32 = arith.constant 544 : index
  %r:2 = disc_tensor.call "scatter"(%x, %v, %i) sizes(%n, %memory) config(%f32, %1, %1, %0, %0, %1, %2, %1, %none, %1, %0)
      tasks %1 scratch %0 "aten.index_add at model.py:3" in_place on_device ordered [0]
      : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xi64>) -> (tensor<?x8xf32>, tensor<?xi64>)
  disc_plan.yield %r#0, %r#1 : tensor<?x8xf32>, tensor<?xi64>
}

// Of values to set the last of a place is stored.
// CHECK-LABEL: gpu.func @put_last(
// CHECK-NOT: scf.while
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
disc_plan.kernel_func call @put attributes {symbols = ["E"], tasks = #disc_shape.expr<1>,
    arg_dims = [#disc_shape.dims<[3, 5]>, #disc_shape.dims<[E]>, #disc_shape.dims<[E]>, #disc_shape.dims<[E]>],
    layouts = [#disc_plan.layout<<0>, <[1, 3]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>,
               #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[5, 1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<3x5xf32>, %v: tensor<?xf32>, %i: tensor<?xi64>, %j: tensor<?xi64>):
  %memory = disc_shape.dim <4 * E>
  %none = arith.constant -1 : index
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %2 = arith.constant 2 : index
  %f32 = arith.constant 544 : index
  %r:2 = disc_tensor.call "scatter"(%x, %v, %i, %j) sizes(%memory) config(%f32, %0, %1, %0, %1, %1, %1, %2, %none, %0, %1)
      tasks %1 scratch %0 "aten.index_put at model.py:4" in_place on_device ordered [0]
      : (tensor<3x5xf32>, tensor<?xf32>, tensor<?xi64>, tensor<?xi64>) -> (tensor<3x5xf32>, tensor<?xi64>)
  disc_plan.yield %r#0, %r#1 : tensor<3x5xf32>, tensor<?xi64>
}

// A block for each row: the largest up to each element goes with its place.
// CHECK-LABEL: gpu.func @maximum(
// CHECK: gpu.shuffle{{ *}}up
// CHECK: arith.cmpf oge
// CHECK: arith.cmpf uno
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
// CHECK: llvm.store {{.*}} : i64, !llvm.ptr<1>
disc_plan.kernel_func call @maximum attributes {symbols = ["N"], tasks = #disc_shape.expr<N>, arg_dims = [#disc_shape.dims<[N, 8]>],
    layouts = [#disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>]} {
^bb0(%x: tensor<?x8xf32>):
  %n = disc_shape.dim <N>
  %1 = arith.constant 1 : index
  %2 = arith.constant 2 : index
  %f32 = arith.constant 544 : index
  %r:2 = disc_tensor.call "cumulative"(%x) sizes(%n, %n) config(%f32, %2) tasks %n scratch %1 "" on_device
      : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xi64>)
  disc_plan.yield %r#0, %r#1 : tensor<?x8xf32>, tensor<?x8xi64>
}

// Elements go to start + 2 * their own coordinate.
// CHECK-LABEL: gpu.func @insert(
// CHECK-SAME: %[[START:[a-z0-9]+]]: i64) kernel
// CHECK: %[[AT:.*]] = arith.index_cast %[[START]]
// CHECK: arith.muli {{.*}}, %c2
// CHECK: arith.addi %[[AT]]
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
disc_plan.kernel_func call @insert attributes {symbols = ["N"], tasks = #disc_shape.expr<1>,
    arg_dims = [#disc_shape.dims<[99]>, #disc_shape.dims<[8]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<99xf32>, %v: tensor<8xf32>):
  %n = disc_shape.dim <N>
  %0 = arith.constant 0 : index
  %2 = arith.constant 2 : index
  %r = disc_tensor.call "insert"(%x, %v) config(%0, %n, %2) tasks %2 scratch %0 "" in_place on_device
      : (tensor<99xf32>, tensor<8xf32>) -> tensor<99xf32>
  disc_plan.yield %r : tensor<99xf32>
}

// Keys are the bits of the elements, in order; descending, all of them are turned over.
// CHECK-LABEL: gpu.func @sort(
// CHECK: arith.cmpf oeq
// CHECK: arith.cmpf uno
// CHECK: arith.bitcast {{.*}} : f32 to i32
// CHECK: arith.shrsi
// CHECK: arith.extsi
// CHECK: arith.xori {{.*}} : i64
// CHECK: gpu.barrier
// CHECK-LABEL: gpu.func @sort_last(
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
// CHECK: llvm.store {{.*}} : i64, !llvm.ptr<1>
disc_plan.kernel_func call @sort attributes {symbols = ["N"], tasks = #disc_shape.expr<N>, arg_dims = [#disc_shape.dims<[N, 8]>],
    layouts = [#disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[3, 1]>>, #disc_plan.layout<<0>, <[3, 1]>>,
               #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<?x8xf32>):
  %n = disc_shape.dim <N>
  %memory = disc_shape.dim <32 * N>
  %1 = arith.constant 1 : index
  %f32 = arith.constant 544 : index
  %r:3 = disc_tensor.call "sort"(%x) sizes(%n, %n, %memory) config(%f32, %1) tasks %n scratch %1 "" on_device ordered [1]
      : (tensor<?x8xf32>) -> (tensor<?x3xf32>, tensor<?x3xi64>, tensor<?xi64>)
  disc_plan.yield %r#0, %r#1, %r#2 : tensor<?x3xf32>, tensor<?x3xi64>, tensor<?xi64>
}
}

// -----

disc_plan.kernel_func call @other attributes {symbols = [], tasks = #disc_shape.expr<1>, arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<4xf32>):
  %1 = arith.constant 1 : index
  // expected-error@+1 {{no kernels of a device do this call of 'fft'}}
  %r = disc_tensor.call "fft"(%x) tasks %1 scratch %1 "" on_device : (tensor<4xf32>) -> tensor<4xf32>
  disc_plan.yield %r : tensor<4xf32>
}
