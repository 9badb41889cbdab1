"""What rewritten code calls in the place of Python's control flow.

Where a condition is known while tracing, an operator does what Python does. Where it depends on data, both sides of a
branch are traced between markers, and a loop's step once (:mod:`disc.frontend.markers`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import graph
from .branches import branch
from .conditions import (
    decide,
    implied,
    implying,
    is_bool,
    is_present,
    marked,
    missing_node,
    stand_in,
    stands_for_bool,
)
from .dynamic import FEWEST_STEPS, Maybe, Once, Steps, only_if_alike, sequence_of
from .hooks import needs_rewriting
from .optional import OptionalValue, replaced, settled, used, values_of
from .raised import text_of_assert
from .sites import Site, called_from, site
from .state import Undefined, closure_of
from .steps import Loop

__all__ = ["Undefined", "and_", "assert_", "for_", "if_", "if_exp", "is_", "is_not", "not_", "or_", "site", "while_"]

_Get = Callable[[], tuple[Any, ...]]
_Put = Callable[[tuple[Any, ...]], Any]
_Thunk = Callable[[], Any]


def if_(
    test: Any,
    then: _Thunk,
    orelse: _Thunk,
    get: _Get,
    put: _Put,
    names: Sequence[str],
    site: Site,
    *,
    needed: Sequence[str],
    read: Sequence[str] = (),
    seen: Callable[[], dict[str, Any]] = dict,
) -> None:
    """``if test: then() else: orelse()``."""
    known = decide(test)
    if isinstance(known, bool):
        (then if known else orelse)()
        return
    branch(known, (then, orelse), get, put, names, site, needed, list(seen().items()))


def if_exp(test: Any, then: _Thunk, orelse: _Thunk, site: Site) -> Any:
    """``then() if test else orelse()``."""
    known = decide(test)
    if isinstance(known, bool):
        return (then if known else orelse)()
    return _chosen(known, then, orelse, site)


def _chosen(pred: Tensor, then: _Thunk, orelse: _Thunk, site: Site) -> Any:
    result: tuple[Any, ...] = (Undefined("the value"),)

    def get() -> tuple[Any, ...]:
        return result

    def put(values: tuple[Any, ...]) -> None:
        nonlocal result
        result = values

    sides = [lambda: put((then(),)), lambda: put((orelse(),))]
    branch(pred, sides, get, put, ["the value"], site, ["the value"], closure_of(then, orelse))
    return result[0]


def and_(first: Any, *thunks: _Thunk, site: Site, truth: bool = False) -> Any:
    """``first and thunk() and ...``. ``truth``: nobody asks for more than the truth of it."""
    return _joined(first, thunks, site, stop=False, truth=truth)


def or_(first: Any, *thunks: _Thunk, site: Site, truth: bool = False) -> Any:
    """``first or thunk() or ...``."""
    return _joined(first, thunks, site, stop=True, truth=truth)


def _joined(value: Any, thunks: Sequence[_Thunk], site: Site, *, stop: bool, truth: bool) -> Any:
    for number, thunk in enumerate(thunks):
        known = decide(value)
        if isinstance(known, Tensor):
            rest = thunks[number + 1 :]
            only_truth = truth or _stands_for_bool(value)
            here = stop if only_truth else value

            def more(thunk: _Thunk = thunk, rest: Sequence[_Thunk] = rest, only_truth: bool = only_truth) -> Any:
                found = _joined(thunk(), rest, site, stop=stop, truth=truth)
                return stand_in(decide(found)) if truth or (only_truth and _stands_for_bool(found)) else found

            found: list[Any] = []

            def noted(more: _Thunk = more, found: list[Any] = found) -> Any:
                found.append(more())
                return found[-1]

            symbols = graph.Symbols()
            same = functools.partial(lambda here: here, here)
            result = _chosen(known, same, noted, site) if stop else _chosen(known, noted, same, site)
            if isinstance(result, Tensor) and only_truth and _stands_for_bool(found[0]):
                result = marked(result)
            if isinstance(result, Tensor) and isinstance(found[0], (bool, Tensor)):
                # What the right side finds out of numbers of its own says nothing here.
                here = implied(known)
                rest_ = [tuple(x for x in facts if symbols.know_all(x.free_symbols)) for facts in implied(found[0])]
                if stop:
                    implying(result, (), (*here[1], *rest_[1]))
                else:
                    implying(result, (*here[0], *rest_[0]), ())
            return result
        if known is stop:
            return value
        value = thunk()
    return value


def not_(value: Any, site: Site) -> Any:
    """``not value``."""
    known = decide(value)
    return not known if isinstance(known, bool) else _negated(known)


def _of_optional(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch of values that may be None: a branch, if it takes None."""
    found = values_of((args, kwargs))
    if not found:
        return function(*args, **kwargs)
    this = found[0]

    def of(value: Any) -> Any:
        given, named = replaced((args, kwargs), this, value)
        return _of_optional(function, given, named)

    known = settled(this)
    if not isinstance(known, OptionalValue):
        return of(known)
    try:
        with graph.tried():
            replaced_args, replaced_kwargs = replaced((args, kwargs), this, None)
            function(*replaced_args, **replaced_kwargs)
    except Exception:
        return of(used(this))
    here = called_from(getattr(function, "__name__", "a function of torch"))
    return if_exp(is_present(this), lambda: of(this.parts()["value"]), lambda: of(None), here)


OptionalValue.call = staticmethod(_of_optional)  # type: ignore[assignment]


def _negated(value: Tensor) -> Tensor:
    return marked(implying(torch.logical_not(value), *reversed(implied(value))))


def is_(a: Any, b: Any) -> Any:
    """``a is b``: a bool that depends on data is compared by its value."""
    a, b = settled(a), settled(b)
    if isinstance(b, OptionalValue):
        a, b = b, a
    if isinstance(a, OptionalValue):
        if b is None:
            return _negated(is_present(a))
        if a is b:
            return True
        if isinstance(b, OptionalValue):
            # Both may be None, which is one object.
            raise NotImplementedError("a comparison of two variables, both of which may be None")
        same = is_(a.parts()["value"], b)
        if isinstance(same, bool):
            return is_present(a) if same else False
        return marked(torch.logical_and(is_present(a), same))
    if (a is True or a is False) and _stands_for_bool(b):
        a, b = b, a
    if (b is True or b is False) and _stands_for_bool(a):
        known = decide(a)
        return (known is b) if isinstance(known, bool) else stand_in(known if b else torch.logical_not(known))
    if a is None or b is None:
        missing = missing_node(b if a is None else a)
        if missing is not None:
            return stand_in(missing)
    return a is b


def is_not(a: Any, b: Any) -> Any:
    """``a is not b``."""
    same = is_(a, b)
    return not same if isinstance(same, bool) else _negated(same)


def _stands_for_bool(value: Any) -> bool:
    return is_bool(value) or (isinstance(value, Tensor) and stands_for_bool(value))


def assert_(test: Any, message: _Thunk | None, site: Site) -> None:
    """``assert test, message()``."""
    known = decide(test)
    if isinstance(known, bool):
        if not known:
            raise AssertionError(*([] if message is None else [message()]))
        return
    graph.require(known, text_of_assert(message, site))


def while_(
    test: _Thunk,
    body: _Thunk,
    get: _Get,
    put: _Put,
    names: Sequence[str],
    site: Site,
    *,
    needed: Sequence[str],
    read: Sequence[str] = (),
    seen: Callable[[], dict[str, Any]] = dict,
) -> None:
    """``while test(): body()``."""
    known = decide(test())
    while known is True:
        body()
        known = decide(test())
    if known is False:
        return

    def step(_: Any) -> None:
        body()

    loop = Loop(site, names, get, put, needed, read, list(seen().items()))
    try:
        loop.run(None, known, step, test, test)
    except Exception as error:
        if not needs_rewriting(error):
            raise
        # A step needs to know its number (to take one of several layers, say).
        _unrolled(known, test, body, (get, put, names, site, list(seen().items())), _MOST_STEPS, error)


# So many steps of a loop are traced one by one, where a step needs to know its number.
_MOST_STEPS = 100


def _unrolled(pred: Tensor, test: _Thunk, body: _Thunk, state: Any, left: int, error: Exception | None) -> None:
    """A loop as branches in one another; ``error`` is why it cannot be traced as a loop."""
    get, put, names, site, roots = state
    if left == 0 and error is not None:
        raise error

    def then() -> None:
        body()
        more = decide(test())
        while more is True:
            body()
            more = decide(test())
        if isinstance(more, Tensor):
            _unrolled(more, test, body, state, left - 1, error)

    branch(pred, (then, lambda: None), get, put, names, site, names, roots)


def for_(
    iterable: Any,
    body: Callable[[Any], Any],
    go_on: _Thunk | None,
    get: _Get,
    put: _Put,
    names: Sequence[str],
    site: Site,
    *,
    needed: Sequence[str],
    read: Sequence[str] = (),
    seen: Callable[[], dict[str, Any]] = dict,
) -> None:
    """``for item in iterable: body(item)``, as long as ``go_on()`` holds."""
    iterator = isinstance(iterable, Once) and go_on is not None
    steps = sequence_of(iterable)
    if steps is not None and iterator:
        raise NotImplementedError("a loop with break, over an iterator whose length depends on data")
    if steps is not None:
        roots = [*seen().items(), ("the sequence", iterable)]
        loop = Loop(site, names, get, put, needed, read, roots)
        try:
            loop.run(steps.count, None, lambda n: body(steps.at(n)), go_on)
            return
        except Exception as error:
            most = graph.bounds([steps.count])[1]
            if not needs_rewriting(error) or most is None or most > _MOST_STEPS:
                raise
        # A step needs to know its number, and there are not many.
        going: list[bool | Tensor] = [True]

        def test() -> Any:
            return and_(steps.count > len(going) - 1, lambda: going[-1], site=site)

        def next_step() -> None:
            body(steps.at(len(going) - 1))
            going.append(True if go_on is None else decide(go_on()))

        state = get, put, names, site, roots
        first = decide(test())
        if first is not False:
            _unrolled(first if isinstance(first, Tensor) else torch.full((), True), test, next_step, state, most, None)
        return
    more: bool | Tensor = True
    for position, item in enumerate(iterable):
        if isinstance(more, Tensor) and isinstance(iterable, range) and len(iterable) - position >= FEWEST_STEPS:
            # A loop that data may leave, if its steps need not know their numbers; else they are traced one by one.
            rest = iterable[position:]
            at = functools.partial(_element, rest)
            loop = Loop(site, names, get, put, needed, read, list(seen().items()))
            try:
                with only_if_alike():
                    loop.run(len(rest), more, lambda n: body(at(n)), go_on)  # noqa: B023
                return
            except Exception:
                if loop.begun:
                    raise
                iterable = list(iterable)
        if isinstance(item, Maybe):
            pred = torch.logical_and(item.pred, more) if isinstance(more, Tensor) else item.pred
            roots = [*seen().items(), ("the element", item.element)]
            branch(pred, (functools.partial(body, item.element), lambda: None), get, put, names, site, names, roots)
        elif isinstance(item, Steps):
            run = functools.partial(
                for_, item.sequence(), body, go_on, get, put, names, site, needed=names, read=read, seen=seen
            )
            if isinstance(more, Tensor):
                branch(more, (run, lambda: None), get, put, names, site, names, list(seen().items()))
            else:
                run()
        elif isinstance(more, bool):
            body(item)
        else:
            # A break on data: what follows it runs in branches.
            roots = [*seen().items(), ("the element", item)]
            branch(more, (functools.partial(body, item), lambda: None), get, put, names, site, names, roots)
        if go_on is not None:
            more = decide(go_on())
            if more is False:
                return
            if iterator and isinstance(more, Tensor):
                raise NotImplementedError("a loop over an iterator, with a break that depends on data")


def _element(steps: range, number: Any) -> Any:
    return steps.start + number * steps.step
