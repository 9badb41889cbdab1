// Vectors are aligned where all launches pass aligned buffers; a row of a stack begins anywhere.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 1
disc_shape.symbol @i

// CHECK-LABEL: gpu.func @row
// CHECK: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: llvm.store %{{.*}} {alignment = 4 : i64} : vector<4xf32>, !llvm.ptr<1>
disc_plan.kernel_func loop @row attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 9]>],
    layouts = [#disc_plan.layout<<0>, <[9, 1]>>, #disc_plan.layout<<0>, <[9, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x9xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x9xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x9xf32>) outs(%e : tensor<?x9xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<?x9xf32>
  disc_plan.yield %r : tensor<?x9xf32>
}

// What the loop gives at last is a row, too. A cache line further is aligned, half a vector further half of it.
// CHECK-LABEL: gpu.func @last
// CHECK: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK-LABEL: gpu.func @copy
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: llvm.store %{{.*}} {alignment = 8 : i64} : vector<4xf32>, !llvm.ptr<1>
disc_plan.kernel_func loop @last attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 9]>],
    layouts = [#disc_plan.layout<<0>, <[9, 1]>>, #disc_plan.layout<<0>, <[9, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x9xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x9xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x9xf32>) outs(%e : tensor<?x9xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?x9xf32>
  disc_plan.yield %r : tensor<?x9xf32>
}
disc_plan.kernel_func loop @copy attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 9]>],
    layouts = [#disc_plan.layout<<0>, <[9, 1]>>, #disc_plan.layout<<0>, <[9, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x9xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x9xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x9xf32>) outs(%e : tensor<?x9xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?x9xf32>
  disc_plan.yield %r : tensor<?x9xf32>
}

disc_rt.entry @main attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<?x9xf32>, dims = <[B, 9]>>],
                                outputs = [#disc_rt.tensor<name = "y", type = tensor<?x9xf32>, dims = <[B, 9]>>]} {
^bb0(%call: !llvm.ptr):
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %x = disc_rt.input %call[0]
  %c9 = arith.constant 9 : index
  %y = disc_rt.output %call[0] (%B, %c9)
  %bytes = disc_shape.dim <B * 360 + 128>
  %arena = disc_rt.arena %call, %bytes
  %c64 = arith.constant 64 : index
  %c8 = arith.constant 8 : index
  %stack = disc_rt.offset %arena, %c64
  // Behind parts of the arena of which the largest depends on B: as many paths as there are subsets of the parts.
  %p0 = disc_shape.dim <((max(B * 4, 1) + 7) floordiv 8) * 64>
  %q0 = disc_shape.dim <((B * 3 + 3) floordiv 4) * 64>
  %s0 = arith.addi %p0, %p0 : index
  %t0 = arith.addi %p0, %q0 : index
  %m0 = arith.maxsi %s0, %t0 : index
  %s1 = arith.addi %m0, %p0 : index
  %t1 = arith.addi %m0, %q0 : index
  %m1 = arith.maxsi %s1, %t1 : index
  %s2 = arith.addi %m1, %p0 : index
  %t2 = arith.addi %m1, %q0 : index
  %m2 = arith.maxsi %s2, %t2 : index
  %s3 = arith.addi %m2, %p0 : index
  %t3 = arith.addi %m2, %q0 : index
  %m3 = arith.maxsi %s3, %t3 : index
  %s4 = arith.addi %m3, %p0 : index
  %t4 = arith.addi %m3, %q0 : index
  %m4 = arith.maxsi %s4, %t4 : index
  %s5 = arith.addi %m4, %p0 : index
  %t5 = arith.addi %m4, %q0 : index
  %m5 = arith.maxsi %s5, %t5 : index
  %s6 = arith.addi %m5, %p0 : index
  %t6 = arith.addi %m5, %q0 : index
  %m6 = arith.maxsi %s6, %t6 : index
  %s7 = arith.addi %m6, %p0 : index
  %t7 = arith.addi %m6, %q0 : index
  %m7 = arith.maxsi %s7, %t7 : index
  %half = arith.addi %m7, %c8 : index
  %shifted = disc_rt.offset %arena, %half
  disc_rt.launch %call @copy(%stack, %shifted)
  %last, %trips = disc_rt.loop @i below %c9 carries(%x) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%h: !llvm.ptr):
    %at = disc_shape.dim <B * i * 36>
    %row = disc_rt.offset %stack, %at
    disc_rt.launch %call @row(%h, %row)
    disc_rt.next %row : !llvm.ptr
  }
  disc_rt.launch %call @last(%last, %y)
  disc_rt.return
}
}
