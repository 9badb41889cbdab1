"""A compiled model written by hand in the LLVM dialect: it returns a copy of its input, and a parameter.

What disc-host-lower makes for ``main(x: f32[n, 4]) -> (copy of x, w)``, small enough to test the runtime's Python side
before, and without, the compiler.
"""

F32 = 0x220

MODULE = """
module {
  llvm.mlir.global internal constant @x("x\\00")
  llvm.mlir.global internal constant @y("y\\00")
  llvm.mlir.global internal constant @n("n\\00")
  llvm.mlir.global internal constant @w("w\\00")
  llvm.mlir.global internal constant @four("4\\00")
  llvm.mlir.global internal constant @hundred("100\\00")
  llvm.mlir.global internal constant @none("\\00")
  llvm.mlir.global internal constant @shape_w(dense<[4]> : tensor<1xi64>) : !llvm.array<1 x i64>
%(tables)s

  llvm.func @disc_rt_check_inputs(!llvm.ptr) -> i32
  llvm.func @disc_rt_extent(!llvm.ptr, i64, i64) -> i64
  llvm.func @disc_rt_guard_failed(!llvm.ptr, i64, i64, i64) -> i32
  llvm.func @disc_rt_input(!llvm.ptr, i64) -> !llvm.ptr
  llvm.func @disc_rt_parameter(!llvm.ptr, i64) -> !llvm.ptr
  llvm.func @disc_rt_output(!llvm.ptr, i64, i64, !llvm.ptr) -> !llvm.ptr

  llvm.func @disc_init(%%call: !llvm.ptr) -> i32 {
    %%ok = llvm.mlir.constant(0 : i32) : i32
    llvm.return %%ok : i32
  }
  llvm.func @disc_main(%%call: !llvm.ptr) -> i32 {
    %%ok = llvm.mlir.constant(0 : i32) : i32
    %%c0 = llvm.mlir.constant(0 : i64) : i64
    %%c1 = llvm.mlir.constant(1 : i64) : i64
    %%c2 = llvm.mlir.constant(2 : i64) : i64
    %%c4 = llvm.mlir.constant(4 : i64) : i64
    %%c16 = llvm.mlir.constant(16 : i64) : i64
    %%c100 = llvm.mlir.constant(100 : i64) : i64
    %%checked = llvm.call @disc_rt_check_inputs(%%call) : (!llvm.ptr) -> i32
    %%bad = llvm.icmp "ne" %%checked, %%ok : i32
    llvm.cond_br %%bad, ^failed(%%checked : i32), ^guards
  ^guards:
    %%n = llvm.call @disc_rt_extent(%%call, %%c0, %%c0) : (!llvm.ptr, i64, i64) -> i64
    %%large = llvm.icmp "sgt" %%n, %%c100 : i64
    llvm.cond_br %%large, ^guard, ^body
  ^guard:
    %%status = llvm.call @disc_rt_guard_failed(%%call, %%c0, %%n, %%c100) : (!llvm.ptr, i64, i64, i64) -> i32
    llvm.br ^failed(%%status : i32)
  ^body:
    %%dims = llvm.alloca %%c2 x i64 : (i64) -> !llvm.ptr
    %%second = llvm.getelementptr %%dims[1] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %%n, %%dims : i64, !llvm.ptr
    llvm.store %%c4, %%second : i64, !llvm.ptr
    %%x = llvm.call @disc_rt_input(%%call, %%c0) : (!llvm.ptr, i64) -> !llvm.ptr
    %%y = llvm.call @disc_rt_output(%%call, %%c0, %%c2, %%dims) : (!llvm.ptr, i64, i64, !llvm.ptr) -> !llvm.ptr
    %%bytes = llvm.mul %%n, %%c16 : i64
    "llvm.intr.memcpy"(%%y, %%x, %%bytes) <{isVolatile = false}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
    %%w = llvm.call @disc_rt_parameter(%%call, %%c0) : (!llvm.ptr, i64) -> !llvm.ptr
    %%v = llvm.call @disc_rt_output(%%call, %%c1, %%c1, %%second) : (!llvm.ptr, i64, i64, !llvm.ptr) -> !llvm.ptr
    "llvm.intr.memcpy"(%%v, %%w, %%c16) <{isVolatile = false}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
    llvm.return %%ok : i32
  ^failed(%%why: i32):
    llvm.return %%why : i32
  }
}
"""


def _table(name: str, fields: list, linkage: str = "internal") -> str:
    """A constant of 8-byte fields: numbers, and names of other globals."""
    kinds = ", ".join("!llvm.ptr" if isinstance(field, str) else "i64" for field in fields)
    lines = [f"  llvm.mlir.global {linkage} constant @{name}() : !llvm.struct<({kinds})> {{"]
    lines.append(f"    %s0 = llvm.mlir.undef : !llvm.struct<({kinds})>")
    for i, field in enumerate(fields):
        if isinstance(field, str):
            lines.append(f"    %f{i} = llvm.mlir.addressof @{field} : !llvm.ptr")
        else:
            lines.append(f"    %f{i} = llvm.mlir.constant({field} : i64) : i64")
        lines.append(f"    %s{i + 1} = llvm.insertvalue %f{i}, %s{i}[{i}] : !llvm.struct<({kinds})>")
    lines.append(f"    llvm.return %s{len(fields)} : !llvm.struct<({kinds})>\n  }}")
    return "\n".join(lines)


def text() -> str:
    """The module."""
    tables = [
        _table("dims_x", [-1, "n", 0, 100, 4, "four", 4, 4]),
        _table("dims_w", [4, "four", 4, 4]),
        _table("inputs", ["x", F32, 2, "dims_x", 0]),
        _table("outputs", ["y", F32, 2, "dims_x", 0, "w", F32, 1, "dims_w", 0]),
        _table("symbols", ["n", 0, 100, 1, 0, 0]),
        _table("guards", [1, 0, 0, "n", "n", "hundred", "none"]),
        _table("parameters", ["w", F32, 1, "shape_w", 1, 0]),
        _table(
            "disc_model_info",
            [9, 1, "inputs", 2, "outputs", 1, "symbols", 1, "guards", 1, "parameters", 0, 0, 0, 0, 0, 0, 0, 0, 0],
            linkage="external",
        ),
    ]
    return MODULE % {"tables": "\n".join(tables)}
