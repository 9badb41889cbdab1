"""The arithmetic of symbolic expressions, against Python's integers."""

from hypothesis import assume, example, given
from hypothesis import strategies as st

from .symexpr import SYMBOLS, Expr, Undefined, exprs

assignments = st.fixed_dictionaries({name: st.integers(-40, 40) for name in SYMBOLS})


def text(symbols):
    return " ".join(f"{name}={value}" for name, value in symbols.items())


def known(expr, symbols):
    """The value, or a reason to try another example."""
    try:
        return expr.value(symbols)
    except Undefined:
        assume(False)


def atoms(*items):
    """`items` as an expression: ("+", "S", 1)."""
    head, *args = items
    return Expr(head, tuple(atoms(*a) if isinstance(a, tuple) else Expr(a) for a in args))


@given(expr=exprs(), points=st.lists(assignments, min_size=1, max_size=6))
@example(expr=atoms("floordiv", ("*", -1, "S"), 16), points=[dict.fromkeys(SYMBOLS, 5)])
@example(expr=atoms("floordiv", ("*", "S", ("*", "B", 3)), ("*", "B", -2)), points=[dict.fromkeys(SYMBOLS, 5)])
@example(expr=atoms("mod", ("*", "S", 15), -16), points=[dict.fromkeys(SYMBOLS, 7)])
def test_normal_form_has_the_value_of_the_expression(tool, expr, points):
    _, *values = tool.ask("eval", expr, *map(text, points))
    for symbols, value in zip(points, values, strict=True):
        try:
            expected = expr.value(symbols)
        except Undefined:
            continue  # A rule may give a value to what has none: S floordiv S is 1.
        # 64 bits overflow before Python does; nothing else may be undefined.
        if value == "undefined":
            assert any(abs(v) > 2**40 for v in largest(expr, symbols)), (expr, symbols)
        else:
            assert int(value) == expected


def largest(expr, symbols):
    """The values of all parts, and of all products that a normal form may spread a part into."""
    yield expr.value(symbols)
    for arg in expr.args:
        yield from largest(arg, symbols)
    yield 41 ** sum(1 for _ in leaves(expr))


def leaves(expr):
    if not expr.args:
        yield expr
    for arg in expr.args:
        yield from leaves(arg)


@given(expr=exprs())
def test_text_reads_back_as_the_same_normal_form(tool, expr):
    (once,) = tool.ask("eval", expr)
    (twice,) = tool.ask("eval", once)
    assert once == twice
    assert tool.ask("compare", expr, once) == ["same"]


@given(a=exprs(max_leaves=5), b=exprs(max_leaves=5), c=exprs(max_leaves=5))
def test_equal_by_the_laws_of_arithmetic_is_equal_by_normal_form(tool, a, b, c):
    (defined,) = tool.ask("eval", f"({a}) * ({b}) * ({c})")
    assume("undefined" not in defined)
    for left, right in [
        (f"{a} + {b}", f"{b} + {a}"),
        (f"{a} * {b}", f"{b} * {a}"),
        (f"({a} + {b}) + {c}", f"{a} + ({b} + {c})"),
        (f"({a} * {b}) * {c}", f"{a} * ({b} * {c})"),
        (f"{a} * ({b} + {c})", f"{a} * {b} + {a} * {c}"),
        (f"{a} - {a}", "0"),
        (f"min({a}, {b})", f"min({b}, {a})"),
        (f"min(min({a}, {b}), {c})", f"min({a}, min({b}, {c}))"),
        (f"max({a}, {a})", f"{a}"),
    ]:
        assert tool.ask("compare", left, right) == ["same"], (left, right)


@given(a=exprs(("+", "-", "*"), max_leaves=6), b=exprs(("+", "-", "*"), max_leaves=6), d=st.integers(1, 64))
def test_what_shapes_rely_on(tool, a, b, d):
    """Exact quotients, multiples of a divisor, the two spellings of rounding up."""
    for left, right in [
        (f"({a} * {d}) floordiv {d}", f"{a}"),
        (f"({a} * {d} + {b}) mod {d}", f"{b} mod {d}"),
        (f"({a}) ceildiv {d}", f"-((-({a})) floordiv {d})"),
        (f"({a} + {d - 1}) floordiv {d}", f"({a}) ceildiv {d}"),
        (f"({a} floordiv 3) floordiv {d}", f"{a} floordiv {3 * d}"),
    ]:
        assert tool.ask("compare", left, right) == ["same"], (left, right)
    if tool.ask("compare", b, 0) != ["same"]:
        assert tool.ask("compare", f"({a} * ({b})) floordiv ({b})", a) == ["same"]
        assert tool.ask("compare", f"({a} * ({b})) mod ({b})", 0) == ["same"]
