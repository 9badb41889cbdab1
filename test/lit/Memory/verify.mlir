// RUN: disc-opt %s -disc-memory-verify -split-input-file -verify-diagnostics

// expected-error @below {{function 'main' must be a disc_rt.entry after the memory stage}}
func.func @main() {
  return
}

// -----

disc_shape.symbol @S min 1
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %s = disc_shape.dim <S> // expected-error {{symbol 'S' is used before it is bound}}
  disc_rt.return
}

// -----

disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %w = disc_tensor.parameter "w" : tensor<4xf32> // expected-error {{a tensor is left in the host flow after the memory stage}}
  disc_rt.return
}

// -----

// A loop's symbol has a value inside.
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  %n = arith.constant 4 : index
  %p:2 = disc_rt.loop @i below %n carries(%call) : (!llvm.ptr) -> (!llvm.ptr, index) {
  ^bb0(%q: !llvm.ptr):
    %i = disc_shape.dim <i>
    disc_rt.next %q : !llvm.ptr
  }
  %i = disc_shape.dim <i> // expected-error {{symbol 'i' is used before it is bound}}
  disc_rt.return
}
disc_shape.symbol @i
