"""What is known of symbols, which in a side of a branch or a step of a loop may be more than around it.

``torch.export`` learns from what code does: after ``a + b`` two extents are equal, after ``torch._check(n > 3)`` a
number has a range. What it learns in a region of numbers from outside holds there only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import RuntimeAssert, ShapeEnv


def environment() -> ShapeEnv | None:
    """The symbols of the program that is being traced."""
    mode = detect_fake_mode()
    return None if mode is None else mode.shape_env


class Facts:
    """What is known at one moment."""

    def __init__(self, env: ShapeEnv) -> None:
        self._env = env
        self.ranges = dict(env.var_to_range)
        self._replacements = dict(env.replacements)
        self._axioms = dict(env.axioms)
        self._asserts = {key: list(found) for key, found in env.deferred_runtime_asserts.items()}

    def conditions(self) -> list[RuntimeAssert]:
        """What has since been asked of numbers that there were then alone."""
        found = []
        for key, asserts in self._env.deferred_runtime_asserts.items():
            new = [x for x in asserts if not any(x is y for y in self._asserts.get(key, ()))]
            found += [x for x in new if x.expr.free_symbols <= self.ranges.keys()]
        return found

    def restore(self) -> None:
        """Forgets what has been learnt since of the numbers that there were."""
        env = self._env
        local = {id(x) for x in self.conditions()}
        for asserts in env.deferred_runtime_asserts.values():
            asserts[:] = [x for x in asserts if id(x) not in local]
        env.axioms.clear()
        env.axioms.update(self._axioms)
        for symbol in self.ranges:
            if symbol not in self._replacements:
                env.replacements.pop(symbol, None)
        env.replacements.update(self._replacements)
        env.var_to_range.update(self.ranges)
        forget_answers(env)


def forget_answers(env: ShapeEnv) -> None:
    """Has torch evaluate conditions anew: it remembers what it has evaluated."""
    env._version_counter += 1
    env._replacements_version_counter += 1
    env._resimplify_floor_div_axioms = True
    answers: Any = ShapeEnv._inner_evaluate_expr
    answers.cache_clear()


def scoped(token: torch.Tensor) -> torch.Tensor:
    """A marker that begins a region: what is known then is noted."""
    env = environment()
    if env is not None:
        token._disc_facts = Facts(env)  # type: ignore[attr-defined]
    return token


def facts_of(token: torch.Tensor) -> Facts | None:
    """What was known where a region began."""
    return getattr(token, "_disc_facts", None)


def leave(begin: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """A marker that ends a region, and may begin another one."""
    facts = facts_of(begin)
    if facts is not None:
        facts.restore()
        token._disc_facts = facts  # type: ignore[attr-defined]
    return token
