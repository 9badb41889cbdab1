"""The table of lowering rules: one function per torch op, open to users."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]

_COPY = re.compile(r"(?<=\w)_copy(?=\.|$)")

_RULES: dict[str, Rule] = {}


class NotLowerable(Exception):
    """Raised by a rule that cannot lower this use of its op; the message says why."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function as the lowering rule of the torch ops ``names``.

    A name is the torch dialect's: ``torch.aten.gelu``, or with an overload ``torch.aten.add.Tensor``.
    A name without overload serves every overload that has no rule of its own. Ops of a user's own
    library (``torch.library``) are called ``torch.<namespace>.<op>``. The last registration wins, so a
    user can replace a rule.

    The rule is called as ``rule(b, *operands)``: ``b`` is the :class:`~disc.frontend.builder.Builder`
    and the operands follow the op's schema, defaults included. Tensors arrive as
    :class:`~disc.frontend.values.Tensor`; numbers, strings, None and lists as Python's; extents as
    Python ints or as SSA values of type ``index``. It returns what the op returns.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule

    return register


_COMPLEX_RULES: dict[str, Rule] = {}


def lowers_complex(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of the torch ops ``names`` for when an operand or a result is complex.

    Without one the op's other rule is taken, which does for views; what computes refuses complex elements.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            _COMPLEX_RULES[name] = rule
        return rule

    return register


def find_complex_rule(name: str) -> Rule | None:
    """As :func:`find_rule`, for complex numbers."""
    return _find(_COMPLEX_RULES, name)


def find_rule(name: str) -> Rule | None:
    """The rule for the torch op ``name``, falling back to the one for all its overloads."""
    return _find(_RULES, name)


def _find(rules: dict[str, Rule], name: str) -> Rule | None:
    rule = rules.get(name)
    if rule is None and name.count(".") >= 3:
        rule = rules.get(name.rpartition(".")[0])
    if rule is None and _COPY.search(name):
        # Values are immutable: a copy of a view is the view.
        return _find(rules, _COPY.sub("", name))
    return rule


def registered() -> list[str]:
    """The names of all ops with a rule, sorted."""
    return sorted(_RULES)
