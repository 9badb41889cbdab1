"""Keyword arguments that a model takes as ``**kwargs``, as parameters with names.

``torch.export`` cannot give dynamic dims to what ``**kwargs`` takes: it looks for the specs of these arguments both by
their names and in a dict.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from .argument_paths import signature_of


@contextmanager
def named_keywords(module: torch.nn.Module, kwargs: Mapping[str, Any] | None) -> Iterator[None]:
    """While it is active, the signature of ``module`` has a parameter for each of ``kwargs``."""
    signature = signature_of(module)
    parameters = {} if signature is None else dict(signature.parameters)
    variadic = next((n for n, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
    more = [name for name in kwargs or {} if name not in parameters]
    if variadic is None or not more:
        yield
        return
    rest = parameters.pop(variadic)
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
    assert signature is not None
    forward, before = module.forward, module.__dict__.get("forward")

    @functools.wraps(forward)
    def with_names(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    with_names.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters.values(), *named, rest]
    )
    module.__dict__["forward"] = with_names
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before
