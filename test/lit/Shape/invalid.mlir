// RUN: disc-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{(S1) expects min >= -4611686018427387904, got -4611686018427387905}}
disc_shape.symbol @S min -4611686018427387905

// -----

// expected-error @below {{(S2) expects max >= min, got 3 < 4}}
disc_shape.symbol @S min 4 max 3

// -----

// expected-error @below {{(S3) expects divisor >= 1, got 0}}
disc_shape.symbol @S divisor 0

// -----

// expected-error @below {{(S4) expects a multiple of 8 between 9 and 15}}
disc_shape.symbol @S min 9 max 15 divisor 8

// -----

// expected-error @below {{(S5) expects likely values between min and max that are multiples of divisor, got 12}}
disc_shape.symbol @S min 8 max 64 divisor 8 likely [16, 12]

// -----

func.func @f() {
  // expected-error @below {{expects parent op 'builtin.module'}}
  disc_shape.symbol @S
  return
}

// -----

// expected-error @below {{(A1) expects disc_shape.dims to have one expression per dimension of a ranked tensor}}
func.func @f(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[4]>}) {
  return
}

// -----

// expected-error @below {{(A1) expects disc_shape.dims to have one expression per dimension of a ranked tensor}}
func.func @f(%x: index {disc_shape.dims = #disc_shape.dims<[]>}) {
  return
}

// -----

func.func @f(%n: index) {
  // expected-error @below {{(A1) expects disc_shape.dims to be an array with one entry per tensor result}}
  %0 = tensor.empty(%n) {disc_shape.dims = #disc_shape.dims<[4]>} : tensor<?xf32>
  return
}

// -----

// expected-error @below {{(A2) expects the expression of a static dimension to be 8, got 4}}
func.func @f(%x: tensor<8xf32> {disc_shape.dims = #disc_shape.dims<[4]>}) {
  return
}

// -----

// expected-error @below {{(A3) uses the undeclared symbol 'S' in S + 1}}
func.func @f(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S + 1]>}) {
  return
}

// -----

// expected-error @below {{expects disc_shape.name to be a string}}
func.func @f(%x: tensor<?xf32> {disc_shape.name = 3}) {
  return
}

// -----

// expected-error @below {{has the unknown attribute "disc_shape.nothing"}}
func.func @f(%x: tensor<?xf32> {disc_shape.nothing}) {
  return
}

// -----

func.func @f() {
  // expected-error @below {{has the unknown attribute "disc_shape.nothing"}}
  return {disc_shape.nothing}
}

// -----

func.func @f() {
  // expected-error @below {{(E1) uses the undeclared symbol 'S' in S * 2}}
  %0 = disc_shape.dim <S * 2>
  return
}

// -----

func.func @f() {
  // expected-error @below {{(E1) uses the undeclared symbol 'T' in T}}
  disc_shape.guard <4> eq <T>
  return
}

// -----

disc_shape.symbol @S
func.func @f() {
  // expected-error @below {{(E2) expects a positive constant divisor, got S}}
  disc_shape.guard <S> divisible <S>
  return
}

// -----

disc_shape.symbol @S
func.func @f(%c: i1) {
  scf.if %c {
    // expected-error @below {{(E3) expects to stand in a block of the host flow}}
    disc_shape.guard <S> divisible <8>
  }
  return
}

// -----

func.func @f(%a: index) {
  // expected-error @below {{failed to satisfy constraint: one of the predicates "eq", "le", "divisible"}}
  "disc_shape.require"(%a, %a) {predicate = "lt"} : (index, index) -> ()
  return
}

// -----

func.func @f(%a: index) {
  // expected-error @below {{expected 'eq', 'le' or 'divisible'}}
  disc_shape.require lt %a, %a
  return
}

// -----

func.func @f() {
  // expected-error @below {{expected a symbol, an integer or '('}}
  %0 = disc_shape.dim <S *>
  return
}

// -----

func.func @f() {
  // expected-error @below {{expected ')'}}
  %0 = disc_shape.dim <(S + 1>
  return
}

// -----

func.func @f() {
  // expected-error @below {{expected a symbol, found 'mod'}}
  %0 = disc_shape.dim <S + mod>
  return
}

// -----

func.func @f(%n: tensor<i64>) {
  // expected-error @below {{(E1) uses the undeclared symbol 'u0'}}
  %0 = disc_shape.bind @u0, %n : tensor<i64>
  return
}

// -----

disc_shape.symbol @u0
func.func @f(%n: tensor<1xi64>) {
  // expected-error @below {{(E4) expects an i64 tensor without dimensions, got 'tensor<1xi64>'}}
  %0 = disc_shape.bind @u0, %n : tensor<1xi64>
  return
}

// -----

disc_shape.symbol @u0
func.func @f(%n: tensor<i64>, %c: i1) {
  scf.if %c {
    // expected-error @below {{(E5) expects to stand in a block of the host flow}}
    %0 = disc_shape.bind @u0, %n : tensor<i64>
  }
  return
}

// -----

disc_shape.symbol @S
// expected-error @below {{(A4) expects disc_shape.repeats to be an array of dynamic dims}}
func.func @f(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>, disc_shape.repeats = array<i64: 1>}) {
  return
}

// -----

disc_shape.symbol @S
// expected-error @below {{(A4) expects disc_shape.repeats to be an array of dynamic dims}}
func.func @f(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>, disc_shape.repeats = 0 : i64}) {
  return
}
