// RUN: disc-opt %s -split-input-file -disc-memory-assign-buffers | FileCheck %s

// %b takes the temporary of %a, which nothing reads any more; %c is computed while %b is needed. An output that is returned twice is copied, and so is an input.
// CHECK: func.func @main
// CHECK-SAME: disc_plan.temporaries = #disc_shape.dims<[S * 32, S * 32]>
// CHECK: disc_plan.call @k({{.*}}disc_plan.buffers = [#disc_plan.buffer<temporary[0]>]
// CHECK: disc_plan.call @k({{.*}}disc_plan.buffers = [#disc_plan.buffer<temporary[0]>]
// CHECK: disc_plan.call @k({{.*}}disc_plan.buffers = [#disc_plan.buffer<temporary[1]>]
// CHECK: %[[Y:.*]] = disc_plan.call @add({{.*}}disc_plan.buffers = [#disc_plan.buffer<output[0]>]
// CHECK: %[[COPY:.*]] = disc_plan.copy %[[Y]] to <output[1]> dims <[S, 8]> : tensor<?x8xf32> -> tensor<?x8xf32>
// CHECK: %[[INPUT:.*]] = disc_plan.copy %arg0 to <output[2]>
// CHECK: return %[[Y]], %[[COPY]], %[[INPUT]]
disc_shape.symbol @S min 2 max 64 divisor 2
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
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #dims}) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %a = disc_plan.call @k(%x) result_dims [#dims] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = disc_plan.call @k(%a) result_dims [#dims] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %c = disc_plan.call @k(%x) result_dims [#dims] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = disc_plan.call @add(%b, %c) result_dims [#dims] : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y, %y, %x : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// The number of iterations is unknown: the stack grows in slot 0, and its row may move before the next iteration reads
// it, which is why the row is copied to one of two temporaries. The second carried tensor is written after all reads.
// CHECK: func.func @main
// CHECK-SAME: disc_plan.temporaries = #disc_shape.dims<[64, 64, 64]>
// CHECK: %[[B:.*]] = disc_plan.copy %arg1 to <temporary[2]>
// CHECK: %[[LOOP:.*]]:3 = disc_tensor.loop @i while %{{.*}} carries(%arg0, %[[B]])
// CHECK-SAME: [#disc_plan.buffer<alternating[0]>, #disc_plan.buffer<temporary[2]>, #disc_plan.buffer<slot[0]>]
// CHECK: %[[ROW:.*]] = disc_plan.call @k(%{{.*}}disc_plan.buffers = [#disc_plan.buffer<row[2]>]
// CHECK: %[[NEXT:.*]] = disc_plan.call @k(%{{.*}}disc_plan.buffers = [#disc_plan.buffer<carried[1]>]
// CHECK: %[[MOVED:.*]] = disc_plan.copy %[[ROW]] to <carried[0]>
// CHECK: disc_tensor.next %[[MOVED]], %[[NEXT]], %[[ROW]]
// CHECK: %[[OUT:.*]] = disc_plan.copy %[[LOOP]]#2 to <output[0]>
disc_shape.symbol @i
disc_shape.symbol @n
#four = #disc_shape.dims<[4]>
disc_plan.kernel_func loop @k attributes {symbols = [], arg_dims = [#four], layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4xf32>):
  disc_plan.yield %p : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {disc_shape.dims = #four}, %y: tensor<4xf32> {disc_shape.dims = #four},
                %go: tensor<i1> {disc_shape.dims = #disc_shape.dims<[]>}) -> tensor<?x4xf32> {
  %a, %b, %rows = disc_tensor.loop @i while %go : tensor<i1> carries(%x, %y) trips @n
      {disc_shape.dims = [#four, #four, #disc_shape.dims<[n, 4]>]}
      : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<?x4xf32>) {
  ^bb0(%p: tensor<4xf32>, %q: tensor<4xf32>):
    %r = disc_plan.call @k(%p) result_dims [#four] : (tensor<4xf32>) -> tensor<4xf32>
    %s = disc_plan.call @k(%q) result_dims [#four] : (tensor<4xf32>) -> tensor<4xf32>
    disc_tensor.next %r, %s, %r : tensor<4xf32>, tensor<4xf32>, tensor<4xf32> while %go : tensor<i1>
  }
  return %rows : tensor<?x4xf32>
}

// -----

// A side computes what it yields in the output; the other one copies its argument there. What is no output is yielded
// where it is.
// CHECK: disc_tensor.branch
// CHECK-SAME: disc_plan.buffers = [#disc_plan.buffer<output[0]>, #disc_plan.buffer<yielded>]
// CHECK: %[[A:.*]] = disc_plan.call @k({{.*}}disc_plan.buffers = [#disc_plan.buffer<output[0]>]
// CHECK: disc_tensor.yield %[[A]], %arg0
// CHECK: %[[B:.*]] = disc_plan.copy %arg0 to <output[0]>
// CHECK: disc_tensor.yield %[[B]], %arg0
// CHECK: disc_plan.call @k(%{{.*}}#1){{.*}}disc_plan.buffers = [#disc_plan.buffer<output[1]>]
#four = #disc_shape.dims<[4]>
disc_plan.kernel_func loop @k attributes {symbols = [], arg_dims = [#four], layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%p: tensor<4xf32>):
  disc_plan.yield %p : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {disc_shape.dims = #four}, %go: tensor<i1> {disc_shape.dims = #disc_shape.dims<[]>})
    -> (tensor<4xf32>, tensor<4xf32>) {
  %y, %z = disc_tensor.branch %go {disc_shape.dims = [#four, #four]} : tensor<i1> -> (tensor<4xf32>, tensor<4xf32>) {
    %a = disc_plan.call @k(%x) result_dims [#four] : (tensor<4xf32>) -> tensor<4xf32>
    disc_tensor.yield %a, %x : tensor<4xf32>, tensor<4xf32>
  } else {
    disc_tensor.yield %x, %x : tensor<4xf32>, tensor<4xf32>
  }
  %w = disc_plan.call @k(%z) result_dims [#four] : (tensor<4xf32>) -> tensor<4xf32>
  return %y, %w : tensor<4xf32>, tensor<4xf32>
}
