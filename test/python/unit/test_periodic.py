"""How far conditions on one extent are to be tried: what holds up to there holds beyond."""

import math

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from disc.frontend.periodic import last_to_try
from disc.torch_compat.symbols import PythonPrinter, torch_sympy

N = sympy.Symbol("n", integer=True, positive=True)
NUMBERS = st.integers(-40, 40)


def extended(inner):
    return st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(st.integers(-4, 4), inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 24)).map(lambda p: torch_sympy.FloorDiv(*p)),
        st.tuples(inner, inner).map(lambda p: torch_sympy.FloorDiv(p[0], torch_sympy.Max(p[1], 1))),
        st.tuples(inner, st.integers(1, 24)).map(lambda p: torch_sympy.PythonMod(*p)),
        st.tuples(inner, inner).map(lambda p: torch_sympy.Max(*p)),
        st.tuples(inner, inner).map(lambda p: torch_sympy.Min(*p)),
    )


EXPRESSIONS = st.recursive(st.one_of(st.just(N), NUMBERS.map(sympy.Integer)), extended, max_leaves=6)
RELATIONS = st.sampled_from([sympy.Eq, sympy.Ne, sympy.Le, sympy.Lt])


def truth(condition, n):
    return bool(eval(PythonPrinter().doprint(condition), {"math": math, "n": n}))


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, RELATIONS, st.integers(0, 5000), st.integers(0, 40), st.integers(1, 6))
def test_what_holds_up_to_there_holds_beyond(left, right, relation, beyond, least, period):
    condition = relation(left, right)
    holds_beyond(condition, beyond, least)
    holds_beyond(sympy.And(condition, sympy.Ge(torch_sympy.PythonMod(N, period), 1)), beyond, least)


def holds_beyond(condition, beyond, least):
    last = last_to_try(condition, least) if condition not in (sympy.true, sympy.false) else None
    if last is None or last > 400:
        return
    try:
        seen = {truth(condition, n) for n in range(least, last + 1)}
    except ZeroDivisionError:  # Which is no proof.
        return
    if len(seen) == 1:
        assert truth(condition, last + beyond) in seen


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (sympy.Eq(torch_sympy.FloorDiv(N, 3) * N, 7, evaluate=False), None),
        (sympy.Eq(torch_sympy.FloorDiv(N, sympy.Symbol("m", integer=True)), 7, evaluate=False), None),
        (sympy.Eq(torch_sympy.PythonMod(N, 5), 2, evaluate=False), 5),
        (sympy.Le(2 * N, N + 100, evaluate=False), 102),
    ],
)
def test_kinds(condition, expected):
    assert last_to_try(condition) == expected


def test_a_whole_period_is_tried_from_the_least_extent():
    even = sympy.Eq(torch_sympy.PythonMod(N, 2), 0, evaluate=False)
    assert [last_to_try(even, least) for least in (0, 1, 2, 16)] == [2, 3, 4, 18]
