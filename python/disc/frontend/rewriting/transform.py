"""Python functions rewritten so that each control construct is a call of an operator.

``rewrite(function, operators)`` returns a function that does the same, but whose conditions, loops and calls go through
``operators``: a module or object that the rewritten code reaches by the name ``_disc_``. An operator does what Python
does if its condition is a Python value; otherwise the operator decides what to do. Before and after
(:func:`rewritten_source` shows it for any function; this is abridged)::

    def step(self, x, n):                def step(self, x, n):
        for i in range(n):                   _disc_stop_1 = False
            if x.sum() > 3:                  def _disc_body_1(_disc_item_1):
                return x * i                     nonlocal i
            x = x + 1                            i = _disc_item_1
        return x                                 def _disc_then_2():
                                                     nonlocal _disc_returned, _disc_stop_1
                                                     _disc_returned = x * i
                                                     _disc_stop_1 = True
                                                 def _disc_else_2():
                                                     nonlocal x
                                                     x = x + 1
                                                 def _disc_get_2(): return (_disc_returned, _disc_stop_1, x)
                                                 def _disc_put_2(state): nonlocal ...; ... = state
                                                 _disc_.if_(_disc_.call(x.sum, SITE)() > 3, _disc_then_2, _disc_else_2,
                                                     _disc_get_2, _disc_put_2, ("_disc_returned", "_disc_stop_1", "x"),
                                                     SITE, needed=("_disc_returned", "_disc_stop_1", "x"), read=("x",),
                                                     seen=lambda: {"i": i})
                                             _disc_.for_(_disc_.call(range, SITE)(n), _disc_body_1,
                                                 lambda: _disc_.not_(_disc_stop_1, SITE), get, put, names, SITE,
                                                 needed=..., read=..., seen=...)
                                             def _disc_then_3(): pass
                                             def _disc_else_3():
                                                 nonlocal _disc_returned
                                                 _disc_returned = x
                                             _disc_.if_(_disc_stop_1, _disc_then_3, _disc_else_3, ...)
                                             return _disc_returned

Arguments of operators
----------------------
::

    if_(test, then, orelse, get, put, names, site, *, needed, read, seen)
    while_(test, body, get, put, names, site, *, needed, read, seen)
    for_(iterable, body, go_on, get, put, names, site, *, needed, read, seen)

``test`` of ``if_`` is a value (call ``bool`` on it, or trace); that of ``while_`` is a function, and holds the test of
break flags. ``then``, ``orelse`` and ``body`` are always functions that work on the variables of the surrounding
function (``nonlocal``) and return None. ``go_on`` of ``for_`` is None or a function to be called after each step:
whether there may be another one. It is not called before the first step.

- ``get()`` returns the *state*, a tuple with a value for each of ``names``; ``put(values)`` sets it. A variable without
  a value is ``_disc_.Undefined(name)`` in it, and putting an instance of ``_disc_.Undefined`` unbinds it: code never
  sees such an object, and reading an unbound variable raises Python's own NameError. Operators call neither where they
  do what Python does.
- ``names`` are the variables that a side (or the body, or the loop's test) sets and that are read: afterwards, or in a
  side before that side has set them. Paths such as ``"self.h"`` are attributes that are set; where they are read is
  unknown. Variables that are set inside and read nowhere else are not among the names.
- ``needed``: those of ``names`` that may be read after the construct. The others need no merging, but must be put back
  before the other side runs, or carried to the next step.
- ``read``: those of ``names`` that a side, a step or the loop's test may read before it sets them. A variable of a loop
  that is not among these needs no value before the first step: only its last value matters, if there is a step.
- ``seen``: function without arguments that returns the variables which are only read inside, as a dict without the
  unbound ones: these may be changed in place there (lists, tensors, objects). Globals are among them, except builtins.
- Names that start with ``_disc_`` are made by the rewriting. ``_disc_returned`` is the value to be returned, unbound
  until there is one. ``_disc_stop_N``, ``_disc_left_N`` are flags: Python bools at first, never unbound.
  ``_disc_out_N`` is the list, set or dict of a comprehension, ``_disc_value_N`` the value of an expression.
  Where ``_disc_stop_N`` or ``_disc_left_N`` is false, nothing reads ``_disc_returned`` unless it has been set since: on
  a side that leaves it unbound, it may have any value of the other side's type. This does not apply to other names.
- Other changes of a side (``x[i] = y``, attributes of objects that the side itself looks up, changes by functions that
  it calls) can only be seen in the objects that ``get`` and ``seen`` reach. Operators must compare these.

A ``raise`` in a side is left there: ``then()`` raises.

::

    if_exp(test, then, orelse, site)      and_(first, *thunks, site=site)      or_(first, *thunks, site=site)
    not_(value, site)     is_(a, b)       is_not(a, b)                         assert_(test, message, site)
    call(f, site)         Undefined(name)                                      site(file, line, text)

Thunks are functions without arguments (``message`` of ``assert_`` is one, or None) that set no variables: where an
operand of ``and``, ``or`` or ``x if c else y`` contains a ``:=``, an ``if_`` replaces the whole. Thunks read variables
through their closures. ``a < b < c`` is ``and_(a < (t := b), lambda: t < c)``. ``call(f, site)`` returns the function
to call instead of ``f``, with the arguments as they are in the source; it returns unknown objects unchanged, even if
they cannot be called. ``Undefined`` is a class. ``site`` is called while rewriting, once for each construct; operators
receive the value that it returns.

How statements become operators
-------------------------------
- ``return``, ``break`` and ``continue``: the statements after an ``if`` that jumps on one side move into the other
  side. If both sides may continue, they become a function that both call. This needs no flags. Jumps out of a loop, a
  ``with`` or a ``try`` do: the rest is under ``if_(flag, ...)``. Flags are also used where calls from both sides would
  lead to the same statements on more than eight paths, which a tracer would have to follow.
- ``for``/``while`` with ``else``: the else part is under ``if_(stop flag)`` if there is a ``break``, or simply follows.
- ``match``: a chain of ``if_``. Patterns of values (``case 3 | "a"``, ``case None``) are comparisons, so the subject
  may depend on data; other patterns are matched by Python, and guards are ``if_`` again.
- ``assert`` is ``assert_``. ``del``, ``global``, ``nonlocal``, ``with``, ``try`` and ``raise`` remain, with their parts
  rewritten. ``return``, ``break`` and ``continue`` in a ``finally`` are not rewritten (NotRewritable).
- List, set and dict comprehensions become functions with loops; so do generator expressions that are the only
  argument of ``any``, ``all``, ``list``, ``tuple``, ``set``, ``sum``, ``min``, ``max``, ``sorted`` or ``dict``, or
  follow a ``*``. For all but ``any`` and ``all``, which stop where they do in Python, the elements are computed before
  the function is called. Other generator expressions remain lazy generators with Python's own ``for`` and ``if``.
- Nested functions and lambdas are rewritten in place; nested generators, coroutines, classes and f-strings are not
  rewritten. ``super()`` is ``super(__class__, self)``, as its caller may be a side.

The new function has the signature, defaults, globals and closure cells of the old one, its name, file and lines.
Decorators: the function object that is passed is rewritten, which is a decorator's wrapper; the wrapped function is
rewritten when it is called through ``call``. So a decorator keeps its effect. ``call`` also receives wrappers of
libraries (that of ``torch.no_grad`` is in PyTorch): it should rewrite those whose ``__wrapped__`` must be rewritten.
Only objects that are not functions and have a ``__wrapped__`` (``functools.lru_cache``) are replaced by it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from .emission import local_names, rewritten_definition
from .expressions import OPERATORS, OWN, Context, define
from .names import Names, Scope, level
from .sites import handlers
from .source import NotRewritable, Source, find

__all__ = ["NotRewritable", "is_rewritten", "rewrite", "rewritten_source"]

_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_ORIGINAL = "__disc_original__"
_TYPE_PARAMETERS = "<generic parameters of "
_SHOWN = {"_disc_lambda_": "<lambda>", "_disc_generator_": "<genexpr>"}


def rewrite(function: Callable[..., Any], operators: Any) -> Callable[..., Any]:
    """``function`` over ``operators``. Methods stay bound; functions that are already rewritten are returned unchanged.

    Raises:
        NotRewritable: with file, line, reason and a suggestion.
    """
    if isinstance(function, types.MethodType):
        return types.MethodType(rewrite(function.__func__, operators), function.__self__)
    while not isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if not isinstance(function, types.FunctionType):
        raise NotRewritable(f"{function!r} is not a Python function", "unknown", 0, "write it in Python")
    if is_rewritten(function):
        return function
    code, lines, source = _rewritten_code(function)
    own = _Own(operators, [operators.site(source.file, n, source.line(n)) for n in lines])
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {OPERATORS: types.CellType(operators), OWN: types.CellType(own)}
    closure = tuple(cells[name] for name in code.co_freevars)
    new = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(new, function)
    del new.__dict__["__wrapped__"]
    new.__dict__.update(function.__dict__)
    new.__kwdefaults__ = function.__kwdefaults__
    setattr(new, _ORIGINAL, function)
    return new


def is_rewritten(function: Any) -> bool:
    """Whether a function is the result of :func:`rewrite`."""
    return _ORIGINAL in getattr(function, "__dict__", {})


def rewritten_source(function: types.FunctionType) -> str:
    """The source of a rewritten function, for reading."""
    source = find(function)
    return ast.unparse(ast.fix_missing_locations(_rewritten(source, function, _shadowed(function))[0]))


class _Own:
    """Helpers of rewritten code besides the operators."""

    set, iter = set, iter

    def __init__(self, operators: Any, sites: list[Any]) -> None:
        self.sites = sites
        self._undefined = operators.Undefined

    @contextlib.contextmanager
    def caught(self, kinds: Callable[[], Any]) -> Iterator[None]:
        """While it is active, so are handlers of a ``try`` statement: ``kinds()`` are the errors that they catch."""
        handlers.append(kinds)
        try:
            yield
        finally:
            handlers.pop()

    def read(self, thunk: Callable[[], Any], name: str) -> Any:
        """The value of a variable or an attribute; an ``Undefined`` if it has none."""
        try:
            return thunk()
        except (NameError, AttributeError):
            return self._undefined(name)

    def known(self, thunks: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """The values of the variables that have one."""
        values = {name: self.read(thunk, name) for name, thunk in thunks.items()}
        return {name: value for name, value in values.items() if not isinstance(value, self._undefined)}

    def store(self, holder: Any, attribute: str, value: Any) -> None:
        """Sets an attribute, or deletes it."""
        if not isinstance(value, self._undefined):
            setattr(holder, attribute, value)
        elif hasattr(holder, attribute):
            delattr(holder, attribute)


# Functions that have the same code in the same file are rewritten once.
_known: dict[tuple[types.CodeType, str, frozenset[str]], tuple[types.CodeType, list[int], Source]] = {}


def _shadowed(function: types.FunctionType) -> frozenset[str]:
    """The builtins that a function's module redefines."""
    return frozenset(name for name in dir(builtins) if name in function.__globals__)


def _rewritten_code(function: types.FunctionType) -> tuple[types.CodeType, list[int], Source]:
    key = function.__code__, function.__code__.co_filename, _shadowed(function)
    if key not in _known:
        source = find(function)
        try:
            _known[key] = *_compiled(source, function, key[2]), source
        except (SyntaxError, RecursionError) as error:
            line = function.__code__.co_firstlineno
            reason, advice = f"the function cannot be rewritten ({error})", "split or simplify it"
            raise NotRewritable(reason, source.file, line, advice) from error
    return _known[key]


def _compiled(
    source: Source, function: types.FunctionType, shadowed: frozenset[str]
) -> tuple[types.CodeType, list[int]]:
    node, context = _rewritten(source, function, shadowed)
    original = function.__code__
    # Its own name may be that of a variable elsewhere.
    node.name = "_disc_function"
    names = ["_disc_factory", node.name]
    inside: list[ast.stmt] = [local_names([*original.co_freevars, OPERATORS, OWN]), node]
    if source.class_name:
        # A class around it mangles the names.
        around: Any = ast.parse(f"class {source.class_name}: pass").body[0]
        around.body = [inside.pop()]
        inside.append(around)
        names.insert(1, source.class_name)
        if source.class_name not in original.co_freevars:
            inside.insert(0, ast.Global([source.class_name]))
    factory = define("_disc_factory", [], inside)
    tree = ast.fix_missing_locations(ast.Module([ast.copy_location(factory, source.node)], []))
    flags = original.co_flags & _FLAGS
    code = compile(tree, source.file, "exec", flags=flags, dont_inherit=True)
    for name in names:
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    label = getattr(original, "co_qualname", function.__qualname__)
    path = ".".join([names[0], "<locals>", *names[1:]])
    return _named(code, path, label, original.co_name), context.sites


def _named(
    code: types.CodeType, path: str, label: str, name: str, around: tuple[str, str, str] | None = None
) -> types.CodeType:
    """``code``, and the code in it, with the names of functions in the source, for tracebacks.

    ``around``: the prefix of the qualified names of the code in it, if it is not its own name.
    """
    constants: list[Any] = []
    between = ".<locals>." if code.co_flags & inspect.CO_OPTIMIZED else "."
    around = around or (path, label, between)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            own = constant.co_name
            outer_path, outer, dot = around
            shown = _SHOWN.get(own.rstrip("0123456789"), "" if own.startswith("_disc_") else own)
            inner = f"{outer}{dot}{shown}" if shown else outer
            # Qualified names leave out the scope of type parameters.
            generic = around if own.startswith(_TYPE_PARAMETERS) else None
            constant = _named(constant, f"{outer_path}{dot}{own}", inner, shown or name, generic)
        elif isinstance(constant, str) and (constant == path or constant.startswith(f"{path}.<locals>.")):
            constant = label + constant[len(path) :]
        constants.append(constant)
    named: dict[str, Any] = {"co_qualname": label} if hasattr(code, "co_qualname") else {}
    return code.replace(co_consts=tuple(constants), co_name=name, **named)


def _rewritten(
    source: Source, function: types.FunctionType, shadowed: frozenset[str]
) -> tuple[ast.FunctionDef, Context]:
    node: Any = copy.deepcopy(source.node)
    context = Context(source.file, shadowed)
    if isinstance(node, ast.Lambda):
        body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
        node = ast.copy_location(define("_disc_lambda", [], body), node)
        node.args = copy.deepcopy(source.node.args)
    for argument in level([node.args]):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    # The new function gets those of the old one.
    node.decorator_list, node.returns, node.args.defaults, node.type_params = [], None, [], []
    node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    around = Scope(set(), set(function.__code__.co_freevars), set(), set(), None, Names())
    return rewritten_definition(context, node, Scope.of(node, around)), context
