"""The namespace ``torch.ops.disc``, whose operators are registered when one is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import _ops


def register_on_demand(name: str, register: Callable[[], object]) -> None:
    """Calls ``register`` when an operator of ``torch.ops.<name>`` is looked up that PyTorch does not know.

    The namespace belongs to DISC, so other users of PyTorch do not see it.
    """

    class Operators(_ops._OpNamespace):
        # Names of operators begin with it.
        __module__ = _ops.__name__

        def __getattr__(self, operator: str) -> Any:
            try:
                return super().__getattr__(operator)
            except AttributeError:
                if operator.startswith("__"):
                    raise
            register()
            return super().__getattr__(operator)

    getattr(_ops.ops, name).__class__ = Operators
