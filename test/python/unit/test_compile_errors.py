"""Every exception out of a compilation is a CompileError with the user's line, or concerns an argument."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

import disc
from disc import errors
from disc.frontend import lowers
from disc.frontend.model_errors import message_of
from disc.frontend.registry import _RULES


class Module(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


@pytest.fixture
def rule_of_sin():
    known = _RULES["torch.aten.sin"]
    yield lowers("torch.aten.sin")
    _RULES["torch.aten.sin"] = known


@pytest.mark.parametrize("error", [TypeError("incompatible function arguments\n  1. (self)"), IndexError("at 7")])
def test_an_exception_of_a_rule_names_the_line_and_the_operation(rule_of_sin, error):
    @rule_of_sin
    def rule(b, x):
        raise error

    with pytest.raises(disc.UnsupportedOpError) as caught:
        disc.compile(Module(lambda x: x.sin() + 1), (torch.ones(3),))
    assert caught.value.__cause__ is error
    text = str(caught.value)
    assert f"torch.aten.sin: internal error: {type(error).__name__}: {str(error).splitlines()[0]}" in text
    assert "report" in text and "test_compile_errors.py:" in caught.value.source


@pytest.mark.parametrize("wrong", ["dtype", "rank", "extent", "symbol"])
def test_a_result_unlike_that_of_the_meta_kernel_is_an_internal_error(rule_of_sin, wrong):
    @rule_of_sin
    def rule(b, x):
        dims = {"rank": [*x.dims, 1], "extent": [x.dims[0], 4], "symbol": [b.add(x.dims[0], 1), x.dims[1]]}
        dtype = torch.float64 if wrong == "dtype" else x.dtype
        return b.full(dims.get(wrong, x.dims), 0, dtype)

    with pytest.raises(disc.CompileError, match=r"internal error.*rule of torch\.aten\.sin returned"):
        disc.compile(Module(torch.sin), (torch.ones(5, 3),), dynamic_shapes=({0: Dim("n", max=64)},))


def test_an_exception_of_a_stage_is_an_internal_error(monkeypatch):
    def fails(*_, **__):
        raise KeyError("x")

    monkeypatch.setattr("disc.compilation.import_program", fails)
    with pytest.raises(errors.InternalError, match="report") as caught:
        disc.compile(Module(torch.sin), (torch.ones(3),))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_element_type_that_is_not_known():
    with pytest.raises(disc.CompileError, match=r"element type torch\.uint3 is not supported") as caught:
        disc.compile(Module(lambda x: torch.zeros(3, dtype=torch.uint3).view(torch.uint8) + x), (torch.ones(3),))
    assert not isinstance(caught.value, errors.InternalError)
    assert "test_compile_errors.py" in caught.value.source


def test_dynamic_shapes_in_every_form():
    model, x = Module(lambda x: x * 2), torch.ones(5, 3)
    collection = ShapesCollection()
    collection[x] = {0: Dim("n", max=64)}
    additional = AdditionalInputs()
    additional.add((torch.ones(7, 3),))
    for shapes in (collection, additional):
        compiled = disc.compile(model, (x,), dynamic_shapes=shapes)
        assert compiled(torch.ones(9, 3)).shape == (9, 3)
    with pytest.raises(TypeError, match=r"dynamic_shapes: expected .* got int"):
        disc.compile(model, (x,), dynamic_shapes=3)


WITHOUT_FILE = """
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.zeros(int(x.max()) + 1)
"""


def test_a_function_without_source_is_named():
    space = {"torch": torch}
    exec(WITHOUT_FILE, space)
    with pytest.raises(disc.CompileError, match="no source of forward; define the function in a file") as caught:
        disc.compile(space["Model"](), (torch.tensor([3]),))
    assert caught.value.source == "<string>:3"


@pytest.mark.parametrize("name", ["<ipython-input-3-abc>", "<python-input-7>", "<stdin>-7", "/tmp/ipykernel_7/3.py"])
def test_functions_typed_at_a_prompt(name):
    linecache.cache[name] = (len(WITHOUT_FILE), None, WITHOUT_FILE.splitlines(keepends=True), name)
    space = {"torch": torch}
    exec(compile(WITHOUT_FILE, name, "exec"), space)
    model = disc.compile(space["Model"](), (torch.tensor([3]),), dynamic_shapes=({0: Dim.AUTO},))
    assert [len(model(torch.tensor(x))) for x in ([0], [4, 2])] == [1, 5]


def test_functions_typed_at_a_prompt_of_newer_versions(monkeypatch):
    """linecache of newer versions of Python stores typed code under (file, function, line)."""
    name, lines = "<python-input-8>", WITHOUT_FILE.splitlines(keepends=True)
    typed = {(name, "Model.forward", 3): (len(WITHOUT_FILE), None, lines, name)}
    monkeypatch.setattr(linecache, "_interactive_cache", typed, raising=False)
    space = {"torch": torch}
    exec(compile(WITHOUT_FILE, name, "exec"), space)
    model = disc.compile(space["Model"](), (torch.tensor([3]),), dynamic_shapes=({0: Dim.AUTO},))
    assert [len(model(torch.tensor(x))) for x in ([0], [4, 2])] == [1, 5]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m, x: m(), "missing arguments 'x', 'y'; the model was compiled for 'x', 'y'"),
        (lambda m, x: m(x, x, z=x), "unexpected keyword argument 'z'; the model was compiled for 'x', 'y'"),
        (lambda m, x: m(x, (x, x)), "argument 'y': the model was compiled for a dict with 'a', 'b'; got a tuple of 2"),
        (lambda m, x: m(x, {"a": x, "b": x}), r"argument 'y'\['b'\]: the model was compiled for a list of 2; got one"),
    ],
)
def test_calls_with_other_arguments(call, text):
    class Nested(torch.nn.Module):
        def forward(self, x, y):
            return x + y["a"] + y["b"][0] * y["b"][1]

    x = torch.ones(3)
    model = disc.compile(Nested(), (x, {"a": x, "b": [x, x]}))
    with pytest.raises(TypeError, match=text):
        call(model, x)


def test_example_arguments_of_the_wrong_kind():
    x = torch.ones(3, 4)
    with pytest.raises(
        TypeError, match="args: expected a tuple of example arguments or one tensor, got dict; pass keyword"
    ):
        disc.compile(torch.nn.ReLU(), {"input": x})
    with pytest.raises(TypeError, match="kwargs: expected a dict of example keyword arguments, got list"):
        disc.compile(torch.nn.ReLU(), (x,), [x])
    with pytest.raises(ValueError, match=r"an input of shape \[3, 4\] has no dim 2; expected a number from 0 to 1"):
        disc.compile(torch.nn.ReLU(), (x,), dynamic_shapes=({2: Dim.AUTO},))


def bad_import(x):
    import a_package_that_is_missing  # type: ignore[import-not-found]

    return a_package_that_is_missing.relu(x)


@pytest.mark.parametrize(
    "module, text, where",
    [
        (torch.nn.Linear(4, 3), "raised RuntimeError .*a and b must have same reduction dim", "linear.py:"),
        (bad_import, "raised ModuleNotFoundError .*a_package_that_is_missing", "test_compile_errors.py:"),
        (lambda x: torch.from_numpy(x.numpy()), r"numpy.* use those, or make a custom operator", "test_compile_errors"),
    ],
)
def test_a_failure_of_the_models_own_code(module, text, where):
    with pytest.raises(disc.errors.ModelError, match=f"(?s){text}") as caught:
        disc.compile(module, (torch.ones(2, 5),))
    assert where in caught.value.source


class Settings:
    factor = 2


def test_arguments_and_results_of_unknown_types():
    with pytest.raises(disc.errors.UnsupportedTypeError, match="an argument of the example is of the unsupported type"):
        disc.compile(lambda x, settings: x * settings.factor, (torch.ones(2), Settings()))
    with pytest.raises(disc.errors.UnsupportedTypeError, match="a result of the model is of the unsupported type"):
        disc.compile(lambda x: Settings(), (torch.ones(2),))


def test_examples_that_contradict_the_names_of_dims():
    add = (torch.ones(2, 4), torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"'b' is 2 in the example \(x, dim 0\), but y, dim 0, is 3"):
        disc.compile(lambda x, y: x + y, add, dynamic_shapes=({0: "b"}, {0: "b"}))
    with pytest.raises(ValueError, match=r"a spec for each of the 2 arguments \(x, y\), got 3"):
        disc.compile(lambda x, y, z=1.0: x + y, add, dynamic_shapes=({0: Dim("b")}, None, None))


def test_a_call_with_arguments_that_had_their_defaults():
    model = disc.compile(lambda x, y=None, z=True: x, (torch.ones(2),))
    with pytest.raises(TypeError, match=r"had its default, None, when .* an example of it"):
        model(torch.ones(2), y=torch.ones(2))
    with pytest.raises(TypeError, match=r"had their defaults, None, True, when .* an example of them"):
        model(torch.ones(2), y=torch.ones(2), z=False)


def test_a_size_without_its_form():
    half = Dim("half", max=50)
    model = disc.compile(lambda x: x.reshape(x.shape[0] // 2, 2), (torch.ones(4),), dynamic_shapes=({0: 2 * half},))
    with pytest.raises(disc.ShapeError, match=r"does not have the form half \* 2: expected a multiple of 2, got 5"):
        model(torch.ones(5))


def unknown_attribute(x):
    return x.shape[0].foo if x.dim() == 3 else x.foo()


@pytest.mark.parametrize(("shape", "kind"), [((2, 4), "Tensor"), ((2, 4, 3), "int")])
def test_an_attribute_that_does_not_exist(shape, kind):
    with pytest.raises(
        disc.errors.ModelError, match=f"raised AttributeError .*'{kind}' object has no attribute 'foo'"
    ) as e:
        disc.compile(unknown_attribute, torch.ones(shape), dynamic_shapes="auto")
    assert "test_compile_errors.py" in e.value.source and "FakeTensor" not in str(e.value)


def test_sizes_have_the_users_names():
    def product(x, pair):
        return x @ pair["b"]

    inputs = (torch.ones(2, 8), {"b": torch.ones(9, 3)})
    with pytest.raises(
        disc.errors.ModelError, match=r"got \[x\.shape\[0\], x\.shape\[1\]\] X \[pair\['b'\]\.shape\[0\],"
    ):
        disc.compile(product, inputs, dynamic_shapes="auto")
    with pytest.raises(disc.errors.ModelError, match=r"got \[batch, 8\] X \[9, pair\['b'\]\.shape\[1\]\]"):
        disc.compile(product, inputs, dynamic_shapes=({0: "batch"}, {"b": {1: Dim.AUTO}}))
    half = torch.export.Dim("half", min=1, max=64)
    with pytest.raises(disc.errors.ModelError) as caught:
        disc.compile(product, (torch.ones(4, 8), inputs[1]), dynamic_shapes=({0: 2 * half}, {"b": None}))
    assert "half, 8]" not in str(caught.value).replace("2*half", "")

    def sides(x):
        return x * 2 if x.sum() > 0 else x[0]

    with pytest.raises(
        disc.errors.ControlFlowError, match=r"float32 \[rows, x\.shape\[1\]\] where .* \[x\.shape\[1\]\]"
    ):
        disc.compile(sides, torch.ones(2, 4), dynamic_shapes=({0: "rows", 1: Dim.AUTO},))


def test_a_compiled_model_is_not_compiled_again():
    model = disc.compile(linear := torch.nn.Linear(4, 3), torch.ones(2, 4))
    x = torch.ones(2, 4)
    calls = (
        lambda: disc.compile(model, x),
        lambda: disc.compile(model),
        lambda: disc.aot_compile(model, x, output="x.so"),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"already compiled: .*disc.compile\(model.module, \.\.\.\) \(DISC0201\)"):
            call()
    assert model.module is linear
    with pytest.raises(TypeError, match=r"was called while another model that contains it is traced: .*model\.module"):
        disc.compile(lambda x: model(x) + 1, torch.ones(2, 4))


def test_parameters_without_values():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).to("meta")
    for x in (torch.ones(2, 4), torch.ones(2, 4, device="meta")):
        with pytest.raises(ValueError, match=r"on the meta device .*: 0\.weight, 0\.bias, 1\.weight and 1 more; load"):
            disc.compile(model, x)


def test_an_empty_list_of_examples():
    with pytest.raises(ValueError, match="examples: the list is empty; expected one example or more"):
        disc.compile(torch.nn.ReLU(), examples=[])


@pytest.mark.parametrize(
    "appended",
    [
        "\nException raised from throw_it at /c10/TensorImpl.cpp:340 (most recent call first):\nframe #0: f",
        "  (Size-like symbols: none)\n\nconsider using data-dependent friendly APIs such as a.\nCaused by: (a)",
        "\nCaused by: (proving.py:287 in evaluate_expr)\nFor more information, run with TORCH_LOGS=dynamic",
        "\n\nThe error above occurred when calling torch.export.export. If you would like",
    ],
)
def test_what_pytorch_appends_to_messages_is_left_out(appended):
    text = message_of(RuntimeError("Cannot call numel() here" + appended))
    assert text.startswith("Cannot call numel() here") and "\n" not in text
    assert message_of(KeyError()) == "KeyError"
