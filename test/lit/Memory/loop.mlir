// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// The first carried tensor lives in the rows of the stack, which is an output. The second is written when all have read
// it: one buffer, into which the first one is copied. The body's temporary lives in the body.
// CHECK: disc_rt.entry @main
// CHECK: %[[OUT:.*]] = disc_rt.output %[[CALL:.*]][0]
// CHECK: disc_rt.arena {{.*}}bytes = <[B * 64, B * 64]>, first = [1, 2], last = [5, 3], in_place = 0
// CHECK: %[[C:.*]] = disc_rt.offset
// CHECK: %[[TEMP:.*]] = disc_rt.offset
// CHECK: %[[H0:.*]] = disc_rt.input %[[CALL]][0]
// CHECK: %[[C0:.*]] = disc_rt.input %[[CALL]][1]
// CHECK: disc_rt.copy %[[C]], %[[C0]]
// CHECK: %[[T:.*]] = disc_shape.dim <T>
// CHECK: %[[LOOP:.*]], %{{.*}} = disc_rt.loop @i reverse below %[[T]] carries(%[[H0]])
// CHECK: ^bb0(%[[H:.*]]: !llvm.ptr):
// CHECK: %[[AT:.*]] = disc_shape.dim <B * i * 64>
// CHECK: %[[ROW:.*]] = disc_rt.offset %[[OUT]], %[[AT]]
// CHECK: disc_rt.launch %[[CALL]] @k(%[[H]], %[[C]], %[[TEMP]])
// CHECK: disc_rt.launch %[[CALL]] @k2(%[[TEMP]], %[[ROW]], %[[C]])
// CHECK: disc_rt.next %[[ROW]]
// CHECK: disc_rt.launch %[[CALL]] @k(%[[LOOP]], %[[C]], %{{.*}})
disc_shape.symbol @i
disc_shape.symbol @T min 1 max 64
disc_shape.symbol @B min 1 max 64
#dims = #disc_shape.dims<[B, 16]>
#dense = #disc_plan.layout<<0>, <[16, 1]>>
disc_plan.kernel_func loop @k attributes {symbols = ["B"], arg_dims = [#dims, #dims], layouts = [#dense, #dense, #dense]} {
^bb0(%p: tensor<?x16xf32>, %q: tensor<?x16xf32>):
  disc_plan.yield %p : tensor<?x16xf32>
}
disc_plan.kernel_func loop @k2 attributes {symbols = ["B"], arg_dims = [#dims], layouts = [#dense, #dense, #dense]} {
^bb0(%p: tensor<?x16xf32>):
  disc_plan.yield %p, %p : tensor<?x16xf32>, tensor<?x16xf32>
}
func.func @main(%h0: tensor<?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 16]>},
                %c0: tensor<?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 16]>},
                %x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[T]>}) -> (tensor<?x?x16xf32>, tensor<?x16xf32>) {
  %t = disc_shape.dim <T>
  %h, %c, %ys = disc_tensor.loop @i reverse below %t carries(%h0, %c0)
      {disc_shape.dims = [#disc_shape.dims<[B, 16]>, #disc_shape.dims<[B, 16]>, #disc_shape.dims<[T, B, 16]>]}
      : (tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x?x16xf32>) {
  ^bb0(%a: tensor<?x16xf32>, %b: tensor<?x16xf32>):
    %n = disc_plan.call @k(%a, %b) result_dims [#disc_shape.dims<[B, 16]>] : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
    %m:2 = disc_plan.call @k2(%n) result_dims [#disc_shape.dims<[B, 16]>, #disc_shape.dims<[B, 16]>] : (tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>)
    disc_tensor.next %m#0, %m#1, %m#0 : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>
  }
  %y = disc_plan.call @k(%h, %c) result_dims [#disc_shape.dims<[B, 16]>] : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %ys, %y : tensor<?x?x16xf32>, tensor<?x16xf32>
}
