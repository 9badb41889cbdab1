"""Dims of one name are one size from the start of a trace.

``torch.export`` gives each dim of an input a symbol of its own, and checks at the end that dims that share a ``Dim``
are equal. Until the model's code compares two of them they are different sizes: ``cache[:, :x.shape[1]]`` may be the
whole cache or a part, and what is made of a dim of one input is computed again from that of another. Here the symbols
of such dims are made equal before the model's code runs, which is what the user declared; the compiled model checks it
at each call.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sympy

from ..torch_compat import patches
from ..torch_compat.patching import replaced


def asks(code: types.CodeType) -> bool:
    """Whether a function is one of those here, whose conditions are the user's own."""
    return code.co_filename == __file__


@contextmanager
def equal_from_the_start() -> Iterator[None]:
    """While it is active, ``torch.export`` knows from the start which dims the user declared to be equal."""

    def make(original: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        mode, equalities = made[0], made[3]
        env = mode.shape_env
        for sources in equalities.source_pairs:
            left, right = (env.source_to_var.get(source.name) for source in sources)
            if isinstance(left, sympy.Symbol) and isinstance(right, sympy.Symbol):
                env.evaluate_expr(sympy.Eq(env.replace(left), env.replace(right)))
        return made

    with replaced({patches.FAKE_INPUTS: make}):
        yield
