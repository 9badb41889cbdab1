"""Back ends of others: claims, regions, code, errors, and what users see of them."""

import copy
import threading

import pytest
import torch
from torch import nn

import disc
from disc.backends import (
    Backend,
    Dim,
    ObjectFile,
    Operation,
    Pattern,
    PythonFunction,
    SharedLibrary,
    SourceCode,
    Value,
    anything,
    op,
    parameter,
    tensor,
)
from disc.backends.negotiation import Negotiation

LINEAR = r"""
#include <disc_backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const float *w, *b; int64_t n, k; } State;

static int32_t init(const disc_backend_init *init, void **state) {
  if (FAIL_INIT) {
    snprintf(init->error, init->error_size, "no such device");
    return 3;
  }
  State *s = malloc(sizeof(State));
  const disc_view *w = &init->constants[0], *b = &init->constants[1];
  *s = (State){w->data, b->data, w->dims[0], w->dims[1]};
  *state = s;
  return 0;
}

static int32_t run(void *state, const disc_backend_run *run) {
  const State *s = state;
  const disc_view *x = &run->operands[0], *y = &run->operands[1];
  int64_t rows = 1;
  for (int64_t d = 0; d < x->rank - 1; ++d)
    rows *= x->dims[d];
  for (int64_t i = 0; i < rows; ++i) {
    int64_t at = 0, rest = i;
    for (int64_t d = x->rank - 2; d >= 0; rest /= x->dims[d--])
      at += rest % x->dims[d] * x->strides[d];
    const float *row = (const float *)x->data + at;
    for (int64_t n = 0; n < s->n; ++n) {
      double sum = s->b[n];
      for (int64_t k = 0; k < s->k; ++k)
        sum += (double)row[k * x->strides[x->rank - 1]] * s->w[n * s->k + k];
      ((float *)y->data)[i * s->n + n] = (float)sum;
    }
  }
  if (rows == 13) {
    snprintf(run->error, run->error_size, "13 rows");
    return 7;
  }
  return 0;
}

static void release(void *state) { free(state); }

const disc_backend_table DISC_REGION = {VERSION, sizeof(disc_backend_table), init, run, release};
"""


class Linear(Backend):
    """Linear layers in C."""

    name = "c_linear"
    merges = False
    flags = ("-DFAIL_INIT=0", "-DVERSION=DISC_BACKEND_VERSION")
    text = LINEAR

    def patterns(self):
        root = op("aten.linear", tensor("x"), parameter("w"), parameter("b"))
        return [Pattern("linear", root, lambda m: None if m.values["x"].dtype == "float32" else "only float32")]

    def compile(self, region):
        return SourceCode(text=self.text, flags=self.flags, constants=region.operations[0].inputs[1:])


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 24), nn.Linear(24, 8)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))).sum(-1)


def _example(rows=3):
    return (torch.randn(rows, 5, 16),)


SHAPES = ({0: "batch", 1: "length"},)


def _compile(module, backend, **more):
    return disc.compile(module, _example(), dynamic_shapes=SHAPES, backends=[backend], **more)


def _agree(model, module, sizes=((1, 1), (3, 5), (2, 4), (0, 3), (7, 31), (64, 1))):
    for batch, length in sizes:
        x = torch.randn(batch, length, 16)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x))


def test_code_in_c_and_new_weights():
    module = Mlp().eval()
    model = _compile(module, Linear)
    assert [(d.op, d.backend, d.pattern) for d in model.backends] == [("aten.linear", "c_linear", "linear")] * 2
    assert "test_backends.py" in str(model.backends)
    _agree(model, module)
    with torch.no_grad():
        module.a.weight.mul_(-1.5)
    _agree(model, module)


def test_an_error_of_the_code_names_the_region_and_leaves_the_model_usable():
    module = Mlp().eval()
    model = _compile(module, Linear)
    with pytest.raises(RuntimeError, match=r"c_linear: aten.linear at test_backends.py:\d+: 13 rows"):
        model(torch.randn(13, 1, 16))
    _agree(model, module)


def test_one_model_contains_both_and_decides_in_each_call():
    calls = []

    class Counted(Linear):
        name = "counted"

        def prefer(self, region):
            rows, length, _ = region.inputs[0].dims
            return (rows * length) >= 32

        def compile(self, region):
            def run(x, w, b):
                calls.append(x.shape[0])
                return torch.nn.functional.linear(x, w, b)

            return PythonFunction(function=run)

    module = Mlp().eval()
    model = _compile(module, Counted)
    assert model.backends[0].when
    for rows, expected in ((31, 0), (32, 2), (1, 2), (40, 4)):
        x = torch.randn(rows, 1, 16)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x))
        assert len(calls) == expected


def test_refusals_have_reasons():
    class Never(Linear):
        name = "never"

        def accept(self, region):
            return "no room"

    class Slow(Linear):
        name = "slow"

        def prefer(self, region):
            return False

    for kind, reason in ((Never, "no room"), (Slow, "the host is faster (prefer)")):
        model = _compile(Mlp().eval(), kind)
        assert {d.backend for d in model.backends} == {None}
        assert [r.reason for d in model.backends for r in d.refusals] == [reason] * 2
    module = Mlp().double().eval()
    model = disc.compile(module, (torch.randn(3, 5, 16).double(),), dynamic_shapes=SHAPES, backends=[Linear])
    assert [r.reason for d in model.backends for r in d.refusals] == ["only float32"] * 2


def test_precedence():
    class Other(Linear):
        name = "other"

    for order, first in (((Linear, Other), "c_linear"), ((Other, Linear), "other")):
        model = disc.compile(Mlp().eval(), _example(), dynamic_shapes=SHAPES, backends=order)
        assert {d.backend for d in model.backends} == {first}
        assert f"back end '{first}' takes it" in model.backends[0].refusals[0].reason


@pytest.mark.parametrize(
    "change, text",
    [
        ({"flags": ("-DFAIL_INIT=1", "-DVERSION=DISC_BACKEND_VERSION")}, "init failed: no such device"),
        ({"flags": ("-DFAIL_INIT=0", "-DVERSION=99")}, "its table of functions has version 99"),
        ({"text": "int x = ;"}, "its code does not compile"),
        ({"text": "int x;"}, "does not define"),
        ({"compile": lambda self, region: 3}, "must return a Code, got int"),
        ({"compile": lambda self, region: 1 / 0}, "compile() raised ZeroDivisionError"),
        ({"accept": lambda self, region: 5}, "accept() must return None or a reason, got 5"),
        ({"prefer": lambda self, region: "x"}, "prefer() must return a condition"),
        ({"patterns": lambda self: 1 / 0}, "its patterns raised ZeroDivisionError"),
        (
            {"patterns": lambda self: [Pattern("p", op("aten.linear"), lambda m: 1 / 0)]},
            "the check of pattern 'p' raised",
        ),
        ({"patterns": lambda self: [Pattern("p", op("aten.linear"), lambda m: 3)]}, "a reason, got 3 (aten.linear)"),
        ({"compile": lambda self, region: SharedLibrary(path="/no/such.so", symbol="x")}, "cannot be loaded"),
        ({"compile": lambda self, region: ObjectFile(path="/no/such.o", symbol="x")}, "is missing"),
        (
            {"compile": lambda self, region: SourceCode(text=LINEAR, constants=[region.results[0]])},
            "is not a parameter among the inputs",
        ),
    ],
)
def test_errors_name_the_back_end(change, text):
    kind = type("Broken", (Linear,), {"name": "broken", **change})
    with pytest.raises((disc.CompileError, disc.LibraryError)) as caught:
        _compile(Mlp().eval(), kind)
    assert "broken" in str(caught.value) and text in str(caught.value)


def test_a_back_end_that_is_not_there():
    with pytest.raises(ValueError, match="no back end is called 'nothing'"):
        _compile(Mlp().eval(), "nothing")
    with pytest.raises(TypeError, match="expected names of back ends"):
        _compile(Mlp().eval(), 3)
    with pytest.raises(ValueError, match="each may be given once"):
        disc.compile(Mlp().eval(), _example(), backends=[Linear, Linear])
    with pytest.raises(disc.BackendError, match="written for version 7"):
        _compile(Mlp().eval(), type("Old", (Linear,), {"name": "old", "api_version": 7}))
    assert isinstance(disc.backends.available(), list)


class Exact(Backend):
    """Exact operations, by PyTorch."""

    name = "exact"
    functions = {"aten.add.Tensor": torch.add, "aten.mul.Tensor": torch.mul, "aten.relu": torch.relu}

    def patterns(self):
        return [Pattern(name.split(".")[1], op(name, tensor())) for name in self.functions]

    def compile(self, region):
        def run(*given):
            known = dict(zip(map(id, region.run_inputs), given, strict=False))
            for o in region.operations:
                args = [known[id(x)] if isinstance(x, Value) else x for x in o.args[: 1 + (o.name != "aten.relu")]]
                known[id(o.result)] = self.functions[o.name](*args)
            return tuple(known[id(value)] for value in region.results)

        return PythonFunction(function=run)


class Branching(nn.Module):
    def forward(self, x):
        y = x * 2 + 1
        if y.sum() > 0:
            y = torch.relu(y * x) + y
        else:
            y = torch.relu(y) * 3
        while y.abs().max() > 4:
            y = y * 0.5
        return y + 1


class Derived(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        half = x[: n // 2] * 2
        twice = torch.cat([x, x, x[:1]]) + 1
        flat = torch.relu(x.reshape(-1))
        return half + 1, twice * 2, flat * flat


class Chosen(nn.Module):
    def forward(self, x):
        picked = x[x > 0]
        return torch.relu(picked * 2) + 1


@pytest.mark.parametrize("module", [Branching(), Derived(), Chosen()], ids=lambda m: type(m).__name__)
def test_regions_in_control_flow_and_with_computed_sizes(module):
    shapes = ({0: torch.export.Dim("n", min=1)},) if isinstance(module, Derived) else ({0: "n"},)
    model = disc.compile(module, (torch.randn(6, 4),), dynamic_shapes=shapes, backends=[Exact])
    alone = disc.compile(module, (torch.randn(6, 4),), dynamic_shapes=shapes)
    assert model.backends.by("exact")
    for n in (1, 2, 3, 6, 7, 16, 33):
        x = torch.randn(n, 4)
        expected, found = alone(x), model(x)
        for a, b in zip(
            [expected] if isinstance(expected, torch.Tensor) else expected,
            [found] if isinstance(found, torch.Tensor) else found,
            strict=True,
        ):
            assert torch.equal(a, b)


def test_a_python_function_that_is_wrong():
    def compiled(function):
        kind = type("Wrong", (Linear,), {"compile": lambda self, region: PythonFunction(function=function)})
        return _compile(Mlp().eval(), kind)

    for function, text in (
        (lambda x, w, b: x, "result 0 is torch.float32 of shape"),
        (lambda x, w, b: (x, x), "returned 2 results, expected 1"),
        (lambda x, w, b: nn.functional.linear(x, w, b).double(), "torch.float64"),
        (lambda x, w, b: {}[0], "KeyError"),
        (lambda x, w, b: None, "result 0 must be a tensor, got NoneType"),
    ):
        with pytest.raises(RuntimeError, match=text):
            compiled(function)(torch.randn(3, 5, 16))


def test_many_threads():
    module = Mlp().eval()
    model = _compile(module, Linear)
    inputs = [torch.randn(n, 3, 16) for n in range(1, 9)]
    with torch.no_grad():
        expected = [module(x) for x in inputs]
    failed = []

    def call(i):
        for _ in range(50):
            if not torch.allclose(model(inputs[i]), expected[i], atol=1e-5, rtol=1e-4):
                failed.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(inputs))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed


def test_a_library_contains_the_code(tmp_path):
    module = Mlp().eval()
    disc.aot_compile(module, _example(), dynamic_shapes=SHAPES, output=tmp_path / "libmlp.so", backends=[Linear])
    library = disc.load(tmp_path / "libmlp.so")
    for batch, length in ((1, 1), (4, 7), (0, 2)):
        x = torch.randn(batch, length, 16)
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(library(x.numpy())), module(x))
    with pytest.raises(ValueError, match="13 rows"):
        library(torch.randn(13, 1, 16).numpy())
    with pytest.raises(disc.BackendError, match="a Python function cannot be a part of a library"):
        disc.aot_compile(
            Branching(), (torch.randn(6, 4),), dynamic_shapes=({0: "n"},), output=tmp_path / "x.so", backends=[Exact]
        )


def test_saved_models_and_onnx_are_errors(tmp_path):
    model = _compile(Mlp().eval(), Linear)
    with pytest.raises(disc.CompileError, match="back ends compiled a part of this model: c_linear"):
        model.save(tmp_path / "model.disc")
    with pytest.raises(ValueError, match="got an ONNX model"):
        disc.compile("nothing.onnx", backends=[Linear])


def test_torch_compile():
    module = Mlp().eval()

    class Products(Exact):
        name = "products"
        functions = {"aten.relu": torch.relu}

    torch._dynamo.reset()
    model = torch.compile(copy.deepcopy(module), backend="disc", dynamic=True, options={"backends": [Products]})
    with torch.no_grad():
        for n in (3, 5, 8):
            x = torch.randn(n, 5, 16)
            torch.testing.assert_close(model(x), module(x))
    found = disc.explain(module, torch.randn(3, 5, 16), backends=[Products])
    assert any(d.backend == "products" for graph in found.graphs for d in graph.decisions)
    assert "products" in str(found)


def test_patterns_of_several_operations():
    seen = []

    class Fused(Linear):
        name = "fused"
        merges = True

        def patterns(self):
            linear = op("aten.linear", tensor("x"), parameter("w"), anything("b"), name="linear")
            return [Pattern("linear_relu", op(("aten.relu", "aten.gelu"), linear)), Pattern("linear", linear)]

        def compile(self, region):
            seen.append([region.patterns[o.id][0] for o in region.operations])

            def run(x, *weights):
                for i, o in enumerate(o for o in region.operations if o.name == "aten.linear"):
                    x = nn.functional.linear(x, weights[2 * i], weights[2 * i + 1])
                    x = torch.relu(x) if region.patterns[o.id][0] == "linear_relu" else x
                return x

            return PythonFunction(function=run)

    module = Mlp().eval()
    model = _compile(module, Fused)
    assert seen == [["linear_relu", "linear_relu", "linear"]]
    _agree(model, module)


def test_regions_on_a_device():
    module = Branching()
    model = disc.compile(
        module, (torch.randn(6, 4),), dynamic_shapes=({0: "n"},), backends=[Exact], target="cuda-emulated"
    )
    assert model.backends.by("exact")
    alone = disc.compile(module, (torch.randn(6, 4),), dynamic_shapes=({0: "n"},), target="cuda-emulated")
    for n in (1, 6, 17):
        x = torch.randn(n, 4)
        assert torch.equal(model(x), alone(x))
    # The memory of the emulated device is the host's, so constants can be used.
    module = Mlp().eval()
    model = disc.compile(module, _example(), dynamic_shapes=SHAPES, backends=[Linear], target="cuda-emulated")
    _agree(model, module, ((1, 1), (3, 5)))


def test_constants_stay_with_the_host_of_a_device():
    class OneRegion:
        vetoes: list = []

        def regions(self):
            return [(0, "c_linear", [(1, "linear", 0)], [(1, 1, "w", ["8", "4"])], [(1, 0, ["n", "8"])])]

        def composites(self):
            return [(1, "aten.linear", ("c_linear", "linear"), [])]

        def veto_region(self, number, reason):
            self.vetoes.append(reason)

    x, w = Value("float32", (Dim("n"), Dim("4", 4, 4))), Value("float32", (Dim("8", 8, 8), Dim("4", 4, 4)), "w")
    y = Value("float32", (Dim("n"), Dim("8", 8, 8)))
    negotiation = Negotiation([Linear()], on_device=True)
    negotiation.graph.operations = [Operation(1, "aten.linear", (x, w), (x, w), (y,))]
    negotiation.decide(OneRegion(), None)
    assert "on a device" in OneRegion.vetoes[0] and negotiation.decisions[0].backend is None


def test_sanitized_models():
    module = Mlp().eval()
    model = _compile(module, Linear, options=disc.Options(sanitize=True))
    _agree(model, module, ((1, 1), (3, 5), (0, 3)))


def test_a_matrix_that_is_transposed_is_not_copied():
    class Product(Linear):
        name = "product"

        def patterns(self):
            return [Pattern("mm", op("aten.mm", tensor("a"), tensor("b")))]

        def compile(self, region):
            def run(a, b):
                seen.append((a.stride(), b.stride()))
                return a @ b

            return PythonFunction(function=run)

    class M(nn.Module):
        def forward(self, a, b):
            return torch.mm(a, b.t())

    seen = []
    shapes = ({0: "n"}, {0: "m"})
    model = disc.compile(M(), (torch.randn(4, 8), torch.randn(5, 8)), dynamic_shapes=shapes, backends=[Product])
    a, b = torch.randn(7, 8), torch.randn(3, 8)
    torch.testing.assert_close(model(a, b), a @ b.t())
    assert seen == [((8, 1), (1, 8))]
    assert len(model.kernels(n=4, m=5)) == 1
