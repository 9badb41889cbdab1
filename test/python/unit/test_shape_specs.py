"""dynamic_shapes in all forms, and several examples, up to the imported program."""

import warnings

import pytest
import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

import disc
from disc.frontend import import_program
from disc.frontend.examples import merged


class Embedded(torch.nn.Module):
    """Two inputs of one length, that is 64 at most."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.positions = torch.nn.Parameter(torch.randn(64, 8))

    def forward(self, x, mask):
        return self.linear(x + self.positions[: x.shape[1]]) * mask[..., None]


class Pairs(torch.nn.Module):
    def forward(self, x):
        return x.view(-1, 2, 3).sum(1)


class Keywords(torch.nn.Module):
    def forward(self, x, scale=1, **more):
        y = x * scale + more["bias"]
        return y * 2 if more.get("twice") else y


def inputs(batch, length):
    return torch.randn(batch, length, 8), torch.ones(batch, length)


def dims(model, args=(), kwargs=None, shapes=None, examples=None):
    if examples is not None:
        found = merged(model, examples, shapes)
        args, kwargs, shapes = found.args, found.kwargs, found.shapes
        program = import_program(model, args, kwargs, shapes, examples=found)
    else:
        program = import_program(model, args, kwargs, shapes)
    return {x.name: [int(d) if str(d).isdecimal() else d for d in x.dims] for x in program.inputs}, program


def test_auto():
    with pytest.warns(
        UserWarning,
        match=r"static .* the model's code fixes their sizes: input x, dim 2 is 8 \(.*test_shape_specs.py:\d+ n",
    ):
        found, program = dims(Embedded(), inputs(3, 5), None, "auto")
    assert found == {"x": ["x_0", "x_1", 8], "mask": ["x_0", "x_1"]}
    report = program.dynamic_report
    assert [d.size for d in report.static] == [8] and len(report.dynamic) == 4
    assert "\n" not in repr(report) and "x dim 2 is 8" in repr(report)
    assert "test_shape_specs.py" in report.static[0].reason and "x.shape[2] == 8" in report.static[0].reason


def test_auto_for_one_argument_and_for_one_dim():
    found, _ = dims(Embedded(), inputs(3, 5), None, {"x": {1: "auto"}, "mask": {1: "auto"}})
    assert found == {"x": [3, "x_1", 8], "mask": [3, "x_1"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found, _ = dims(Embedded(), inputs(3, 5), None, {"x": "auto", "mask": "auto"})
    assert found == {"x": ["x_0", "x_1", 8], "mask": ["x_0", "x_1"]}


def test_names():
    shapes = ({0: "batch", 1: "length"}, ("batch", "length"))
    with pytest.warns(UserWarning, match=r'compiled for length = Dim\("length", max=64\): .*x.shape\[1\] <= 64'):
        found, program = dims(Embedded(), inputs(3, 5), None, shapes)
    assert found == {"x": ["batch", "length", 8], "mask": ["batch", "length"]}
    assert [(s.name, s.min, s.max) for s in program.symbols] == [("batch", 0, None), ("length", 0, 64)]


def test_a_name_means_the_dim_of_that_name():
    length = Dim("length", min=2, max=32)
    found, program = dims(Embedded(), inputs(3, 5), None, {"x": {1: "length"}, "mask": {1: length}})
    assert found["x"][1] == "length" and [(s.min, s.max) for s in program.symbols] == [(2, 32)]


def test_multiples_are_found():
    with pytest.warns(UserWarning, match=r'compiled for n = 2 \* Dim\("n2", min=2, max=24\)'):
        found, _ = dims(Pairs(), (torch.randn(8, 3),), None, ({0: Dim("n", min=4, max=48)},))
    assert found == {"x": ["2 * n2", 3]}


def test_a_relation_of_two_dims_is_printed():
    class Twice(torch.nn.Module):
        def forward(self, x, y):
            return torch.cat([x, x]) + y

    with pytest.raises(disc.DynamicDimError, match=r"(?s)m = y.shape\[0\] must always be related .*\n    m = 2 \* n$"):
        dims(Twice(), (torch.randn(4), torch.randn(8)), None, ({0: "n"}, {0: "m"}))


def test_a_dim_that_the_code_fixes_is_printed():
    with pytest.raises(disc.DynamicDimError, match=r"(?s)w is 8 .*x.shape\[2\] == 8.*\n    w = 8$") as caught:
        dims(Embedded(), inputs(3, 5), None, ({2: "w"}, None))
    assert "L['x']" not in str(caught.value) and "test_shape_specs.py" in caught.value.source


def test_forms_of_torch_export():
    x, mask = inputs(3, 5)
    collection = ShapesCollection()
    collection[x] = {1: "length"}
    collection[mask] = {1: "length"}
    additional = AdditionalInputs()
    additional.add(inputs(3, 9))
    for shapes in (collection, additional, {"x": {1: Dim.AUTO}, "mask": {1: Dim.DYNAMIC}}):
        found, _ = dims(Embedded(), (x, mask), None, shapes)
        assert found["x"][0] == 3 and isinstance(found["x"][1], str)


def test_keyword_arguments_of_a_variadic_parameter():
    args, kwargs = (torch.randn(4),), {"bias": torch.randn(4), "twice": True}
    for shapes in ("auto", {"x": {0: "n"}, "bias": {0: "n"}}, {"x": {0: "n"}, "more": {"bias": {0: "n"}}}):
        found, _ = dims(Keywords(), args, kwargs, shapes)
        assert found["x"] == found["bias"]
        assert "forward" not in vars(Keywords())


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"x": None, "masc": {0: "n"}}, r"'masc' is not an argument of the example; the arguments: x, mask"),
        ({"x": {0: "no name"}}, r"x, dim 0: expected the name of a dim or \"auto\", got 'no name'"),
        ("batch", r"expected \"auto\", a dict, .* got 'batch'"),
        (("auto",), r"expected a spec for each of the 2 arguments \(x, mask\), got 1"),
    ],
)
def test_wrong_specs(shapes, text):
    with pytest.raises((TypeError, ValueError), match=text):
        dims(Embedded(), inputs(3, 5), None, shapes)


def test_examples():
    found, program = dims(Embedded(), examples=[inputs(3, 5), inputs(3, 9)])
    assert found == {"x": [3, "x_1", 8], "mask": [3, "x_1"]}
    assert [d.reason for d in program.dynamic_report.static] == ["equal in all examples"] * 3
    assert {d.reason for d in program.dynamic_report.dynamic} == {"the examples differ"}


def test_examples_by_name_in_any_order():
    (x, mask), (y, other) = inputs(3, 5), inputs(2, 9)
    found, _ = dims(Embedded(), examples=[{"x": x, "mask": mask}, {"mask": other, "x": y}])
    assert found["x"][2] == 8 and all(isinstance(d, str) for d in found["mask"])
    found, _ = dims(Embedded(), examples=[(x, mask), {"mask": other, "x": y}])
    assert found["x"][2] == 8


def test_equal_sizes_are_one_symbol_only_if_the_code_needs_it():
    class Sums(torch.nn.Module):
        def forward(self, x, y):
            return x.sum(0), y.sum(0)

    examples = [(torch.randn(n, 2), torch.randn(n, 2)) for n in (3, 5)]
    found, _ = dims(Sums(), examples=examples)
    assert found["x"][0] != found["y"][0]


def test_names_of_dims_that_differ():
    shapes = {"x": {1: "length"}, "mask": {1: "length"}}
    with pytest.warns(UserWarning, match="max=64"):
        found, _ = dims(Embedded(), examples=[inputs(3, 5), inputs(2, 9)], shapes=shapes)
    assert found["x"][1] == found["mask"][1] == "length"


def test_numbers_that_differ():
    class Scaled(torch.nn.Module):
        def forward(self, x, k: int, exact: bool):
            return x * k if exact else x

    x = torch.randn(3)
    found, program = dims(Scaled(), examples=[(x, 2, True), (x, 5, True)])
    assert "k" in found and list(program.constants.values()) == [True]


@pytest.mark.parametrize(
    ("examples", "text"),
    [
        ([(torch.ones(2), "a"), (torch.ones(3), "b")], r"y is 'a' in example 0 and 'b' in example 1"),
        (
            [(torch.ones(2), None), (torch.ones(3, 1), None)],
            r"x is float32 with 1 dims in example 0 and float32 with 2",
        ),
        ([(torch.ones(2), None), (torch.ones(3),)], r"example 1 has other arguments .* missing argument 'y'"),
        (
            [(torch.ones(2), [torch.ones(2)]), (torch.ones(3), torch.ones(3))],
            r"argument 'y': example 0 has a list of 1",
        ),
        ([], "the list is empty; expected one example or more"),
        (torch.ones(2), "expected a list of examples"),
        ([3], "example 0: expected a tuple of arguments"),
    ],
)
def test_examples_that_do_not_fit_together(examples, text):
    class Either(torch.nn.Module):
        def forward(self, x, y):
            return x

    with pytest.raises((TypeError, ValueError), match=text):
        dims(Either(), examples=examples)


@pytest.mark.parametrize(
    ("model", "examples", "text"),
    [
        (Embedded(), [inputs(3, 5), inputs(3, 70)], r"example 1 does not fit the program of example 0: .*64"),
        (Pairs(), [(torch.randn(8, 3),), (torch.randn(7, 3),)], "example 1 does not fit"),
    ],
)
def test_an_example_that_the_program_does_not_serve(model, examples, text):
    with pytest.raises(disc.DynamicDimError, match=text):
        dims(model, examples=examples)


def test_a_size_that_dynamic_shapes_fixes_and_examples_vary():
    with pytest.raises(ValueError, match=r"x, dim 1 is 5, but the examples have 5, 9 there"):
        merged(Embedded(), [inputs(3, 5), inputs(3, 9)], {"x": {1: 5}, "mask": None})


@pytest.mark.parametrize(
    ("function", "example", "wrong", "text"),
    [
        (lambda x: x.view(3, -1), (6,), (7,), "x_0 to be a multiple of 3"),
        (lambda x: x.view(x.shape[0], -1, 4), (2, 8), (2, 9), "x_1 to be a multiple of 4"),
        (lambda x: x[1:].view(-1, 2), (5,), (6,), r"max\(0, x_0 - 1\) to be a multiple of 2"),
    ],
)
def test_a_call_that_is_no_multiple(function, example, wrong, text):
    model = disc.compile(function, torch.randn(example), dynamic_shapes="auto")
    with pytest.raises(disc.ShapeError, match=f"the model's code needs {text} at .*test_shape_specs.py"):
        model(torch.randn(wrong))


def test_a_size_of_the_weights_that_examples_vary():
    examples = [torch.randn(2, 4), torch.randn(2, 5)]
    with pytest.raises(disc.DynamicDimError, match=r"input.shape\[1\] is 4 in the model's code") as caught:
        disc.compile(torch.nn.Linear(4, 3), examples=examples)
    assert "mark_dynamic" not in str(caught.value)


def test_the_texts_of_warnings_hold(caplog):
    """No line of torch's log, no word that the user did not write, no range that calls contradict."""

    def related(x, y):
        return x.repeat_interleave(2, 0) + y[1:]

    with pytest.warns(UserWarning, match=r"^input y, dim 0 must be 2\*x\.shape\[0\] \+ 1 in the compiled model$"):
        model = disc.compile(related, (torch.ones(3, 4), torch.ones(7, 4)), dynamic_shapes="auto")
    for n in (0, 1, 2, 5):
        assert model(torch.ones(n, 4), torch.ones(2 * n + 1, 4)).shape == (2 * n, 4)
    inputs = AdditionalInputs()
    inputs.add((torch.ones(2, 4),))
    inputs.add((torch.ones(5, 4),))
    linear = torch.nn.Linear(4, 3)
    assert disc.compile(linear, torch.ones(2, 4), dynamic_shapes=inputs)(torch.ones(9, 4)).shape == (9, 3)
    with pytest.warns(UserWarning) as warned:
        disc.compile(lambda x: x.expand(3, 4), torch.ones(1, 4), dynamic_shapes="auto")
        disc.compile(linear, torch.ones(1, 4), dynamic_shapes="auto")
    assert not [w for w in warned if "Dim." in str(w.message)]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
