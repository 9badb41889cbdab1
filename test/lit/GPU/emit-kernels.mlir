// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s --check-prefix=HOST

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0
disc_shape.symbol @S min 0

// Dense buffers: one run over both dimensions. 384 is a multiple of four, so there is no tail, and every vector begins at
// a multiple of 16 bytes. A block has 256 vectors, the last one perhaps fewer.
// CHECK: disc_rt.device_kernel @merged threads 256 [reads, writes, number]
// CHECK-SAME: disc_plan.kind = "loop", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B>
// CHECK: disc_rt.device_kernel @embedding threads 256 [reads, reads, writes, number, writes, number]
// CHECK-SAME: disc_plan.texts = ["aten.embedding at model.py:3"]
// CHECK-LABEL: gpu.func @merged
// CHECK-SAME: (%[[X:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[R:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[B:[a-z0-9]+]]: i64) kernel
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK-DAG: %[[LANES:.*]] = arith.constant 4 : index
// CHECK-DAG: %[[THREADS:.*]] = arith.constant 256 : index
// CHECK-DAG: %[[PER_ROW:.*]] = arith.constant 96 : index
// CHECK: %[[ROWS:.*]] = arith.index_cast %[[B]]
// CHECK: %[[UNITS:.*]] = arith.muli %[[ROWS]], %[[PER_ROW]]
// CHECK: %[[THREAD:.*]] = gpu.thread_id{{ *}}x
// CHECK: %[[BLOCK:.*]] = gpu.block_id{{ *}}x
// CHECK: %[[FIRST:.*]] = arith.muli %[[BLOCK]], %[[THREADS]]
// CHECK: %[[END:.*]] = arith.addi %[[FIRST]], %[[THREADS]]
// CHECK: %[[LAST:.*]] = arith.cmpi slt, %[[UNITS]], %[[END]]
// CHECK: scf.if %[[LAST]] {
// CHECK: scf.for %{{.*}} to %[[UNITS]] step %[[THREADS]] {
// CHECK: } else {
// CHECK: %[[UNIT:.*]] = arith.addi %[[FIRST]], %[[THREAD]]
// CHECK: arith.muli %[[UNIT]], %[[LANES]]
// CHECK: %[[V:.*]] = llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: %[[W:.*]] = arith.addf %[[V]], %[[V]] : vector<4xf32>
// CHECK: llvm.store %[[W]], %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK-NOT: scf.if
// CHECK: gpu.return
disc_plan.kernel_func loop @merged attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 384]>],
    layouts = [#disc_plan.layout<<0>, <[384, 1]>>, #disc_plan.layout<<0>, <[384, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>, tasks = #disc_shape.expr<B>} {
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

// Threads of the last block have an element each of what is left of the row. The input lies one element further, and may begin anywhere; the result is
// aligned.
// CHECK-LABEL: gpu.func @tail
// CHECK-SAME: (%[[X:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[R:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[B:[a-z0-9]+]]: i64)
// CHECK: %[[N:.*]] = arith.index_cast %[[B]]
// CHECK: %[[UNITS:.*]] = arith.floordivsi
// CHECK: scf.if %{{.*}} {
// CHECK: scf.for %{{.*}} to %[[UNITS]]
// CHECK: math.tanh %{{.*}} : vector<4xf32>
// CHECK: %[[BEHIND:.*]] = arith.addi %{{.*}}, %thread_id_x
// CHECK: arith.cmpi slt, %[[BEHIND]], %[[N]]
// CHECK: scf.if
// CHECK: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> f32
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<1>
// CHECK: } else {
// CHECK: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: math.tanh %{{.*}} : vector<4xf32>
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
disc_plan.kernel_func loop @tail attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<<1>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?xf32>):
  %B = disc_shape.dim <B>
  %e = tensor.empty(%B) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.tanh %a : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}

// A mask along the rows keeps these apart. Their length is a multiple of four: vectors, and no tail. Booleans lie in bytes.
// CHECK-LABEL: gpu.func @rows
// CHECK: scf.for %[[UNIT:.*]] =
// CHECK: arith.remui %[[UNIT]]
// CHECK: arith.divui %[[UNIT]]
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: %[[BYTES:.*]] = llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xi8>
// CHECK: %[[KEEP:.*]] = arith.cmpi ne, %[[BYTES]]
// CHECK: arith.select %[[KEEP]]
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK-NOT: scf.if
// CHECK: gpu.return
disc_plan.kernel_func loop @rows attributes {symbols = ["B", "S"],
    arg_dims = [#disc_shape.dims<[B, 4 * S]>, #disc_shape.dims<[4 * S]>],
    layouts = [#disc_plan.layout<<0>, <[S * 4, 1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S * 4, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x?xf32>, %keep: tensor<?xi1>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <4 * S>
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

// Rows of any length: vectors would cross their ends.
// CHECK-LABEL: gpu.func @bias
// CHECK-NOT: vector<
// CHECK: scf.for
// CHECK-COUNT-2: llvm.load {{.*}} -> f32
// CHECK-NOT: vector<
// CHECK: gpu.return
disc_plan.kernel_func loop @bias attributes {symbols = ["B", "S"],
    arg_dims = [#disc_shape.dims<[B, S]>, #disc_shape.dims<[S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x?xf32>, %b: tensor<?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %k: f32, %o: f32):
    %s = arith.addf %a, %k : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// The result's elements are neighbours, the input's are not.
// CHECK-LABEL: gpu.func @transpose
// CHECK-NOT: vector<
// CHECK: llvm.load {{.*}} -> f32
// CHECK: llvm.store {{.*}} : f32
disc_plan.kernel_func loop @transpose attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[1, B]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?x?xf32>):
  %B = disc_shape.dim <B>
  %S = disc_shape.dim <S>
  %e = tensor.empty(%B, %S) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Rank 0: the first thread of all.
// CHECK-LABEL: gpu.func @scalar
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : index
// CHECK-DAG: llvm.load {{.*}} -> f32
// CHECK-DAG: math.exp %{{.*}} : f32
// CHECK: scf.for %{{.*}} to %[[ONE]] step
// CHECK: llvm.store {{.*}} : f32
disc_plan.kernel_func loop @scalar attributes {symbols = [], arg_dims = [#disc_shape.dims<[]>],
    layouts = [#disc_plan.layout<<0>, <[]>>, #disc_plan.layout<<0>, <[]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
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

// Which part a point lies in is asked for each; no other part is read.
// CHECK-LABEL: gpu.func @concat
// CHECK: scf.for
// CHECK: scf.if {{.*}} -> (f32) {
// CHECK: llvm.load {{.*}} -> f32
// CHECK: } else {
// CHECK: scf.if {{.*}} -> (f32) {
// CHECK: llvm.load {{.*}} -> f32
// CHECK-NOT: vector<
// CHECK: gpu.return
disc_plan.kernel_func loop @concat attributes {symbols = ["B", "S"],
    arg_dims = [#disc_shape.dims<[B]>, #disc_shape.dims<[S]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%x: tensor<?xf32>, %y: tensor<?xf32>):
  %r = disc_tensor.concat %x, %y dim 0 : tensor<?xf32>, tensor<?xf32> -> tensor<?xf32>
  disc_plan.yield %r : tensor<?xf32>
}

// The first thread that meets a wrong index says which, how large it may be, and the text's number. The index that is read
// lies inside in any case.
// CHECK-LABEL: gpu.func @embedding
// CHECK-SAME: (%[[TABLE:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[IDS:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[R:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[B:[a-z0-9]+]]: i64, %[[ERRORS:[a-z0-9]+]]: !llvm.ptr<1>{{.*}}, %[[TEXT:[a-z0-9]+]]: i64)
// CHECK-DAG: %[[SET:.*]] = arith.constant 1 : i32
// CHECK-DAG: %[[UNSET:.*]] = arith.constant 0 : i32
// CHECK-DAG: %[[TEN:.*]] = arith.constant 10 : i64
// CHECK: %[[ID:.*]] = llvm.load {{.*}} -> i64
// CHECK: %[[BAD:.*]] = arith.cmpi uge, %[[ID]], %[[TEN]]
// CHECK: scf.if %[[BAD]] {
// CHECK: %[[OLD:.*]] = llvm.atomicrmw xchg %[[ERRORS]], %[[SET]] monotonic : !llvm.ptr<1>, i32
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[OLD]], %[[UNSET]]
// CHECK: scf.if %[[FIRST]] {
// CHECK: llvm.getelementptr %[[ERRORS]][8]
// CHECK: llvm.store %[[ID]]
// CHECK: llvm.getelementptr %[[ERRORS]][16]
// CHECK: llvm.store %[[TEN]]
// CHECK: llvm.getelementptr %[[ERRORS]][24]
// CHECK: llvm.store %[[TEXT]]
// CHECK: arith.minsi %[[ID]]
// CHECK: arith.maxsi
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
disc_plan.kernel_func loop @embedding attributes {symbols = ["B"],
    arg_dims = [#disc_shape.dims<[10, 16]>, #disc_shape.dims<[B]>],
    layouts = [#disc_plan.layout<<0>, <[16, 1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
    schedule = #disc_plan.device_loop<threads = 256, vector = 4>} {
^bb0(%table: tensor<10x16xf32>, %ids: tensor<?xi64>):
  %B = disc_shape.dim <B>
  %ten = arith.constant 10 : i64
  %e = tensor.empty(%B) : tensor<?x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?x16xf32>) {
  ^bb0(%id: i64, %o: f32):
    %checked = disc_tensor.check_index %id below %ten "aten.embedding at model.py:3"
    %row = arith.index_cast %checked : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %table[%row, %column] : tensor<10x16xf32>
    linalg.yield %v : f32
  } -> tensor<?x16xf32>
  disc_plan.yield %r : tensor<?x16xf32>
}

// The runtime's functions stay on the host, with how many bytes of each operand and result there are to copy.
// HOST: disc_plan.kernel_func call @nonzero
// HOST-SAME: disc_plan.buffer_bytes = #disc_shape.dims<[S * min(S * 4, 1) * 72 - min(S * 4, 1) * 8, S * min(S * 8, 1) * 64, 8]>
// HOST-SAME: disc_plan.results = 2
// HOST-NOT: @nonzero
disc_plan.kernel_func call @nonzero attributes {symbols = ["S"], tasks = #disc_shape.expr<1>,
    arg_dims = [#disc_shape.dims<[S, 4]>],
    layouts = [#disc_plan.layout<<1>, <[9, 2]>>, #disc_plan.layout<<0>, <[2, 1]>>, #disc_plan.layout<<0>, <[]>>]} {
^bb0(%x: tensor<?x4xf64>):
  %n = disc_shape.dim <4 * S>
  %one = arith.constant 1 : index
  %r:2 = disc_tensor.call "nonzero"(%x) sizes(%n) tasks %one scratch %one "aten.nonzero at model.py:3"
      : (tensor<?x4xf64>) -> (tensor<?x2xi64>, tensor<i64>)
  disc_plan.yield %r#0, %r#1 : tensor<?x2xi64>, tensor<i64>
}
}
