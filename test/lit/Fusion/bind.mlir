// What mentions a computed symbol stays behind its bind, and nothing fuses across that would have to wait for itself.
// RUN: disc-opt %s -disc-fusion-fold-views -disc-fusion-form-kernels -disc-fusion-merge-products -disc-fusion-verify | FileCheck %s

#id = affine_map<(i) -> (i)>
#all = affine_map<(i) -> ()>
disc_shape.symbol @N min 1
disc_shape.symbol @u0

// %a feeds the count and, behind the bind, %c: all have the domain [N], but %c cannot run before the value is known.
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]]:2 = disc_plan.kernel row ins(%{{.*}} : tensor<?xi64>) -> tensor<?xi64>, tensor<i64>
// CHECK: disc_shape.bind @u0, %[[A]]#1
// CHECK-NEXT: disc_shape.guard <u0> le <N>
// CHECK: disc_plan.kernel loop ins(%[[A]]#0
// CHECK: disc_shape.dim <u0>
func.func @main(%x: tensor<?xi64> {disc_shape.dims = #disc_shape.dims<[N]>}) -> tensor<?xi64> {
  %N = disc_shape.dim <N>
  %u = disc_shape.dim <u0>
  %zero = arith.constant 0 : i64
  %e = tensor.empty(%N) : tensor<?xi64>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<?xi64>) outs(%e : tensor<?xi64>) attrs = {disc_shape.dims = [#disc_shape.dims<[N]>]} {
  ^bb0(%v: i64, %o: i64):
    %0 = arith.addi %v, %v : i64
    linalg.yield %0 : i64
  } -> tensor<?xi64>
  %e0 = tensor.empty() : tensor<i64>
  %f = linalg.fill ins(%zero : i64) outs(%e0 : tensor<i64>) -> tensor<i64>
  %n = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]}
      ins(%a : tensor<?xi64>) outs(%f : tensor<i64>) {
  ^bb0(%v: i64, %o: i64):
    %0 = arith.addi %v, %o : i64
    linalg.yield %0 : i64
  } -> tensor<i64>
  %bound = disc_shape.bind @u0, %n : tensor<i64>
  disc_shape.guard <u0> le <N>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<?xi64>) outs(%e : tensor<?xi64>) attrs = {disc_shape.dims = [#disc_shape.dims<[N]>]} {
  ^bb0(%v: i64, %o: i64):
    %0 = arith.index_cast %u : index to i64
    %1 = arith.muli %v, %0 : i64
    linalg.yield %1 : i64
  } -> tensor<?xi64>
  return %c : tensor<?xi64>
}

// In a loop, what reads an extent that is computed around it from a symbol of a step waits for the step's bind.
// CHECK-LABEL: func.func @step
// CHECK: disc_tensor.loop
// CHECK: %[[K:.*]] = disc_plan.kernel
// CHECK: disc_shape.bind @u1, %[[K]]
// CHECK: disc_plan.kernel
// CHECK: disc_shape.dim <-u1>
disc_shape.symbol @u1
disc_shape.symbol @i0
func.func @step(%x: tensor<i64>) -> tensor<i64> {
  %n = disc_shape.dim <N>
  %minus = disc_shape.dim <-u1>
  %r = disc_tensor.loop @i0 below %n carries(%x) {disc_shape.dims = [#disc_shape.dims<[]>]} : (tensor<i64>) -> tensor<i64> {
  ^bb0(%a: tensor<i64>):
    %e = tensor.empty() : tensor<i64>
    %early = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<i64>) {
    ^bb0(%o: i64):
      %0 = arith.index_cast %minus : index to i64
      linalg.yield %0 : i64
    } -> tensor<i64>
    %k = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
        ins(%a : tensor<i64>) outs(%e : tensor<i64>) {
    ^bb0(%v: i64, %o: i64):
      %0 = arith.addi %v, %v : i64
      linalg.yield %0 : i64
    } -> tensor<i64>
    %bound = disc_shape.bind @u1, %k : tensor<i64>
    disc_tensor.next %early : tensor<i64>
  }
  return %r : tensor<i64>
}
