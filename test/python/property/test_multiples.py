"""Sums of sizes that are rounded to a multiple become products of the same value."""

import sympy
from hypothesis import given
from hypothesis import strategies as st

from disc.frontend.multiples import rounded
from disc.torch_compat.symbols import torch_sympy

A, B = sympy.symbols("a b", integer=True, positive=True)
terms = st.sampled_from([A, B, 2 * A, A + B, A - B, A + 3 * B - 2, -A])
remainders = st.tuples(
    terms,
    st.integers(-40, 40),
    st.integers(1, 24),
    st.sampled_from([1, -1, 2]),
    st.booleans(),
)


@given(
    st.lists(terms, min_size=1, max_size=3), st.lists(remainders, min_size=1, max_size=2), st.data(), st.integers(-9, 9)
)
def test_rounding_keeps_the_value(sizes, given_remainders, data, number):
    total = sympy.Add(*sizes, number)
    for size, more, by, factor, nested in given_remainders:
        inner = torch_sympy.PythonMod(size, by * 2) if nested else size
        total += factor * torch_sympy.PythonMod(more - inner, by)
    result = rounded(total)
    for _ in range(5):
        point = {A: data.draw(st.integers(1, 60)), B: data.draw(st.integers(1, 60))}
        assert result.xreplace(point) == total.xreplace(point)


def test_padding_and_cropping_are_products():
    mod, div = torch_sympy.Mod, torch_sympy.FloorDiv
    assert rounded(A + mod(16 - mod(A, 16), 16)) == 16 * div(A + 15, 16)
    assert rounded(A - mod(A, 16) + B) == 16 * div(A, 16) + B
    assert rounded(A + mod(A, 2)) == 2 * div(A + 1, 2)
    for other in (A + mod(B, 3), 2 * A + torch_sympy.PythonMod(-A, 4), A, mod(A, 2)):
        assert rounded(other) == other
