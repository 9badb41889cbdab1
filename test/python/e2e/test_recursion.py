"""Ordinary Python functions that call themselves as often as data says, against eager PyTorch."""

import sys
from contextlib import contextmanager

import pytest
import torch
from torch.export import Dim

import closeness
import disc

pytestmark = pytest.mark.share(2)


@contextmanager
def deep():
    """Room for recursion in Python."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def check(module, examples, shapes, inputs, atol=1e-5):
    """Compiles once and compares at many inputs."""
    compiled = disc.compile(module, examples, dynamic_shapes=shapes)
    assert "procedure" in compiled.ir("memory")
    for args in inputs:
        with deep():
            expected = module(*args)
        torch.testing.assert_close(compiled(*args), expected, rtol=1e-5, atol=atol)
    return compiled


N = Dim("n", min=1, max=4096)


class Halving(torch.nn.Module):
    def f(self, x):
        if x.sum() < 1:
            return x
        return self.f(x * 0.5) + 1

    def forward(self, x):
        return self.f(x)


def vectors(*scales):
    return [(torch.rand(n) * s,) for n in (1, 3, 64) for s in scales]


def test_a_method_recurses_as_deep_as_data_says():
    check(Halving(), (torch.rand(5),), ({0: N},), vectors(0.01, 1, 1e3, 1e6))


class Itself(torch.nn.Module):
    def forward(self, x):
        if x.abs().max() < 1:
            return x
        return self.forward(x / 3) * 2


def test_forward_may_call_itself():
    check(Itself(), (torch.rand(5),), ({0: N},), vectors(0.1, 10, 1e4))


class Layered(torch.nn.Module):
    """Reads its parameters in the function that calls itself, and nowhere else."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def f(self, x, depth):
        if depth <= 0:
            return x
        return self.f(torch.tanh(self.layer(x)), depth - 1) + x

    def forward(self, x, depth):
        return self.f(x, depth)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("weights", ["embed", "file"])
def test_a_library_has_the_parameters_of_its_procedures(tmp_path, packed, weights):
    module, path = Layered(), tmp_path / "liblayered.so"
    args = (torch.randn(3, 8), torch.tensor(4))
    file = "embed" if weights == "embed" else tmp_path / "weights.safetensors"
    with torch.no_grad():
        disc.aot_compile(module, args, dynamic_shapes=({0: N}, None), output=path, weights=file, packed=packed)
        torch.testing.assert_close(disc.load(path)(*args), module(*args), rtol=1e-5, atol=1e-5)


def plain(x, weight, depth):
    if x.sum() < 1:
        return x + depth
    y = plain(torch.tanh(x @ weight), weight, depth + 1)
    return y + x


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return plain(x, self.layer.weight * 0.3, 0)


def test_a_function_with_a_captured_tensor_and_a_number_that_counts():
    check(Plain(), (torch.rand(5, 8),), ({0: N},), [(torch.rand(n, 8) * s,) for n in (1, 4, 30) for s in (0.01, 1, 9)])


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh())
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x, limit):
        scaled = x * 2
        rows = x.shape[0]

        def refine(h, fuel):
            if (h.abs().sum() < limit) or fuel == 0:
                return h + scaled
            return refine(self.layers(self.norm(h)) * 0.9 - h * 0.1, fuel - 1) + h / rows

        return refine(x, 20)


def test_a_nested_function_sees_what_is_around_it():
    inputs = [(torch.randn(n, 6), torch.tensor(s)) for n in (1, 2, 17) for s in (0.5, 5.0, 50.0, 500.0)]
    check(Nested(), (torch.randn(4, 6), torch.tensor(3.0)), ({0: N}, None), inputs)


class MergeSort(torch.nn.Module):
    def sort(self, x):
        n = x.shape[0]
        if n <= 1:
            return x
        a, b = self.sort(x[: n // 2]), self.sort(x[n // 2 :])
        # Where each goes: its own place, and as many as are less in the other half.
        i = torch.arange(a.shape[0]) + (b[None, :] < a[:, None]).sum(1)
        j = torch.arange(b.shape[0]) + (a[None, :] <= b[:, None]).sum(1)
        return torch.zeros_like(x).scatter(0, torch.cat([i, j]), torch.cat([a, b]))

    def forward(self, x):
        return self.sort(x)


def test_divide_and_conquer_on_a_dynamic_extent():
    check(MergeSort(), (torch.randn(9),), ({0: N},), [(torch.randn(n),) for n in (1, 2, 3, 5, 8, 31, 100, 257)])


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Fibonacci(torch.nn.Module):
    def forward(self, n):
        return fib(n)


def test_two_calls_in_one_expression():
    check(Fibonacci(), (torch.tensor(5),), None, [(torch.tensor(n),) for n in (0, 1, 2, 3, 7, 15)])


class Several(torch.nn.Module):
    def f(self, x, state):
        h, steps = state
        if x.sum() < 1:
            return {"h": h, "steps": steps, "any": x > 0.01}
        found = self.f(x * 0.5, (torch.cat([h, x]), steps + 1))
        return {"h": found["h"], "steps": found["steps"], "any": found["any"] | (x > 2)}

    def forward(self, x):
        found = self.f(x, (x, 0))
        return found["h"].sum(0), found["steps"], found["any"]


class Chain(torch.nn.Module):
    def f(self, x, n):
        if n == 0:
            return x
        return self.f(torch.tanh(x + 1), n - 1) * 0.5 + x

    def forward(self, x, n):
        return self.f(x, n.item())


def test_ten_thousand_levels_and_more():
    inputs = [(torch.rand(k), torch.tensor(n)) for k in (1, 9) for n in (0, 1, 10, 1000)]
    compiled = check(Chain(), (torch.rand(3), torch.tensor(4)), ({0: N}, None), inputs)
    x = torch.rand(9)
    for depth in (10_000, 200_000):
        y, got = x, compiled(x, torch.tensor(depth))
        passed = []
        for _ in range(depth):
            passed.append(y)
            y = torch.tanh(y + 1)
        for old in reversed(passed):
            y = y * 0.5 + old
        torch.testing.assert_close(got, y)


class Even(torch.nn.Module):
    def even(self, x):
        if x.sum() < 1:
            return x
        return self.odd(x - 0.25)

    def odd(self, x):
        if x.sum() < 1:
            return -x
        return self.even(x * 0.5) + 1

    def forward(self, x):
        return self.even(x), self.odd(x)


def test_functions_that_call_each_other():
    check(Even(), (torch.rand(5),), ({0: N},), vectors(0.01, 1, 1e3))


class InLoop(torch.nn.Module):
    def f(self, x):
        if x.sum() < 1:
            return x
        y = x
        for i in range(x.shape[0]):
            y = y - x[i] * 0.01
        if y.max() > 2:
            y = y * 0.5
        return self.f(y * 0.5) + y

    def forward(self, x, times):
        for _ in range(times.item()):
            x = self.f(x) * 0.3 if x.mean() > 0.1 else self.f(x + 0.1)
        return x


def test_calls_in_loops_and_branches():
    inputs = [(torch.rand(n) * s, torch.tensor(k)) for n in (1, 5, 12) for s in (0.1, 1, 10) for k in (0, 1, 3)]
    check(InLoop(), (torch.rand(4), torch.tensor(2)), ({0: N}, None), inputs)


class Ackermann(torch.nn.Module):
    def f(self, m, n):
        if m == 0:
            return n + 1
        if n == 0:
            return self.f(m - 1, n + 1)
        return self.f(m - 1, self.f(m, n - 1))

    def forward(self, m, n):
        return self.f(m, n)


def test_a_call_as_the_argument_of_a_call():
    inputs = [(torch.tensor(m), torch.tensor(n)) for m in (0, 1, 2) for n in (0, 1, 4)]
    check(Ackermann(), (torch.tensor(1), torch.tensor(1)), None, inputs)


class Accumulator(torch.nn.Module):
    def f(self, x, sofar=None):
        sofar = x if sofar is None else sofar + x
        if x.sum() < 1:
            return sofar
        return self.f(x * 0.5, sofar)

    def forward(self, x):
        return self.f(x)


def test_an_accumulator_that_is_none_at_first():
    check(Accumulator(), (torch.rand(5),), ({0: N},), vectors(0.01, 1, 1e3))


class QuickSort(torch.nn.Module):
    def sort(self, x):
        if x.shape[0] <= 1:
            return x
        pivot, rest = x[0], x[1:]
        return torch.cat([self.sort(rest[rest < pivot]), pivot[None], self.sort(rest[rest >= pivot])])

    def forward(self, x):
        return self.sort(x) * 1.0


def test_parts_whose_extents_data_decides():
    check(QuickSort(), (torch.randn(9),), ({0: N},), [(torch.randn(n),) for n in (1, 2, 3, 5, 8, 31, 100, 257)])


class Fourier(torch.nn.Module):
    def fft(self, re, im):
        n = re.shape[0]
        if n <= 1:
            return re, im
        (a, b), (c, d) = self.fft(re[::2], im[::2]), self.fft(re[1::2], im[1::2])
        angle = torch.arange(c.shape[0]) * (-2 * torch.pi) / n
        cos, sin = angle.cos(), angle.sin()
        c, d = c * cos - d * sin, c * sin + d * cos
        return torch.cat([a + c, a - c]), torch.cat([b + d, b - d])

    def forward(self, x):
        return self.fft(x, torch.zeros_like(x))


def test_a_fourier_transform():
    compiled = disc.compile(Fourier(), (torch.randn(8),), dynamic_shapes=({0: N},))
    for n in (1, 2, 4, 64, 512):
        x = torch.randn(n)
        closeness.check(Fourier(), (x,), compiled(x))


class Growing(torch.nn.Module):
    def f(self, x):
        if x.sum() < 1:
            return x[:1]
        return torch.cat([self.f(x * 0.5), x])

    def forward(self, x):
        return self.f(x), self.f(x + 1).sum()


def test_a_result_that_grows_from_level_to_level():
    compiled = check(Growing(), (torch.rand(5),), ({0: N},), vectors(0.01, 1, 1e3, 1e6))
    # Many levels, each with a result of its own.
    x = torch.full((4,), 3e38)
    assert compiled(x)[0].shape == Growing()(x)[0].shape


def test_results_and_arguments_of_several_kinds():
    check(Several(), (torch.rand(5),), ({0: N},), vectors(0.01, 1, 100))


class ChangesItsOwn(torch.nn.Module):
    def f(self, x):
        if x.sum() < 1:
            return x
        y = x.clone()
        y[0] = 0.5
        y.mul_(0.5)
        return self.f(y).add_(1)

    def forward(self, x):
        return self.f(x * 1)


def test_what_a_function_has_made_may_change_in_place():
    check(ChangesItsOwn(), (torch.rand(5),), ({0: N},), vectors(0.01, 1, 1e3))


# -- what is refused ---------------------------------------------------------------------------------------


def refused(module, examples, shapes, match):
    with pytest.raises(disc.errors.CompileError, match=match) as found:
        disc.compile(module, examples, dynamic_shapes=shapes)
    assert __file__ in str(found.value), "the line is missing"


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def seen_by_others(x):
    def f(x):
        return x if x.sum() < 1 else f(x * 0.5)

    x = x * 1
    y = f(x)
    y.add_(1)
    return x + y


def never(x):
    return never(x * 0.5) if x.sum() > 1 else never(x * 2)


def never_on_no_data(x):
    return never_on_no_data(x * 0.5)


def changes_its_argument(x):
    x.mul_(0.5)
    return x if x.sum() < 1 else changes_its_argument(x)


def appends(x, found):
    if x.sum() < 1:
        return torch.stack(found).sum(0)
    found.append(x)
    return appends(x * 0.5, found)


def lengthens(x, found):
    return torch.stack(found).sum(0) if x.sum() < 1 else lengthens(x * 0.5, [*found, x])


def other_dtype(x):
    if x.sum() < 1:
        return x
    return other_dtype(x * 0.5).double()


def draws(x):
    return x if x.sum() < 1 else draws(x * torch.rand(1))


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (seen_by_others, "changes a tensor .* in place, which may be the same as"),
        (never, "recursive function never calls itself on every path"),
        (never_on_no_data, "calls itself without end while it is traced"),
        (
            lambda x: changes_its_argument(x * 1),
            "changes_its_argument changes a tensor in place that it did not create",
        ),
        (lambda x: appends(x, [x]), "the recursive function appends changes found"),
        (lambda x: lengthens(x, [x]), "calls itself without end while it is traced"),
        (other_dtype, "what is returned is float32 .* and float64"),
        (draws, "draws random numbers"),
    ],
)
def test_what_is_refused_says_why_and_where(function, match):
    with pytest.raises(disc.errors.CompileError, match=match) as found:
        disc.compile(Of(function), (torch.rand(5),), dynamic_shapes=({0: N},))
    assert __file__ in str(found.value), "the line is missing"


# -- kinds of arguments and results ------------------------------------------------------------------------


def flips(x, flip=False):
    if x.sum() < 1:
        return x if flip else -x
    return flips(x * 0.5, not flip)


def scales(x, by=1.0):
    return x * by if (x * by).sum() < 1 else scales(x, by * 0.7)


def counts(x):
    return 0 if x.sum() < 1 else 1 + counts(x * 0.5)


def factor(x):
    return 0.5 if x.sum() < 1 else 1.5 * factor(x * 0.5)


def whether(x):
    if x.sum() < 1:
        return bool(x[0] > 0.2)
    return not whether(x * 0.5)


def nothing(x):
    return None if x.sum() < 1 else nothing(x * 0.5)


@pytest.mark.parametrize(
    "function",
    [
        flips,
        scales,
        counts,
        lambda x: torch.ones(counts(x) + 1) * x[0],
        lambda x: x * factor(x),
        lambda x: x if whether(x) else -x,
        lambda x: (x, nothing(x)),
    ],
)
def test_numbers_are_arguments_and_results(function):
    check(Of(function), (torch.rand(3),), ({0: N},), vectors(0.01, 1, 100))


def fails(x, level):
    if level > 5:
        raise ValueError("too deep")
    return x if x.sum() < 1 else fails(x * 0.5, level + 1)


def test_what_a_function_raises_is_an_error_of_the_call():
    x = torch.full((4,), 2.0)
    compiled = check(Of(lambda x: fails(x, 0)), (x,), ({0: N},), [(x,), (x * 0.01,)])
    with pytest.raises(Exception, match="too deep"):
        compiled(x * 1e4)
    torch.testing.assert_close(compiled(x), fails(x, 0))


def test_recursion_that_data_never_ends_is_an_error_of_the_call():
    compiled = disc.compile(Of(lambda x: counts(x)), (torch.rand(3),), dynamic_shapes=({0: N},))
    with pytest.raises(MemoryError, match="recursion is too deep"):
        compiled(torch.full((3,), torch.inf))
    assert compiled(torch.full((4,), 1.0)) == 3


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))

    def f(self, x, level):
        if level == len(self.layers):
            return x
        x = torch.tanh(self.layers[level](x))
        return x if x.abs().mean() < 0.3 else self.f(x, level + 1)

    def forward(self, x):
        return self.f(x, 0)


class Blocks(torch.nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.layer, self.inner = torch.nn.Linear(4, 4), inner

    def forward(self, x):
        x = torch.tanh(self.layer(x))
        if self.inner is None or x.abs().mean() < 0.3:
            return x
        return self.inner(x)


def nest(depth):
    return Blocks(nest(depth - 1) if depth else None)


def through(x, layers):
    if not layers or x.abs().mean() < 0.1:
        return x
    return through(torch.tanh(layers[0](x)), layers[1:])


class Rest(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))

    def forward(self, x):
        return through(x, list(self.layers))


@pytest.mark.parametrize(("module", "unrolled"), [(Layers, False), (lambda: nest(6), True), (Rest, True)])
def test_recursion_over_modules(module, unrolled):
    """That over nested modules, or a list of them, ends while it is traced."""
    model = module()
    compiled = disc.compile(model, (torch.randn(3, 4),), dynamic_shapes=({0: N},))
    assert ("procedure" not in compiled.ir("memory")) is unrolled
    for rows in (1, 5):
        for scale in (0.1, 1, 5):
            x = torch.randn(rows, 4) * scale
            torch.testing.assert_close(compiled(x), model(x))


# -- known algorithms --------------------------------------------------------------------------------------


def halves(x):
    chosen = torch.nonzero(x > 0.5)
    return x if chosen.shape[0] == 0 else halves(x[chosen[:, 0]] * 0.5)


def loops(x):
    while x.sum() > 3:
        x = loops(x * 0.3)
    return x


@torch.no_grad()
def decorated(x):
    return x if x.sum() < 1 else decorated(x * 0.5) + 1


@pytest.mark.parametrize("function", [halves, loops, decorated])
def test_recursion_with_masks_with_loops_and_decorated(function):
    check(Of(function), (torch.rand(3),), ({0: N},), vectors(0.01, 1, 100))


class Power(torch.nn.Module):
    def power(self, x, n):
        if n == 0:
            return torch.eye(x.shape[0])
        if n % 2 == 1:
            return x @ self.power(x, n - 1)
        half = self.power(x, n // 2)
        return half @ half

    def forward(self, x, n):
        return self.power(x, n.item())


def test_powers_of_a_matrix():
    inputs = [(torch.rand(k, k) * 0.5, torch.tensor(n)) for k in (1, 4) for n in (0, 1, 2, 7, 13)]
    side = Dim("k", min=1, max=64)
    check(Power(), (torch.rand(3, 3), torch.tensor(3)), ({0: side, 1: side}, None), inputs)


def gcd(a, b):
    return a if b == 0 else gcd(b, a % b)


class Divisors(torch.nn.Module):
    def forward(self, a, b):
        return gcd(a.shape[0], b.shape[0]), gcd(a[0].item(), b[0].item()), gcd(a[0], b[0])


def test_greatest_common_divisors_of_extents_and_data():
    sizes = [(48, 36), (17, 5), (12, 8), (1, 1), (64, 64)]
    inputs = [(torch.full((m,), 7 * m), torch.full((n,), 7 * n)) for m, n in sizes]
    shapes = ({0: Dim("m", min=1, max=100)}, {0: Dim("n", min=1, max=100)})
    check(Divisors(), (torch.arange(12), torch.arange(8)), shapes, inputs)
