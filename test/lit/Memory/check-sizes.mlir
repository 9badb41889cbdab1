// RUN: disc-opt %s -split-input-file -verify-diagnostics -disc-memory-check-sizes | FileCheck %s

// Nothing bounds k: the tensors of the kernel are checked behind the bind, in one sum. k * 4 divides k * k * 8.
#s = #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[]>>
#m = #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[k, 1]>>
disc_shape.symbol @k
disc_plan.kernel_func loop @square attributes {symbols = ["k"], arg_dims = [], layouts = [#m]} {
  %k = disc_shape.dim <k>
  %v = tensor.empty(%k) : tensor<?xf32>
  %0 = tensor.empty(%k, %k) : tensor<?x?xf64>
  disc_plan.yield %0 : tensor<?x?xf64>
}

// CHECK-LABEL: disc_rt.entry @main
// CHECK-NOT: check_sizes
// CHECK: disc_rt.bind_symbol @k
// CHECK-NEXT: disc_rt.check_sizes %arg0 [#disc_shape.expr<k * k * 8>] of [#disc_shape.expr<k * k * 8>]
// CHECK-SAME: as ["check-sizes.mlir:{{[0-9]+}}: a tensor of shape [k, k] and type f64 needs k * k * 8 bytes"]{{$}}
// CHECK-NOT: check_sizes
disc_rt.entry @main attributes {inputs = [#disc_rt.tensor<name = "n", type = tensor<i64>, dims = <[]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %n = disc_rt.input %call[0]
  %v = llvm.load %n : !llvm.ptr -> i64
  %k = arith.index_cast %v : i64 to index
  %min = arith.constant 0 : index
  disc_rt.guard %call, %k ge %min input -1 dim -1 expected "0", ""
  disc_rt.bind_symbol @k, %k computed
  %bytes = disc_shape.dim <k * k * 8>
  %y = disc_rt.arena %call, %bytes {plan = #disc_rt.arena_plan<bytes = <[8 * k * k]>, first = [0], last = [1], in_place = 0, orders = []>}
  disc_rt.launch %call @square(%y)
  disc_rt.return
}

// -----

// Ranges prove everything: no code.
disc_shape.symbol @B max 65536
disc_shape.symbol @S max 65536
// CHECK-LABEL: disc_rt.entry @bounded
// CHECK-NOT: check_sizes
disc_rt.entry @bounded attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?x4096xf32>, dims = <[B, S, 4096]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %S = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @S, %S
  %bytes = disc_shape.dim <B * S * 4096>
  %x = disc_rt.arena %call, %bytes
  disc_rt.return
}

// -----

// Both symbols are bound before the check, and guards on expressions come after it. A size that a side of a branch uses
// is checked there; what the entry checked is not checked again. A number may be larger than a size.
disc_shape.symbol @B
disc_shape.symbol @S
#m = #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>
disc_plan.kernel_func loop @small attributes {symbols = ["B", "S"], arg_dims = [], layouts = [#m]} {
  %n = disc_shape.dim <2 * B * S>
  %0 = tensor.empty(%n) : tensor<?xf32>
  disc_plan.yield %0 : tensor<?xf32>
}
disc_plan.kernel_func loop @large attributes {symbols = ["B", "S"], arg_dims = [], layouts = [#m]} {
  %n = disc_shape.dim <S * S + 1>
  %0 = tensor.empty(%n) : tensor<?xi8>
  disc_plan.yield %0 : tensor<?xi8>
}
// CHECK-LABEL: disc_rt.entry @branches
// CHECK: disc_rt.bind_symbol @B
// CHECK: disc_rt.bind_symbol @S
// CHECK-NEXT: disc_rt.check_sizes %arg0 [#disc_shape.expr<B * S * 8>] {{.*}} numbers [#disc_shape.expr<B * B * S * 3>] as ["{{.*}}B * B * S * 3"]
// CHECK: disc_rt.branch
// CHECK-NOT: check_sizes
// CHECK: else
// CHECK-NEXT: disc_rt.check_sizes %arg0 [#disc_shape.expr<S * S>]
disc_rt.entry @branches attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<?x?xi1>, dims = <[B, S]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %S = disc_rt.extent %call[0, 1]
  disc_rt.bind_symbol @S, %S
  %number = disc_shape.dim <3 * B * B * S>
  disc_rt.guard %call, %number ge %S input -1 dim -1 expected "", ""
  %x = disc_rt.input %call[0]
  disc_rt.launch %call @small(%x)
  %c = arith.constant 1 : i8
  disc_rt.branch %c {
    disc_rt.launch %call @small(%x)
    disc_rt.give
  } else {
    disc_rt.launch %call @large(%x)
    disc_rt.give
  }
  disc_rt.return
}

// -----

// The step of a counted loop is below the count, so rows of a stack are where the stack is.
disc_shape.symbol @N
disc_shape.symbol @i
// CHECK-LABEL: disc_rt.entry @loop
// CHECK: disc_rt.check_sizes %arg0 [#disc_shape.expr<N * 8>]
// CHECK: disc_rt.loop
// CHECK-NOT: check_sizes
disc_rt.entry @loop attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<?xf64>, dims = <[N]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  %N = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @N, %N
  %x = disc_rt.input %call[0]
  %count = disc_shape.dim <N>
  %last, %trips = disc_rt.loop @i below %count carries (%x) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%y: !llvm.ptr):
    %row = disc_shape.dim <8 * i + 8>
    %p = disc_rt.offset %y, %row
    disc_rt.next %p : !llvm.ptr
  }
  disc_rt.return
}

// -----

disc_shape.symbol @B
// expected-error@+1 {{input 'x' of shape [B, 1152921504606846976] and type f32 needs B * 4611686018427387904 bytes: the size overflows for all sizes of dynamic dimensions; at most 2^59 is supported}}
disc_rt.entry @never attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<?x1152921504606846976xf32>, dims = <[B, 1152921504606846976]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  disc_rt.return
}
