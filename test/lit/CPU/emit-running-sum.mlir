// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// Along memory: the sums within a vector of 8 in three steps; one addition waits for the vector before. Blocks of 32
// vectors carry an f64, which is added as two f32.
// CHECK-LABEL: func.func @rows
// CHECK-DAG: %[[BLOCK:.*]] = arith.constant 256 : index
// CHECK: scf.for
// CHECK: scf.for {{.*}} step %[[BLOCK]] iter_args(%[[CARRY:.*]] = %{{.*}}) -> (vector<8xf64>)
// CHECK: %[[HIGH:.*]] = arith.truncf %[[CARRY]]
// CHECK: %[[HIGH64:.*]] = arith.extf %[[HIGH]]
// CHECK: %[[REST:.*]] = arith.subf %[[CARRY]], %[[HIGH64]]
// CHECK: %[[REST32:.*]] = arith.truncf %[[REST]]
// CHECK: %[[LOW:.*]] = arith.select %{{.*}}, %[[REST32]]
// CHECK: %[[TOTAL:.*]] = scf.for {{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}) -> (vector<8xf32>)
// CHECK: %[[V:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: %[[S1:.*]] = vector.shuffle %{{.*}}, %[[V]] [0, 8, 9, 10, 11, 12, 13, 14]
// CHECK: %[[V1:.*]] = arith.addf %[[V]], %[[S1]]
// CHECK: %[[S2:.*]] = vector.shuffle %{{.*}}, %[[V1]] [0, 1, 8, 9, 10, 11, 12, 13]
// CHECK: %[[V2:.*]] = arith.addf %[[V1]], %[[S2]]
// CHECK: %[[S3:.*]] = vector.shuffle %{{.*}}, %[[V2]] [0, 1, 2, 3, 8, 9, 10, 11]
// CHECK: %[[V3:.*]] = arith.addf %[[V2]], %[[S3]]
// CHECK: %[[IN:.*]] = arith.addf %[[V3]], %[[BEFORE]]
// CHECK: %[[SUM:.*]] = arith.addf %[[IN]], %[[LOW]]
// CHECK: %[[OUT:.*]] = arith.addf %[[SUM]], %[[HIGH]]
// CHECK: llvm.store %[[OUT]]
// CHECK: %[[LAST:.*]] = vector.extract %[[V3]][7]
// CHECK: %[[ALL:.*]] = vector.broadcast %[[LAST]]
// CHECK: arith.addf %[[BEFORE]], %[[ALL]]
// CHECK: %[[WIDE:.*]] = arith.extf %[[TOTAL]]
// CHECK: arith.addf %[[CARRY]], %[[WIDE]]
// CHECK: scf.if
// CHECK: llvm.intr.masked.load
disc_plan.kernel_func loop @rows attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%x: tensor<?x?xf32>):
  %r = disc_tensor.running_sum %x dim 1 : tensor<?x?xf32> -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Across memory: columns in lanes, no shuffles.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: vector.shuffle
// CHECK: scf.for {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}) -> (vector<8xi64>)
// CHECK: %[[V:.*]] = llvm.intr.masked.load
// CHECK: %[[NEXT:.*]] = arith.addi %[[SUM]], %[[V]] : vector<8xi64>
// CHECK: llvm.intr.masked.store %[[NEXT]]
// CHECK: scf.yield %[[NEXT]]
disc_plan.kernel_func loop @columns attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%x: tensor<?x?xi64>):
  %r = disc_tensor.running_sum %x dim 0 : tensor<?x?xi64> -> tensor<?x?xi64>
  disc_plan.yield %r : tensor<?x?xi64>
}
}
