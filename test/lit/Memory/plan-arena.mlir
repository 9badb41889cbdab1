// RUN: disc-opt %s -split-input-file -disc-memory-assign-buffers -disc-memory-plan-arena | FileCheck %s
// RUN: disc-opt %s -split-input-file -disc-memory-assign-buffers -disc-memory-plan-arena="sanitize=true" | FileCheck %s --check-prefix=SANITIZE

// Everything is known at the entry: guards, then the size, then memory. Both temporaries are alive during the last call.
// CHECK: func.func @main
// CHECK-NEXT: disc_shape.guard <T> le <S>
// CHECK-NEXT: %[[BYTES:.*]] = disc_shape.dim <S * 64>
// CHECK-NEXT: %[[A:.*]] = disc_shape.dim <0>
// CHECK-NEXT: %[[B:.*]] = disc_shape.dim <S * 32>
// CHECK-NEXT: disc_plan.select_plan %[[BYTES]] scratch [] outputs [#disc_shape.expr<S * 32>]
// CHECK-NEXT: disc_plan.allocate_output 0 dims <[S, 8]>
// CHECK-NEXT: disc_plan.arena_part 0 bytes %[[BYTES]] temporaries [0, 1] at(%[[A]], %[[B]])
// CHECK-SAME: first = [0, 1], last = [3, 3], in_place = 0
// CHECK-NEXT: disc_plan.call @k(%arg0)

// Red zones of 128 bytes; a call says which temporaries nothing reads after it.
// SANITIZE: disc_shape.dim <S * 64 + 256>
// SANITIZE: disc_shape.dim <128>
// SANITIZE: disc_plan.call @add{{.*}}disc_plan.last_uses = array<i64: 0, 1>
disc_shape.symbol @S min 2 max 64 divisor 2
disc_shape.symbol @T min 2 max 64
#dims = #disc_shape.dims<[S, 8]>
#dense = #disc_plan.layout<<0>, <[8, 1]>>
disc_plan.kernel_func loop @k attributes {symbols = ["S"], arg_dims = [#dims], layouts = [#dense, #dense]} {
^bb0(%p: tensor<?x8xf32>):
  disc_plan.yield %p : tensor<?x8xf32>
}
disc_plan.kernel_func loop @add attributes {symbols = ["S"], arg_dims = [#dims, #dims], layouts = [#dense, #dense, #dense]} {
^bb0(%p: tensor<?x8xf32>, %q: tensor<?x8xf32>):
  disc_plan.yield %p : tensor<?x8xf32>
}
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #dims}, %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>})
    -> tensor<?x8xf32> {
  %a = disc_plan.call @k(%x) result_dims [#dims] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = disc_plan.call @k(%x) result_dims [#dims] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  disc_shape.guard <T> le <S>
  %y = disc_plan.call @add(%a, %b) result_dims [#dims] : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A computed size begins an epoch: the guard on it, its output and its part of the arena come behind the bind.
// CHECK: func.func @main
// CHECK: disc_plan.arena_part 0 {{.*}} temporaries [0]
// CHECK: disc_shape.bind @u0
// CHECK-NEXT: disc_shape.guard <u0> le <S>
// CHECK-NEXT: disc_plan.allocate_output 0 dims <[u0]>
// CHECK-NEXT: %[[BYTES:.*]] = disc_shape.dim <((u0 + 15) floordiv 16) * 64>
// CHECK-NEXT: %[[AT:.*]] = disc_shape.dim <0>
// CHECK-NEXT: disc_plan.arena_part 1 bytes %[[BYTES]] temporaries [1] at(%[[AT]])
// CHECK-NEXT: disc_plan.call @take
disc_shape.symbol @S min 1 max 64
disc_shape.symbol @u0
#s = #disc_shape.dims<[S]>
#u = #disc_shape.dims<[u0]>
#dense = #disc_plan.layout<<0>, <[1]>>
disc_plan.kernel_func loop @count attributes {symbols = ["S"], arg_dims = [#s], layouts = [#dense, #disc_plan.layout<<0>, <[]>>]} {
^bb0(%p: tensor<?xf32>):
  %e = tensor.empty() : tensor<i64>
  disc_plan.yield %e : tensor<i64>
}
disc_plan.kernel_func loop @take attributes {symbols = ["S", "u0"], arg_dims = [#s], layouts = [#dense, #dense]} {
^bb0(%p: tensor<?xf32>):
  %n = disc_shape.dim <u0>
  %e = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %e : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #s}) -> tensor<?xf32> {
  %n = disc_plan.call @count(%x) result_dims [#disc_shape.dims<[]>] : (tensor<?xf32>) -> tensor<i64>
  %u = disc_shape.bind @u0, %n : tensor<i64>
  %a = disc_plan.call @take(%x) result_dims [#u] : (tensor<?xf32>) -> tensor<?xf32>
  disc_shape.guard <u0> le <S>
  %y = disc_plan.call @take(%a) result_dims [#u] : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// A plan for less memory begins with its memory: the entry has checked the guard.
// CHECK: func.func private @main.plan1
// CHECK-NOT: disc_shape.guard
// CHECK: disc_plan.allocate_output 0 dims <[S]>
// CHECK-NEXT: disc_plan.call @k
disc_shape.symbol @S min 1 max 64
disc_shape.symbol @T min 1 max 64
#s = #disc_shape.dims<[S]>
#dense = #disc_plan.layout<<0>, <[1]>>
disc_plan.kernel_func loop @k attributes {symbols = ["S"], arg_dims = [#s], layouts = [#dense, #dense]} {
^bb0(%p: tensor<?xf32>):
  disc_plan.yield %p : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #s}, %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>}) -> tensor<?xf32> {
  disc_shape.guard <T> le <S>
  %y = disc_plan.call @k(%x) result_dims [#s] : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func private @main.plan1(%x: tensor<?xf32> {disc_shape.dims = #s}, %z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>}) -> tensor<?xf32> attributes {disc_plan.plan_of = @main} {
  disc_shape.guard <T> le <S>
  %y = disc_plan.call @k(%x) result_dims [#s] : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
