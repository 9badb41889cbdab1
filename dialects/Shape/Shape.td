//===- Shape.td - the disc_shape dialect -------------------*- tablegen -*-===//
//
// Symbols for the dynamic extents of a model, facts about them, and the one
// SSA form of an extent. Why it is so: docs/rationale/shape.md, whose
// constraint labels (S1, ...) are used here, in the verifiers and in the tests.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_SHAPE
#define DISC_DIALECTS_SHAPE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Shape_Dialect : Dialect {
  let name = "disc_shape";
  let cppNamespace = "::mlir::disc";
  let summary = "Symbolic extents and what is known about them";
  let description = [{
    Every dynamic extent of a model is an expression over *symbols*, which are
    declared at module level with their facts. The dialect also defines the
    attribute `disc_shape.dims`, which names the extents of tensors:

    - on a function argument or result, a `#disc_shape.dims`;
    - on an operation, an array with one `#disc_shape.dims` per tensor result.

    (A1) `disc_shape.dims` stands on a ranked tensor and has one expression per
    dimension.
    (A2) the expression of a static dimension is that constant.
    (A3) the symbols of the expressions are declared.

    An argument of `main` may have `disc_shape.repeats`, an array of dims. Along such a dim a call may give one element
    where other dims of the same symbol are longer: the runtime repeats it before `main` runs.

    (A4) they are dims of the argument, and dynamic.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect"];
  let extraClassDeclaration = [{
    /// The attribute that says which dims of an argument may be 1 where others of their symbols are not.
    static constexpr llvm::StringLiteral getRepeatsAttrName() {
      return "disc_shape.repeats";
    }
    /// The attribute that names the extents of a tensor.
    static constexpr llvm::StringLiteral getDimsAttrName() {
      return "disc_shape.dims";
    }
    /// The user's name of an input or output.
    static constexpr llvm::StringLiteral getNameAttrName() {
      return "disc_shape.name";
    }
  }];
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class Shape_Attr<string name, string attrMnemonic>
    : AttrDef<Shape_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def Shape_ExprAttr : Shape_Attr<"Expr", "expr"> {
  let summary = "a canonical symbolic expression";
  let description = [{
    `#disc_shape.expr<B * S + 1>`. The text may be any sum of products with
    `floordiv`, `ceildiv`, `mod`, `min(...)` and `max(...)`; it is normalised on
    reading, so equal attributes are equal values.
  }];
  let parameters = (ins AttrParameter<"::mlir::disc::SymExpr", "">:$value);
  let hasCustomAssemblyFormat = 1;
}

def Shape_DimsAttr : Shape_Attr<"Dims", "dims"> {
  let summary = "the extents of a tensor";
  let description = "`#disc_shape.dims<[B, S, 384]>`, one expression per dimension.";
  let parameters = (ins OptionalArrayRefParameter<"::mlir::disc::ExprAttr">:$exprs);
  let hasCustomAssemblyFormat = 1;
  let builders = [
    AttrBuilder<(ins "::llvm::ArrayRef<::mlir::disc::SymExpr>":$exprs)>
  ];
  let extraClassDeclaration = [{
    ::llvm::SmallVector<::mlir::disc::SymExpr> getDims() const;
    unsigned size() const { return getExprs().size(); }
  }];
}

def Shape_Eq : I32EnumAttrCase<"Eq", 0, "eq">;
def Shape_Le : I32EnumAttrCase<"Le", 1, "le">;
def Shape_Divisible : I32EnumAttrCase<"Divisible", 2, "divisible">;

def Shape_Predicate : I32EnumAttr<"Predicate", "a relation between two extents",
                                  [Shape_Eq, Shape_Le, Shape_Divisible]> {
  let cppNamespace = "::mlir::disc";
  let genSpecializedAttr = 0;
}

// Kept as a string, so that importers write it without knowing the dialect.
def Shape_PredicateAttr
    : Attr<CPred<"::llvm::isa<::mlir::StringAttr>($_self) && "
                 "::mlir::disc::symbolizePredicate("
                 "::llvm::cast<::mlir::StringAttr>($_self).getValue())">,
           "one of the predicates \"eq\", \"le\", \"divisible\""> {
  let storageType = "::mlir::StringAttr";
  let returnType = "::mlir::disc::Predicate";
  let convertFromStorage =
      "*::mlir::disc::symbolizePredicate($_self.getValue())";
  let constBuilderCall =
      "$_builder.getStringAttr(::mlir::disc::stringifyPredicate($0))";
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

class Shape_Op<string mnemonic, list<Trait> traits = []>
    : Op<Shape_Dialect, mnemonic, traits>;

def Shape_SymbolOp : Shape_Op<"symbol", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "declares an extent that is known only when the model runs";
  let description = [{
    ```mlir
    disc_shape.symbol @S min 2 max 512 divisor 8 likely [64, 128]
    ```
    Facts about a symbol are promises that the entry of the compiled model
    checks. `likely` only steers decisions.

    (S1) `min` is at least -2**62. That of an extent is not negative; a number that
    data gives and extents are computed from may be.
    (S2) `max`, if there is one, is at least `min`.
    (S3) `divisor` is positive.
    (S4) some multiple of `divisor` lies between `min` and `max`.
    (S5) each likely value lies between `min` and `max` and is a multiple of
    `divisor`.
  }];
  let arguments = (ins
      SymbolNameAttr:$sym_name,
      DefaultValuedAttr<I64Attr, "0">:$min,
      OptionalAttr<I64Attr>:$max,
      DefaultValuedAttr<I64Attr, "1">:$divisor,
      OptionalAttr<DenseI64ArrayAttr>:$likely);
  let assemblyFormat = [{
    $sym_name (`min` $min^)? (`max` $max^)? (`divisor` $divisor^)?
    (`likely` $likely^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Shape_DimOp : Shape_Op<"dim", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value of an expression over symbols";
  let description = [{
    ```mlir
    %0 = disc_shape.dim <B * S>
    ```
    The one SSA form of an extent: two extents are equal if these operations
    are the same.

    (E1) the symbols of the expression are declared in the module.
  }];
  let arguments = (ins Shape_ExprAttr:$expr);
  let results = (outs Index:$result);
  let assemblyFormat = "$expr attr-dict";
  let hasFolder = 1;
  let builders = [
    OpBuilder<(ins "const ::mlir::disc::SymExpr &":$expr)>
  ];
}

def Shape_RequireOp : Shape_Op<"require"> {
  let summary = "a relation between two values that must hold for a right result";
  let description = [{
    ```mlir
    disc_shape.require eq %a, %b "the sizes of x and y differ"
    ```
    Written where a model needs it. The shape stage proves it, moves it to the
    entry as a `disc_shape.guard`, or rejects the model.
  }];
  let arguments = (ins Index:$lhs, Index:$rhs, Shape_PredicateAttr:$predicate,
                       DefaultValuedAttr<StrAttr, "\"\"">:$message);
  let assemblyFormat =
      "custom<Predicate>($predicate) $lhs `,` $rhs ($message^)? attr-dict";
}

def Shape_BindOp : Shape_Op<"bind", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "gives a symbol the value that a tensor has when the model runs";
  let description = [{
    ```mlir
    %n = disc_shape.bind @u0, %count "aten.nonzero at model.py:3" : tensor<i64>
    ```
    For extents that depend on data. The host reads the value when everything
    before has been computed, checks it against the facts of the symbol's
    declaration, and goes on with extents that use the symbol. The result is
    the symbol's value; the shape stage leaves it without a use, like all
    extents.

    (E1) the symbol is declared in the module.
    (E4) the value is an i64 tensor without dimensions.
    (E5) a bind stands in a block of the host flow.
  }];
  let arguments = (ins FlatSymbolRefAttr:$symbol, AnyRankedTensor:$value,
                       DefaultValuedAttr<StrAttr, "\"\"">:$what);
  let results = (outs Index:$result);
  let assemblyFormat = [{
    $symbol `,` $value ($what^)? attr-dict `:` type($value)
  }];
  let hasVerifier = 1;
}

def Shape_GuardOp : Shape_Op<"guard", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a relation between extents that the entry checks on each call";
  let description = [{
    ```mlir
    disc_shape.guard <T> eq <S> "the sizes of x and y differ"
    ```
    Stands at the top of a function, or behind the `disc_shape.bind` of a symbol
    that it mentions, or in a loop or branch that needs it; from there on, to
    the end of the block, the relation is a fact. An expression of a
    guard is never simplified by the guard itself.

    (E1) the symbols of the expressions are declared in the module.
    (E2) the right side of `divisible` is a positive constant.
    (E3) a guard stands in a block of the host flow.
  }];
  let arguments = (ins Shape_ExprAttr:$lhs, Shape_PredicateAttr:$predicate,
                       Shape_ExprAttr:$rhs,
                       DefaultValuedAttr<StrAttr, "\"\"">:$message);
  let assemblyFormat =
      "$lhs custom<Predicate>($predicate) $rhs ($message^)? attr-dict";
  let hasVerifier = 1;
}

#endif // DISC_DIALECTS_SHAPE
