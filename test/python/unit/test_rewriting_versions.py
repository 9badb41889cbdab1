# ruff: noqa: C416
"""Rewritten functions in the syntax, and with the code objects, that only some versions of Python have."""

import itertools
import linecache
import sys

import pytest

from disc.frontend.rewriting.region import raised_by_user
from disc.frontend.rewriting.source import find
from rewriting_observed import NUMBERS, same, t

_numbers = itertools.count()


def defined(text):
    """The function ``f`` of a text that not every version of Python can parse."""
    file = f"<doctest versions {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {"t": t}
    exec(compile(text, file, "exec"), space)
    return space["f"]


NEEDS_312 = pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")

TYPE_PARAMETERS = {
    "function": """
def f[T](x: T) -> T:
    if x > 3:
        return T.__name__
    return [x for _ in range(2) if x != 1]
""",
    "class": """
class Box[T]:
    def __init__(self, x: T):
        self.__x = x

    def get[U](self, u: U):
        if self.__x > u:
            return T.__name__, U.__name__
        return self.__x

def f(n):
    return Box(n).get(2)
""",
    "nested function": """
def f(n):
    def inner[S](x: S) -> S:
        if x > 2:
            return S.__name__
        return x
    return [inner(i) for i in range(n)], inner.__qualname__
""",
    "nested class": """
def f(n):
    class Box[T]:
        def get(self):
            return T.__name__, [Box for _ in range(n) if n > 1]
        class Inner:
            pass
    return Box.__qualname__, Box.get.__qualname__, Box.Inner.__qualname__, Box().get()
""",
    "alias": """
def f(n):
    if n > 1:
        type Alias = dict[n]
        def g[T](x):
            return x, T.__name__
    else:
        type Alias = list[n]
        def g[T](x):
            return -x, Alias.__name__
    n = 3
    return str(Alias.__value__), g(n)
""",
}


@NEEDS_312
@pytest.mark.parametrize("name", TYPE_PARAMETERS)
def test_type_parameters(name):
    same(defined(TYPE_PARAMETERS[name]), *NUMBERS)


@NEEDS_312
def test_quotes_in_format_strings():
    f = defined(
        """
def f(n):
    if n > 1:
        return f"{f"{n + 1}"} {"a" if n > 2 else "b"} {[i for i in range(n)]!r:>9}"
    return (lambda x: f"{x if x > 0 else "no"}")(n)
"""
    )
    same(f, *NUMBERS)


def test_exception_groups():
    f = defined(
        """
def f(n):
    try:
        if n > 2:
            raise ExceptionGroup("both", [ValueError(n), TypeError(n)])
        return n
    except* ValueError as error:
        n = t(len(error.exceptions) + 10)
    except* TypeError:
        n += 100
    return n
"""
    )
    same(f, *NUMBERS)


def test_variables_of_comprehensions():
    """Since Python 3.12 comprehensions are part of the code of the function around them."""

    class Holder:
        values = [1, 2, 3]
        kept = [x for x in values if x > 1]

        def get(self, n):
            return [__class__.__name__ if x > n else self.kept for x in self.values]

    def f(n):
        i = 5
        plain = [i for i in range(n)]
        nested = {i: {j for j in range(i) if j != i} for i in range(n)}
        cells = [g() for g in [lambda: (i, n) for i in range(n)]]
        try:
            unset = [late for _ in range(n) if n > 2]
        except NameError as error:
            unset = type(error).__name__.replace("Unbound", "").replace("Local", "Name")
        late = 1
        return plain, nested, cells, unset, i, late, Holder().get(n)

    same(f, *NUMBERS)


# fmt: off
pair = (lambda x: [y for y in range(x) if y]), (lambda x: [y for y in range(x) if not y])
# fmt: on


def test_lambdas_of_one_line_with_comprehensions():
    for one in pair:
        same(one, *NUMBERS)
    assert [find(one).node.body.col_offset for one in pair] == [18, 58]


@pytest.mark.parametrize("monitored", [False, True])
def test_monitored_code(monitored):
    """Debuggers, profilers and coverage put instructions of their own in the place of others (sys.monitoring)."""
    if monitored and not hasattr(sys, "monitoring"):
        pytest.skip("sys.monitoring is new in Python 3.12")

    def f(n):
        if n > 2:
            return n
        raise ValueError(n)

    def called(n):
        return int("x" * n)

    if monitored:
        m = sys.monitoring
        m.use_tool_id(m.PROFILER_ID, "test")
        m.set_events(m.PROFILER_ID, m.events.LINE | m.events.INSTRUCTION | m.events.RAISE | m.events.CALL)
        m.register_callback(m.PROFILER_ID, m.events.LINE, lambda code, line: None)
    try:
        f(3)
        same(f, *NUMBERS)
        for function, by_user in ((f, True), (called, False)):
            with pytest.raises(ValueError) as caught:
                function(1)
            assert raised_by_user(caught.value) == by_user
    finally:
        if monitored:
            m.set_events(m.PROFILER_ID, 0)
            m.free_tool_id(m.PROFILER_ID)
