// Kernels that start before those that they depend on have finished, and wait for them.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#y = affine_map<(s, n, k) -> (s, n)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32, matrix_unit = true>} {
disc_shape.symbol @S min 0 max 512

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %x = disc_rt.input %call[0]
  %y = disc_rt.input %call[1]
  %w = disc_rt.parameter %call "w" as tensor<16x1024xf32>
  %state = disc_rt.parameter %call "state" as tensor<16x1024xf32> updated
  disc_rt.launch %call @loop(%x, %y)
  disc_rt.launch %call @constant(%x, %w, %y)
  disc_rt.launch %call @other(%x, %w, %y)
  disc_rt.launch %call @other(%x, %x, %y)
  disc_rt.launch %call @updated(%x, %state, %y)
  disc_rt.return
}

// A kernel waits at its start.
// CHECK-LABEL: gpu.func @loop(
// CHECK-NOT: llvm.load
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK: llvm.load
disc_plan.kernel_func loop @loop attributes {
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], arg_dims = [#disc_shape.dims<[S]>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 1>, symbols = ["S"],
    tasks = #disc_shape.expr<(S + 255) floordiv 256>} {
^bb0(%x: tensor<?xf32>):
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%i: f32, %o: f32):
    %n = arith.negf %i : f32
    linalg.yield %n : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}

// Weights that no kernel writes to are brought before the wait; rows are read behind it. The next kernel would take
// bandwidth from this one: it starts once all weights are on their way.
// CHECK-LABEL: gpu.func @constant(
// CHECK-SAME: !llvm.ptr<1> {disc_plan.bytes = {{.*}}}, %{{.*}}: !llvm.ptr<1> {disc_plan.bytes = {{.*}}, disc_plan.constant}, %{{.*}}: !llvm.ptr<1> {disc_plan.bytes = {{[^}]*}}}, %{{.*}}: i64)
// CHECK-NOT: nvvm.griddepcontrol
// CHECK-COUNT-10: nvvm.cp.async.shared.global
// CHECK: nvvm.griddepcontrol wait
// CHECK: scf.for
// CHECK: llvm.load {{.*}} : !llvm.ptr<1>
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK: nvvm.cp.async.wait.group 0

disc_plan.kernel_func contraction @constant attributes {
    layouts = [#disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 1024]>, #disc_shape.dims<[16, 1024]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 16, tile_columns = 16, warp_rows = 16,
        warp_columns = 16, stages = 6, slices = 4>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x1024xf32>, %w: tensor<16x1024xf32>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x1024xf32>, tensor<16x1024xf32>) outs(%f : tensor<?x16xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x16xf32>
  disc_plan.yield %c : tensor<?x16xf32>
}

// Another launch has computed numbers there, or the call changes them: the kernel waits first.
// CHECK-LABEL: gpu.func @other(
// CHECK-NOT: disc_plan.constant
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.griddepcontrol launch_dependents

disc_plan.kernel_func contraction @other attributes {
    layouts = [#disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 1024]>, #disc_shape.dims<[16, 1024]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 16, tile_columns = 16, warp_rows = 16,
        warp_columns = 16, stages = 6, slices = 4>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x1024xf32>, %w: tensor<16x1024xf32>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x1024xf32>, tensor<16x1024xf32>) outs(%f : tensor<?x16xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x16xf32>
  disc_plan.yield %c : tensor<?x16xf32>
}

// CHECK-LABEL: gpu.func @updated(
// CHECK-NOT: disc_plan.constant
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.cp.async.shared.global

disc_plan.kernel_func contraction @updated attributes {
    layouts = [#disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[1024, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 1024]>, #disc_shape.dims<[16, 1024]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 16, tile_columns = 16, warp_rows = 16,
        warp_columns = 16, stages = 6, slices = 4>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x1024xf32>, %w: tensor<16x1024xf32>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x1024xf32>, tensor<16x1024xf32>) outs(%f : tensor<?x16xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x16xf32>
  disc_plan.yield %c : tensor<?x16xf32>
}
}
