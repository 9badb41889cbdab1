"""Small programs under torch.compile(backend="disc"): results, strides and shared memory as in eager, all compiled."""

import importlib
import logging
import threading

import pytest
import torch
from torch import nn

import disc
from compile_programs import OPTIONS, assert_same, check
from disc.dynamo import compiled as compiled_graphs
from disc.torch_compat.versions import MINOR

pytestmark = pytest.mark.share(3)

aten = torch.ops.aten
M, V = torch.randn(5, 6), torch.arange(10.0)
SQUARE = torch.randn(6, 6)
COMPLEX = torch.randn(3, 4, dtype=torch.complex64)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def swap_columns(y):
    y[:, [2, 0]] = y[:, [0, 2]]
    return y


def concatenated_before_update(x):
    y = torch.cat([x])
    x.add_(1)
    return y


def assigned_from_result(x):
    z = x + 1
    x.copy_(z)
    return z


def update_through_view(x):
    x[1:].add_(1)
    return x.t(), x[0]


def chunk_over_graph_break(x):
    first, second = x.chunk(2)
    torch._dynamo.graph_break()
    return first * 2 + second, second


def resized(x):
    return aten.resize(x, [2, 3]) + 0, aten.resize(x, [4])


def blocks(x, y, n):
    zeros = y.new_zeros(y.shape[0], x.shape[1] // n, n, 3)
    return zeros.view(x.shape[0], x.shape[2], x.shape[1], 3).transpose(2, 1) + 1


PROGRAMS = {
    "constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), torch.randn(2, 3), torch.randn(4, 3)),
    "constant returned": (lambda x: (torch.tensor([1, 2]), x + 1), V),
    "list as index": (lambda x: x[[0, 2]], M, torch.randn(9, 2)),
    "swapped columns": (swap_columns, M),
    "other dtype of a result": (lambda x: (x + 1).view(torch.int16), M),
    "other dtype of an input": (lambda x: (x.view(torch.int32), x * 2), M),
    "pieces": (lambda x: x.chunk(2), V, torch.arange(7.0)),
    "pieces of a result": (lambda x: (x + 1).split(3), V, torch.arange(8.0)),
    "as_strided": (lambda x: x[1:].as_strided((2, 2), (2, 1), 3), V),
    "as_strided of a transposed view": (lambda x: torch.as_strided(x.t(), (3, 4), (1, 3)) + 0, M),
    "detached": (lambda x: (x.detach(), x + 1), V),
    "expanded and used": (lambda x: (x[:, None].expand(-1, 4), x[:, None].expand(-1, 4) * 2), V),
    "result and its transpose": (lambda x: ((y := x + 1), y.t(), y[1:, ::2]), M),
    "same result twice": (lambda x: ((y := x * 2), y, y.view(-1), y.detach()), M),
    "column-major": (lambda x: (x + 1, (x * 2).t(), x.t().reshape(-1)), torch.randn(4, 5).t()),
    "channels last": (lambda x: x * 2 + 1, torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "offset": (lambda x: (x[1:], x + 1, x.t()), torch.randn(40)[3:33].view(5, 6)),
    "operations that do nothing": (
        lambda x: (torch.cat([x]), x.ceil(), aten.constant_pad_nd(x, [0, 0]), x.to(torch.int64), x.clone(), x.roll(0)),
        torch.arange(3),
    ),
    "copy before an update": (concatenated_before_update, V),
    "assigned result": (assigned_from_result, V),
    "update of a view": (update_through_view, M),
    "fft": (torch.fft.fft, torch.ones(3), torch.randn(8)),
    "polar": (torch.polar, (torch.rand(4), torch.randn(4))),
    "complex views": (lambda x: (torch.view_as_complex(x), x + 1), torch.randn(3, 2)),
    "complex": (lambda x: (x * 2, x.conj(), x.real, x.abs(), (x + 1).t()), COMPLEX),
    "negative number": (lambda x, n: x * n + n, (V, -2), (V, -7), (V, 5)),
    "float number": (lambda x, n: (x * n + n, n * 2), (V, 2.5), (V, -1.5)),
    "size as number": (lambda x: (x.shape[0] * 2, x / x.shape[0]), V, torch.arange(4.0)),
    "scatter through as_strided": (lambda x, y: x.t().as_strided_scatter(y, (2, 3), (5, 1), 2), (M, torch.ones(2, 3))),
    "triangles of a number": (lambda x, k: (x.triu(k), x.tril(k)), (M, 1), (M, -3), (M, 9)),
    "range from a negative number": (
        lambda x, n: torch.arange(n, n + x.shape[0]) + x,
        (V, -3),
        (torch.ones(4), -7),
        (V, 4),
    ),
    "image scaled by 3/2": (
        lambda x: nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
        torch.randn(2, 3, 4, 5),
        torch.randn(2, 3, 7, 2),
    ),
    "bags": (
        lambda i, w, o: nn.functional.embedding_bag(i, w, o),
        (torch.tensor([1, 2, 5, 1, 0, 3]), torch.randn(7, 5), torch.tensor([0, 4, 4, 5])),
    ),
    "squeezed number": (lambda x: (x.sum(0, keepdim=True), torch.logsumexp(x, 0), x.squeeze(0)), torch.tensor(3.0)),
    "resize": (resized, torch.randn(2, 3)),
    "resize to channels last": (
        lambda x, s: aten.resize(x, s, memory_format=torch.channels_last).as_strided((5,), (1,)) + 0,
        (torch.randn(5), (1, 3, 2, 2)),
    ),
    "numbers divided": (
        lambda x, n: (torch.div(x.shape[1], n, rounding_mode="trunc"), torch.div(x.shape[0], n), torch.div(n, 2)),
        (M, 4),
        (torch.ones(3, 11), 5),
    ),
    "a size that a product of matrices shows": (
        lambda x, y: x @ (y.view(torch.float64) + 1),
        (torch.randn(2, 2, dtype=torch.float64), torch.randn(2, 2)),
    ),
    "a size that a guard shows": (blocks, (torch.randn(2, 8, 3, 4), torch.ones(6, 1), 4)),
    "a view with sizes of another": (
        lambda x, y: x.view(y.shape) + y,
        (torch.randn(50, 20), torch.randn(10, 5, 20)),
        (torch.randn(12, 7), torch.randn(4, 3, 7)),
    ),
    "chunk over a graph break": (chunk_over_graph_break, torch.arange(8.0), V),
}  # fmt: skip


if MINOR < 13:
    del PROGRAMS["numbers divided"]  # Dynamo of PyTorch 2.12 leaves these divisions to Python.


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    function, *calls = PROGRAMS[name]
    reports = check(function, *calls)
    # Graphs of views alone have no part.
    assert all(report.compiled == report.ops for report in reports if report.parts)


def test_storage_of_column_major_inputs():
    check(lambda x: torch.as_strided(x, (2,), (1,)).fill_(3), torch.randn(5, 3).t(), fallbacks=None)


def test_view_whose_size_depends_on_data():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(lambda x, n: x[: n.item()], (V, torch.tensor(4)), (V, torch.tensor(6)))


def test_what_is_compiled_is_counted():
    [report] = check(lambda x: torch.relu(x @ x) + 1, SQUARE)
    assert (report.ops, report.compiled, report.parts) == (3, 3, 1)


@torch.library.custom_op("disc_test::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) * 2


@turned.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.falls_back("an operation without a rule")
def test_views_cross_the_border_to_pytorch():
    """A part's results share memory with its operands where eager's do."""

    def call(x):
        y = turned(x.sin().t())
        return y.t()[1:], y, y.cos().t(), x[1:]

    [report] = check(call, M, torch.randn(7, 3), fallbacks=["disc_test.turned.default"])
    assert (report.parts, report.ops - report.compiled) == (2, 1)


def test_views_of_a_changed_input_begin_where_it_does():
    """AOTAutograd takes the offset of such a result from the graph, which computes a changed copy at offset 0."""

    def change(x, y):
        t = x.flatten()
        t[1:3] = 7
        y.view(-1).mul_(2)
        return t, x[1], t[::2], y.view(-1)[1:], x + y

    def laid_out(function):
        for offset, rows, columns in ((3, 3, 4), (0, 2, 5), (7, 4, 3)):
            base = torch.arange(64.0)
            x, y = base[offset : offset + rows * columns].view(rows, columns), torch.ones(rows, columns)
            results = function(x, y)
            yield [(r.storage_offset(), r.shape, r.stride(), r.tolist()) for r in results]
            results[0][0] = 100
            yield base.tolist()

    compiled = torch.compile(change, backend="disc", dynamic=True, options=OPTIONS)
    assert list(laid_out(compiled)) == list(laid_out(change))


@pytest.mark.parametrize(
    "function",
    # Operations whose names begin as those of views do.
    [torch.tan, torch.tanh, torch.triu, torch.trunc, lambda x: x.take(torch.arange(4)), lambda x: x.topk(2, 0)[0]]
    + [
        lambda x: x.select_scatter(x[0], 0, 1),
        lambda x: x.to(torch.float64),
        lambda x: torch.expand_copy(x[:1], (3, -1)),
    ],
)
def test_one_operation_alone(function):
    reports = check(function, torch.randn(4, 4), torch.randn(6, 8))
    assert {report.parts for report in reports} == {1}


@pytest.mark.falls_back("an operation without a rule")
def test_fallback_is_one_warning_line(caplog):
    with caplog.at_level(logging.WARNING, "disc.dynamo"):
        check(lambda x: turned(x + 1) * 2, M, fallbacks=["disc_test.turned.default"])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    text = caplog.text.strip()
    assert "1 of 3 operations of the inference graph run in PyTorch" in text and "no lowering rule" in text
    assert len(text.splitlines()) == 1


@pytest.mark.falls_back("an error of the compiler")
def test_internal_errors_fall_back(monkeypatch, caplog):
    """Any exception of the compiler leaves the graph to PyTorch, and the report says so."""

    def fails(*_, **__):
        raise ValueError("broken\nmodule {}")

    monkeypatch.setattr(compiled_graphs, "build", fails)
    with caplog.at_level(logging.WARNING, "disc.dynamo"):
        explained = disc.explain(lambda x: torch.relu(x + 1), M)
    assert len(explained.fallbacks) == 2 and explained.graphs[0].parts == 0
    assert all(fallback.reason == "internal error: ValueError: broken" for fallback in explained.fallbacks)
    assert "module {}" not in caplog.text
    strict = torch.compile(lambda x: torch.relu(x + 1), backend="disc", options={"fallback": "error"})
    with pytest.raises(Exception, match="internal error: ValueError: broken"):
        strict(M)


@pytest.mark.falls_back("graphs that cannot be traced")
def test_untraceable_graphs_fall_back(monkeypatch):
    monkeypatch.setattr(disc.dynamo, "aot_autograd", lambda **_: lambda *_: 1 / 0)
    explained = disc.explain(lambda x: torch.relu(x + 1), M)
    assert {fallback.op for fallback in explained.fallbacks} == {"relu", "add"}


def test_strict():
    call = torch.compile(lambda x: turned(x + 1), backend="disc", options={"fallback": "error", **OPTIONS})
    with pytest.raises(Exception, match=r"disc_test\.turned\.default: no lowering rule"):
        call(M)
    check(lambda x: x + 1, M, options={"fallback": "error", **OPTIONS})
    with pytest.raises(Exception, match="fallback: expected 'pytorch' or 'error', got 'never'"):
        torch.compile(lambda x: x + 1, backend="disc", options={"fallback": "never"})(M)


def test_threads_with_other_modules():
    """Two threads call one graph with the parameters of different modules."""
    modules = [nn.Linear(6, 6) for _ in range(2)]

    @torch.compile(backend="disc", dynamic=True, options=OPTIONS)
    def call(module, x):
        return module(x)

    wrong = []

    def work(module):
        with torch.no_grad():
            expected = module(M)
            wrong.extend(i for i in range(100) if not torch.allclose(call(module, M), expected, atol=1e-5))

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_graphs, "_MAX_RELOADS", 10**9)
        call(modules[0], M)
        threads = [threading.Thread(target=work, args=(module,)) for module in modules]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_gradients_of_views():
    def call(x, w):
        y = x @ w
        return y.t(), y[1:], [piece.sin() for piece in y.chunk(2, 1)], x.view(-1)

    compiled = torch.compile(call, backend="disc", dynamic=True, options={"fallback": "error", **OPTIONS})
    for rows in (4, 7):
        own = torch.randn(rows, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
        others = [x.detach().clone().requires_grad_() for x in own]
        for inputs, function in ((own, call), (others, compiled)):
            first, second, (third, fourth), fifth = function(*inputs)
            sum((x * x).sum() for x in (first, second, third, fourth, fifth)).backward()
        assert_same([x.grad for x in own], [x.grad for x in others], 1e-4)


def test_gradients_of_strided_results():
    weight = torch.randn(3, 3)

    def f(x):
        return (x @ weight + 1).as_strided((x.shape[0], 2), (3, 2)) * 2

    inputs = torch.randn(5, 3, requires_grad=True)
    with disc.dynamo._listening() as reports:
        torch.compile(f, backend="disc", dynamic=True)(inputs).sum().backward()
    found, inputs.grad = inputs.grad, None
    f(inputs).sum().backward()
    torch.testing.assert_close(found, inputs.grad)
    assert all(not report.fallbacks for report in reports)


@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_average_pooling(dims):
    pool = getattr(nn.functional, f"avg_pool{dims}d")

    def call(x):
        return pool(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)

    compiled = torch.compile(call, backend="disc", dynamic=True, options={"fallback": "error", **OPTIONS})
    for size in ((7, 6, 5), (8, 9, 4)):
        own = torch.randn(2, 3, *size[:dims], requires_grad=True)
        other = own.detach().clone().requires_grad_()
        call(own).square().sum().backward()
        compiled(other).square().sum().backward()
        assert_same(own.grad, other.grad, 1e-5)


POOLS = {
    "adaptive average": lambda x: nn.functional.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive maximum": lambda x: nn.functional.adaptive_max_pool2d(x, (3, 2)),
    "maximum": lambda x: nn.functional.max_pool2d(x, 3, 2, 1),
    "nearest": lambda x: nn.functional.interpolate(x, scale_factor=2),
}


@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_images(name):
    compiled = torch.compile(POOLS[name], backend="disc", dynamic=True, options={"fallback": "error", **OPTIONS})
    for shape in ((2, 3, 7, 9), (1, 2, 3, 5)):
        own = torch.randn(shape, requires_grad=True)
        other = own.detach().clone().requires_grad_()
        POOLS[name](own).square().sum().backward()
        compiled(other).square().sum().backward()
        assert_same(own.grad, other.grad, 1e-5)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("scales", [(), (2.5, 2.0)])
def test_backward_operator_of_nearest(exact, scales):
    operator = aten._upsample_nearest_exact2d_backward if exact else aten.upsample_nearest2d_backward

    def call(grad):
        return operator(grad, [10, 8], [2, 3, 4, 4], *scales)

    check(call, torch.randn(2, 3, 10, 8))


def test_gradients_of_determinants():
    """PyTorch's gradient takes the decomposition of the transposed matrix where that is row-major."""

    def call(x):
        return torch.linalg.det(x), torch.linalg.det(x.mT), torch.linalg.slogdet(x)[1]

    compiled = torch.compile(call, backend="disc", dynamic=True, options={"fallback": "error", **OPTIONS})
    for size in (3, 5):
        own = (torch.randn(2, size, size) + 3 * torch.eye(size)).requires_grad_()
        other = own.detach().clone().requires_grad_()
        for function, x in ((call, own), (compiled, other)):
            sum(y.sum() for y in function(x)).backward()
        assert_same(own.grad, other.grad, 1e-3)


def test_a_trained_result_may_be_changed_in_place():
    layer = nn.Conv2d(3, 5, 3)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    y = torch.compile(lambda x: layer(x), backend="disc", options={"fallback": "error", **OPTIONS})(x)
    assert not y._is_view()
    y.mul_(2).sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((5,), 2.0 * 2 * 4 * 4))


@pytest.mark.parametrize("function", [torch.linalg.inv, torch.linalg.cholesky, torch.linalg.solve])
def test_checks_of_linear_algebra(function):
    """Compiled, too; a matrix that fails raises what eager raises."""

    def call(x):
        x = x @ x.mT
        return function(x, x) if function is torch.linalg.solve else function(x)

    check(lambda x: call(x + torch.eye(x.shape[0])), torch.rand(3, 3), torch.rand(5, 5), tolerance=1e-3)
    compiled = torch.compile(call, backend="disc", dynamic=True, options=OPTIONS)
    for matrix in (torch.zeros(3, 3), torch.zeros(4, 4)):
        with pytest.raises(torch.linalg.LinAlgError) as known:
            call(matrix)
        with pytest.raises(torch.linalg.LinAlgError) as found:
            compiled(matrix)
        assert str(found.value) == str(known.value)


def test_python_rounds_to_even():
    def call(x, i):
        return x + round(i / 2 + 1), x[: round(i / 2 + 1)], x + round((i / 2 + 1) * 10, -1)

    check(call, *[(torch.zeros(8), i) for i in (2, 3, 5, 7, 9)])


def test_masked_indices_from_the_end():
    def call(x, mask, index):
        return aten._unsafe_masked_index(x, mask, [index], 1), aten._unsafe_masked_index_put_accumulate(
            x, mask, [index], x[: mask.shape[0]]
        )

    calls = [
        (torch.randn(n), torch.rand(m) > 0.5, torch.randint(-n, n, (m,)).masked_fill(torch.rand(m) > 0.5, 99))
        for n, m in ((7, 5), (9, 8))
    ]
    check(call, *[(x, mask & (index < 99), index) for x, mask, index in calls])


def test_prims_of_inductor():
    """Those without a rule are the aten operations that PyTorch says they are."""
    importlib.import_module("torch._inductor.inductor_prims")
    prims = torch.ops.prims

    def call(x):
        y, offsets = prims._low_memory_max_pool_with_offsets(x, [3, 3], [2, 2], [1, 1], [1, 1], False)
        sizes = x.shape[-2:]
        return y, offsets, prims._low_memory_max_pool_offsets_to_indices(offsets, [3, 3], sizes, [2, 2], [1, 1], [1, 1])

    check(call, torch.randn(2, 3, 10, 9), torch.randn(1, 2, 7, 12))


def test_backward_operator_of_convolution():
    """The sizes of the bias are numbers of the program, the channels are not."""

    def call(grad, x, weight):
        return aten.convolution_backward(grad, x, weight, [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3)

    check(call, *[(torch.randn(n, 6, n, 5), torch.randn(n, 4, n, 5), torch.randn(6, 4, 1, 1)) for n in (3, 5)])


def test_number_fixed_by_two_bounds():
    """At n = 1 Dynamo's guard says n <= 1, and the largest of n counts needs n >= 1."""

    def call(index, n):
        ones = torch.ones_like(index)
        return index.new_zeros(n).scatter_add_(0, index.view(-1).expand_as(ones), ones).max()

    check(call, *[(torch.zeros(k, dtype=torch.int64), n) for k, n in ((5, 3), (1, 1), (1, 4), (7, 7))])
