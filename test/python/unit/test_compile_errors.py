"""Every exception out of a compilation is a CompileError with the user's line, or concerns an argument."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

import disc
from disc import errors
from disc.frontend import lowers
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
        (lambda m, x: m(), "missing a required argument: 'x'; the model was compiled for 'x', 'y'"),
        (lambda m, x: m(x, x, z=x), "got an unexpected keyword argument 'z'"),
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
    with pytest.raises(TypeError, match="args: expected a tuple of example arguments or one tensor, got dict; keyword"):
        disc.compile(torch.nn.ReLU(), {"input": x})
    with pytest.raises(TypeError, match="kwargs: expected a dict of example keyword arguments, got list"):
        disc.compile(torch.nn.ReLU(), (x,), [x])
    with pytest.raises(ValueError, match=r"2 is no dim of an input of shape \[3, 4\]; expected a number from 0 to 1"):
        disc.compile(torch.nn.ReLU(), (x,), dynamic_shapes=({2: Dim.AUTO},))
