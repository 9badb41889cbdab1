// RUN: disc-opt --disc-cpu-check-accesses %s --split-input-file --verify-diagnostics | FileCheck %s

// Each access is compared with the bounds of the argument that its address derives from; wrong ones go to one block.
// CHECK-LABEL: llvm.func @kernel(
// CHECK-SAME:    %[[ARGS:.*]]: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %[[SCRATCH:.*]]: !llvm.ptr)
// CHECK:         %[[AT:.*]] = llvm.getelementptr %[[ARGS]][-1] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK:         %[[BOUNDS:.*]] = llvm.load %[[AT]] : !llvm.ptr -> !llvm.ptr
// CHECK:         llvm.getelementptr %[[BOUNDS]][2] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK:         llvm.getelementptr %[[BOUNDS]][3] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK:         %[[P:.*]] = llvm.getelementptr %{{.*}}[%{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:         %[[A:.*]] = llvm.ptrtoint %[[P]]
// CHECK:         llvm.icmp "ult" %[[A]], %[[FIRST:.*]] : i64
// CHECK:         %[[END:.*]] = llvm.add %[[A]], %{{.*}} : i64
// CHECK:         llvm.icmp "ult" %[[LAST:.*]], %[[END]] : i64
// CHECK:         llvm.cond_br %{{.*}}, ^[[REPORT:bb[0-9]+]]({{.*}}), ^[[NEXT:bb[0-9]+]]
// CHECK:       ^[[NEXT]]:
// CHECK-NEXT:    llvm.load %[[P]] {{.*}} -> vector<16xf32>
// CHECK:         llvm.cond_br %{{.*}}, ^[[REPORT]]({{.*}}), ^[[NEXT2:bb[0-9]+]]
// CHECK:       ^[[NEXT2]]:
// CHECK-NEXT:    llvm.store
// CHECK:       ^[[REPORT]](%[[SITE:.*]]: !llvm.ptr, {{.*}}):
// CHECK:         llvm.call @disc_rt_check_access(%[[BOUNDS]], %[[SITE]],
// CHECK-NEXT:    llvm.return
llvm.func @kernel(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) attributes {disc_plan.kind = "loop"} {
  %x = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %p = llvm.getelementptr %x[%begin] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  %v = llvm.load %p {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
  %slot = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %y = llvm.load %slot : !llvm.ptr -> !llvm.ptr
  llvm.store %v, %y {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
  llvm.return
}

// -----

// The runtime looks at the active lanes of masked accesses that are not in bounds as a whole, and at each address of a
// gather.
// CHECK-LABEL: llvm.func @lanes(
// CHECK:         llvm.bitcast %{{.*}} : vector<8xi1> to i8
// CHECK:         llvm.cond_br %{{.*}}, ^[[SLOW:bb[0-9]+]], ^[[NEXT:bb[0-9]+]]
// CHECK:       ^[[SLOW]]:
// CHECK:         %[[BAD:.*]] = llvm.call @disc_rt_check_access(
// CHECK:         llvm.cond_br %{{.*}}, ^[[LEAVE:bb[0-9]+]], ^[[NEXT]]
// CHECK:       ^[[LEAVE]]:
// CHECK-NEXT:    llvm.return
// CHECK:       ^[[NEXT]]:
// CHECK-NEXT:    llvm.intr.masked.load
// CHECK:         llvm.ptrtoint %{{.*}} : vector<8x!llvm.ptr> to vector<8xi64>
// CHECK:         llvm.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : vector<8xi64>, !llvm.ptr
// CHECK:         llvm.intr.masked.gather
llvm.func @lanes(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) attributes {disc_plan.kind = "loop"} {
  %x = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %zeros = llvm.mlir.constant(dense<0.0> : vector<8xf32>) : vector<8xf32>
  %mask = llvm.mlir.constant(dense<true> : vector<8xi1>) : vector<8xi1>
  %v = llvm.intr.masked.load %x, %mask, %zeros {alignment = 4 : i32} : (!llvm.ptr, vector<8xi1>, vector<8xf32>) -> vector<8xf32>
  %i = llvm.mlir.constant(dense<3> : vector<8xi64>) : vector<8xi64>
  %p = llvm.getelementptr %x[%i] : (!llvm.ptr, vector<8xi64>) -> vector<8x!llvm.ptr>, f32
  %w = llvm.intr.masked.gather %p, %mask, %v {alignment = 4 : i32} : (vector<8x!llvm.ptr>, vector<8xi1>, vector<8xf32>) -> vector<8xf32>
  llvm.store %w, %scratch : vector<8xf32>, !llvm.ptr
  llvm.return
}

// -----

// A function that kernels share gets the launch, its scratch, and the bounds of each of its pointers.
// CHECK-LABEL: llvm.func internal @shared(
// CHECK-SAME:    !llvm.ptr {llvm.noalias}, %{{.*}}: i64, %{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64)
llvm.func internal @shared(%p: !llvm.ptr {llvm.noalias}, %n: i64) {
  llvm.store %n, %p : i64, !llvm.ptr
  llvm.return
}
// CHECK-LABEL: llvm.func @calls(
// CHECK:         llvm.call @shared(%{{[^)]*}}) : (!llvm.ptr, i64, !llvm.ptr, i64, i64, i64, i64) -> ()
llvm.func @calls(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) attributes {disc_plan.kind = "loop"} {
  llvm.call @shared(%scratch, %begin) : (!llvm.ptr, i64) -> ()
  llvm.return
}

// -----

// The host flow is left as it is.
// CHECK-LABEL: llvm.func @disc_main(
// CHECK-NEXT:    llvm.load
// CHECK-NEXT:    llvm.return
llvm.func @disc_main(%call: !llvm.ptr) -> i64 {
  %v = llvm.load %call : !llvm.ptr -> i64
  llvm.return %v : i64
}

// -----

llvm.func @unknown(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) attributes {disc_plan.kind = "loop"} {
  // expected-error @below {{uses memory in a way that cannot be checked}}
  %v = llvm.call_intrinsic "llvm.masked.expandload"(%scratch) : (!llvm.ptr) -> f32
  llvm.return
}
