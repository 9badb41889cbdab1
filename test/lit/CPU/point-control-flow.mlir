// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @B min 1

// A loop goes on until no lane does; lanes that have finished keep their values. Behind the whole vectors comes a rest,
// whose mask ends the loops of lanes without an element.
// CHECK-LABEL: func.func @bits
// CHECK: scf.while (%[[X:.*]] = %{{.*}}, %[[N:.*]] = %{{.*}}) : (vector<8xi32>, vector<8xi32>)
// CHECK: %[[GOING:.*]] = arith.cmpi ne, %[[X]]
// CHECK: %[[ANY:.*]] = vector.reduction <or>, %[[GOING]]
// CHECK: scf.condition(%[[ANY]])
// CHECK: arith.shrui {{.*}} : vector<8xi32>
// CHECK-COUNT-2: arith.select {{.*}} : vector<8xi1>, vector<8xi32>
// CHECK: scf.yield
// CHECK: scf.while
// CHECK: %[[LEFT:.*]] = arith.cmpi ne
// CHECK: arith.andi %[[LEFT]], %{{.*}} : vector<8xi1>
disc_plan.kernel_func loop @bits attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"], arg_dims = [#disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%x: tensor<?xi32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<?xi32>) outs(%e : tensor<?xi32>) {
  ^bb0(%v: i32, %o: i32):
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %w:2 = scf.while (%a = %v, %n = %zero) : (i32, i32) -> (i32, i32) {
      %c = arith.cmpi ne, %a, %zero : i32
      scf.condition(%c) %a, %n : i32, i32
    } do {
    ^bb0(%a: i32, %n: i32):
      %b = arith.shrui %a, %one : i32
      %m = arith.addi %n, %one : i32
      scf.yield %b, %m : i32, i32
    }
    linalg.yield %w#1 : i32
  } -> tensor<?xi32>
  disc_plan.yield %r : tensor<?xi32>
}

// What is expensive runs only where a lane needs it.
// CHECK-LABEL: func.func @branch
// CHECK: %[[NEGATIVE:.*]] = arith.cmpf olt
// CHECK: %[[ANY:.*]] = vector.reduction <or>, %[[NEGATIVE]]
// CHECK: %[[SINE:.*]] = scf.if %[[ANY]] -> (vector<8xf32>)
// CHECK: math.sin
// CHECK: %[[SAME:.*]] = arith.select
// CHECK: arith.select %[[NEGATIVE]], %[[SINE]], %[[SAME]]
disc_plan.kernel_func loop @branch attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"], arg_dims = [#disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%x: tensor<?xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%v: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %c = arith.cmpf olt, %v, %zero : f32
    %w = scf.if %c -> f32 {
      %s = math.sin %v : f32
      scf.yield %s : f32
    } else {
      scf.yield %v : f32
    }
    linalg.yield %w : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}
}
