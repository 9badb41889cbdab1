// RUN: disc-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{must have one argument, the call, of pointer type (R1)}}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: index):
  disc_rt.return
}

// -----

// expected-error @+1 {{"x" has 1 extents, and a type of rank 2 (R2)}}
disc_rt.entry @main attributes {inputs = [#disc_rt.tensor<name = "x", type = tensor<4x4xf32>, dims = <[4]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %n = arith.constant 4 : index
  // expected-error @+1 {{arguments, next values and results must have the types of what comes in (R3)}}
  %0:2 = disc_rt.loop @i below %n carries(%call) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%p: !llvm.ptr, %q: !llvm.ptr):
    disc_rt.next %q : !llvm.ptr
  }
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %c = arith.constant 1 : i8
  %n = disc_shape.dim <4>
  // expected-error @+1 {{both sides must give values of the types of the results (R4)}}
  %0 = disc_rt.branch %c : (index) {
    disc_rt.give %n : index
  } else {
    disc_rt.give %call : !llvm.ptr
  }
  disc_rt.return
}

// -----

// expected-error @+1 {{the first argument must be the call, a pointer (R5)}}
disc_rt.procedure @f {
^bb0(%n: index):
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @+1 {{each term must have a value and a text, each number a text (R6)}}
  disc_rt.check_sizes %call [#disc_shape.expr<4>] of [] as ["a tensor"]
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @+1 {{each buffer must have a size and a text (R7)}}
  disc_rt.launch %call @k(%call, %call) checked #disc_shape.dims<[4, 4]> as ["r input 'x'"]
  disc_rt.return
}

// -----

disc_shape.symbol @i
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @+1 {{the loop must have a count or a condition, and only a count if reversed (R8)}}
  %last, %trips = disc_rt.loop @i carries(%call) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%p: !llvm.ptr):
    disc_rt.next %p : !llvm.ptr
  }
  disc_rt.return
}

// -----

disc_shape.symbol @i
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @+1 {{the loop must have a count or a condition, and only a count if reversed (R8)}}
  %last, %trips = disc_rt.loop @i reverse carries(%call) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%p: !llvm.ptr):
    disc_rt.next %p : !llvm.ptr
  }
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %bytes = arith.constant 64 : index
  // expected-error @+1 {{must have a size for each plan (R9)}}
  disc_rt.fit %call, %bytes scratch [] outputs [] plans [@a, @b] sizes [@c]
  disc_rt.return
}
