"""The C header of one compiled model: its tensors' names, the ranges of its extents, and typed functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .errors import ArgumentValueError
from .expressions import Expression
from .interface import Interface, TensorSpec

# C type, DLPack's type code, and what the C type does not say.
_C_TYPES = {
    "bool": ("uint8_t", "kDLBool", "0 or 1"),
    "int8": ("int8_t", "kDLInt", ""),
    "int16": ("int16_t", "kDLInt", ""),
    "int32": ("int32_t", "kDLInt", ""),
    "int64": ("int64_t", "kDLInt", ""),
    "uint8": ("uint8_t", "kDLUInt", ""),
    "uint16": ("uint16_t", "kDLUInt", ""),
    "uint32": ("uint32_t", "kDLUInt", ""),
    "uint64": ("uint64_t", "kDLUInt", ""),
    "float16": ("uint16_t", "kDLFloat", "bits of IEEE binary16"),
    "bfloat16": ("uint16_t", "kDLBfloat", "the upper 16 bits of a float"),
    "float32": ("float", "kDLFloat", ""),
    "float64": ("double", "kDLFloat", ""),
}

# Words that cannot name a parameter: keywords of C and C++, macros of common headers and compilers, and names that the
# generated functions use.
_TAKEN = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile
    wchar_t while xor xor_eq asm fortran
    NULL EOF I INFINITY NAN INT64_C INT64_MAX complex imaginary noreturn assert errno stdin stdout stderr offsetof
    signals slots emit foreach linux unix i386 near far min max
    size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    DLTensor DLDataType DLDevice DLManagedTensorVersioned
    model options inputs outputs input_tensors output_tensors status
    """.split()
)

_HELPERS = """\
/* Shared by the headers of all models. */
#ifndef DISC_EXTENT_HELPERS
#define DISC_EXTENT_HELPERS

static inline int64_t disc_extent_floordiv(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t disc_extent_ceildiv(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b + (a % b != 0 && (a < 0) == (b < 0));
}
static inline int64_t disc_extent_mod(int64_t a, int64_t b) { return a - disc_extent_floordiv(a, b) * b; }
static inline int64_t disc_extent_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t disc_extent_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Row-major and without gaps. */
static inline DLTensor disc_contiguous(const void *data, uint8_t code, uint8_t bits, int32_t ndim, int64_t *shape) {
  DLTensor tensor;
  tensor.data = (void *)(uintptr_t)data;
  tensor.device.device_type = kDLCPU;
  tensor.device.device_id = 0;
  tensor.ndim = ndim;
  tensor.dtype.code = code;
  tensor.dtype.bits = bits;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = NULL;
  tensor.byte_offset = 0;
  return tensor;
}

#endif /* DISC_EXTENT_HELPERS */"""


def c_identifier(name: str) -> str:
    """The name of a library in C, from a name that a user or a file has: ``"all-MiniLM-L6"`` is ``all_MiniLM_L6``.

    It begins with a letter, and not with ``disc``, which is where the names of disc.h begin. Identifiers are returned
    as they are, so that the result may be passed again.
    """
    text = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", name)).strip("_")
    if not text:
        return "model"
    if not text[0].isalpha() or text.lower().startswith("disc"):
        text = f"model_{text}"
    return text


def header(name: str, interface: Interface, *, version: str, device: str = "", more: str = "") -> str:
    """The text of ``NAME.h`` for the library ``disc_library_NAME``.

    ``version`` is that of disc, for the comment at the top. ``device`` is the kind of device of the model's
    tensors, named as in disc.h (``"kDLCUDA"``); "" is the CPU. ``more`` contains further declarations. The text is
    valid C99, C11 and C++17, and includes only ``disc.h``. ValueError if ``name`` is not a result of
    :func:`c_identifier`, or if a dim is not an expression.
    """
    if name != c_identifier(name):
        raise ArgumentValueError(f"{name!r} cannot name a library in C; {c_identifier(name)!r} can")
    return _Header(name, interface, version, device, more).text()


def numbers(name: str, array: str, values: Sequence[tuple[str, float]], comment: Sequence[str]) -> str:
    """Declarations of the elements of an input ``array`` with named numbers: their places, and their values.

    ``name`` is that of the library; ``values`` has the numbers' names, which are made fit for C, in order.
    ``comment`` has the lines of a comment.
    """
    prefix = f"{name.upper()}_{array.upper()}"
    names = _Names([])
    claimed = [names.claim(number.upper(), lambda _: ()) for number, _ in values]
    lines = [f"  {prefix}_{number} = {place}," for place, number in enumerate(claimed)]
    texts = [f"{_double(value)}, /* {_comment(number)} */" for number, value in values]
    return "\n".join(
        [
            "/* " + "\n * ".join(map(_comment, comment)) + " */",
            "enum {",
            *lines,
            f"  {prefix}_COUNT = {len(values)}",
            "};",
            f"static const double {name}_{array}[{prefix}_COUNT] = {{",
            *(f"  {text}" for text in texts),
            "};",
        ]
    )


def _double(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return '__builtin_nan("")' if math.isnan(value) else f"{'-' if value < 0 else ''}__builtin_inf()"


@dataclass(frozen=True)
class _Tensor:
    """A tensor, and what it is called in C."""

    spec: TensorSpec
    dims: Sequence[Expression]
    name: str
    known: bool
    """Whether every dim follows from the symbols."""

    @property
    def c_type(self) -> str:
        return _C_TYPES[self.spec.dtype][0]

    def describe(self) -> str:
        note = _C_TYPES[self.spec.dtype][2]
        dims = ", ".join(map(str, self.spec.dims))
        note = "; ".join(filter(None, (note, "updated in place" if self.spec.updated else "")))
        return _comment(f"{self.spec.dtype}[{dims}]" + (f" ({note})" if note else ""))


class _Names:
    """Returns unique names, whose derived names are unique too."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def claim(self, wanted: str, derived: Callable[[str], Iterable[str]], nameless: str = "x") -> str:
        """A name like ``wanted``, or ``nameless`` if that has no character that C allows."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", wanted)
        # Names that begin with _ and a capital, or hold __, belong to the compiler.
        base = re.sub(r"__+", "_", base).strip("_") or nameless
        # Those of disc.h are in use.
        if base[0].isdigit() or base.lower().startswith(("disc", "kdl")):
            base = f"x_{base}"
        candidate, count = base, 1
        while {candidate, *derived(candidate)} & self._taken:
            count += 1
            candidate = f"{base}_{count}"
        self._taken |= {candidate, *derived(candidate)}
        return candidate


class _Header:
    def __init__(self, name: str, interface: Interface, version: str, device: str, more: str) -> None:
        self._name = name
        self._more = more
        self._upper = name.upper()
        self._version = version
        self._device = device
        own = {"stream", "spec", "device"} if device else set()
        names = _Names({*_TAKEN, *own, f"{self._upper}_NUM_INPUTS", f"{self._upper}_NUM_OUTPUTS"})
        # A caller does not know the symbols that the model computes.
        symbols = [spec for spec in interface.symbols if not spec.computed]
        self._given = {spec.name for spec in symbols}
        # Symbols and tensors are parameters of one function: tensors keep their names.
        self._inputs = [self._tensor(spec, names, "INPUT") for spec in interface.inputs]
        self._outputs = [self._tensor(spec, names, "OUTPUT") for spec in interface.outputs]
        self._symbols = [(spec, names.claim(spec.name, self._symbol_names, "dim")) for spec in symbols]
        self._c_symbols = {spec.name: c_name for spec, c_name in self._symbols}
        for tensor in self._inputs:
            if not tensor.known:
                raise ValueError(f"a dim of input {tensor.spec.name!r} does not follow from the symbols")

    def text(self) -> str:
        parts = [
            self._top(),
            f'#ifndef DISC_MODEL_{self._name}_H\n#define DISC_MODEL_{self._name}_H\n\n#include "disc.h"',
            '#ifdef __cplusplus\nextern "C" {\n#endif',
            f"/* In lib{self._name}. */\nextern DISC_API const disc_library disc_library_{self._name};",
            self._constants(),
            self._more,
            _HELPERS,
            self._open(),
            *(self._sizes(tensor) for tensor in self._outputs if tensor.known),
            self._run(),
            '#ifdef __cplusplus\n} /* extern "C" */\n#endif',
            f"#endif /* DISC_MODEL_{self._name}_H */\n",
        ]
        return "\n\n".join(part for part in parts if part)

    # -- names

    def _symbol_names(self, name: str) -> list[str]:
        return [f"{self._upper}_{name.upper()}_{what}" for what in ("MIN", "MAX", "DIVISOR")]

    def _tensor(self, spec: TensorSpec, names: _Names, kind: str) -> _Tensor:
        dims = spec.expressions()

        def derived(name: str) -> list[str]:
            extents = [f"{self._upper}_{name.upper()}_EXTENT_{i}" for i in range(len(dims))]
            functions = [f"{self._name}_{name}_{what}" for what in ("shape", "elements", "bytes")]
            return [f"{self._upper}_{kind}_{name.upper()}", *extents, *functions, f"{name}_shape"]

        known = all(symbol in self._given for dim in dims for symbol in dim.symbols())
        return _Tensor(spec, dims, names.claim(spec.name, derived), known)

    # -- parts

    def _top(self) -> str:
        lines = [f"{self._name}.h - a model compiled by DISC {self._version}. Generated: do not edit.", ""]
        for title, tensors in (("Inputs", self._inputs), ("Outputs", self._outputs)):
            lines += [f"{title}:"] + ([f"  {t.name}: {t.describe()}" for t in tensors] or ["  none"])
        lines += ["Symbols:"] + [f"  {_comment(str(spec))}" for spec, _ in self._symbols] if self._symbols else []
        return "\n".join(["/* " + lines[0], *(f" * {line}".rstrip() for line in lines[1:]), " */"])

    def _constants(self) -> str:
        lines: list[str] = []
        for spec, name in self._symbols:
            low, high, divisor = self._symbol_names(name)
            lines += [
                f"#define {low} INT64_C({spec.min})",
                f"#define {high} " + ("INT64_MAX" if spec.max is None else f"INT64_C({spec.max})"),
                f"#define {divisor} INT64_C({spec.divisor})",
            ]
        for tensor in [*self._inputs, *self._outputs]:
            for i, dim in enumerate(tensor.dims):
                if dim.kind == "number":
                    lines.append(f"#define {self._upper}_{tensor.name.upper()}_EXTENT_{i} INT64_C({dim.value})")
        places = []
        for kind, tensors in (("INPUT", self._inputs), ("OUTPUT", self._outputs)):
            places += [f"  {self._upper}_{kind}_{t.name.upper()} = {i}," for i, t in enumerate(tensors)]
            places.append(f"  {self._upper}_NUM_{kind}S = {len(tensors)},")
        places[-1] = places[-1].rstrip(",")
        enum = "\n".join(["/* Places of inputs and outputs in the arrays of disc_run. */", "enum {", *places, "};"])
        return "\n".join(lines) + "\n\n" + enum if lines else enum

    def _open(self) -> str:
        return (
            "/* disc_open of this library; `options` may be NULL. Free the model with disc_free. */\n"
            f"static inline disc_status {self._name}_open(const disc_options *options, disc_model **model) {{\n"
            f"  return disc_open(&disc_library_{self._name}, options, model);\n}}"
        )

    def _sizes(self, tensor: _Tensor) -> str:
        """The functions that tell the shape and the size of an output."""
        symbols = [name for _, name in self._symbols]
        prefix, shape = f"{self._name}_{tensor.name}", f"{tensor.name}_shape"
        parameters = ", ".join(f"int64_t {name}" for name in symbols)
        terms = _product(tensor.dims, self._c_symbols)
        rank = len(tensor.dims)
        lines = [f"/* {tensor.name}: {tensor.describe()} */"]
        if rank:
            extents = [f"  {shape}[{i}] = {_c(dim, self._c_symbols)};" for i, dim in enumerate(tensor.dims)]
            named = {symbol for dim in tensor.dims for symbol in dim.symbols()}
            lines += [
                f"static inline void {prefix}_shape({parameters}{', ' if symbols else ''}int64_t {shape}[{rank}]) {{",
                *self._unused(named),
                *extents,
                "}",
            ]
        lines += [
            f"static inline int64_t {prefix}_elements({parameters or 'void'}) {{",
            *self._unused({symbol for dim in tensor.dims for symbol in dim.symbols()} if terms != "0" else set()),
            f"  return {terms};",
            "}",
            f"static inline size_t {prefix}_bytes({parameters or 'void'}) {{",
            f"  return (size_t){prefix}_elements({', '.join(symbols)}) * sizeof({tensor.c_type});",
            "}",
        ]
        return "\n".join(lines)

    def _unused(self, used: set[str]) -> list[str]:
        return [f"  (void){name};" for spec, name in self._symbols if spec.name not in used]

    def _run(self) -> str:
        """The typed run function, for contiguous tensors."""
        comments = [f" *   {t.name}: {t.describe()}" for t in self._inputs]
        comments += [f" *   {t.name}: {t.describe()}, written" for t in self._outputs if t.known]
        comments += [
            f" *   {t.name}: {t.describe()}, set to a new tensor, which the caller deletes"
            for t in self._outputs
            if not t.known
        ]
        parameters = ["disc_model *model", *(["void *stream"] if self._device else [])]
        parameters += [f"int64_t {name}" for _, name in self._symbols]
        parameters += [f"{'' if t.spec.updated else 'const '}{t.c_type} *{t.name}" for t in self._inputs]
        parameters += [
            f"{t.c_type} *{t.name}" if t.known else f"DLManagedTensorVersioned **{t.name}" for t in self._outputs
        ]
        start = f"static inline disc_status {self._name}_run("
        lines = [
            "/* Runs the model on tensors that are row-major, without gaps:"
            if not self._device
            else "/* Enqueues a run on a stream of the model's device. Tensors are there, row-major, without gaps:",
            *comments,
            " */",
            _wrap(start, parameters, ") {"),
        ]
        for tensor in [*self._inputs, *(t for t in self._outputs if t.known)]:
            if tensor.dims:
                dims = ", ".join(_c(dim, self._c_symbols) for dim in tensor.dims)
                lines.append(f"  int64_t {tensor.name}_shape[{len(tensor.dims)}] = {{{dims}}};")
        used = {s for t in [*self._inputs, *self._outputs] if t.known for dim in t.dims for s in dim.symbols()}
        inputs, outputs, count = "NULL", "NULL", f"{self._upper}_NUM"
        if self._inputs:
            inputs = "inputs"
            lines.append(f"  DLTensor input_tensors[{count}_INPUTS];")
            lines.append(f"  const DLTensor *inputs[{count}_INPUTS];")
        if self._outputs:
            outputs = "outputs"
            if any(t.known for t in self._outputs):
                lines.append(f"  DLTensor output_tensors[{count}_OUTPUTS];")
            lines.append(f"  disc_output outputs[{count}_OUTPUTS];")
        placed = bool(self._device and (self._inputs or any(t.known for t in self._outputs)))
        if placed or any(not t.known for t in self._outputs):
            lines.append("  disc_status status;")
        if placed:
            lines += ["  disc_model_spec spec;", "  DLDevice device;"]
        lines += self._unused(used)
        if placed:
            lines += [
                "  spec.size = sizeof(disc_model_spec);",
                "  status = disc_describe(model, &spec);",
                "  if (status != DISC_OK)",
                "    return status;",
                f"  device.device_type = {self._device};",
                "  device.device_id = spec.device_id;",
            ]
        for i, tensor in enumerate(self._inputs):
            lines.append(f"  input_tensors[{i}] = {_dltensor(tensor)};")
            if self._device:
                lines.append(f"  input_tensors[{i}].device = device;")
            lines.append(f"  inputs[{i}] = &input_tensors[{i}];")
        for i, tensor in enumerate(self._outputs):
            if tensor.known:
                lines.append(f"  output_tensors[{i}] = {_dltensor(tensor)};")
            if tensor.known and self._device:
                lines.append(f"  output_tensors[{i}].device = device;")
            lines.append(f"  outputs[{i}].tensor = " + (f"&output_tensors[{i}];" if tensor.known else "NULL;"))
            lines.append(f"  outputs[{i}].managed = NULL;")
        run = "disc_run_on(model, stream" if self._device else "disc_run(model"
        call = f"{run}, {inputs}, {count}_INPUTS, {outputs}, {count}_OUTPUTS)"
        unknown = [(i, t) for i, t in enumerate(self._outputs) if not t.known]
        if not unknown:
            lines.append(f"  return {call};")
        else:
            lines.append(f"  status = {call};")
            lines += [f"  *{tensor.name} = outputs[{i}].managed;" for i, tensor in unknown]
            lines.append("  return status;")
        return "\n".join([*lines, "}"])


def _dltensor(tensor: _Tensor) -> str:
    code = _C_TYPES[tensor.spec.dtype][1]
    rank = len(tensor.dims)
    shape = f"{tensor.name}_shape" if rank else "NULL"
    return f"disc_contiguous({tensor.name}, {code}, {8 * tensor.spec.itemsize}, {rank}, {shape})"


def _wrap(start: str, items: Sequence[str], end: str) -> str:
    """A list of parameters, in lines of at most 120 characters."""
    lines, line = [], start
    for i, item in enumerate(items):
        piece = item + (end if i == len(items) - 1 else ",")
        if len(line) + len(piece) + 1 > 120 and line.strip() and line != start:
            lines.append(line)
            line = " " * len(start)
        line += piece if line == start or not line.strip() else f" {piece}"
    return "\n".join([*lines, line])


def _comment(text: str) -> str:
    """Text that can stand in a comment."""
    text = "".join(c if c.isalnum() or c in " _.,:;+-*/()[]<>='" else "_" for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *")


def _product(dims: Sequence[Expression], names: dict[str, str]) -> str:
    """The number of elements, in C."""
    static = 1
    factors = []
    for dim in dims:
        if dim.kind == "number":
            static *= dim.value
        else:
            factors.append(_c(dim, names, _PRODUCT))
    if static == 0:
        return "0"
    if static != 1 or not factors:
        factors.append(f"INT64_C({static})")
    return " * ".join(factors)


# How strongly an operator binds in C.
_SUM, _PRODUCT, _SIGN, _ATOM = 1, 2, 3, 4


def _c(expr: Expression, names: dict[str, str], least: int = _SUM) -> str:
    """An expression in C, in parentheses if it binds less strongly than `least`."""
    strength = _ATOM
    if expr.kind == "number":
        # A small number takes the type of the int64_t beside it.
        text = str(expr.value) if abs(expr.value) < 2**31 else f"INT64_C({expr.value})"
        strength = _SIGN if expr.value < 0 else _ATOM
    elif expr.kind == "symbol":
        text = names[expr.name]
    elif len(expr.operands) == 1 and expr.kind == "-":
        text, strength = f"-{_c(expr.operands[0], names, _ATOM)}", _SIGN
    elif expr.kind in ("+", "-", "*"):
        strength = _PRODUCT if expr.kind == "*" else _SUM
        left, right = expr.operands
        text = f"{_c(left, names, strength)} {expr.kind} {_c(right, names, strength + 1)}"
    else:
        texts = [_c(operand, names) for operand in expr.operands]
        text = texts[-1]
        for operand in reversed(texts[:-1]):
            text = f"disc_extent_{expr.kind}({operand}, {text})"
    return text if strength >= least else f"({text})"
