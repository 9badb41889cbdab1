// RUN: disc-opt %s -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

// @relu reads and writes the same positions: its result takes the storage of an operand that dies. @transpose reads
// others, @softmax's first pass reads all of a row before its last one writes it, @two has one operand for two results,
// and @cast's elements have other sizes.

// CHECK-LABEL: disc_rt.entry @main
// CHECK: disc_rt.arena %{{.*}}, %{{.*}} {plan = #disc_rt.arena_plan<
// CHECK-SAME: in_place = 3
// CHECK: %[[X:.*]] = disc_rt.input
// CHECK: disc_rt.launch %{{.*}} @relu(%[[X]], %[[A:.*]])
// CHECK: disc_rt.launch %{{.*}} @relu(%[[A]], %[[A]])
// CHECK: disc_rt.launch %{{.*}} @softmax(%[[A]], %[[A]])
// CHECK: disc_rt.launch %{{.*}} @transpose(%[[A]], %[[T:.*]])
// CHECK-NOT: @two(%[[T]], %[[T]], %[[T]])
// CHECK: disc_rt.launch %{{.*}} @two(%[[T]], %[[T]], %{{.*}})
// CHECK: disc_rt.launch %{{.*}} @cast(%[[U:.*]], %[[V:.*]])
// CHECK: disc_rt.launch
disc_shape.symbol @S min 2 max 64
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
disc_plan.kernel_func loop @relu attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%p: tensor<?x?xf32>):
  %n = disc_shape.dim <S>
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %c0 = arith.constant 0.0 : f32
    %y = arith.maximumf %x, %c0 : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}
disc_plan.kernel_func loop @transpose attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%p: tensor<?x?xf32>):
  %n = disc_shape.dim <S>
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#swap, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}
disc_plan.kernel_func row @softmax attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%p: tensor<?x?xf32>):
  %n = disc_shape.dim <S>
  %c0 = arith.constant 0.0 : f32
  %v = tensor.empty(%n) : tensor<?xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%v : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x?xf32>) outs(%z : tensor<?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.addf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?xf32>
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %s: f32, %o: f32):
    %y = arith.divf %x, %s : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}
disc_plan.kernel_func loop @two attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%p: tensor<?x?xf32>):
  disc_plan.yield %p, %p : tensor<?x?xf32>, tensor<?x?xf32>
}
disc_plan.kernel_func loop @cast attributes {symbols = ["S"], arg_dims = [#disc_shape.dims<[S, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%p: tensor<?x?xf32>):
  %n = disc_shape.dim <S>
  %e = tensor.empty(%n, %n) : tensor<?x?xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x?xf32>) outs(%e : tensor<?x?xf16>) {
  ^bb0(%x: f32, %o: f16):
    %y = arith.truncf %x : f32 to f16
    linalg.yield %y : f16
  } -> tensor<?x?xf16>
  disc_plan.yield %r : tensor<?x?xf16>
}
disc_plan.kernel_func loop @last attributes {symbols = ["S"],
    arg_dims = [#disc_shape.dims<[S, S]>, #disc_shape.dims<[S, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]} {
^bb0(%p: tensor<?x?xf32>, %q: tensor<?x?xf16>):
  disc_plan.yield %p : tensor<?x?xf32>
}
func.func @main(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[S, S]>}) -> tensor<?x?xf32> {
  %a = disc_plan.call @relu(%x) result_dims [#disc_shape.dims<[S, S]>] : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %b = disc_plan.call @relu(%a) result_dims [#disc_shape.dims<[S, S]>] : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = disc_plan.call @softmax(%b) result_dims [#disc_shape.dims<[S, S]>] : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %d = disc_plan.call @transpose(%c) result_dims [#disc_shape.dims<[S, S]>] : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %e, %f = disc_plan.call @two(%d) result_dims [#disc_shape.dims<[S, S]>, #disc_shape.dims<[S, S]>]
      : (tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>)
  %g = disc_plan.call @cast(%e) result_dims [#disc_shape.dims<[S, S]>] : (tensor<?x?xf32>) -> tensor<?x?xf16>
  %y = disc_plan.call @last(%f, %g) result_dims [#disc_shape.dims<[S, S]>] : (tensor<?x?xf32>, tensor<?x?xf16>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
