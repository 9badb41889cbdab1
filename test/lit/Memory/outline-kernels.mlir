// RUN: disc-opt %s -disc-memory-outline-kernels | FileCheck %s

// Two equal kernels are one function; a view is a layout of the operand.
// CHECK: disc_plan.kernel_func loop @k0_neg attributes
// CHECK-SAME: arg_dims = [#disc_shape.dims<[8, S]>]
// CHECK-SAME: layouts = [#disc_plan.layout<<0>, <[1, 8]>>, #disc_plan.layout<<0>, <[S, 1]>>]
// CHECK-SAME: symbols = ["S"]
// CHECK: disc_plan.kernel_func loop @k1_neg
// CHECK-SAME: layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>]
// CHECK-NOT: disc_plan.kernel_func
// CHECK: func.func @main(%[[X:.*]]: tensor<?x8xf32>
// CHECK-NOT: disc_tensor
// CHECK: %[[A:.*]] = disc_plan.call @k0_neg(%[[X]]) result_dims [#disc_shape.dims<[8, S]>]
// CHECK: %[[B:.*]] = disc_plan.call @k1_neg(%[[A]])
// CHECK: %[[C:.*]] = disc_plan.call @k1_neg(%[[B]])
// CHECK: return %[[C]]
#id = affine_map<(d0, d1) -> (d0, d1)>
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<8x?xf32> {
  %t = disc_tensor.permute %x [1, 0] : tensor<?x8xf32> -> tensor<8x?xf32>
  %a = disc_plan.kernel loop ins(%t : tensor<8x?xf32>) -> tensor<8x?xf32> attributes {name = "neg", reason = "r"} {
  ^bb0(%p: tensor<8x?xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<8x?xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%p : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
    ^bb0(%l: f32, %o: f32):
      %1 = arith.negf %l : f32
      linalg.yield %1 : f32
    } -> tensor<8x?xf32>
    disc_plan.yield %0 : tensor<8x?xf32>
  }
  %b = disc_plan.kernel loop ins(%a : tensor<8x?xf32>) -> tensor<8x?xf32> attributes {name = "neg", reason = "r"} {
  ^bb0(%p: tensor<8x?xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<8x?xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%p : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
    ^bb0(%l: f32, %o: f32):
      %1 = arith.negf %l : f32
      linalg.yield %1 : f32
    } -> tensor<8x?xf32>
    disc_plan.yield %0 : tensor<8x?xf32>
  }
  %c = disc_plan.kernel loop ins(%b : tensor<8x?xf32>) -> tensor<8x?xf32> attributes {name = "neg", reason = "q"} {
  ^bb0(%p: tensor<8x?xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<8x?xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%p : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
    ^bb0(%l: f32, %o: f32):
      %1 = arith.negf %l : f32
      linalg.yield %1 : f32
    } -> tensor<8x?xf32>
    disc_plan.yield %0 : tensor<8x?xf32>
  }
  return %c : tensor<8x?xf32>
}
