// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-cpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1

// Dense buffers: one run over both dimensions, in whole vectors, as 384 is a multiple of 16.
// CHECK-LABEL: func.func @merged
// CHECK-SAME: (%[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %{{.*}}: !llvm.ptr)
// CHECK-DAG: %[[CHUNK:.*]] = arith.constant 4096 : index
// CHECK-DAG: %[[LANES:.*]] = arith.constant 16 : index
// CHECK: %[[SLOT:.*]] = llvm.getelementptr %[[ARGS]][2]
// CHECK: llvm.load %[[SLOT]] {{.*}} -> i64
// CHECK: %[[X:.*]] = llvm.load %[[ARGS]] {{.*}} -> !llvm.ptr
// CHECK: %[[HI:.*]] = arith.minsi
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[HI]] step %[[LANES]] {
// CHECK-NEXT: %[[AT:.*]] = arith.index_cast %[[I]]
// CHECK-NEXT: %[[P:.*]] = llvm.getelementptr %[[X]][%[[AT]]]
// CHECK-NEXT: %[[A:.*]] = llvm.load %[[P]] {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
// CHECK-NEXT: %[[R:.*]] = arith.addf %[[A]], %[[A]] : vector<16xf32>
// CHECK-NEXT: getelementptr
// CHECK-NEXT: llvm.store %[[R]]
// CHECK-NOT: masked
// CHECK: return
disc_plan.kernel_func loop @merged attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 384]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[384, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[384, 1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = 1>} {
^bb0(%x: tensor<?x384xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x384xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x384xf32>) outs(%e : tensor<?x384xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<?x384xf32>
  disc_plan.yield %r : tensor<?x384xf32>
}

// A bias along the rows keeps them apart; a row's end is done under a mask. The bias of booleans lies in bytes.
// CHECK-LABEL: func.func @rows
// CHECK: scf.for {{.*}} iter_args
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: llvm.load {{.*}} -> vector<16xi8>
// CHECK: arith.cmpi ne
// CHECK: arith.select
// CHECK: llvm.store
// CHECK: arith.cmpi sgt
// CHECK: scf.if
// CHECK: %[[MASK:.*]] = arith.cmpi {{.*}} : vector<16xi32>
// CHECK: llvm.intr.masked.load {{.*}}, %[[MASK]]
// CHECK: llvm.intr.masked.store {{.*}}, %[[MASK]]
disc_plan.kernel_func loop @rows attributes {symbols = ["B", "S"],
    arg_dims = [#disc_shape.dims<[B, S]>, #disc_shape.dims<[S]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[S, 1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = 1>} {
^bb0(%x: tensor<?x?xf32>, %keep: tensor<?xi1>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %keep : tensor<?x?xf32>, tensor<?xi1>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %k: i1, %o: f32):
    %zero = arith.constant 0.0 : f32
    %s = arith.select %k, %a, %zero : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Complex numbers times one for each row of pairs: the lanes run over the rows and the two parts. The real parts, at
// even elements, are read by whole vectors and doubled by shuffles; which part a lane holds is known. Lanes that may be
// off are read under a mask, made of the lanes that ask for each element.
// CHECK-LABEL: func.func @parts
// CHECK: scf.for
// CHECK-NOT: gather
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: vector.shuffle {{.*}} : vector<8xf32>, vector<8xf32>
// CHECK: vector.shuffle {{.*}} : vector<8xf32>, vector<16xf32>
// CHECK: llvm.load {{.*}} -> vector<2xf32>
// CHECK: vector.shuffle {{.*}} [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1] : vector<2xf32>, vector<2xf32>
// CHECK: llvm.store {{.*}} : vector<16xf32>
// CHECK: scf.if
// CHECK: vector.shuffle {{.*}} : vector<16xi1>, vector<16xi1>
// CHECK: llvm.intr.masked.load
// CHECK-NOT: gather
// CHECK: llvm.intr.masked.store
disc_plan.kernel_func loop @parts attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = ["B"],
    arg_dims = [#disc_shape.dims<[B]>, #disc_shape.dims<[2]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[2]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[2, 1]>>]} {
^bb0(%x: tensor<?xf32>, %w: tensor<2xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?x2xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %w : tensor<?xf32>, tensor<2xf32>) outs(%e : tensor<?x2xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x2xf32>
  disc_plan.yield %r : tensor<?x2xf32>
}

// Rank 0: one scalar, no loop.
// CHECK-LABEL: func.func @scalar
// CHECK-NOT: scf.for
// CHECK: llvm.load {{.*}} -> f32
// CHECK: math.exp %{{.*}} : f32
// CHECK: llvm.store {{.*}} : f32
disc_plan.kernel_func loop @scalar attributes {schedule = #disc_plan.loop<chunk = 4096, unroll = 1>, symbols = [], arg_dims = [#disc_shape.dims<[]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[]>>]} {
^bb0(%x: tensor<f32>):
  %e = tensor.empty() : tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%x : tensor<f32>) outs(%e : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.exp %a : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  disc_plan.yield %r : tensor<f32>
}

// What follows from a tensor without dimensions alone is computed once, at the function's entry.
// CHECK-LABEL: func.func @uniform
// CHECK-NOT: scf.for
// CHECK: %[[POWER:.*]] = math.powf
// CHECK: %[[SUM:.*]] = arith.addf %[[POWER]]
// CHECK: scf.for
// CHECK-NOT: math.powf
// CHECK: arith.mulf
// CHECK: return
disc_plan.kernel_func loop @uniform attributes {symbols = ["B"],
    arg_dims = [#disc_shape.dims<[B]>, #disc_shape.dims<[]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = 1>} {
^bb0(%x: tensor<?xf32>, %s: tensor<f32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                       iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %v = tensor.extract %s[] : tensor<f32>
    %p = math.powf %v, %v : f32
    %q = arith.addf %p, %one : f32
    %m = arith.mulf %a, %q : f32
    linalg.yield %m : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}
}
