// RUN: disc-opt %s -split-input-file -verify-diagnostics -disc-memory-assign-buffers -disc-memory-plan-arena -disc-memory-convert-to-rt -disc-memory-verify | FileCheck %s

#d = #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>
#s = #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[]>>
disc_shape.symbol @N min 1 max 64
disc_shape.symbol @u0 max 64
disc_plan.kernel_func loop @count attributes {symbols = ["N"], arg_dims = [#disc_shape.dims<[N]>], layouts = [#d, #s, #d]} {
^bb0(%x: tensor<?xf32>):
  %0 = tensor.empty() : tensor<i64>
  disc_plan.yield %0, %x : tensor<i64>, tensor<?xf32>
}
disc_plan.kernel_func loop @take attributes {symbols = ["u0"], arg_dims = [#disc_shape.dims<[N]>], layouts = [#d, #d]} {
^bb0(%x: tensor<?xf32>):
  disc_plan.yield %x : tensor<?xf32>
}

// CHECK-LABEL: disc_rt.entry @main
// CHECK: %[[A:.*]] = disc_rt.arena %arg0, %{{.*}} {plan
// CHECK: %[[X:.*]] = disc_rt.input
// CHECK: disc_rt.launch %arg0 @count
// CHECK: %[[V:.*]] = llvm.load
// CHECK: %[[U:.*]] = arith.index_cast %[[V]]
// CHECK: disc_rt.guard %arg0, %[[U]] ge %{{.*}} input -1 dim -1 expected "0", "aten.nonzero at model.py:3: u0 is out of range"
// CHECK: disc_rt.guard %arg0, %[[U]] le %{{.*}} input -1 dim -1 expected "64", "aten.nonzero at model.py:3: u0 is out of range"
// CHECK: disc_rt.bind_symbol @u0, %[[U]] computed
// CHECK: disc_rt.guard %arg0, %{{.*}} le %{{.*}} input -1 dim -1 expected "u0 <= N", "too many"
// CHECK: disc_rt.output %arg0[0] (%{{.*}})
// CHECK: disc_rt.arena %arg0, %{{.*}} part 1
// CHECK: disc_rt.launch %arg0 @take
// CHECK: disc_rt.launch %arg0 @take
func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[N]>}) -> (tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[u0]>}) {
  %n, %a = disc_plan.call @count(%x) result_dims [#disc_shape.dims<[]>, #disc_shape.dims<[N]>] : (tensor<?xf32>) -> (tensor<i64>, tensor<?xf32>)
  %u = disc_shape.bind @u0, %n "aten.nonzero at model.py:3" : tensor<i64>
  disc_shape.guard <u0> le <N> "too many"
  %b = disc_plan.call @take(%a) result_dims [#disc_shape.dims<[u0]>] : (tensor<?xf32>) -> tensor<?xf32>
  %c = disc_plan.call @take(%b) result_dims [#disc_shape.dims<[u0]>] : (tensor<?xf32>) -> tensor<?xf32>
  return %c : tensor<?xf32>
}

// -----

disc_shape.symbol @u0

func.func @main() {
  // expected-error@+1 {{'tensor.empty' has no buffer}}
  %n = tensor.empty() : tensor<i64>
  %u = disc_shape.bind @u0, %n : tensor<i64>
  return
}
