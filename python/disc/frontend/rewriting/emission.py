"""Functions over operators, from blocks of items."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterable
from typing import Any

from .expressions import OPERATORS, OWN, Context, Expressions, as_test, declared, define, lambda_, load, operator
from .flow import Flow, flow_of, joined
from .names import Names, Scope, level, names_of
from .structure import Block, Follow, If, Item, Loop, Structure, Try, With


def rewritten_definition(context: Context, node: ast.FunctionDef, scope: Scope) -> ast.FunctionDef:
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
        head.append(local_names(unset))
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


def local_names(names: Iterable[str]) -> ast.stmt:
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
            expressions = Expressions(
                self._context, self._scope, functools.partial(rewritten_definition, self._context)
            )
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
            test = expressions.visit(as_test(node.test))
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
        return rewritten_definition(self._context, node, Scope.of(node, self._scope))

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
        if handlers:
            kinds = [ast.Name("BaseException", ast.Load()) if h.type is None else h.type for h in item.node.handlers]
            types = lambda_(ast.Tuple([expressions.visit(copy.deepcopy(kind)) for kind in kinds], ast.Load()))
            body = [ast.With([ast.withitem(_own("caught", types))], body or [ast.Pass()])]
        made: Any = type(item.node)
        if not handlers and not final:
            final = [ast.Pass()]
        return [made(body or [ast.Pass()], handlers, orelse, final)]

    def _if(self, item: If, expressions: Expressions, after: set[str], extra: set[str]) -> list[ast.stmt]:
        number = self._context.number()
        then, orelse = f"_disc_then_{number}", f"_disc_else_{number}"
        flows = [flow_of(b, self._flows) for b in (item.then, item.orelse)]
        names = joined(flow.names for flow in (*flows, *(self._flows[id(rest)] for rest in item.rests)))
        first = flows[0].first_read | flows[1].first_read
        test = expressions.visit(as_test(item.test))
        blocks = {then: item.then, orelse: item.orelse}
        defs = [self._side(rest.name, [], rest.body, after, extra) for rest in item.rests]
        defs += [self._side(name, [], block, after, extra) for name, block in blocks.items()]
        arguments = [test, load(then), load(orelse)]
        return [*defs, *self._construct("if_", arguments, number, names, first, after, expressions.site(item.node))]

    def _loop(self, item: Loop, expressions: Expressions, after: set[str], extra: set[str]) -> list[ast.stmt]:
        number = self._context.number()
        body = f"_disc_body_{number}"
        flow = flow_of(item.body, self._flows)
        names, first = joined([flow.names]), set(flow.first_read)
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
            test, name = as_test(item.node.test), f"_disc_test_{number}"
            tested = names_of(test)
            names |= tested
            first = tested.read | (first - tested.killed) | stop
            inner = Expressions(self._context, self._scope, functools.partial(rewritten_definition, self._context))
            if not item.stop:
                value = inner.visit(test)
            else:
                value = operator(test, "not_", [load(item.stop), site])
                if not (isinstance(test, ast.Constant) and test.value):
                    value = operator(
                        test, "and_", [value, inner.thunk(test)], {"site": site, "truth": ast.Constant(True)}
                    )
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
