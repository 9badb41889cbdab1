# ruff: noqa: C400, C416, F841, RUF021, SIM102 -- the functions here are what users may write
"""Rewritten functions do what the functions do: with operators that do what Python does."""

import contextlib
import functools
import inspect
import linecache

import pytest

import plain_operators
from disc.frontend.rewriting.transform import NotRewritable, rewrite, rewritten_source
from rewriting_observed import NUMBERS, Holder, observed, same, swallow, t

COUNTER = 0


# -- statements ---------------------------------------------------------------------------------------------


def test_if():
    def f(x):
        if t(x) > 3:
            y = 1
        elif x > 1:
            y = 2
        else:
            y = 3
            z = 4
        if x == 0:
            return y, z
        return y

    same(f, *NUMBERS)


def test_nested_returns():
    def f(x, y):
        if x > 0:
            if y > 0:
                return "both"
            t("after")
        elif y > 3:
            if y == 4:
                return
            return "four"
        else:
            t("else")
        x += 1
        t(x)
        if x > 2:
            if y > 1:
                return x
            y = 7
        return x, y

    same(f, *[(x, y) for x in range(-1, 4) for y in range(6)])
    # The rest is there once.
    assert rewritten_source(f).count("_disc_.call(t, ") == 3


def test_no_flags_without_loops():
    def f(x):
        if x:
            if t(x) > 2:
                return 1
        return 2

    source = rewritten_source(f)
    assert "_stop_" not in source and "_left_" not in source
    same(f, *NUMBERS)


def test_many_rests():
    """No more than eight paths lead to a statement."""
    lines = [f"    if x >= {k}:\n        if x == {k}:\n            return {k}\n        t(x)\n" for k in range(12)]
    text = f"def f(x):\n{''.join(lines)}    return -1\n"
    linecache.cache["<many>"] = (len(text), None, text.splitlines(keepends=True), "<many>")
    space = {"t": t}
    exec(compile(text, "<many>", "exec"), space)
    runs = []

    class Both:
        """Runs both sides."""

        def __getattr__(self, name):
            return getattr(plain_operators, name)

        def if_(self, test, then, orelse, get, put, names, site, *, needed, read, seen):
            runs.append(site[1])
            before = get()
            (orelse if test else then)()
            put(before)
            (then if test else orelse)()

    rewrite(space["f"], Both())(7)
    assert len(runs) < 500
    same(space["f"], *[(n,) for n in range(-1, 14)])


def test_loops():
    def f(n):
        total = 0
        for i in range(n):
            if i == 1:
                continue
            if i == 4:
                break
            for j in range(3):
                if t(i + j) == 4:
                    return "inside", i, j
                if j == i:
                    break
            else:
                total += 100
            total += i
        else:
            total = -total
        while total > 3:
            total -= 2
            if t(total) == 11:
                continue
            if total == 5:
                return total
        else:
            t("no break")
        return total, i

    same(f, *NUMBERS)


def test_while_true():
    def f(n):
        while True:
            n += 1
            if n > 3:
                break
            while True:
                n += t(1)
                if n % 2:
                    return n
                if n == 2:
                    break
        return -n

    same(f, *NUMBERS)


def test_no_value_after_a_loop():
    def f(n):
        for i in range(n):
            last = i
        return last

    same(f, *NUMBERS)


def test_with():
    def f(n):
        for i in range(4):
            with swallow() as five:
                if i == n:
                    continue
                if i + n == five:
                    break
                if n == 2:
                    return i
                if n == 3:
                    raise ValueError
                t("in")
            t(i)
        with swallow(), contextlib.suppress(KeyError):
            return {0: t(1), 4: 5}[n]
        return "swallowed"

    same(f, *NUMBERS)


def test_try():
    def f(n):
        for i in range(5):
            try:
                if i == n:
                    continue
                if n == 4:
                    return t("body")
                if i == 2:
                    raise ValueError(n)
                t(10 // (n - i + 1))
            except ZeroDivisionError as error:
                t(str(error))
                if n == 2:
                    break
            except ValueError:
                if n == 0:
                    return "handler"
                if n == 1:
                    raise
            else:
                t("else")
                if n == -1:
                    return "else"
            finally:
                t("finally")
                n = n if n != 3 else 33
            t("behind")
        return n, i

    same(f, *NUMBERS)


def test_try_keeps_the_returned_value():
    def f(x):
        try:
            return x
        finally:
            x = [*x, 2]
            t(x)

    same(f, ([1],))


def test_jumps_in_finally():
    def f(x):
        while True:
            try:
                t(x)
            finally:
                break

    with pytest.raises(NotRewritable, match="finally that returns") as caught:
        rewrite(f, plain_operators)
    line = inspect.getsourcelines(f)[1] + 5
    assert (caught.value.file, caught.value.line) == (__file__, line)


def test_assert_del_raise():
    def f(x):
        assert x != 1
        assert t(x) != 2, t("two")
        y = x
        if x == 3:
            del y
        if x > 3:
            if x > 4:
                raise ValueError(x)
            raise KeyError from None
        return y

    same(f, *NUMBERS)


def test_match():
    class Pair:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def f(x):
        for i in range(2):
            match t(x):
                case 1 | 2:
                    r = "small"
                case "a" if t(i):
                    r = "guarded"
                case "a":
                    continue
                case None:
                    return "none"
                case [a, *rest] if a > 1:
                    r = a, rest
                case {"k": v, **others}:
                    return v, others
                case Pair(a, b=3 | 4 as c):
                    r = a, c
                case y:
                    r = "else", y
                    if i:
                        break
        return r

    cases = [1, 2, 3, "a", None, [], [1, 2], [2, 3, 4], {"k": 1, "j": 2}, {}, Pair(1, 3), Pair(1, 4), (5, 6)]
    same(f, *[(c,) for c in cases if not isinstance(c, Pair)])
    assert [observed(rewrite(f, plain_operators), c)[:2] == observed(f, c)[:2] for c in cases] == [True] * len(cases)


def test_attributes_are_state():
    seen = []

    class Watching:
        def __getattr__(self, name):
            return getattr(plain_operators, name)

        def if_(self, *args, **named):
            seen.append((args[5], named["needed"], named["read"], sorted(named["seen"]())))
            return plain_operators.if_(*args, **named)

    def f(self, x, other):
        if x > 1:
            self.x = x
            self.inner = Holder()
            self.inner.x = 4
            a = x
            b = a
        else:
            b = other
        return b

    holder = Holder()
    assert rewrite(f, Watching())(holder, 2, 3) == 2 and repr(holder) == "Holder(2, Holder(4, None))"
    assert seen == [(("b", "self.x", "self.inner"), ("b", "self.x", "self.inner"), ("self.x", "self.inner"),
                     ["Holder", "other", "self", "x"])]  # fmt: skip


def test_unbound_attributes():
    def f(self, x):
        if x > 1:
            self.new = x
        return self.new

    same(f, (Holder(), 2), (Holder(), 1))


def test_state_of_a_loop():
    seen = []

    class Watching:
        def __getattr__(self, name):
            return getattr(plain_operators, name)

        def for_(self, *args, **named):
            seen.append((args[5], named["needed"], named["read"]))
            return plain_operators.for_(*args, **named)

    def f(xs):
        total = last = 0
        step = 1
        for x in xs:
            temporary = x + total
            total = temporary
            last = x
            step = step + 1 if step else total
        return total, last

    assert rewrite(f, Watching())([1, 2, 3]) == f([1, 2, 3])
    assert seen == [(("total", "last", "step"), ("total", "last"), ("total", "step"))]


# -- expressions -----------------------------------------------------------------------------------------------


def test_conditions():
    def f(x):
        a = t(x) and t(x - 1) or not t(x + 1)
        b = t(1) if t(x) > 2 else t(2) if x else t(3)
        c = t(0) < t(x) <= t(3) != t(2)
        d = x is None, x is not None, x in (1, 2), x not in (1, 2), None is x is not a
        return a, b, c, d, -x, ~x

    same(f, *NUMBERS)


def test_walrus():
    def f(x):
        if (n := t(x)) > 1 and (m := t(n + 1)) > 3:
            t(m)
        while (k := t(n)) < 4 and (n := n + 1):
            t(k)
        p = (q := 5) if n > 4 else (q := 6)
        r = 0 < (u := x) < (v := u + 1) < 4
        s = [w := i for i in range(x) if (z := i) != 1]
        assert x != 5, (y := t(7))
        for i in range(3):
            if (stop := i == x) or (i2 := i) > 7:
                break
        return n, k, p, q, r, u, s, stop

    same(f, *NUMBERS)

    def g(x):
        while (n := t(x)) > 1 and x:
            x -= 1
            if n == 3:
                break
        h = lambda a, b=t(x): (c := a + b) and [c for _ in range(c) if c]  # noqa: E731
        return n, h(2), h(1, 1)

    same(g, *NUMBERS)


def test_unbound_by_walrus():
    def f(x):
        x > 2 and (n := x)
        return n

    same(f, *NUMBERS)


def test_comprehensions():
    def f(x):
        a = [t(i) for i in range(x) if i % 2 if t(i) != 3]
        b = {t(i): t(j) for i in range(x) for j in range(i)}
        c = {i // 2 for i in range(x)}
        d = [[i * j for j in range(i)] for i in (x, 2) if i]
        e = [x for x in [x, x + 1]]
        g = [f(2) for f in [lambda y, i=i: y + i for i in range(x)]]
        return a, b, sorted(c), d, e, g, x

    same(f, *NUMBERS)


def test_generators():
    def f(x):
        a = any(t(i) > 2 for i in range(x) if i != 1)
        b = all(t(i) < 2 for i in range(x))
        c = sum(t(i) for i in range(x)), tuple(t(i) for i in range(x)), max((t(i) for i in range(x)), default=t(9))
        d = [*(t(i) for i in range(2))]
        lazy = (t(i) if t(i) else [t(j) for j in range(x)] for i in range(x) if i != 1 for k in range(2))
        t("made")
        e = next(lazy, None)
        return a, b, c, d, e, ",".join(str(i) for i in range(x)), list(lazy)

    same(f, *NUMBERS)

    def g(x):
        return list(i for i in x)

    same(g, (3,), ([1],))


def test_shadowed_builtins():
    def any(values):
        return t("mine"), next(values)

    def f(x):
        return any(t(i) for i in range(5))

    same(f, (1,))


def test_functions_inside():
    def f(x):
        calls = []

        def add(i, more=t(x)):
            """Adds."""
            nonlocal x
            if i > 1:
                x += more
                return i
            calls.append(i)

        def gen(n):
            for i in range(n):
                if i:
                    yield x

        class Inner:
            y = x

            def get(self):
                if self.y:
                    return x
                return super().__repr__()[:3]

        @functools.cache
        def cached(i):
            return t(i)

        for i in range(3):
            add(i)
            if x > 4:
                add(5)
                t(x)
        key = sorted([3, 1, 2], key=lambda v: v if v > 1 else 10)
        cached(1), cached(1)
        return calls, x, list(gen(2)), Inner().get(), key, add.__doc__, add.__qualname__, Inner.__qualname__

    g = same(f, *NUMBERS)
    assert g(3)[-2:] == f(3)[-2:]


def test_global():
    def f(x):
        global COUNTER
        if x > 1:
            COUNTER += x
        for _ in range(2):
            COUNTER += 1
        return COUNTER

    global COUNTER
    for x in range(4):
        COUNTER = 0
        expected = f(x)
        COUNTER = 0
        assert rewrite(f, plain_operators)(x) == expected
