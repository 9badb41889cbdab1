// RUN: disc-opt %s --split-input-file --verify-diagnostics --disc-host-lower

// expected-error @below {{has no disc_rt.entry @main}}
module {
}

// -----

disc_shape.symbol @S
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{needs the value of 'S * 4', but symbol 'S' is not bound here}}
  %0 = disc_shape.dim <S * 4>
  %1 = disc_rt.arena %call, %0
  disc_rt.return
}

// -----

disc_shape.symbol @S
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %0 = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @S, %0
  // expected-error @below {{binds symbol 'S' again}}
  disc_rt.bind_symbol @S, %0
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{names no function: k}}
  disc_rt.launch %call @k()
  disc_rt.return
}

// -----

func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) {
  return
}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{needs 'disc_plan.symbols' on k}}
  disc_rt.launch %call @k()
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{names no disc_plan.global: g}}
  %0 = disc_rt.global %call @g bytes 4
  disc_rt.return
}

// -----

// expected-error @below {{input 0 has element type 'complex<f32>', which can't cross the interface}}
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<4xcomplex<f32>>, dims = <[4]>>], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{can't stand in an entry function}}
  %0 = tensor.empty() : tensor<4xf32>
  disc_rt.return
}
