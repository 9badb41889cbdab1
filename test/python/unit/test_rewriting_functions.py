"""Functions of all kinds are rewritten, and random ones do the same afterwards."""

import contextlib
import fractions
import functools
import importlib.util
import inspect
import itertools
import linecache
import shlex
import sys
import textwrap
import traceback

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plain_operators
from disc.frontend.rewriting.transform import NotRewritable, is_rewritten, rewrite
from random_functions import program
from rewriting_observed import LOG, NUMBERS, Holder, observed, same, swallow, t

NUMBER = itertools.count()


# -- functions -----------------------------------------------------------------------------------------------------


def test_signature_closure_and_globals():
    state = 3

    def f(a, b=2, /, c=[4], *args, d=5, **more) -> int:
        """Does."""
        nonlocal state
        if a:
            state += a
        return a, b, c, args, d, more, state

    f.mark = 1
    g = rewrite(f, plain_operators)
    assert g(1, d=7, z=3) == (1, 2, [4], (), 7, {"z": 3}, 4) and state == 4
    assert inspect.signature(f) == inspect.signature(g) and g.__defaults__[1] is f.__defaults__[1]
    assert (g.__name__, g.__qualname__, g.__doc__, g.mark) == (f.__name__, f.__qualname__, f.__doc__, 1)
    assert g.__globals__ is f.__globals__ and g.__module__ == f.__module__ and not hasattr(g, "__wrapped__")
    assert g.__code__.co_name == "f" and g.__code__.co_filename == __file__
    assert is_rewritten(g) and not is_rewritten(f) and rewrite(g, plain_operators) is g
    # Code is made once; closures are those of each function.
    assert rewrite(f, plain_operators).__code__ is g.__code__


def factorial(x):
    return x * factorial(x - 1) if x > 1 else 1


def test_own_name():
    """A function's name, and that of its class, are those of variables."""
    same(factorial, *NUMBERS)
    assert rewrite(Derived.of_this, plain_operators)() is Derived


class Base:
    def get(self, x):
        return "base", x


class Derived(Base):
    def __init__(self):
        self.__hidden = 5

    def get(self, x):
        if x > 1:
            for _ in range(2):
                if x:
                    return super().get(x), __class__.__name__
        return self.__secret(x)

    def __secret(self, __x):
        if __x:
            self.__hidden = __x
        return self.__hidden

    def of_this():
        return Derived

    @staticmethod
    def fixed(x):
        return "yes" if x else "no"

    @classmethod
    def of(cls, x):
        if x:
            return cls.__name__
        return x


def test_methods():
    d = Derived()
    for name in ("get", "_Derived__secret", "fixed", "of"):
        method = getattr(d, name)
        bound = rewrite(method, plain_operators)
        for x in range(4):
            assert bound(x) == method(x)
    assert rewrite(d.get, plain_operators).__self__ is d


def doubling(f):
    @functools.wraps(f)
    def wrapper(*args):
        for _ in range(2):
            result = f(*args)
        return result

    return wrapper


@doubling
def decorated(x):
    if x:
        return t(x)


def test_decorators():
    """What a decorator made is rewritten itself, and calls what it wraps by ``call``."""
    called = []

    class Calling:
        def __getattr__(self, name):
            return getattr(plain_operators, name)

        def call(self, f, site):
            called.append(f)
            return f

    LOG.clear()
    assert rewrite(decorated, Calling())(3) == 3 and LOG == [3, 3]
    assert called == [range, decorated.__wrapped__, decorated.__wrapped__]
    assert rewrite(decorated, plain_operators).__wrapped__ is decorated.__wrapped__
    cached = functools.lru_cache(decorated)
    assert rewrite(cached, plain_operators)(4) == 4


# fmt: off
lambdas = [lambda x: x and 1, lambda x: x or 2]
more = [lambda x: 3 if x > 2 else x, lambda x: (lambda x: x if x > 0 else -x)(x) if x else 7]
others = [lambda x: not x, lambda y: y is None]
# fmt: on


def test_lambdas():
    # Before 3.11, code does not say which part of a line it comes from.
    for f in (*([*lambdas, *more] if sys.version_info >= (3, 11) else []), *others):
        same(f, *NUMBERS)
    same(lambda x: [i for i in range(x) if i > 1], *NUMBERS)


def test_what_cannot_be_rewritten():
    def gen(x):
        yield x

    async def co(x):
        return x

    def frame(x):
        return locals()

    without = {}
    exec("def g(x): return x", without)
    for f, why in (
        (gen, "generator"),
        (co, "coroutine"),
        (frame, "locals"),
        (without["g"], "no source"),
        (len, "not a Python function"),
    ):
        with pytest.raises(NotRewritable, match=why) as caught:
            rewrite(f, plain_operators)
        assert caught.value.suggestion and caught.value.reason in str(caught.value)


@pytest.mark.parametrize("text", ["def g(a):\n    return a\n", "def f(a):\n    return a + 2\n", "", "def f(a):\n"])
def test_changed_file(tmp_path, text):
    file = tmp_path / "changing.py"
    file.write_text("def f(a):\n    return a + 1\n")
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    file.write_text(text)
    with pytest.raises(NotRewritable, match=r"differs from the code in its file|no source|syntax error"):
        rewrite(space["f"], plain_operators)


def test_tracebacks_are_the_users():
    def f(x):
        for i in range(x):
            if i > 1:
                raise ValueError(
                    i,
                )

    def places(g):
        with pytest.raises(ValueError) as caught:
            g(3)
        frames = traceback.extract_tb(caught.value.__traceback__)
        return [(s.filename, s.lineno, s.name, s.line) for s in frames if s.filename == __file__][1:]

    new = places(rewrite(f, plain_operators))
    assert places(f)[-1] == new[-1] and {name for _, _, name, _ in new} == {"f"}


def test_sites():
    sites = []

    class Noting:
        def __getattr__(self, name):
            return getattr(plain_operators, name)

        def if_(self, *args, **named):
            sites.append(args[6])
            return plain_operators.if_(*args, **named)

    def f(x):
        if x:
            return 1

    rewrite(f, Noting())(1)
    assert sites == [(__file__, inspect.getsourcelines(f)[1] + 1, "if x:")]


def test_functions_of_others():
    """Modules of the standard library, with all functions rewritten."""

    def used(textwrap, fractions, shlex):
        text = "Some of  the words, of which one-two\tare hyphen-ated; " * 3
        number = fractions.Fraction
        return [
            textwrap.wrap(text, 17),
            textwrap.shorten(text, 30),
            textwrap.dedent("   a\n     b\n\n   c"),
            [
                number(3, 4) + number("5/6"),
                number(0.1).limit_denominator(10),
                number(1, 3) ** -2,
                round(number(7, 3), 2),
            ],
            [number(7, 2) // number(1, 3), number(1, 3) < 0.5, hash(number(2, 3)), repr(number("1e-3"))],
            shlex.split('a \'b c\' "d\\" e" f\\ g # x', comments=True),
        ]

    def modules(change):
        for module in (textwrap, fractions, shlex):
            spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
            new = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(new)
            for holder in [new, *(v for v in vars(new).values() if isinstance(v, type))]:
                for name, value in list(vars(holder).items()):
                    if inspect.isfunction(value) and value.__module__ == module.__name__ and change:
                        with contextlib.suppress(NotRewritable):
                            setattr(holder, name, rewrite(value, plain_operators))
            yield new

    assert repr(used(*modules(True))) == repr(used(*modules(False)))


# -- random functions --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(st.randoms(use_true_random=False))
def test_random_functions(chance):
    text, file = program(chance), f"<random {next(NUMBER)}>"
    # Where inspect and tracebacks look for source.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {"t": t, "swallow": swallow, "Holder": Holder}
    exec(compile(text, file, "exec"), space)
    f = space["f"]
    new = rewrite(f, plain_operators)
    for a, b in ((0, 1), (2, 3), (5, -1)):
        space["g"] = 1
        expected = observed(f, a, b, [3, 1, 2], Holder())
        space["g"] = 1
        assert observed(new, a, b, [3, 1, 2], Holder()) == expected, text
    del linecache.cache[file]
