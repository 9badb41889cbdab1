"""Functions of Python rewritten so that each control construct is a call of an operator.

``rewrite(function, operators)`` gives a function that does the same, but whose conditions, loops and calls go through
``operators``: a module or object that the rewritten code reaches by the name ``_disc_``. An operator does what Python
does where its condition is a Python value; what it does elsewhere is its own affair. Before and after
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

What operators are given
------------------------
::

    if_(test, then, orelse, get, put, names, site, *, needed, read, seen)
    while_(test, body, get, put, names, site, *, needed, read, seen)
    for_(iterable, body, go_on, get, put, names, site, *, needed, read, seen)

``test`` of ``if_`` is a value (call ``bool`` on it, or trace); that of ``while_`` is a function, and holds the test of
break flags. ``then``, ``orelse`` and ``body`` are functions, always, that work on the variables of the function around
them (``nonlocal``) and return None. ``go_on`` of ``for_`` is None or a function to be called after each step: whether
there may be another one. It is not called before the first step.

- ``get()`` gives the *state*, a tuple with a value for each of ``names``; ``put(values)`` sets it. A variable without a
  value is ``_disc_.Undefined(name)`` in it, and putting an instance of ``_disc_.Undefined`` unbinds it: code never sees
  such an object, reading an unbound variable is Python's own NameError. Operators call neither where they do what
  Python does.
- ``names`` are the variables that a side (or the body, or the loop's test) sets, and that somebody reads: afterwards,
  or in a side before that side has set it. Paths such as ``"self.h"`` are attributes that are set; nothing is known
  about who reads them. Variables that are set inside and read nowhere else are not among the names.
- ``needed``: those of ``names`` that may be read after the construct. The others need no merging, but must be put back
  before the other side runs, or carried to the next step.
- ``read``: those of ``names`` that a side, a step or the loop's test may read before it sets them. A variable of a loop
  that is not among these needs no value before the first step: its last value is what counts, if there is a step.
- ``seen``: function without arguments that gives the variables which are only read inside, as a dict without the
  unbound ones: what may be changed in place there (lists, tensors, objects). Globals are among them, except builtins.
- Names that start with ``_disc_`` are made by the rewriting. ``_disc_returned`` is the value to be returned, unbound
  until there is one. ``_disc_stop_N``, ``_disc_left_N`` are flags: Python bools at first, never unbound.
  ``_disc_out_N`` is the list, set or dict of a comprehension, ``_disc_value_N`` the value of an expression.
  Where ``_disc_stop_N`` or ``_disc_left_N`` is false nothing reads ``_disc_returned`` unless it has been set since: a
  side that leaves it unbound may be given any value of the other side's kind. Nothing else may be assumed so.
- What a side changes otherwise (``x[i] = y``, attributes of objects that the side itself looks up, what functions that
  it calls change) shows in the objects alone that ``get`` and ``seen`` reach. Operators have to look.

A ``raise`` in a side is left there: ``then()`` raises.

::

    if_exp(test, then, orelse, site)      and_(first, *thunks, site=site)      or_(first, *thunks, site=site)
    not_(value, site)     is_(a, b)       is_not(a, b)                         assert_(test, message, site)
    call(f, site)         Undefined(name)                                      site(file, line, text)

Thunks are functions without arguments (``message`` of ``assert_`` is one, or None) that set no variables: where an
operand of ``and``, ``or`` or ``x if c else y`` has a ``:=`` in it, an ``if_`` stands for the whole. What thunks read is
in their closures. ``a < b < c`` is ``and_(a < (t := b), lambda: t < c)``. ``call(f, site)`` gives what is called in the
place of ``f`` with the arguments as they are in the source; anything that it does not know it gives back, also what
cannot be called. ``Undefined`` is a class. ``site`` is called while rewriting, once for each construct, so any value
that it gives is what operators get.

How statements become operators
-------------------------------
- ``return``, ``break`` and ``continue``: what follows an ``if`` that jumps on one side moves into the other side. Where
  both sides may go on it becomes a function that both call. No flags are needed for that; they are for what leaves a
  loop, a ``with`` or a ``try``: there the rest is under ``if_(flag, ...)``. So it is, too, where calls from both sides
  would lead to the same statements on more than eight paths, all of which a tracer would have to follow.
- ``for``/``while`` with ``else``: the else part is under ``if_(stop flag)`` if there is a ``break``, or simply follows.
- ``match``: a chain of ``if_``. Patterns of values (``case 3 | "a"``, ``case None``) are comparisons, so the subject
  may depend on data; other patterns are matched by Python, and guards are ``if_`` again.
- ``assert`` is ``assert_``. ``del``, ``global``, ``nonlocal``, ``with``, ``try`` and ``raise`` stay what they are, with
  their parts rewritten. ``return``, ``break`` and ``continue`` in a ``finally`` are not rewritten (NotRewritable).
- List, set and dict comprehensions become functions with loops; so do generator expressions that are all of the
  arguments of ``any``, ``all``, ``list``, ``tuple``, ``set``, ``sum``, ``min``, ``max``, ``sorted`` or ``dict``, or
  stand behind a ``*``. For all but ``any`` and ``all``, which stop where they do in Python, the elements are computed
  before the function is called. Other generator expressions stay lazy: generators whose ``for`` and ``if`` are
  Python's.
- Nested functions and lambdas are rewritten in place; nested generators, coroutines and classes stay as they are, and
  f-strings too. ``super()`` is ``super(__class__, self)``, as its caller may be a side.

The new function has the signature, defaults, globals and closure cells of the old one, its name, file and lines.
Decorators: what is rewritten is the function object that is given. The wrapper that a decorator made is rewritten
itself, and what it wraps when it is called through ``call``: nothing that a decorator does is lost. ``call`` sees
wrappers of libraries too (``torch.no_grad``'s lies in PyTorch): it should rewrite those whose ``__wrapped__`` is to be
rewritten. Only objects that are no functions and have a ``__wrapped__`` (``functools.lru_cache``) are replaced by it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

from .expressions import OPERATORS, OWN, Context, Expressions, declared, define, lambda_, load, operator
from .names import Names, Scope, level, names_of
from .source import NotRewritable, Source, find
from .structure import Block, Flow, Follow, If, Item, Loop, Structure, Try, With, flow_of

__all__ = ["NotRewritable", "is_rewritten", "rewrite", "rewritten_source"]

_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_ORIGINAL = "__disc_original__"
_SHOWN = {"_disc_lambda_": "<lambda>", "_disc_generator_": "<genexpr>"}


def rewrite(function: Callable[..., Any], operators: Any) -> Callable[..., Any]:
    """``function`` over ``operators``. Methods stay bound; what is rewritten already is given back as it is.

    Raises:
        NotRewritable: with file, line, reason and a suggestion.
    """
    if isinstance(function, types.MethodType):
        return types.MethodType(rewrite(function.__func__, operators), function.__self__)
    while not isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if not isinstance(function, types.FunctionType):
        raise NotRewritable(f"{function!r} is no function of Python", "unknown", 0, "write it in Python")
    if is_rewritten(function):
        return function
    code, lines, source = _rewritten_code(_Key(function))
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
    """Whether :func:`rewrite` made a function."""
    return _ORIGINAL in getattr(function, "__dict__", {})


def rewritten_source(function: types.FunctionType) -> str:
    """The source of a rewritten function, for reading."""
    source = find(function)
    return ast.unparse(ast.fix_missing_locations(_rewritten(source, function, _Key(function).shadowed)[0]))


class _Own:
    """What rewritten code uses beside the operators."""

    set, iter = set, iter

    def __init__(self, operators: Any, sites: list[Any]) -> None:
        self.sites = sites
        self._undefined = operators.Undefined

    def read(self, thunk: Callable[[], Any], name: str) -> Any:
        """The value of a variable or an attribute, which need not have one."""
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


class _Key:
    """Functions that have the same code in the same file are rewritten once."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        # What the rewriting replaces or refuses by its name.
        self.shadowed = frozenset(n for n in dir(builtins) if n in function.__globals__)
        self._key = (function.__code__, function.__code__.co_filename, self.shadowed)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._key == other._key


@functools.lru_cache(maxsize=1024)
def _rewritten_code(key: _Key) -> tuple[types.CodeType, list[int], Source]:
    function = key.function
    source = find(function)
    try:
        return *_compiled(source, function, key.shadowed), source
    except (SyntaxError, RecursionError) as error:
        line = function.__code__.co_firstlineno
        raise NotRewritable(f"it cannot be rewritten ({error})", source.file, line, "make it simpler") from error


def _compiled(
    source: Source, function: types.FunctionType, shadowed: frozenset[str]
) -> tuple[types.CodeType, list[int]]:
    node, context = _rewritten(source, function, shadowed)
    original = function.__code__
    # Its own name is that of a variable elsewhere.
    node.name = "_disc_function"
    names = ["_disc_factory", node.name]
    inside: list[ast.stmt] = [_locals([*original.co_freevars, OPERATORS, OWN]), node]
    if source.class_name:
        # For the names that it mangles.
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


def _named(code: types.CodeType, path: str, label: str, name: str) -> types.CodeType:
    """``code``, and the code in it, with the names that the source gives functions, for tracebacks."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            own = constant.co_name
            between = ".<locals>." if code.co_flags & inspect.CO_OPTIMIZED else "."
            shown = _SHOWN.get(own.rstrip("0123456789"), "" if own.startswith("_disc_") else own)
            inner = f"{label}{between}{shown}" if shown else label
            constant = _named(constant, f"{path}{between}{own}", inner, shown or name)
        elif isinstance(constant, str) and (constant == path or constant.startswith(f"{path}.<locals>.")):
            constant = label + constant[len(path) :]
        constants.append(constant)
    named: dict[str, Any] = {"co_qualname": label} if hasattr(code, "co_qualname") else {}
    return code.replace(co_consts=tuple(constants), co_name=name, **named)


# -- functions -----------------------------------------------------------------------------------------------------


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
    return _function(context, node, Scope.of(node, around)), context


def _function(context: Context, node: ast.FunctionDef, scope: Scope) -> ast.FunctionDef:
    """A function definition with its body rewritten."""
    _name_super(node, scope)
    body = list(node.body)
    head: list[ast.stmt] = []
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        head.append(body.pop(0))
    structure = Structure(context.file, context.number)
    block = structure.function(body) if body else []
    scope.locals |= structure.made
    new = _Emitter(context, scope, block).function()
    for kind, names in ((ast.Global, scope.globals), (ast.Nonlocal, scope.nonlocals)):
        if names:
            head.append(kind(sorted(names)))
    if unset := sorted(scope.locals - scope.parameters):
        head.append(_locals(unset))
    node.body = [*head, *new] or [ast.Pass()]
    return node


def _name_super(node: ast.FunctionDef, scope: Scope) -> None:
    """Makes ``super()`` say what it means."""
    first = [*node.args.posonlyargs, *node.args.args][:1]
    if not first or "super" in scope.locals:
        return
    for call in level(node.body):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "super" and not call.args:
            call.args = [ast.copy_location(load(name), call) for name in ("__class__", first[0].arg)]


def _locals(names: Iterable[str]) -> ast.stmt:
    """Makes names local without setting them."""
    return ast.If(ast.Constant(False), [ast.Assign([ast.Name(n, ast.Store()) for n in names], ast.Constant(None))], [])


class _Emitter:
    """Makes statements over operators of the blocks of one function."""

    def __init__(self, context: Context, scope: Scope, block: Block) -> None:
        self._context, self._scope, self._whole = context, scope, block
        self._flows: dict[int, Flow] = {}
        flow_of(block, self._flows)
        names = scope.names
        self._by_functions = names.set_by_functions & (scope.locals | scope.nonlocals)
        self._always = names.captured | names.set_by_functions | scope.outer
        """Variables that others may read at any time."""

    def function(self) -> list[ast.stmt]:
        """The body of the function."""
        return self._block(self._whole, set(), set())

    def _block(self, block: Block, after: set[str], extra: set[str]) -> list[ast.stmt]:
        """``after``: the variables that are needed behind it, ``extra``: anywhere in it."""
        needed = after | extra
        behind: list[set[str]] = []
        for item in reversed(block):
            behind.append(needed)
            needed = self._flows[id(item)].before(needed) | extra
        out: list[ast.stmt] = []
        for item, needed in zip(block, reversed(behind), strict=True):
            expressions = Expressions(self._context, self._scope, functools.partial(_function, self._context))
            made = self._item(item, expressions, needed, extra)
            for stmt in made:
                ast.copy_location(stmt, item.node)
            out += expressions.before + made
        return out

    def _item(self, item: Item, expressions: Expressions, after: set[str], extra: set[str]) -> list[ast.stmt]:
        if isinstance(item, If):
            return self._if(item, expressions, after, extra)
        if isinstance(item, Loop):
            return self._loop(item, expressions, after, extra)
        if isinstance(item, Follow):
            return [ast.Expr(ast.Call(load(item.rest.name), [], []))]
        node = item.node
        if isinstance(item, With):
            made: Any = type(item.node)
            items = [expressions.visit(x) for x in item.node.items]
            return [made(items, self._block(item.body, after, extra | after) or [ast.Pass()])]
        if isinstance(item, Try):
            return self._try(item, expressions, after, extra)
        if isinstance(node, ast.Assert):
            if not __debug__:
                return []
            test = expressions.visit(node.test)
            message = ast.Constant(None) if node.msg is None else expressions.thunk(node.msg)
            return [ast.Expr(operator(node.test, "assert_", [test, message, expressions.site(node)]))]
        if isinstance(node, ast.AnnAssign):
            # A variable of the function around cannot have an annotation; that of a local one is not evaluated.
            node = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        if isinstance(node, ast.FunctionDef):
            return [self._nested(node, expressions)]
        if not isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef, ast.Match)):
            node = expressions.visit(node)
        return [node]

    def _nested(self, node: ast.FunctionDef, expressions: Expressions) -> ast.FunctionDef:
        node.decorator_list = [expressions.visit(x) for x in node.decorator_list]
        expressions.visit_arguments(node.args)
        if any(isinstance(x, (ast.Yield, ast.YieldFrom)) for x in level(node.body)):
            return node
        return _function(self._context, node, Scope.of(node, self._scope))

    def _try(self, item: Try, expressions: Expressions, after: set[str], extra: set[str]) -> list[ast.stmt]:
        later = [flow_of(b, self._flows).first_read for b in (*item.handlers, item.orelse, item.final)]
        inside = extra.union(after, *later)
        body, orelse, final, *bodies = (
            self._block(b, after, inside) for b in (item.body, item.orelse, item.final, *item.handlers)
        )
        handlers = [
            ast.copy_location(ast.ExceptHandler(h.type and expressions.visit(h.type), h.name, inner or [ast.Pass()]), h)
            for h, inner in zip(item.node.handlers, bodies, strict=True)
        ]
        made: Any = type(item.node)
        if not handlers and not final:
            final = [ast.Pass()]
        return [made(body or [ast.Pass()], handlers, orelse, final)]

    def _if(self, item: If, expressions: Expressions, after: set[str], extra: set[str]) -> list[ast.stmt]:
        number = self._context.number()
        then, orelse = f"_disc_then_{number}", f"_disc_else_{number}"
        flows = [flow_of(b, self._flows) for b in (item.then, item.orelse)]
        names = _joined([*flows, *(self._flows[id(rest)] for rest in item.rests)])
        first = flows[0].first_read | flows[1].first_read
        test = expressions.visit(item.test)
        blocks = {then: item.then, orelse: item.orelse}
        defs = [self._side(rest.name, [], rest.body, after, extra) for rest in item.rests]
        defs += [self._side(name, [], block, after, extra) for name, block in blocks.items()]
        arguments = [test, load(then), load(orelse)]
        return [*defs, *self._construct("if_", arguments, number, names, first, after, expressions.site(item.node))]

    def _loop(self, item: Loop, expressions: Expressions, after: set[str], extra: set[str]) -> list[ast.stmt]:
        number = self._context.number()
        body = f"_disc_body_{number}"
        flow = flow_of(item.body, self._flows)
        names, first = _joined([flow]), set(flow.first_read)
        stop = {item.stop} if item.stop else set()
        site = expressions.site(item.node)
        if isinstance(item.node, ast.For):
            over = expressions.visit(item.node.iter)
            first = (first | stop) - {item.item}
            names.read.discard(item.item)
            defs = [self._side(body, [item.item], item.body, first | after, extra)]
            going = (
                lambda_(operator(item.node.iter, "not_", [load(item.stop), site])) if item.stop else ast.Constant(None)
            )
            arguments, kind = [over, load(body), going], "for_"
        else:
            test, name = item.node.test, f"_disc_test_{number}"
            tested = names_of(test)
            names |= tested
            first = tested.read | (first - tested.killed) | stop
            inner = Expressions(self._context, self._scope, functools.partial(_function, self._context))
            if not item.stop:
                value = inner.visit(test)
            else:
                value = operator(test, "not_", [load(item.stop), site])
                if not (isinstance(test, ast.Constant) and test.value):
                    value = operator(test, "and_", [value, inner.thunk(test)], {"site": site})
            whole = [*inner.before, ast.copy_location(ast.Return(value), item.node.test)]
            defs = [
                define(name, [], declared(whole, self._scope)),
                self._side(body, [], item.body, first | after, extra),
            ]
            arguments, kind = [load(name), load(body)], "while_"
        return [*defs, *self._construct(kind, arguments, number, names, first, after, site)]

    def _side(self, name: str, arguments: list[str], block: Block, after: set[str], extra: set[str]) -> ast.stmt:
        return define(name, arguments, declared(self._block(block, after, extra), self._scope))

    def _construct(
        self,
        kind: str,
        arguments: list[ast.expr],
        number: int,
        names: Names,
        first: set[str],
        after: set[str],
        site: ast.expr,
    ) -> list[ast.stmt]:
        """The call of ``if_``, ``while_`` or ``for_``, and the functions that read and set its state."""
        bound = names.bound | dict.fromkeys(sorted(self._by_functions))
        state = [n for n in bound if n in after or n in first or n in self._always]
        paths = [p for p in names.paths if not any(q in bound or q in names.paths for q in _prefixes(p))]
        needed = [n for n in state if n in after or n in self._always] + paths
        read = [n for n in state if n in first or n in self._always] + paths
        seen = sorted(n for n in names.read | names.captured if n not in bound and not self._is_builtin(n))
        get, put, given = f"_disc_get_{number}", f"_disc_put_{number}", "_disc_state"
        values = [_own("read", lambda_(_expression(n)), ast.Constant(n)) for n in state + paths]
        setting: list[ast.stmt] = []
        for i, n in enumerate(state + paths):
            value = ast.Subscript(load(given), ast.Constant(i), ast.Load())
            if i < len(state):
                test = ast.Call(
                    load("isinstance"), [load(n), ast.Attribute(load(OPERATORS), "Undefined", ast.Load())], []
                )
                setting.append(ast.Assign([ast.Name(n, ast.Store())], value))
                setting.append(ast.If(test, [ast.Delete([ast.Name(n, ast.Del())])], []))
            else:
                holder, attribute = n.rsplit(".", 1)
                setting.append(ast.Expr(_own("store", _expression(holder), ast.Constant(attribute), value)))
        known = ast.Dict([ast.Constant(n) for n in seen], [lambda_(load(n)) for n in seen])
        keywords = {
            "needed": _strings(needed),
            "read": _strings(read),
            "seen": lambda_(_own("known", known)),
        }
        arguments = [*arguments, load(get), load(put), _strings(state + paths), site]
        return [
            define(get, [], [ast.Return(ast.Tuple(values, ast.Load()))]),
            define(put, [given], declared(setting, self._scope)),
            ast.Expr(operator(site, kind, arguments, keywords)),
        ]

    def _is_builtin(self, name: str) -> bool:
        return name not in self._context.shadowed and self._scope.is_builtin(name)


def _joined(flows: Iterable[Flow]) -> Names:
    whole = Names()
    for flow in flows:
        whole |= flow.names
    return whole


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _expression(path: str) -> ast.expr:
    """The expression that a path stands for."""
    holder, _, attribute = path.rpartition(".")
    return ast.Attribute(_expression(holder), attribute, ast.Load()) if holder else load(path)


def _strings(values: Iterable[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(v) for v in values], ast.Load())


def _own(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(load(OWN), name, ast.Load()), list(args), [])
