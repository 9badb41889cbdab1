"""Functions of Python that fix what is only known at run time, in variants that do not."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ...torch_compat.tracing import disabled_torch_function
from ..proving import is_positive
from . import choice, folds, iterators, operators, pieces
from .computed_numbers import natural
from .conditions import (
    SYMBOLIC,
    constant_of,
    decide,
    is_float,
    is_present,
    known_truth,
    number_tensor,
    stand_in,
    stands_for_bool,
)
from .dynamic import (
    JOINS,
    METHODS,
    Dynamic,
    Steps,
    dynamic_range,
    elements,
    is_dynamic,
    joint,
    refused,
    sequence_of,
    tensor_of,
    whole_of,
)
from .operators import not_
from .optional import OptionalValue, settled
from .parts import has_parts, length
from .sites import Site
from .values import VARIANTS, order


def variant(function: Any, site: Site) -> Callable[..., Any] | None:
    """What is called in the place of a function of Python or a method of a tensor; None if that is good as it is."""
    # Other objects may be a choice among several, which is not to be asked for attributes.
    owner = getattr(function, "__self__", None) if isinstance(function, (*_METHODS, types.MethodType)) else None
    if isinstance(owner, Tensor):
        if function.__name__ == "equal":
            return functools.partial(_equal, site, owner)
        # Some methods of tensors are Python functions.
        method = _OF_TENSORS.get(function.__name__)
        return None if method is None else functools.partial(method, owner)
    if isinstance(owner, torch.SymInt) and function.__name__ == "bit_length":
        return functools.partial(natural, int.bit_length, owner)
    if isinstance(function, _METHODS):
        if type(owner) is list:
            return _of_list(owner, function.__name__)
        if isinstance(owner, torch.Size) and function.__name__ == "numel":
            # PyTorch's converts each extent to a Python number.
            return functools.partial(math.prod, owner)
    try:
        found = _VARIANTS.get(function)
    except TypeError:
        return None
    if found is None and function in (builtins.min, builtins.max):
        # torch.export has its own.
        found = _VARIANTS[_min if function is builtins.min else _max]
    return None if found is None else functools.partial(found, site)


def _of_list(owner: list[Any], name: str) -> Callable[..., Any] | None:
    if name in ("extend", "insert") or (has_parts(owner) and name in METHODS):
        return functools.partial(METHODS[name], owner)
    if has_parts(owner) and name not in ("clear", "copy"):
        return refused(name)
    return None


_PLAIN = (Tensor.__torch_function__, disabled_torch_function)


def _overridden(*values: Any) -> bool:
    """``torch.overrides.has_torch_function``, true for types with one of their own only: tracing has one for all."""
    return any(getattr(type(value), "__torch_function__", _PLAIN[0]) not in _PLAIN for value in values)


_min, _max = min, max
_METHODS = (type("".join), type([].__len__))


def _bool(_: Site, *args: Any) -> Any:
    return stand_in(decide(args[0])) if args else False


def _is_of_extents(value: Any) -> bool:
    """Whether a float is computed of extents of inputs alone."""
    if not isinstance(value, torch.SymFloat):
        return False
    symbols: set[Any] = value.node.expr.free_symbols
    return symbols <= value.node.shape_env.backed_var_to_val.keys()


def _int(_: Site, *args: Any, **kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        return int(*args, **kwargs)
    value = args[0]
    if isinstance(value, Tensor) and constant_of(value) is None:
        return value.to(torch.int64).item()
    if _is_of_extents(value):
        # An extent again.
        return math.trunc(value)
    if isinstance(value, torch.SymBool) and (known := known_truth(value)) is not None:
        return int(known)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return number_tensor(value, torch.float64).to(torch.int64).item()
    return value if isinstance(value, torch.SymInt) else int(value)


def _float(_: Site, *args: Any) -> Any:
    value = args[0] if args else 0.0
    if isinstance(value, Tensor) and constant_of(value) is None:
        return value.to(torch.float64).item()
    if isinstance(value, torch.SymBool):
        known = known_truth(value)
        return number_tensor(value, torch.float64).item() if known is None else float(known)
    return torch.sym_float(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else float(*args)


def _len(_: Site, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.dim() == 0:
            raise TypeError("len() of a 0-d tensor")
        return value.shape[0]
    if isinstance(value, Dynamic):
        return value.count
    return length(value) if has_parts(value) else len(value)


def _range(site: Site, *args: Any) -> Any:
    numbers = [_int(site, x) if isinstance(x, Tensor) else x for x in args]
    return dynamic_range(*numbers) if any(is_dynamic(x) for x in numbers) else range(*numbers)


def _enumerate(_: Site, iterable: Any, start: Any = 0) -> Any:
    steps = sequence_of(iterable)
    if steps is None:
        return enumerate(iterable, start)
    numbers = Dynamic(steps.count, lambda n: n, lambda: Steps(torch.arange(steps.count) + start, kind=int))
    return Dynamic(steps.count, lambda n: (start + n, steps.at(n)), iterators.pairs([numbers, steps]))


def _zip(_: Site, *iterables: Any, **kwargs: Any) -> Any:
    found = joint(iterables)
    if found is None:
        return zip(*iterables, **kwargs)  # noqa: B905
    count, known = found
    same = all(x.count is count or known_truth(x.count == count) is True for x in known)
    return Dynamic(count, lambda n: tuple(x.at(n) for x in known), iterators.pairs(known) if same else None)


def _listed(kind: type) -> Callable[..., Any]:
    """``list`` or ``tuple``."""

    def of(site: Site, *values: Any) -> Any:
        steps = sequence_of(values[0]) if len(values) == 1 and not has_parts(values[0]) else None
        if steps is None:
            return kind(*values)
        return kind(iterators.collected(steps, lambda x: x, site) if steps.steps is None else [steps.steps()])

    return of


def _reversed(_: Site, iterable: Any) -> Any:
    steps = sequence_of(iterable)
    return reversed(iterable if steps is None else steps)


def _extreme(
    builtin: Callable[..., Any], better: Callable[[Any, Any], Any], symbolic: Callable[..., Any]
) -> Callable[..., Any]:
    def choose(site: Site, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            return builtin_of_tensor(args[0])
        if len(args) == 1 and not kwargs and has_parts(args[0]):
            whole = whole_of(args[0])
            found = builtin_of_tensor(whole.rows)
            return found if whole.kind is Tensor else found.item()
        if len(args) == 1 and not kwargs:
            args = (tuple(args[0]),)
        if kwargs.get("key") is not None and kwargs.keys() == {"key"} and not (len(args) == 1 and has_parts(args[0])):
            return by_key(site, list(args[0] if len(args) == 1 else args), kwargs["key"])
        values = args[0] if len(args) == 1 else args
        if kwargs or not any(isinstance(x, (*SYMBOLIC, Tensor)) for x in values):
            return builtin(*args, **kwargs)
        return functools.reduce(functools.partial(_either, site), values)

    def by_key(site: Site, values: list[Any], key: Callable[[Any], Any]) -> Any:
        keys = [_len(site, value) if key is builtins.len else key(value) for value in values]
        if not any(isinstance(x, (*SYMBOLIC, Tensor)) for x in keys):
            return builtin(values, key=key)
        best, most = values[0], keys[0]
        for value, rank in zip(values[1:], keys[1:], strict=True):
            sides = (functools.partial(_same, value), functools.partial(_same, best))
            best = operators.if_exp(better(rank, most), *sides, site)
            most = _either(site, most, rank)
        return best

    def _either(site: Site, a: Any, b: Any) -> Any:
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return operators.if_exp(better(b, a), lambda: b, lambda: a, site)
        return symbolic(float(a) if isinstance(a, int) and is_float(b) else a, b)

    def builtin_of_tensor(value: Tensor) -> Tensor:
        return value.amin(0) if builtin is _min else value.amax(0)

    return choose


def _same(value: Any) -> Any:
    return value


def _any(site: Site, iterable: Iterable[Any]) -> Any:
    return _first(site, iterable, operators.or_, False)


def _all(site: Site, iterable: Iterable[Any]) -> Any:
    return _first(site, iterable, operators.and_, True)


def _first(site: Site, iterable: Any, join: Callable[..., Any], empty: bool) -> Any:
    if isinstance(iterable, Tensor):
        return stand_in((iterable.all() if empty else iterable.any()) if iterable.dim() == 1 else decide(iterable))
    result: Any = empty
    for value in iterable:
        known = decide(value)
        result = known if isinstance(result, bool) else join(result, lambda known=known: known, site=site)
        if isinstance(result, bool) and result is not empty:
            return result
    return stand_in(result)


def _sum(_: Site, iterable: Any, start: Any = 0) -> Any:
    if isinstance(iterable, Tensor):
        return iterable.sum(0) + start
    if has_parts(iterable):
        whole = whole_of(iterable)
        total = whole.rows.sum(0)
        return (total if whole.kind is Tensor else total.item()) + start
    return builtins.sum(iterable, start)


def _isinstance(site: Site, value: Any, kinds: Any) -> Any:
    value = settled(value)
    if isinstance(value, OptionalValue):
        there, missing = _isinstance(site, value.parts()["value"], kinds), isinstance(None, kinds)
        return there if there is missing else is_present(value) if there else not_(is_present(value), site)
    if isinstance(value, kinds):
        return True
    for symbolic, kind in ((torch.SymInt, int), (torch.SymFloat, float), (torch.SymBool, bool)):
        if isinstance(value, symbolic):
            return issubclass(kind, kinds)
    if isinstance(value, Tensor) and stands_for_bool(value):
        return issubclass(bool, kinds)
    return isinstance(value, Dynamic) and issubclass(range, kinds)


def _item(value: Tensor) -> Any:
    if value.dtype == torch.bool and constant_of(value) is None:
        return stand_in(decide(value))
    return value.item()


def _tolist(value: Tensor) -> Any:
    if constant_of(value) is not None:
        return value.tolist()
    if value.dim() == 0:
        return _item(value)
    if is_dynamic(value.shape[0]):
        kind = float if value.dtype.is_floating_point else bool if value.dtype == torch.bool else int
        steps = (lambda: Steps(value, kind=kind)) if value.dim() == 1 else None
        return Dynamic(value.shape[0], lambda n: _tolist(value.select(0, n)), steps)
    return [_tolist(value[n]) for n in range(value.shape[0])]


def _of_number(function: Callable[..., Any], of_tensor: Callable[..., Tensor], dtype: torch.dtype) -> Any:
    """A function of Python's ``math``."""

    def call(_: Site, *args: Any) -> Any:
        if not any(isinstance(x, (*SYMBOLIC, Tensor)) for x in args):
            return function(*args)
        if dtype == torch.int64 and all(map(_is_of_extents, args)):
            # An extent again.
            return function(*args)
        number = of_tensor(*(number_tensor(x, torch.float64) for x in args)).to(dtype).item()
        if _is_natural(function, args):
            torch._check(number >= 0)
        return number

    return call


def _is_natural(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a logarithm of a size, or a rounded number, is known not to be negative."""
    if function in (math.log, math.log2, math.log10):
        return len(args) == 1 and isinstance(args[0], torch.SymInt) and is_positive(args[0])
    rounded = function in (math.floor, math.ceil, math.trunc) and isinstance(args[0], torch.SymFloat)
    return rounded and known_truth(args[0] >= 0) is True


def _test_of_number(function: Callable[..., Any], of_tensor: Callable[..., Tensor]) -> Any:
    """A question of Python's ``math``."""

    def call(_: Site, x: Any) -> Any:
        if not isinstance(x, (*SYMBOLIC, Tensor)):
            return function(x)
        return stand_in(of_tensor(number_tensor(x, torch.float64)))

    return call


def _log(x: Tensor, *base: Tensor) -> Tensor:
    return torch.log(x) / torch.log(*base) if base else torch.log(x)


def _equal(site: Site, a: Tensor, b: Tensor) -> Any:
    """``torch.equal``: tensors of other shapes are not."""
    if a.dim() != b.dim():
        return False
    unknown = []
    for x, y in zip(a.shape, b.shape, strict=True):
        if (known := known_truth(x == y)) is False:
            return False
        if known is None:
            unknown.append(x == y)
    if not unknown:
        return stand_in((a == b).all())
    sizes = [functools.partial(_same, condition) for condition in unknown[1:]]
    return operators.and_(unknown[0], *sizes, lambda: stand_in((a == b).all()), site=site, truth=True)


def _close(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return stand_in(torch.isclose(a, b, rtol, atol, equal_nan).all())


def _unbind(value: Tensor, dim: int = 0) -> Any:
    if is_dynamic(value.shape[dim]):
        return Dynamic(value.shape[dim], lambda n: value.select(dim, n), lambda: Steps(value.movedim(dim, 0)))
    return value.unbind(dim)


def _join(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.cat`` or ``torch.stack``, whose argument may be what ``split`` returns."""
    return lambda _, tensors, *args, **kwargs: function(elements(tensors), *args, **kwargs)


_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "item": _item,
    "tolist": _tolist,
    "unbind": _unbind,
    "split": lambda value, split_size, dim=0: pieces.split(value, split_size, dim),
    "chunk": pieces.chunk,
    "allclose": lambda value, *args, **kwargs: _close(value, *args, **kwargs),
    "__bool__": lambda value: stand_in(decide(value)),
    "__len__": lambda value: value.shape[0],
}
_VARIANTS: dict[Any, Callable[..., Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    len: _len,
    range: _range,
    enumerate: _enumerate,
    zip: _zip,
    reversed: _reversed,
    list: _listed(list),
    tuple: _listed(tuple),
    getattr: choice.attribute,
    iter: iterators.iterate,
    next: iterators.advance,
    _min: _extreme(_min, lambda a, b: a < b, torch.sym_min),
    _max: _extreme(_max, lambda a, b: a > b, torch.sym_max),
    functools.reduce: folds.reduce,
    itertools.accumulate: folds.accumulate,
    itertools.pairwise: folds.pairwise,
    itertools.groupby: iterators.groups,
    any: _any,
    all: _all,
    sum: _sum,
    isinstance: _isinstance,
    torch.overrides.has_torch_function: lambda _, values: _overridden(*values),
    torch.overrides.has_torch_function_unary: lambda _, value: _overridden(value),
    torch.overrides.has_torch_function_variadic: lambda _, *values: _overridden(*values),
    torch.unbind: lambda _, value, dim=0: _unbind(value, dim),
    torch.split: lambda _, *args, **kwargs: pieces.split(*args, **kwargs),
    torch.chunk: lambda _, *args, **kwargs: pieces.chunk(*args, **kwargs),
    **{function: _join(function) for function in JOINS},
    torch.tensor: lambda _, values, **options: (tensor_of if has_parts(values) else torch.tensor)(values, **options),
    torch.equal: _equal,
    torch.allclose: lambda _, *args, **kwargs: _close(*args, **kwargs),
    torch.is_nonzero: lambda _, value: stand_in(decide(value)),
    **{
        getattr(math, name): _of_number(getattr(math, name), getattr(torch, name), torch.float64)
        for name in (
            "acos acosh asin asinh atan atan2 atanh copysign cos cosh erf erfc exp exp2 expm1 fmod hypot lgamma log10"
            " log1p log2 pow sin sinh sqrt tan tanh"
        ).split()
        if hasattr(math, name)
    },
    **{
        getattr(math, name): _of_number(getattr(math, name), getattr(torch, name), torch.int64)
        for name in ("floor", "ceil", "trunc")
    },
    **{
        getattr(math, name): _test_of_number(getattr(math, name), getattr(torch, name))
        for name in ("isnan", "isinf", "isfinite")
    },
    **{f: lambda _, *args, f=f: natural(f, *args) for f in (math.isqrt, math.gcd)},
    math.fabs: _of_number(math.fabs, torch.abs, torch.float64),
    math.log: _of_number(math.log, _log, torch.float64),
}
_VARIANTS.update(VARIANTS)
order(_VARIANTS[_min], _VARIANTS[_max])
