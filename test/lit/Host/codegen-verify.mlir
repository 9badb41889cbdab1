// RUN: disc-opt %s --split-input-file --verify-diagnostics --disc-codegen-verify

llvm.mlir.global external constant @disc_model_info(0 : i64) : i64
llvm.func @disc_rt_input(!llvm.ptr, i64) -> !llvm.ptr
llvm.func @expf(f32) -> f32
llvm.func @disc_init(%call: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(0 : i32) : i32
  llvm.return %0 : i32
}
llvm.func @disc_main(%call: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(0 : i32) : i32
  llvm.return %0 : i32
}
llvm.func @disc_shapes(%call: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(0 : i32) : i32
  llvm.return %0 : i32
}

// -----

// expected-error @below {{is not of the LLVM dialect (C1)}}
func.func @k() {
  return
}

// -----

// expected-error @below {{entry function 'disc_init' is not defined (C2)}}
module {
}

// -----

// expected-error @below {{must be public, of type '!llvm.func<i32 (ptr)>' (C2)}}
llvm.func @disc_init() {
  llvm.return
}

// -----

// expected-error @below {{'disc_model_info' is not defined (C3)}}
module {
  llvm.func @disc_init(%call: !llvm.ptr) -> i32 {
    %0 = llvm.mlir.constant(0 : i32) : i32
    llvm.return %0 : i32
  }
  llvm.func @disc_main(%call: !llvm.ptr) -> i32 {
    %0 = llvm.mlir.constant(0 : i32) : i32
    llvm.return %0 : i32
  }
  llvm.func @disc_shapes(%call: !llvm.ptr) -> i32 {
    %0 = llvm.mlir.constant(0 : i32) : i32
    llvm.return %0 : i32
  }
}

// -----

llvm.mlir.global external constant @disc_model_info(0 : i64) : i64
// expected-error @below {{is called but nothing defines it (C4)}}
llvm.func @__truncsfbf2(f32) -> bf16
llvm.func @disc_init(%call: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(0 : i32) : i32
  llvm.return %0 : i32
}
llvm.func @disc_main(%call: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(0 : i32) : i32
  llvm.return %0 : i32
}
llvm.func @disc_shapes(%call: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(0 : i32) : i32
  llvm.return %0 : i32
}
