"""The import works with typed IR: expressions that are written once, types with accessors, dead code by uses."""

import ast
import itertools
from pathlib import Path

import pytest
import torch
from torch.export import Dim
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_d

import disc
from disc.expressions import number, operation, parse, symbol
from disc.frontend import import_program
from disc.frontend.finish import finish
from disc.frontend.locations import location, place_of
from disc.frontend.lower import operations
from disc.frontend.registry import NotLowerable
from disc.frontend.returns import Result
from disc.frontend.shape_attributes import ShapeAttributes
from disc.frontend.torch_dialect import single_threaded_context
from disc.frontend.torch_types import holds_tensors, is_complex, is_tensor, result_info
from disc.frontend.values import Tensor

PACKAGE = Path(disc.__file__).parent

# What regular expressions are applied to, by module. None of it is printed IR.
USES_RE = {
    "aot.py": "names of files",
    "byte_sizes.py": "numbers of bytes that users write",
    "checkpoints.py": "names of layers, by patterns in a model's configuration",
    "cli/run.py": "arguments of the command",
    "cli/text.py": "messages of errors",
    "errors.py": "file:line, as describe() writes it",
    "expressions.py": "tokens of its grammar",
    "frontend/entry_guards.py": "guards of torch.export, which are Python",
    "frontend/export.py": "messages of torch.export",
    "frontend/fallback.py": "messages of the runtime",
    "frontend/function_transforms.py": "messages of PyTorch",
    "frontend/hints.py": "messages of torch.export",
    "frontend/locations.py": "stack traces of FX nodes, which are texts",
    "frontend/model_errors.py": "messages of PyTorch",
    "frontend/onnx/model.py": "names of dims in a file",
    "frontend/readable.py": "guards of torch.export",
    "frontend/registry.py": "names of operators",
    "frontend/rewriting/convert.py": "messages of Python",
    "frontend/rewriting/raised.py": "messages of the user's exceptions",
    "frontend/size_refinements.py": "messages of torch.export",
    "frontend/state_tensors.py": "names for places in Python's objects",
    "frontend/symbol_texts.py": "torch's names of sizes in messages",
    "frontend/symbols.py": "the user's names",
    "header.py": "names for C",
    "package.py": "versions",
}


def test_regular_expressions_are_for_texts_that_are_not_ir():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            if "re" in names:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(USES_RE), "a module that reads texts belongs in USES_RE; IR has typed accessors"


@pytest.fixture
def context():
    with single_threaded_context() as context, ir.Location.unknown():
        torch_d.register_dialect(context)
        context.allow_unregistered_dialects = True
        yield context


# -- expressions -------------------------------------------------------------------------------

NAMES = {"B": 3, "S_1": 7, "größe": 5, 'a "quoted" \\ name': 2, "floordiv": 4, "undefined": 6}


def _expressions(depth):
    leaves = [*map(symbol, NAMES), number(2), number(-3)]
    if not depth:
        return leaves
    inner = _expressions(depth - 1)
    kinds = ("+", "-", "*", "floordiv", "ceildiv", "mod", "min", "max")
    pairs = itertools.islice(itertools.product(inner, inner), 0, None, 7)
    return [operation(kind, *pair) for kind, pair in zip(itertools.cycle(kinds), pairs, strict=False)]


def test_the_text_of_an_expression_is_that_expression():
    for expression in _expressions(2):
        read = parse(str(expression))
        try:
            value = expression.evaluate(NAMES)
        except ZeroDivisionError:
            continue
        assert read.evaluate(NAMES) == value, str(expression)


def test_chains_need_no_parentheses():
    b, s = symbol("B"), symbol("S")
    assert str(operation("+", operation("+", b, s), number(1))) == "B + S + 1"
    assert str(operation("-", b, operation("-", s, number(1)))) == "B - (S - 1)"
    assert str(operation("floordiv", operation("+", s, number(15)), number(16))) == "(S + 15) floordiv 16"
    assert str(operation("*", operation("min", b, s), number(2))) == "min(B, S) * 2"


def test_renaming_is_of_whole_symbols():
    expression = operation("+", symbol("n"), operation("max", symbol("nn"), symbol("m")))
    assert str(expression.renamed({"n": "nn", "nn": "k"})) == "nn + max(k, m)"


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x.repeat(2, 1) + 1


@pytest.mark.parametrize("name", ["größe", "undefined", "max"])
def test_dims_have_any_name_that_python_has(name):
    compiled = disc.compile(Doubled(), (torch.randn(3, 2),), dynamic_shapes=({0: Dim(name, min=1, max=9)},))
    for rows in (1, 4):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x), Doubled()(x))


# -- attributes, types and locations -----------------------------------------------------------


def test_attributes_are_known_by_their_symbols(context):
    attributes = ShapeAttributes()
    dims = attributes.dims([symbol("B"), operation("*", symbol("B"), symbol("S")), number(2)])
    assert dims == ir.Attribute.parse("#disc_shape.dims<[B, B * S, 2]>")
    expr = attributes.expr(symbol("L"))
    assert attributes.symbols(dims) == {"B", "S"}
    assert attributes.symbols(ir.ArrayAttr.get([dims, expr])) == {"B", "S", "L"}
    with pytest.raises(KeyError):
        attributes.symbols(ir.Attribute.parse("#disc_shape.dims<[other]>"))


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("!torch.vtensor<[?,4],f32>", torch.float32, (None, 4)),
        ("!torch.vtensor<[],si64>", torch.int64, ()),
        ("!torch.vtensor<[2],ui8>", torch.uint8, (2,)),
        ("!torch.vtensor<[0],i1>", torch.bool, (0,)),
        ("!torch.vtensor<[?],complex<f64>>", torch.complex128, (None,)),
        ("!torch.vtensor<[3,?],bf16>", torch.bfloat16, (3, None)),
        ("!torch.vtensor<[1],f8E4M3FN>", torch.float8_e4m3fn, (1,)),
        ("!torch.vtensor<*,f64>", torch.float32, ()),
        ("!torch.int", torch.float32, ()),
    ],
)
def test_types_of_results(context, text, dtype, shape):
    type_ = ir.Type.parse(text)
    info = result_info(type_)
    assert (info.dtype, info.shape) == (dtype, shape)
    assert is_tensor(type_) == text.startswith("!torch.vtensor")
    assert is_complex(type_) == dtype.is_complex


def test_elements_without_a_dtype_are_refused(context):
    for text in ("!torch.vtensor<[2],unk>", "!torch.vtensor<[2],si4>", "!torch.vtensor<[2],!torch.qint8>"):
        with pytest.raises(NotLowerable, match=r"vtensor<\[2\]"):
            result_info(ir.Type.parse(text))


def test_lists_hold_tensors(context):
    assert holds_tensors(ir.Type.parse("!torch.list<vtensor>"))
    assert holds_tensors(ir.Type.parse("!torch.optional<vtensor>"))
    assert not holds_tensors(ir.Type.parse("!torch.list<int>"))
    assert not is_tensor(ir.Type.parse("!torch.list<vtensor>"))


def test_places_of_locations(context):
    assert place_of(location("aten.add", ("a (1).py", 12))) == ("aten.add", ("a (1).py", 12))
    assert place_of(location('a"b', None)) == ('a"b', None)
    assert place_of(ir.Location.unknown()) == (None, None)


# -- dead code ---------------------------------------------------------------------------------


_MAIN = """"builtin.module"() ({
  "func.func"() <{function_type = (tensor<i64>, tensor<i1>) -> (), sym_name = "main"}> ({
  ^bb0(%count: tensor<i64>, %p: tensor<i1>):
    BODY
  }) : () -> ()
}) : () -> ()"""


def _finished(body):
    """What ``finish`` returns for a ``main`` that returns its argument, and the operations that are left."""
    attributes = ShapeAttributes()
    for name in ("n", "m"):
        attributes.expr(symbol(name))
        attributes.dims([symbol(name)])
    module = ir.Module.parse(_MAIN.replace("BODY", body))
    block = module.body.operations[0].operation.regions[0].blocks[0]
    result = Result(Tensor(block.arguments[0], (), torch.int64), "count")
    finished = finish(module, [result], attributes)
    return finished, [op.name for op in operations(block)]


def test_what_nothing_uses_goes(context):
    finished, names = _finished(
        """%w = "disc_tensor.parameter"() {name = "w"} : () -> tensor<2xf32>
           %v = "disc_tensor.permute"(%w) {permutation = array<i64: 0>} : (tensor<2xf32>) -> tensor<2xf32>"""
    )
    assert names == ["func.return"]
    assert not finished.parameters and not finished.predicates


def test_what_a_check_uses_stays(context):
    finished, names = _finished(
        """%n = "disc_shape.bind"(%count) {symbol = @n, what = "x"} : (tensor<i64>) -> index
           %m = "disc_shape.bind"(%count) {symbol = @m, what = "x"} : (tensor<i64>) -> index
           %d = "disc_shape.dim"() {expr = #disc_shape.expr<n>} : () -> index
           "disc_shape.require"(%d, %d) {predicate = "le", message = "m"} : (index, index) -> ()"""
    )
    assert names == ["disc_shape.bind", "disc_shape.dim", "disc_shape.require", "func.return"]
    assert finished.predicates == {"le"}


def test_symbols_inside_of_a_dead_branch_keep_nothing(context):
    _, names = _finished(
        """%n = "disc_shape.bind"(%count) {symbol = @n, what = "x"} : (tensor<i64>) -> index
           %r = "disc_tensor.branch"(%p) ({
             %d = "disc_shape.dim"() {expr = #disc_shape.expr<n>} : () -> index
             %t = "tensor.empty"(%d) : (index) -> tensor<?xf32>
             "disc_tensor.yield"(%t, %d) {operandSegmentSizes = array<i32: 1, 1>} : (tensor<?xf32>, index) -> ()
           }, {
             %d = "disc_shape.dim"() {expr = #disc_shape.expr<n>} : () -> index
             %t = "tensor.empty"(%d) : (index) -> tensor<?xf32>
             "disc_tensor.yield"(%t, %d) {operandSegmentSizes = array<i32: 1, 1>} : (tensor<?xf32>, index) -> ()
           }) {symbols = [@m], disc_shape.dims = [#disc_shape.dims<[m]>]} : (tensor<i1>) -> tensor<?xf32>"""
    )
    assert names == ["func.return"]


def test_a_branch_with_a_check_stays(context):
    finished, names = _finished(
        """%w = "disc_tensor.parameter"() {name = "w"} : () -> tensor<2xf32>
           "disc_tensor.branch"(%p) ({
             %c = "arith.constant"() {value = 1 : index} : () -> index
             "disc_shape.require"(%c, %c) {predicate = "eq", message = "m"} : (index, index) -> ()
             "disc_tensor.yield"() {operandSegmentSizes = array<i32: 0, 0>} : () -> ()
           }, {
             %unused = "tensor.empty"() : () -> tensor<2xf32>
             "disc_tensor.yield"() {operandSegmentSizes = array<i32: 0, 0>} : () -> ()
           }) : (tensor<i1>) -> ()"""
    )
    assert names.count("disc_shape.require") == 1 and "tensor.empty" not in names
    assert finished.predicates == {"eq"} and not finished.parameters


class Named(torch.nn.Module):
    """A parameter whose name is that of an input, and is not used."""

    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.ones(2))
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.w + 0 * self.x.shape[0]


def test_parameters_are_those_that_main_refers_to():
    program = import_program(Named(), (torch.randn(2),))
    assert set(program.parameters) == {"w"}
