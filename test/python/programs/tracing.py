"""Makes tracing many small programs cheap. What a program is traced to stays the same, apart from the first attempt.

`disc.compile` first traces with the assumption that sizes are neither 0 nor 1, and again if that narrows a dim, which
some program of a large group always does. Most groups start with the second attempt.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch._dynamo.config
import torch._export.utils
from torch.fx.experimental import _config as symbolic_config

from disc import errors
from disc.frontend import decompositions, export
from disc.frontend.rewriting.hooks import needs_rewriting

_by_dims = export._traced_by_dims


def _for_all_sizes(module: torch.nn.Module, args: Any, kwargs: Any, shapes: Any, *, again: bool) -> Any:
    """Traces for all sizes first; with ``again`` as users do if that fails, which makes the error that they see."""
    try:
        with symbolic_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
    except errors.CompileError:
        raise
    except Exception as error:
        if needs_rewriting(error) or not again:
            raise
        return _by_dims(module, args, kwargs, shapes)


@functools.cache
def _table() -> dict[Any, Any]:
    return dict(decompositions.decomposition_table())


@functools.cache
def _materialized() -> None:
    _materialize()


_materialize = torch._export.utils._materialize_cpp_cia_ops


@contextmanager
def cheap(first_attempt: bool, again: bool = True) -> Iterator[None]:
    """Tracing without caches that cost more than they save.

    ``first_attempt``: with the assumption, as users trace. ``again``: once more, like users, if PyTorch refuses the
    program; else its own error is what there is.
    """
    _table()
    with ExitStack() as stack:
        # No two operations of random programs are the same, but each one is hashed with its symbols.
        stack.enter_context(torch._dynamo.config.patch(fake_tensor_cache_enabled=False))  # type: ignore[attr-defined]
        stack.enter_context(mock.patch.object(decompositions, "decomposition_table", lambda: dict(_table())))
        stack.enter_context(mock.patch.object(torch._export.utils, "_materialize_cpp_cia_ops", _materialized))
        if not first_attempt:
            traced = functools.partial(_for_all_sizes, again=again)
            stack.enter_context(mock.patch.object(export, "_traced_by_dims", traced))
        yield
