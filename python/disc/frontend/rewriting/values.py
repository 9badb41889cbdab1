"""What Python does with values that numbers known at run time only stand for: ``in``, ``==``, functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor

from . import dynamic, operators
from .conditions import (
    SYMBOLIC,
    compared,
    constant_of,
    is_bool,
    is_present,
    marked,
    stand_in,
    stands_for_bool,
)
from .optional import OptionalValue, settled
from .parts import has_parts
from .sites import Site


def is_traced(value: Any) -> bool:
    """Whether a value is known at run time only."""
    return isinstance(value, SYMBOLIC) or (isinstance(value, Tensor) and constant_of(value) is None)


def _has_traced(value: Any) -> bool:
    return any(map(_has_traced, value)) if isinstance(value, (list, tuple)) else is_traced(value)


def eq_(a: Any, b: Any, site: Site) -> Any:
    """``a == b``: lists and tuples element by element."""
    a, b = settled(a), settled(b)
    if isinstance(b, OptionalValue) and not isinstance(a, OptionalValue):
        a, b = b, a
    if isinstance(a, OptionalValue):
        if b is None:
            return operators.is_(a, b)
        if isinstance(b, OptionalValue):
            raise NotImplementedError("a comparison of two variables, both of which may be None")
        value = a.parts()["value"]
        return operators.and_(is_present(a), lambda: eq_(value, b, site), site=site)
    depends = compared(a, b, sympy.Eq)
    if depends is not None:
        return depends
    both = isinstance(a, (list, tuple)) and isinstance(b, (list, tuple))
    if not both or isinstance(a, list) is not isinstance(b, list) or not (_has_traced(a) or _has_traced(b)):
        return _as_bool(a == b, a, b)
    if has_parts(a) or has_parts(b):
        raise NotImplementedError("a comparison of lists whose length depends on data")
    if len(a) != len(b):
        return False
    return operators.and_(True, *(functools.partial(_same, x, y, site) for x, y in zip(a, b, strict=True)), site=site)


def ne_(a: Any, b: Any, site: Site) -> Any:
    """``a != b``."""
    if isinstance(a, OptionalValue) or isinstance(b, OptionalValue):
        return operators.not_(eq_(a, b, site), site)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return operators.not_(eq_(a, b, site), site)
    depends = compared(a, b, sympy.Ne)
    return _as_bool(a != b, a, b) if depends is None else depends


def _as_bool(result: Any, a: Any, b: Any) -> Any:
    """What two bools of Python give is one."""
    bools = [is_bool(x) or (isinstance(x, Tensor) and stands_for_bool(x)) for x in (a, b)]
    return marked(result) if all(bools) and isinstance(result, Tensor) else result


def _same(a: Any, b: Any, site: Site) -> Any:
    return True if a is b else eq_(a, b, site)


def in_(a: Any, b: Any, site: Site) -> Any:
    """``a in b``."""
    if isinstance(b, Tensor):
        return stand_in((b == a).any())
    if isinstance(b, range) and is_traced(a):
        b = b if b.step > 0 else b[::-1]
        tests = [lambda: a < b.stop, lambda: (a - b.start) % b.step == 0]
        return operators.and_(a >= b.start, *tests, site=site)
    if has_parts(b) and dynamic.kind_of(a) in (bool, int, float):
        whole = dynamic.whole_of(b)
        if whole.kind is not Tensor:
            return stand_in((whole.rows == dynamic.row_of(a)).any())
    if isinstance(b, dynamic.Dynamic) or has_parts(b):
        raise NotImplementedError("`in` a sequence whose length is known at run time only")
    if isinstance(b, (list, tuple, set, frozenset, dict, type({}.keys()), type({}.values()))):
        elements = list(b)
        if _has_traced(a) or _has_traced(elements):
            return operators.or_(False, *(functools.partial(_same, a, x, site) for x in elements), site=site)
    return a in b


# -- functions ----------------------------------------------------------------------------------------------


def _sorted(site: Site, values: Any, **kwargs: Any) -> Any:
    found = list(values) if isinstance(values, (list, tuple)) else values
    if not isinstance(found, list) or has_parts(found) or not any(map(is_traced, found)):
        return sorted(values, **kwargs)
    if kwargs.get("key") is not None:
        raise NotImplementedError("sorted() of numbers from data by a key")
    # By insertion: there are few.
    low, high = (_VARIANTS_OF_ORDER[name] for name in ("min", "max"))
    for end in range(len(found) - 1, 0, -1):
        for n in range(end):
            a, b = found[n], found[n + 1]
            found[n], found[n + 1] = low(site, a, b), high(site, a, b)
    return found[::-1] if kwargs.get("reverse") else found


def _divmod(_: Site, a: Any, b: Any) -> Any:
    return (a // b, a % b) if isinstance(a, SYMBOLIC) or isinstance(b, SYMBOLIC) else divmod(a, b)


def _type(_: Site, *args: Any) -> Any:
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    found = type(*args)
    return kinds.get(found, found) if len(args) == 1 else found


_VARIANTS_OF_ORDER: dict[str, Callable[..., Any]] = {}
VARIANTS: dict[Any, Callable[..., Any]] = {
    sorted: _sorted,
    divmod: _divmod,
    type: _type,
}


def order(low: Callable[..., Any], high: Callable[..., Any]) -> None:
    """Notes the variants of ``min`` and ``max``."""
    _VARIANTS_OF_ORDER.update(min=low, max=high)
