"""What the import says of a program besides its ops: symbols, parameters, structure, errors."""

import re
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.export import Dim

import ir_reference
import models
from disc import errors
from disc.frontend import import_program, lowers


class Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *xs, **kwargs):
        return self.fn(*xs, **kwargs)


def run(program, *args, **kwargs):
    flat = program.flatten(args, kwargs)
    return program.unflatten(ir_reference.run(program.text, program.parameters, flat), flat)


def symbols(program):
    return {s.name: (s.min, s.max) for s in program.symbols}


# -- symbols ---------------------------------------------------------------------------------------


def test_symbols_have_the_users_names_and_ranges():
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=512)
    program = import_program(
        Call(lambda x, y: x + y[:, None]),
        (torch.randn(3, 5), torch.randn(3)),
        dynamic_shapes=(({0: batch, 1: length}, {0: batch}),),
    )
    assert symbols(program) == {"batch": (1, 64), "length": (2, 512)}
    assert [i.dims for i in program.inputs] == [("batch", "length"), ("batch",)]
    assert "#disc_shape.dims<[batch, length]>" in program.text
    assert re.search(r'"disc_shape.symbol"\(\) \{.*max = 512.*min = 2.*"length"', program.text)
    # Equal extents are one value: nothing is left to require.
    assert "disc_shape.require" not in program.text


def test_unbounded_symbol_has_no_max():
    program = import_program(Call(lambda x: x * 2), (torch.randn(3),), dynamic_shapes=(({0: Dim("n")},),))
    assert symbols(program)["n"][1] is None
    assert not re.search(r'"disc_shape.symbol"\(\) \{[^}]*max =', program.text)


def test_unnamed_dims_are_named_after_their_input():
    class Model(nn.Module):
        def forward(self, tokens):
            return tokens + 1

    program = import_program(Model(), (torch.randn(3, 4),), dynamic_shapes={"tokens": {0: Dim.AUTO}})
    assert list(symbols(program)) == ["tokens_0"]


def test_derived_dim_is_an_expression():
    half = Dim("half", min=2, max=32)
    program = import_program(
        Call(lambda x, y: x[::2] + y),
        (torch.randn(8), torch.randn(4)),
        dynamic_shapes=(({0: 2 * half}, {0: half}),),
    )
    assert [i.dims for i in program.inputs] == [("2 * half",), ("half",)]
    x, y = torch.randn(12), torch.randn(6)
    torch.testing.assert_close(run(program, x, y), x[::2] + y)


def test_derived_dim_alone():
    half = Dim("half", min=2, max=32)
    program = import_program(Call(lambda x: x.view(2, -1)), (torch.randn(8),), dynamic_shapes=(({0: 2 * half},),))
    assert [i.dims for i in program.inputs] == [("2 * half",)]
    x = torch.randn(12)
    torch.testing.assert_close(run(program, x), x.view(2, 6))


def test_static_extents_stay_static():
    program = import_program(Call(lambda x: x + 1), (torch.randn(1, 4),))
    assert symbols(program) == {} and program.inputs[0].dims == (1, 4)
    assert "tensor<1x4xf32>" in program.text and "?" not in program.text.split("#loc")[0]


def test_nested_dynamic_shapes_by_name():
    class Model(nn.Module):
        def forward(self, pair, extra):
            return pair["a"] + pair["b"] * extra[0]

    n = Dim("n", min=2, max=9)
    args = ({"b": torch.randn(3), "a": torch.randn(3)}, [torch.randn(3)])
    program = import_program(Model(), args, dynamic_shapes={"pair": {"a": {0: n}, "b": {0: n}}, "extra": [{0: n}]})
    assert list(symbols(program)) == ["n"]
    torch.testing.assert_close(run(program, *args), Model()(*args))


def test_exported_program():
    n = Dim("n", min=2, max=9)
    shapes = (({0: n},),)
    exported = torch.export.export(Call(torch.tanh), (torch.randn(3),), dynamic_shapes=shapes)
    assert list(symbols(import_program(exported))) == ["xs_0_0"]
    assert symbols(import_program(exported, dynamic_shapes=shapes)) == {"n": (2, 9)}


# -- parameters ------------------------------------------------------------------------------------


def test_parameters_are_the_models_own_tensors():
    model = models.MLP().eval()
    program = import_program(model, (torch.randn(3, 24),))
    state = model.state_dict(keep_vars=True)
    assert set(program.parameters) == set(state)
    for name, tensor in program.parameters.items():
        assert tensor.data_ptr() == state[name].data_ptr()
    assert len(program.text) < 20_000, "weights must not be in the text"


def test_tied_weights_are_one_parameter():
    program = import_program(models.Decoder().eval(), (torch.randint(0, 9, (2, 5)),))
    assert program.text.count('{name = "tokens.weight"}') == 1
    pointers = [t.data_ptr() for t in program.parameters.values()]
    assert len(pointers) == len(set(pointers))


def test_buffers_and_constants():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.arange(4.0))
            self.register_buffer("mask", torch.tensor([True, False, True, False]), persistent=False)
            self.plain = torch.full((4,), 3.0)
            self.bytes = torch.tensor([1, 200, 3, 255], dtype=torch.uint8)

        def forward(self, x):
            return torch.where(self.mask, x + self.kept, x * self.plain + self.bytes) + torch.tensor(
                [1.0, 2.0, 3.0, 4.0]
            )

    x = torch.randn(2, 4)
    program = import_program(Model(), (x,))
    assert {"kept", "mask", "plain", "bytes"} <= set(program.parameters)
    torch.testing.assert_close(run(program, x), Model()(x))


# -- structure -------------------------------------------------------------------------------------


def test_outputs_of_every_kind():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))

        def forward(self, x, *, scale):
            y = x * scale
            return {"y": y, "again": [y], "x": x, "w": self.weight, "none": None, "n": 3, "rows": x.shape[0] * 2}

    model, x, scale = Model(), torch.randn(4, 3), torch.randn(3)
    program = import_program(
        model, (x,), {"scale": scale}, dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}, "scale": None}
    )
    kinds = {"tensor", "input", "parameter", "constant", "int"}
    assert {o.kind for o in program.outputs} == kinds and len(program.output_names) == 1
    x = torch.randn(7, 3)
    got = run(program, x, scale=scale)
    torch.testing.assert_close(got["y"], x * scale)
    assert got["again"][0] is got["y"] and got["x"] is x and got["w"].data_ptr() == model.weight.data_ptr()
    assert got["none"] is None and got["n"] == 3 and got["rows"] == 14


def test_names_of_outputs():
    Pair = namedtuple("Pair", "low high")

    class Model(nn.Module):
        def __init__(self, results):
            super().__init__()
            self.results = results

        def forward(self, x):
            return self.results(x + 1, x + 2, x + 3)

    for results, names in (
        (lambda a, b, c: a, ["output_0"]),
        (lambda a, b, c: (a, [b, c]), ["output_0", "output_1", "output_2"]),
        (lambda a, b, c: {"a": a, "none": None, "b": (b, c)}, ["a", "b_0", "b_1"]),
        (lambda a, b, c: (a, Pair(b, c), b), ["output_0", "1_low", "1_high"]),
        (lambda a, b, c: {"b_0": a, "b": [b, c]}, ["b_0", "b_0_1", "b_1"]),
        (lambda a, b, c: {"a": a, "same": a}, ["a"]),
    ):
        program = import_program(Model(results), (torch.randn(3),))
        assert program.output_names == names
        assert all(f'disc_shape.name = "{name}"' in program.text for name in names)


def test_constant_arguments_are_part_of_the_program():
    class Model(nn.Module):
        def forward(self, x, flag, missing=None):
            return x + 1 if flag else x - 1

    x = torch.randn(3)
    program = import_program(Model(), (x, True), {"missing": None})
    torch.testing.assert_close(run(program, x, True, missing=None), x + 1)
    with pytest.raises(TypeError, match="'flag' is a constant of the compiled model: expected True"):
        program.flatten((x, False), {"missing": None})


def test_wrong_structure_is_a_type_error():
    program = import_program(Call(lambda x, y: x + y), (torch.randn(3), torch.randn(3)))
    with pytest.raises(TypeError, match=r"missing argument 'xs\[1\]'; the model was compiled for 'xs\[0\]', 'xs\[1\]'"):
        program.flatten((torch.randn(3),))


def test_same_tensor_is_returned_once():
    program = import_program(Call(lambda x: (x + 1, x.exp(), x.view(3), x, x + 0)), (torch.randn(3),))
    # An operation that makes a tensor makes one here, too, also of the same values.
    assert [o.kind for o in program.outputs] == ["tensor", "tensor", "input", "input", "tensor"]


# -- locations and errors --------------------------------------------------------------------------


def line_of(function, text):
    import inspect

    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


@torch.library.custom_op("disc_test::first", mutates_args=())
def first(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("disc_test::second", mutates_args=())
def second(x: torch.Tensor) -> torch.Tensor:
    return x * 3


for op in (first, second):
    op.register_fake(torch.empty_like)


class Unsupported(nn.Module):
    def forward(self, x):
        y = first(x)
        z = second(x)
        return y + z + torch.tanh(x)


def test_one_tensor_as_two_example_inputs():
    x = torch.randn(3)
    program = import_program(Call(lambda a, b: a - b), (x, x))
    assert torch.equal(run(program, torch.ones(3), torch.zeros(3)), torch.ones(3))


def test_all_unsupported_ops_are_reported_with_their_lines():
    with pytest.raises(errors.UnsupportedOpError) as caught:
        import_program(Unsupported(), (torch.randn(4),))
    found = {op.name: op.source for op in caught.value.ops}
    for name, text in (("torch.disc_test.first", "first(x)"), ("torch.disc_test.second", "second(x)")):
        source = next(source for op, source in found.items() if op.startswith(name))
        assert source == f"{__file__}:{line_of(Unsupported.forward, text)}"
    assert caught.value.stage == "import"
    assert "torch.aten.tanh" not in str(caught.value)


def test_every_op_has_its_python_line():
    program = import_program(models.MLP().eval(), (torch.randn(2, 24),))
    line = line_of(models.MLP.forward, "self.activation(self.second(x))")
    assert f'"{models.__file__}":{line}:0' in program.text
    assert "loc(unknown)" not in program.text


def test_changed_buffers_are_arguments():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return x + self.calls

    module = Model()
    program = import_program(module, (torch.randn(2),))
    assert 'disc_tensor.state = "calls"' in program.text and "disc_tensor.updates = 1" in program.text
    assert program.states["calls"] is module.calls and [o.kind for o in program.outputs] == ["tensor"]

    module.calls = torch.zeros(2, 4)[:, ::2]
    with pytest.raises(errors.CompileError, match="the model updates 'calls', which must be contiguous"):
        import_program(module, (torch.randn(2),))


def test_export_failures_are_compile_errors():
    with pytest.raises(errors.CompileError, match=r"the model's code raised RuntimeError.*shape '\[3, 7\]' is invalid"):
        import_program(Call(lambda x: x.reshape(3, 7)), (torch.randn(2),))


# -- rules of one's own ----------------------------------------------------------------------------


@torch.library.custom_op("disc_test::swish_twice", mutates_args=())
def swish_twice(x: torch.Tensor, beta: float) -> torch.Tensor:
    return 2 * x * torch.sigmoid(beta * x)


@swish_twice.register_fake
def _(x, beta):
    return torch.empty_like(x)


def test_users_register_rules():
    module = Call(lambda x: swish_twice(x, 0.5) + 1)
    x = torch.randn(3, 4)
    with pytest.raises(errors.UnsupportedOpError, match="disc_test"):
        import_program(module, (x,))

    @lowers("torch.disc_test.swish_twice")
    def rule(b, x, beta):
        from disc.frontend import scalar

        return b.elementwise(b.out.dtype, [x], lambda x: 2.0 * x * scalar.sigmoid(beta * x))

    torch.testing.assert_close(run(import_program(module, (x,)), x), module(x))


def test_a_wrong_rule_is_caught_at_its_op():
    @lowers("torch.disc_test.swish_twice")
    def rule(b, x, beta):
        return b.full([1], 0.0, b.out.dtype)

    with pytest.raises(
        errors.CompileError, match=r"internal error.*the rule of torch\.disc_test\.swish_twice returned"
    ):
        import_program(Call(lambda x: swish_twice(x, 0.5)), (torch.randn(3, 4),))


# -- whole models ----------------------------------------------------------------------------------


def small_bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return transformers.BertModel(config).eval()


def test_bert_attention_reads_the_padding_mask_as_it_is():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = small_bert()

        def forward(self, ids, mask):
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    model = Model()
    dims = {0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=64)}

    def args(batch, length):
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[-1, length // 2 :] = 0
        return torch.randint(0, 100, (batch, length)), mask

    program = import_program(model, args(3, 7), dynamic_shapes=(dims, dims))
    assert program.text.count('"disc_tensor.attention"') == 2
    # A bool for each (batch, key): never expanded to queries and heads, and not gathered.
    assert len(re.findall(r"tensor<\?x1x1x\?xi1>\) -> tensor<\?x4x\?x8xf32>", program.text)) == 2
    assert "disc_shape.require" not in program.text
    for sizes in ((1, 2), (2, 64), (3, 7)):
        inputs = args(*sizes)
        with torch.no_grad():
            torch.testing.assert_close(run(program, *inputs), model(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("with_mask", [False, True])
def test_gpt2(with_mask):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gpt2 = transformers.GPT2LMHeadModel(config).eval()

        def forward(self, ids, mask=None):
            return self.gpt2(input_ids=ids, attention_mask=mask, use_cache=False).logits

    model, dims = Model(), {0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=32)}

    def args(batch, length):
        ids = torch.randint(0, 100, (batch, length))
        return (ids, torch.ones_like(ids)) if with_mask else (ids,)

    program = import_program(model, args(2, 5), dynamic_shapes=(dims,) * (1 + with_mask))
    for sizes in ((1, 2), (3, 32)):
        inputs = args(*sizes)
        with torch.no_grad():
            torch.testing.assert_close(run(program, *inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_decoder():
    model = models.Decoder().eval()
    dims = {0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=128)}
    program = import_program(model, (torch.randint(0, 101, (2, 5)),), dynamic_shapes=(dims,))
    assert "is_causal = true" in program.text
    ids = torch.randint(0, 101, (3, 17))
    with torch.no_grad():
        torch.testing.assert_close(run(program, ids), model(ids), rtol=1e-4, atol=1e-5)
