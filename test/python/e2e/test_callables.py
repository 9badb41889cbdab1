"""Functions, methods and other callables as they are, one tensor as the arguments, and disc.compile as a decorator."""

import copy
import functools
import pickle

import pytest
import torch
from transformers import BertConfig, BertModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

import disc

pytestmark = pytest.mark.filterwarnings("ignore:static in the compiled model:UserWarning")

linear = torch.nn.Linear(4, 3)
X, Y = torch.randn(5, 4), torch.randn(9, 4)


def scaled(x, k=2, *, mode="sum"):
    y = linear(x) * k
    return {"y": y, "mode": mode} if mode == "sum" else y


class Service:
    """No module, but it has one."""

    def __init__(self):
        self.net = torch.nn.Linear(4, 2)
        self.shift = torch.ones(2)

    def run(self, x):
        return self.net(x) + self.shift

    def __call__(self, x):
        return self.run(x) * 2


def test_a_function():
    model = disc.compile(scaled, X, dynamic_shapes="auto")
    result = model(Y)
    assert type(result) is dict and result["mode"] == "sum"
    torch.testing.assert_close(result["y"], linear(Y) * 2)
    with torch.no_grad():
        linear.weight.mul_(2)
    torch.testing.assert_close(model(Y)["y"], linear(Y) * 2)


def test_a_function_in_a_function():
    net, offset = torch.nn.Linear(4, 2), torch.full((2,), 3.0)

    def inner(x):
        return net(x) + offset

    model = disc.compile(inner, X, dynamic_shapes=({0: "n"},))
    offset.mul_(2)
    torch.testing.assert_close(model(Y), inner(Y))


def test_a_partial():
    model = disc.compile(functools.partial(scaled, mode="other"), (X, 3), dynamic_shapes={"x": {0: "n"}})
    torch.testing.assert_close(model(Y, 3), linear(Y) * 3)
    with pytest.raises(TypeError, match=r"argument 'k' is a constant of the compiled model: expected 3, .*got 4"):
        model(Y, 4)


def test_a_partial_of_a_module_or_an_object():
    module = Masked()
    model = disc.compile(functools.partial(module, scale=2.0), (X, X), dynamic_shapes="auto")
    torch.testing.assert_close(model(Y, attention_mask=Y), Y * Y * 2)
    model = disc.compile(functools.partial(linear), X, dynamic_shapes="auto")
    for _ in range(2):
        torch.testing.assert_close(model(input=Y), linear(Y))
        with torch.no_grad():
            linear.weight.mul_(2)
    service = Service()
    model = disc.compile(functools.partial(service), X, dynamic_shapes="auto")
    torch.testing.assert_close(model(x=Y), service(Y))


def test_functions_in_c():
    for function in (torch.add, functools.partial(torch.add, alpha=2)):
        model = disc.compile(function, (X, X), dynamic_shapes="auto")
        torch.testing.assert_close(model(Y, Y), function(Y, Y))


def test_a_method_and_a_callable_object():
    service = Service()
    for function in (service.run, service):
        model = disc.compile(function, X, dynamic_shapes="auto")
        torch.testing.assert_close(model(Y), function(Y))
        service.shift.add_(1)
        torch.testing.assert_close(model(Y), function(Y))


def test_a_method_of_a_module_keeps_its_names():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = torch.nn.Linear(4, 2)

        def encode(self, x):
            return self.inside(x)

        def forward(self, x):
            return self.encode(x) * 2

    two = Two()
    for function in (two.encode, two.forward, two.__call__):
        torch.testing.assert_close(disc.compile(function, X, dynamic_shapes="auto")(Y), function(Y))


def test_constants_name_the_argument():
    model = disc.compile(scaled, (X, 2), {"mode": "sum"}, dynamic_shapes={"x": {0: "n"}})
    assert model(Y, 2)["mode"] == model(Y, mode="sum", k=2)["mode"] == model(Y)["mode"] == "sum"
    with pytest.raises(
        TypeError, match=r"'mode' is a constant .*: expected 'sum', .*got 'x'; compile a model for each"
    ):
        model(Y, 2, mode="x")
    with pytest.raises(TypeError, match=r"'k' is a constant .*dynamic_shapes=\{'k': Dim.DYNAMIC\}"):
        model(Y, True)


class Masked(torch.nn.Module):
    def forward(self, ids, attention_mask, scale=0.5):
        return ids * attention_mask * scale


def test_missing_and_extra_arguments_as_python_says_it():
    model = disc.compile(Masked(), (X, X), dynamic_shapes="auto")
    with pytest.raises(TypeError, match=r"^missing argument 'attention_mask'; the model was compiled for 'ids'"):
        model(X)
    near = r"^unexpected keyword argument 'atention_mask'; did you mean 'attention_mask'\? The model was compiled for"
    with pytest.raises(TypeError, match=near):
        model(ids=X, atention_mask=X)
    with pytest.raises(TypeError, match=near):
        model(X, atention_mask=X)
    with pytest.raises(TypeError, match="argument 'ids' was passed twice, by position and by name"):
        model(X, X, ids=X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'mask'"):
        model(X, X, mask=X)
    with pytest.raises(TypeError, match="too many positional arguments"):
        model(X, X, 0.5, X)
    with pytest.raises(TypeError, match=r"unexpected argument 'scale', which had its default, 0\.5, when"):
        model(X, X, scale=2.0)
    torch.testing.assert_close(model(attention_mask=Y, ids=Y, scale=0.5), Y * Y * 0.5)


class Options(torch.nn.Module):
    def forward(self, x, **rest):
        return x + rest["shift"] * rest.get("scale", 1)


def test_a_misspelled_keyword_of_any_module():
    model = disc.compile(Options(), (X,), {"shift": X, "scale": 2})
    torch.testing.assert_close(model(X, scale=2, shift=X), X * 3)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'shft'; did you mean 'shift'\? The model was"):
        model(X, shft=X, scale=2)
    with pytest.raises(disc.CompileError, match=r"'atention_mask'; did you mean 'attention_mask'\? The parameters are"):
        disc.compile(Masked(), (X,), {"atention_mask": X})
    with pytest.raises(disc.CompileError, match=r"missing arguments 'ids', 'attention_mask'; the parameters are ids, "):
        disc.compile(Masked(), (), {"scale": 2.0})


def test_arguments_in_dicts_of_any_order():
    class Sum(torch.nn.Module):
        def forward(self, parts):
            return {"b": parts["a"] + 1, "a": parts["b"]}

    model = disc.compile(Sum(), ({"a": X, "b": X},), dynamic_shapes="auto")
    result = model({"b": Y, "a": Y * 2})
    assert list(result) == ["b", "a"]
    torch.testing.assert_close(result["b"], Y * 2 + 1)
    with pytest.raises(
        TypeError, match="argument 'parts': missing key 'a'; the model was compiled for a dict with 'a'"
    ):
        model({"b": Y})


def test_decorators():
    calls = []

    @disc.compile(dynamic_shapes="auto")
    def first(x, n=3):
        calls.append(x)
        return x.sum(0) * n

    @disc.compile
    def second(x):
        return first(x) + 1

    assert isinstance(first, disc.LazyModel) and first.model is None and first.__name__ == "first"
    torch.testing.assert_close(first(X), X.sum(0) * 3)
    count = len(calls)
    torch.testing.assert_close(first(Y), Y.sum(0) * 3)
    assert len(calls) == count and isinstance(first.model, disc.Model)
    # Traced by another compilation it is the function itself.
    torch.testing.assert_close(second(X), X.sum(0) * 3 + 1)
    with pytest.raises(disc.ShapeError):
        second(Y)


class Decorated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 2)

    @disc.compile(dynamic_shapes="auto")
    def forward(self, x):
        return self.inside(x)


def test_decorated_methods():
    one, two = Decorated(), Decorated()
    for module in (one, two, copy.deepcopy(one), pickle.loads(pickle.dumps(two))):
        torch.testing.assert_close(module(X), module.inside(X))
        torch.testing.assert_close(module(Y), module.inside(Y))


class Family:
    factor = 2

    @classmethod
    @disc.compile(dynamic_shapes="auto")
    def times(cls, x):
        return x * cls.factor

    @staticmethod
    @disc.compile(dynamic_shapes="auto")
    def plus(x):
        return x + 1

    @disc.compile(dynamic_shapes="auto")
    @classmethod
    def minus(cls, x):
        return x - cls.factor

    @disc.compile(dynamic_shapes="auto")
    @staticmethod
    def negative(x):
        return -x


class Child(Family):
    factor = 3


def test_decorated_class_methods_and_static_methods():
    for _ in range(2):
        for owner in (Family, Child, Family(), Child()):
            torch.testing.assert_close(owner.times(Y), Y * owner.factor)
            torch.testing.assert_close(owner.minus(Y), Y - owner.factor)
            torch.testing.assert_close(owner.plus(Y), Y + 1)
            torch.testing.assert_close(owner.negative(Y), -Y)
    assert Family.times is Family().times is not Child.times
    assert Family.times.model is not None and isinstance(Child.times.model, disc.Model)
    # As classmethods of Python 3.13 call what they wrap.
    torch.testing.assert_close(vars(Family)["times"].__func__(Child, Y), Y * 3)
    assert pickle.loads(pickle.dumps(Child.times)) is Child.times


def test_what_cannot_be_decorated():
    with pytest.raises(
        TypeError, match=r"Whole is a class; decorate its method forward, or .*Whole\(\.\.\.\), .*DISC0201"
    ):

        @disc.compile(dynamic_shapes="auto")
        class Whole(torch.nn.Module):
            def forward(self, x):
                return x * 2

    with pytest.raises(TypeError, match=r"Masked is a class; pass an instance: Masked\(\.\.\.\)"):
        disc.compile(Masked, (X, X))
    with pytest.raises(TypeError, match=r"@disc.compile: expected a function, got property"):
        disc.compile(dynamic_shapes="auto")(property(lambda self: 1))

    class Slots:
        __slots__ = ("w",)

        @disc.compile(dynamic_shapes="auto")
        def run(self, x):
            return x * self.w

    with pytest.raises(TypeError, match=r"Slots.run: objects of .*Slots have __slots__.*; add '__dict__' to"):
        Slots().run(X)


def test_a_decorated_function_has_the_attributes_of_its_model(tmp_path):
    @disc.compile(dynamic_shapes="auto")
    def f(x):
        return linear(x) + 1

    for name in ("save", "state_dict", "load_state_dict", "profile", "symbols", "timings", "name"):
        assert not hasattr(f, name)
    with pytest.raises(
        disc.errors.NotCompiledError, match=r"save: .*f is not compiled yet.*call it before \(DISC0106\)"
    ):
        f.save(tmp_path / "f.disc")
    with pytest.raises(AttributeError, match=r"'LazyModel' object has no attribute 'foo'$"):
        f.foo()
    f(X)
    f.save(tmp_path / "f.disc")
    torch.testing.assert_close(disc.load(tmp_path / "f.disc")(Y), f(Y))
    assert f.name == "f" and f.state_dict()["linear.weight"] is not None
    f.load_state_dict({name: torch.zeros_like(value) for name, value in f.state_dict().items()})
    assert torch.equal(f(Y), torch.ones(9, 3))
    torch.nn.init.normal_(linear.weight)
    public = {name for name in vars(f.model) if not name.startswith("_")}
    for name in public | {"memory", "ir", "report"}:
        assert hasattr(f, name)
    assert f.__name__ == "f"


def test_a_script_method_says_what_to_do():
    class Scripted(torch.nn.Module):
        @torch.jit.export
        def encode(self, x):
            return x + 1

        def forward(self, x):
            return self.encode(x)

    script = torch.jit.script(Scripted())
    with pytest.raises(TypeError, match="'encode' is a method of a TorchScript module"):
        disc.compile(script.encode, X)
    program = disc.export(script, X, dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(disc.compile(program)(Y), Y + 1)


def test_a_model_of_transformers():
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50)
    bert = BertModel(config).eval()

    def inputs(batch, length):
        ids = torch.randint(0, 50, (batch, length))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "output_hidden_states": True}

    model = disc.compile(bert, examples=[inputs(3, 7), inputs(2, 5)])
    given = inputs(4, 11)
    with torch.no_grad():
        expected = bert(**given)
    for result in (model(**given), model(given["input_ids"], given["attention_mask"], output_hidden_states=True)):
        assert type(result) is BaseModelOutputWithPoolingAndCrossAttentions
        torch.testing.assert_close(result.last_hidden_state, expected.last_hidden_state, rtol=1e-4, atol=1e-5)
        assert len(result.hidden_states) == 2
    with pytest.raises(TypeError, match="missing argument 'attention_mask'"):
        model(input_ids=given["input_ids"], output_hidden_states=True)
