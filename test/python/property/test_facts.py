"""What is derived from facts about symbols, against all values the facts allow."""

import itertools

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from .symexpr import SYMBOLS, Undefined, exprs, mod

RELATIONS = {
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "divisible": lambda a, b: mod(a, b) == 0,
}


@st.composite
def domains(draw):
    """For each symbol its minimum, maximum and divisor, at least one multiple between them."""
    domain = {}
    for name in SYMBOLS:
        divisor = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
        first = draw(st.integers(0, 3))
        domain[name] = (first * divisor, (first + draw(st.integers(0, 3))) * divisor, divisor)
    return domain


def points(domain):
    ranges = (range(low, high + 1, divisor) for low, high, divisor in domain.values())
    return [dict(zip(SYMBOLS, values, strict=True)) for values in itertools.product(*ranges)]


def values(expr, where):
    """(symbols, value) wherever there is a value."""
    for symbols in where:
        try:
            yield symbols, expr.value(symbols)
        except Undefined:
            continue


def declare(tool, domain, unbounded=()):
    tool.ask("clear")
    for name, (low, high, divisor) in domain.items():
        tool.ask("symbol", name, low, "-" if name in unbounded else high, divisor)


@given(expr=exprs(max_leaves=8), domain=domains(), unbounded=st.sets(st.sampled_from(SYMBOLS)))
def test_range_holds_every_value(tool, expr, domain, unbounded):
    declare(tool, domain, unbounded)
    low, high = tool.ask("range", expr)
    for symbols, value in values(expr, points(domain)):
        assert low == "-" or int(low) <= value, (symbols, value)
        assert high == "-" or value <= int(high), (symbols, value)


@given(expr=exprs(max_leaves=8), domain=domains())
def test_simplified_has_the_same_values(tool, expr, domain):
    declare(tool, domain)
    (simplified,) = tool.ask("simplify", expr)
    assume("undefined" not in simplified)
    where = points(domain)[::7]
    text = [" ".join(f"{n}={v}" for n, v in symbols.items()) for symbols in where]
    _, *answers = tool.ask("eval", simplified, *text)
    for symbols, answer in zip(where, answers, strict=True):
        for _, value in values(expr, [symbols]):
            assert answer == str(value), symbols


@given(
    left=exprs(max_leaves=6), right=exprs(max_leaves=6), relation=st.sampled_from(sorted(RELATIONS)), domain=domains()
)
def test_proofs_are_right(tool, left, right, relation, domain):
    declare(tool, domain)
    check(tool, left, right, relation, points(domain))


@settings(max_examples=200)
@given(
    facts=st.lists(st.tuples(exprs(max_leaves=3), st.sampled_from(["eq", "le"]), exprs(max_leaves=3)), max_size=3),
    left=exprs(max_leaves=5),
    right=exprs(max_leaves=5),
    relation=st.sampled_from(sorted(RELATIONS)),
    domain=domains(),
)
def test_proofs_from_guards_are_right(tool, facts, left, right, relation, domain):
    allowed = []
    for symbols in points(domain):
        try:
            if all(RELATIONS[name](a.value(symbols), b.value(symbols)) for a, name, b in facts):
                allowed.append(symbols)
        except Undefined:
            continue
    assume(allowed)
    declare(tool, domain)
    for a, name, b in facts:
        tool.ask("assume", a, name, b)
    check(tool, left, right, relation, allowed)


def check(tool, left, right, relation, where):
    (answer,) = tool.ask("prove", left, relation, right)
    if answer == "unknown":
        return
    for symbols in where:
        try:
            holds = RELATIONS[relation](left.value(symbols), right.value(symbols))
        except Undefined:
            continue
        assert holds == (answer == "proved"), symbols


def test_facts_that_shapes_need(tool):
    """Proofs, not only their absence of error."""
    declare(tool, {"B": (1, 64, 1), "S": (2, 512, 1), "T": (8, 512, 8), "u": (0, 9, 1)}, unbounded=("u",))
    for left, relation, right in [
        ("S", "le", "B * S"),
        ("S * S - S", "le", "S * S"),
        ("2", "le", "S * S - S"),
        ("(S + 15) floordiv 16 * 16", "le", "S + 15"),
        ("S", "le", "(S + 15) floordiv 16 * 16"),
        ("T floordiv 8 * 8", "eq", "T"),
        ("B * T", "divisible", "8"),
        ("S floordiv 4 * 4 + S mod 4", "eq", "S"),
        ("u", "le", "max(u, S)"),
        ("min(u, S) + 1", "le", "S + 1"),
        ("max(S, u) - u", "le", "S"),
        ("(B * S * 64 + 63) floordiv 64", "eq", "B * S"),
        ("S floordiv 1024", "eq", "0"),
        ("S mod 513", "eq", "S"),
        ("max(S, 1)", "eq", "S"),
        ("0", "le", "u"),
    ]:
        assert tool.ask("prove", left, relation, right) == ["proved"], (left, relation, right)
    tool.ask("assume", "u", "eq", "S")
    tool.ask("assume", "B * T", "eq", "S * 64")
    for left, relation, right in [
        ("B * u", "eq", "B * S"),
        ("u", "le", "512"),
        ("B * T * 6", "eq", "u * 384"),
    ]:
        assert tool.ask("prove", left, relation, right) == ["proved"], (left, relation, right)


def test_nested_expressions_do_not_take_exponential_time(tool):
    """The sizes in a deep pyramid of paddings and strides: each bound asks for those of its parts several times."""
    tool.ask("clear")
    tool.ask("symbol", "n", 0, "-", 1)
    nested = "n"
    for level in range(24):
        nested = f"((max({nested} - {level}, 0) + 7) floordiv 2 - 1)"
    low, high = tool.ask("range", nested)
    assert int(low) >= -1 and high == "-"
    (simplified,) = tool.ask("simplify", nested)
    assert simplified
