// RUN: %isa | FileCheck %s --check-prefix=ISA

// A body of four lanes and a tail; buffers that are only read.
// ISA-LABEL: rows:
// ISA: global_load_dwordx4
// ISA: v_sqrt_f32
// ISA: global_store_dwordx4
disc_rt.device_kernel @rows threads 256 [reads, writes, number]
gpu.module @kernels {
  gpu.func @rows(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %n: i64) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %s = gpu.block_dim x
    %c4 = arith.constant 4 : index
    %c1 = arith.constant 1 : index
    %end = arith.index_cast %n : i64 to index
    %0 = arith.muli %b, %s : index
    %1 = arith.addi %0, %t : index
    %2 = arith.muli %1, %c4 : index
    %3 = arith.addi %2, %c4 : index
    %whole = arith.cmpi ule, %3, %end : index
    scf.if %whole {
      %i = arith.index_cast %2 : index to i64
      %p = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      %v = llvm.load %p {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
      %w = math.sqrt %v : vector<4xf32>
      %q = llvm.getelementptr %r[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      llvm.store %w, %q {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
    } else {
      scf.for %k = %2 to %end step %c1 {
        %i = arith.index_cast %k : index to i64
        %p = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
        %v = llvm.load %p : !llvm.ptr<1> -> f32
        %w = math.absf %v : f32
        %q = llvm.getelementptr %r[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
        llvm.store %w, %q : f32, !llvm.ptr<1>
      }
    }
    gpu.return
  }

  // A sum over a block: in a warp by shuffles, between warps by shared memory.
  // ISA-LABEL: sum:
  // ISA: ds_bpermute_b32
  // ISA: ds_swizzle_b32 {{.*}} offset:swizzle(SWAP,16)
  // ISA: row_ror:8
  // ISA: quad_perm:[2,3,0,1]
  // ISA: s_barrier
  // ISA: ds_read
  llvm.mlir.global internal @sum_shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<4 x f32>
  gpu.func @sum(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %warp = arith.constant 64 : i32
    %w = arith.constant 64 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %count = arith.constant 4 : index
    %zero = arith.constant 0.0 : f32
    %t = gpu.thread_id x
    %ti = arith.index_cast %t : index to i64
    %p = llvm.getelementptr %x[%ti] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
    %v = llvm.load %p : !llvm.ptr<1> -> f32
    %d0 = arith.constant 32 : i32
    %o0, %ok0 = gpu.shuffle xor %v, %d0, %warp : f32
    %s0 = arith.addf %v, %o0 : f32
    %d1 = arith.constant 16 : i32
    %o1, %ok1 = gpu.shuffle xor %s0, %d1, %warp : f32
    %s1 = arith.addf %s0, %o1 : f32
    %d2 = arith.constant 8 : i32
    %o2, %ok2 = gpu.shuffle xor %s1, %d2, %warp : f32
    %s2 = arith.addf %s1, %o2 : f32
    %d3 = arith.constant 4 : i32
    %o3, %ok3 = gpu.shuffle xor %s2, %d3, %warp : f32
    %s3 = arith.addf %s2, %o3 : f32
    %d4 = arith.constant 2 : i32
    %o4, %ok4 = gpu.shuffle xor %s3, %d4, %warp : f32
    %s4 = arith.addf %s3, %o4 : f32
    %d5 = arith.constant 1 : i32
    %o5, %ok5 = gpu.shuffle xor %s4, %d5, %warp : f32
    %s5 = arith.addf %s4, %o5 : f32
    %shared = llvm.mlir.addressof @sum_shared : !llvm.ptr<3>
    %lane = arith.remui %t, %w : index
    %number = arith.divui %t, %w : index
    %isFirst = arith.cmpi eq, %lane, %c0 : index
    scf.if %isFirst {
      %ni = arith.index_cast %number : index to i64
      %q = llvm.getelementptr %shared[%ni] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
      llvm.store %s5, %q : f32, !llvm.ptr<3>
    }
    gpu.barrier
    %all = scf.for %i = %c0 to %count step %c1 iter_args(%a = %zero) -> f32 {
      %ii = arith.index_cast %i : index to i64
      %q = llvm.getelementptr %shared[%ii] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
      %part = llvm.load %q : !llvm.ptr<3> -> f32
      %n = arith.addf %a, %part : f32
      scf.yield %n : f32
    }
    %isOne = arith.cmpi eq, %t, %c0 : index
    scf.if %isOne {
      llvm.store %all, %r : f32, !llvm.ptr<1>
    }
    gpu.return
  }

  // Elements of every kind, in registers of 16 bytes.
  // ISA-LABEL: elements:
  // ISA: v_pk_add_f16
  // ISA: global_store_dwordx4
  // ISA: global_load_dwordx4
  // ISA: v_div_fmas_f64
  gpu.func @elements(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %f: i1) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %h = llvm.load %x {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xf16>
    %h2 = arith.addf %h, %h : vector<8xf16>
    llvm.store %h2, %r {alignment = 16 : i64} : vector<8xf16>, !llvm.ptr<1>
    %pb = llvm.getelementptr %x[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    %b = llvm.load %pb {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xbf16>
    %b2 = arith.mulf %b, %b : vector<8xbf16>
    %qb = llvm.getelementptr %r[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    llvm.store %b2, %qb {alignment = 16 : i64} : vector<8xbf16>, !llvm.ptr<1>
    %pd = llvm.getelementptr %x[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    %d = llvm.load %pd {alignment = 16 : i64} : !llvm.ptr<1> -> vector<2xf64>
    %d2 = arith.divf %d, %d : vector<2xf64>
    %qd = llvm.getelementptr %r[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    llvm.store %d2, %qd {alignment = 16 : i64} : vector<2xf64>, !llvm.ptr<1>
    %pc = llvm.getelementptr %x[48] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    %c = llvm.load %pc {alignment = 8 : i64} : !llvm.ptr<1> -> vector<8xi8>
    %zero = arith.constant dense<0> : vector<8xi8>
    %is = arith.cmpi ne, %c, %zero : vector<8xi8>
    %s = vector.broadcast %f : i1 to vector<8xi1>
    %both = arith.andi %is, %s : vector<8xi1>
    %c2 = arith.extui %both : vector<8xi1> to vector<8xi8>
    %qc = llvm.getelementptr %r[48] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    llvm.store %c2, %qc {alignment = 8 : i64} : vector<8xi8>, !llvm.ptr<1>
    gpu.return
  }

  // Arithmetic of 64 bits, and what reductions of integers need.
  // ISA-LABEL: integers:
  // ISA: v_cvt_u32_f32
  // ISA: global_atomic_add_x2
  // ISA: global_atomic_umax
  gpu.func @integers(%x: !llvm.ptr<1>, %n: i64, %m: i64) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %0 = arith.divsi %n, %m : i64
    %1 = arith.remui %n, %m : i64
    %2 = arith.floordivsi %0, %1 : i64
    %low, %high = arith.mului_extended %2, %n : i64
    %3 = math.ctpop %high : i64
    %4 = math.ctlz %low : i64
    %5 = arith.maxsi %3, %4 : i64
    %old = llvm.atomicrmw add %x, %5 monotonic : !llvm.ptr<1>, i64
    %w = arith.trunci %old : i64 to i32
    %old2 = llvm.atomicrmw umax %x, %w monotonic : !llvm.ptr<1>, i32
    gpu.return
  }
}
