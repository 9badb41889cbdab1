// RUN: disc-opt %s -split-input-file -disc-memory-plan-budget | FileCheck %s
// RUN: disc-opt %s -split-input-file -disc-memory-plan-budget -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify \
// RUN:   | FileCheck %s --check-prefix=ARENA

// %a is needed at the end again, and the largest tensor is alive between: one plan computes %a a second time.

// CHECK-LABEL: func.func @main
// CHECK-SAME: disc_plan.cost = #disc_shape.expr<
// CHECK-COUNT-5: disc_plan.call
// CHECK-NOT: disc_plan.call
// CHECK: return
// CHECK-LABEL: func.func private @main.plan1
// CHECK-SAME: disc_plan.extra_cost = #disc_shape.expr<100>, disc_plan.plan_of = @main
// CHECK: %[[A:.*]] = disc_plan.call @one(%{{.*}})
// CHECK: %[[B:.*]] = disc_plan.call @one(%[[A]])
// CHECK: %[[C:.*]] = disc_plan.call @wide(%[[B]])
// CHECK: %[[D:.*]] = disc_plan.call @narrow(%[[C]])
// CHECK: %[[AGAIN:.*]] = disc_plan.call @one(%{{.*}}) {{.*}} {disc_plan.again}
// CHECK: disc_plan.call @sum(%[[D]], %[[AGAIN]])

// The entry chooses; each plan is a procedure, and so is its size.

// ARENA-LABEL: disc_rt.entry @main
// ARENA: disc_rt.bind_symbol @B, %[[B:.*]]
// ARENA: disc_rt.fit %{{.*}}, %{{.*}} scratch [] outputs [#disc_shape.expr<B * 4096>] cost #disc_shape.expr<{{.*}}> plans [@main.plan1] sizes [@main.plan1.bytes] of %[[B]]
// ARENA: disc_rt.output
// ARENA: disc_rt.arena
// ARENA-COUNT-5: disc_rt.launch
// ARENA-LABEL: disc_rt.procedure @main.plan1
// ARENA-SAME: extra_cost = #disc_shape.expr<100>, plan_of = @main
// ARENA: ^bb0(%{{.*}}: !llvm.ptr, %[[S:.*]]: index):
// ARENA: disc_rt.bind_symbol @B, %[[S]]
// ARENA-COUNT-6: disc_rt.launch
// ARENA-LABEL: disc_rt.procedure @main.plan1.bytes
// ARENA-SAME: plan_of = @main
// ARENA: disc_rt.return %{{.*}}
disc_shape.symbol @B min 1 max 64
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1, d2) -> (d0, d2)>
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
disc_plan.kernel_func loop @one attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 1024]>],
    cost = #disc_shape.expr<100>, tasks = #disc_shape.expr<1>,
    layouts = [#disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[1024, 1]>>]} {
^bb0(%p: tensor<?x1024xf32>):
  %b = disc_shape.dim <B>
  %e = tensor.empty(%b) : tensor<?x1024xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x1024xf32>) outs(%e : tensor<?x1024xf32>) {
  ^bb0(%x: f32, %o: f32):
    %z = arith.negf %x : f32
    linalg.yield %z : f32
  } -> tensor<?x1024xf32>
  disc_plan.yield %r : tensor<?x1024xf32>
}
disc_plan.kernel_func loop @wide attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 1024]>],
    cost = #disc_shape.expr<100>, tasks = #disc_shape.expr<1>,
    layouts = [#disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[4096, 1024, 1]>>]} {
^bb0(%p: tensor<?x1024xf32>):
  %b = disc_shape.dim <B>
  %e = tensor.empty(%b) : tensor<?x4x1024xf32>
  %r = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p : tensor<?x1024xf32>) outs(%e : tensor<?x4x1024xf32>) {
  ^bb0(%x: f32, %o: f32):
    %z = arith.negf %x : f32
    linalg.yield %z : f32
  } -> tensor<?x4x1024xf32>
  disc_plan.yield %r : tensor<?x4x1024xf32>
}
disc_plan.kernel_func loop @narrow attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 1024]>],
    cost = #disc_shape.expr<100>, tasks = #disc_shape.expr<1>,
    layouts = [#disc_plan.layout<<0>, <[4096, 1]>>, #disc_plan.layout<<0>, <[1024, 1]>>]} {
^bb0(%p: tensor<?x1024xf32>):
  %b = disc_shape.dim <B>
  %e = tensor.empty(%b) : tensor<?x1024xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x1024xf32>) outs(%e : tensor<?x1024xf32>) {
  ^bb0(%x: f32, %o: f32):
    %z = arith.negf %x : f32
    linalg.yield %z : f32
  } -> tensor<?x1024xf32>
  disc_plan.yield %r : tensor<?x1024xf32>
}
disc_plan.kernel_func loop @sum attributes {symbols = ["B"],
    arg_dims = [#disc_shape.dims<[B, 1024]>, #disc_shape.dims<[B, 1024]>],
    cost = #disc_shape.expr<100>, tasks = #disc_shape.expr<1>,
    layouts = [#disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[1024, 1]>>,
               #disc_plan.layout<<0>, <[1024, 1]>>]} {
^bb0(%p: tensor<?x1024xf32>, %q: tensor<?x1024xf32>):
  %b = disc_shape.dim <B>
  %e = tensor.empty(%b) : tensor<?x1024xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %q : tensor<?x1024xf32>, tensor<?x1024xf32>) outs(%e : tensor<?x1024xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %z = arith.addf %x, %y : f32
    linalg.yield %z : f32
  } -> tensor<?x1024xf32>
  disc_plan.yield %r : tensor<?x1024xf32>
}
func.func @main(%x: tensor<?x1024xf32> {disc_shape.dims = #disc_shape.dims<[B, 1024]>, disc_shape.name = "x"})
    -> tensor<?x1024xf32> {
  %a = disc_plan.call @one(%x) result_dims [#disc_shape.dims<[B, 1024]>] : (tensor<?x1024xf32>) -> tensor<?x1024xf32>
  %b = disc_plan.call @one(%a) result_dims [#disc_shape.dims<[B, 1024]>] : (tensor<?x1024xf32>) -> tensor<?x1024xf32>
  %c = disc_plan.call @wide(%b) result_dims [#disc_shape.dims<[B, 4, 1024]>]
      : (tensor<?x1024xf32>) -> tensor<?x4x1024xf32>
  %d = disc_plan.call @narrow(%c) result_dims [#disc_shape.dims<[B, 1024]>]
      : (tensor<?x4x1024xf32>) -> tensor<?x1024xf32>
  %y = disc_plan.call @sum(%d, %a) result_dims [#disc_shape.dims<[B, 1024]>]
      : (tensor<?x1024xf32>, tensor<?x1024xf32>) -> tensor<?x1024xf32>
  return %y : tensor<?x1024xf32>
}
