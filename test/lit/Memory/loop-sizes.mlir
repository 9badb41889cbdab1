// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify -split-input-file | FileCheck %s

// A temporary whose size depends on the step lies in a part of the arena that each step asks for.
// CHECK: disc_rt.loop @i
// CHECK: %[[PART:.*]] = disc_rt.arena %{{.*}}, %{{.*}} part 1
// CHECK: %[[E:.*]] = disc_rt.offset %[[PART]]
// CHECK: disc_rt.launch %{{.*}} @k(%[[E]])
disc_shape.symbol @i
disc_shape.symbol @T min 1 max 64
disc_plan.kernel_func loop @k attributes {symbols = ["i"], arg_dims = [], layouts = [#disc_plan.layout<<0>, <[1]>>]} {
  %n = disc_shape.dim <i>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
disc_plan.kernel_func loop @sum attributes {symbols = ["i"], arg_dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[i]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4xf32>, %q: tensor<?xf32>):
  disc_plan.yield %p : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>, %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>}) -> tensor<?x4xf32> {
  %t = disc_shape.dim <T>
  %h, %ys = disc_tensor.loop @i below %t carries(%x) {disc_shape.dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[T, 4]>]}
      : (tensor<4xf32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
  ^bb0(%a: tensor<4xf32>):
    %e = disc_plan.call @k() result_dims [#disc_shape.dims<[i]>] : () -> tensor<?xf32>
    %n = disc_plan.call @sum(%a, %e) result_dims [#disc_shape.dims<[4]>] : (tensor<4xf32>, tensor<?xf32>) -> tensor<4xf32>
    disc_tensor.next %n, %n : tensor<4xf32>, tensor<4xf32>
  }
  return %ys : tensor<?x4xf32>
}

// -----

// A carried tensor that grows lies in two slots in turns; a stack without a known number of rows in one that keeps them.
// CHECK: %[[GO:.*]] = llvm.load
// CHECK: %[[LOOP:.*]]:2, %[[TRIPS:.*]] = disc_rt.loop @i while %[[GO]] carries(%[[X:.*]], %[[S:.*]])
// CHECK: ^bb0(%[[A:.*]]: !llvm.ptr, %[[N:.*]]: index):
// CHECK: disc_rt.guard {{.*}} %[[N]] ge
// CHECK: disc_rt.bind_symbol @L, %[[N]] computed
// CHECK: %[[TURN:.*]] = disc_shape.dim <i mod 2 + 1>
// CHECK: %[[LONGER:.*]] = disc_shape.dim <L * 4 + 4>
// CHECK: %[[B:.*]] = disc_rt.slot %{{.*}}[%[[TURN]]], %[[LONGER]]
// CHECK: %[[ROWS:.*]] = disc_rt.slot %{{.*}}[%{{.*}}], %{{.*}} keep
// CHECK: %[[ROW:.*]] = disc_rt.offset %[[ROWS]]
// CHECK: disc_rt.launch %{{.*}} @grow(%[[A]], %[[B]], %[[P:.*]], %[[ROW]])
// CHECK: %[[NEXT:.*]] = disc_shape.dim <L + 1>
// CHECK: disc_rt.next %[[B]], %[[NEXT]] : !llvm.ptr, index while
// CHECK: disc_rt.bind_symbol @n, %[[TRIPS]] computed
// CHECK: disc_rt.bind_symbol @M, %[[LOOP]]#1 computed
// CHECK: disc_rt.output {{.*}}[0]
disc_shape.symbol @i
disc_shape.symbol @S min 1 max 64
disc_shape.symbol @L min 1
disc_shape.symbol @M min 1
disc_shape.symbol @n
#one = #disc_plan.layout<<0>, <[1]>>
#none = #disc_plan.layout<<0>, <[]>>
disc_plan.kernel_func loop @grow attributes {symbols = ["L"], arg_dims = [#disc_shape.dims<[L]>],
    layouts = [#one, #one, #none, #one]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <L + 1>
  %e = tensor.empty(%n) : tensor<?xf32>
  %c = tensor.empty() : tensor<i1>
  %r = tensor.empty() : tensor<2xf32>
  disc_plan.yield %e, %c, %r : tensor<?xf32>, tensor<i1>, tensor<2xf32>
}
disc_plan.kernel_func loop @copy attributes {symbols = ["M"], arg_dims = [#disc_shape.dims<[M]>], layouts = [#one, #one]} {
^bb0(%p: tensor<?xf32>):
  disc_plan.yield %p : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>}, %go: tensor<i1>) -> tensor<?xf32> {
  %s = disc_shape.dim <S>
  %next = disc_shape.dim <L + 1>
  %y, %rows = disc_tensor.loop @i while %go : tensor<i1> carries(%x) sizes(%s) symbols [@L] last [@M] trips @n
      {arg_dims = [#disc_shape.dims<[L]>], disc_shape.dims = [#disc_shape.dims<[M]>, #disc_shape.dims<[n, 2]>]}
      : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?x2xf32>) {
  ^bb0(%a: tensor<?xf32>):
    %b:3 = disc_plan.call @grow(%a) result_dims [#disc_shape.dims<[L + 1]>, #disc_shape.dims<[]>, #disc_shape.dims<[2]>]
        : (tensor<?xf32>) -> (tensor<?xf32>, tensor<i1>, tensor<2xf32>)
    disc_tensor.next %b#0, %b#2 : tensor<?xf32>, tensor<2xf32> while %b#1 : tensor<i1> sizes(%next)
  }
  %z = disc_plan.call @copy(%y) result_dims [#disc_shape.dims<[M]>] : (tensor<?xf32>) -> tensor<?xf32>
  return %z : tensor<?xf32>
}

// -----

// What is carried and stacked is copied out of its row, which moves when the next step's row is appended.
// CHECK: disc_rt.loop @i while
// CHECK: ^bb0(%[[A:.*]]: !llvm.ptr, %[[NEXT:.*]]: !llvm.ptr, %[[AFTER:.*]]: !llvm.ptr):
// CHECK: %[[ROWS:.*]] = disc_rt.slot {{.*}} keep
// CHECK: %[[ROW:.*]] = disc_rt.offset %[[ROWS]]
// CHECK: disc_rt.launch %{{.*}} @step(%[[A]], %[[ROW]]
// CHECK: disc_rt.copy %[[NEXT]], %[[ROW]]
// CHECK: disc_rt.next %[[NEXT]], %[[AFTER]], %[[NEXT]] : {{.*}} while
disc_shape.symbol @i
disc_shape.symbol @n
disc_plan.kernel_func loop @step attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[]>>]} {
^bb0(%p: tensor<4xf32>):
  %c = tensor.empty() : tensor<i1>
  disc_plan.yield %p, %c : tensor<4xf32>, tensor<i1>
}
func.func @main(%x: tensor<4xf32>, %go: tensor<i1>) -> tensor<?x4xf32> {
  %y, %rows = disc_tensor.loop @i while %go : tensor<i1> carries(%x) trips @n
      {disc_shape.dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[n, 4]>]} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
  ^bb0(%a: tensor<4xf32>):
    %b:2 = disc_plan.call @step(%a) result_dims [#disc_shape.dims<[4]>, #disc_shape.dims<[]>]
        : (tensor<4xf32>) -> (tensor<4xf32>, tensor<i1>)
    disc_tensor.next %b#0, %b#0 : tensor<4xf32>, tensor<4xf32> while %b#1 : tensor<i1>
  }
  return %rows : tensor<?x4xf32>
}
