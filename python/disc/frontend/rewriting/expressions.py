"""Expressions over operators, and the functions that some of them need beside them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .names import COMPREHENSIONS, Scope, names_of
from .source import NotRewritable

OPERATORS, OWN = "_disc_", "_disc_own_"
# What these give depends on the function that calls them, if they are given fewer arguments.
_FRAMES = {"locals": 1, "vars": 1, "dir": 1, "eval": 2, "exec": 2}
# Functions that take all of their argument, and call nothing meanwhile that could tell.
_CONSUMERS = frozenset({"all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple"})


@dataclass
class Context:
    """What belongs to one function that is rewritten, with all functions in it."""

    file: str
    shadowed: frozenset[str]
    """Builtins that are something else in its module."""
    sites: list[int] = field(default_factory=list)
    """The lines of its constructs."""
    count: int = 0

    def number(self) -> int:
        """A new number."""
        self.count += 1
        return self.count


class Expressions(ast.NodeTransformer):
    """Rewrites the expressions of one statement. Functions that they need go to ``before``."""

    def __init__(self, context: Context, scope: Scope, function: Callable[[ast.FunctionDef, Scope], ast.FunctionDef]):
        """``function``: rewrites a function definition, given its scope."""
        self.context, self.scope, self._function = context, scope, function
        self.before: list[ast.stmt] = []

    def thunk(self, node: ast.expr) -> ast.expr:
        """A function without arguments that evaluates ``node``, which is not rewritten yet."""
        if not names_of(node).bound:
            return lambda_(self.visit(node))
        name = f"_disc_thunk_{self.context.number()}"
        inner = Expressions(self.context, self.scope, self._function)
        value = inner.visit(node)
        self._add(node, name, [], [*inner.before, ast.Return(value)])
        return load(name)

    def site(self, node: ast.expr | ast.stmt) -> ast.expr:
        """The site of a construct."""
        self.context.sites.append(node.lineno)
        sites = ast.Attribute(load(OWN), "sites", ast.Load())
        return ast.Subscript(sites, ast.Constant(len(self.context.sites) - 1), ast.Load())

    def _add(self, place: ast.expr, name: str, arguments: list[str], body: list[ast.stmt]) -> None:
        self.before.append(ast.copy_location(define(name, arguments, declared(body, self.scope)), place))

    # -- conditions -----------------------------------------------------------------------------------------

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Operands after the first one are thunks."""
        first, *others = node.values
        if any(names_of(value).bound for value in others):
            return self._with_statements(node)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        start = self.visit(first)
        keywords: dict[str, ast.expr] = {"site": self.site(node)}
        if getattr(node, _TRUTH, False):
            keywords["truth"] = ast.Constant(True)
        return operator(node, name, [start, *map(self.thunk, others)], keywords)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Both sides are thunks."""
        if names_of([node.body, node.orelse]).bound:
            return self._with_statements(node)
        test = self.visit(as_test(node.test))
        return operator(node, "if_exp", [test, self.thunk(node.body), self.thunk(node.orelse), self.site(node)])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """``not``."""
        if not isinstance(node.op, ast.Not):
            self.generic_visit(node)
            return node
        return operator(node, "not_", [self.visit(as_test(node.operand)), self.site(node)])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Chains are conjunctions; identity has its operators."""
        if len(node.ops) > 1:
            between = f"_disc_t_{self.context.number()}"
            kept = ast.NamedExpr(ast.Name(between, ast.Store()), node.comparators[0])
            both: list[ast.expr] = [
                ast.Compare(node.left, [node.ops[0]], [kept]),
                ast.Compare(load(between), node.ops[1:], node.comparators[1:]),
            ]
            for part in both:
                ast.fix_missing_locations(ast.copy_location(part, node))
            return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), both), node))
        left, right = self.visit(node.left), self.visit(node.comparators[0])
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return operator(node, "is_" if isinstance(node.ops[0], ast.Is) else "is_not", [left, right])
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            return operator(node, "eq_" if isinstance(node.ops[0], ast.Eq) else "ne_", [left, right, self.site(node)])
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            found = operator(node, "in_", [left, right, self.site(node)])
            return found if isinstance(node.ops[0], ast.In) else operator(node, "not_", [found, self.site(node)])
        node.left, node.comparators = left, [right]
        return node

    def _with_statements(self, node: ast.expr) -> ast.expr:
        """An expression whose operands set variables: a function of statements."""
        value = f"_disc_value_{self.context.number()}"

        def assign(x: ast.expr) -> ast.stmt:
            return ast.copy_location(ast.Assign([ast.Name(value, ast.Store())], x), x)

        if isinstance(node, ast.IfExp):
            body: list[ast.stmt] = [ast.If(node.test, [assign(node.body)], [assign(node.orelse)])]
        else:
            assert isinstance(node, ast.BoolOp)
            first, *others = node.values
            body = [assign(first)]
            inner = body
            for x in others:
                more = [assign(x)]
                both = isinstance(node.op, ast.And)
                choice = ast.If(load(value), *((more, []) if both else ([ast.Pass()], more)))
                inner.append(ast.copy_location(choice, x))
                inner = more
        body.append(ast.Return(load(value)))
        return self._call(node, f"_disc_expression_{self.context.number()}", body, [], [])

    def _call(
        self, node: ast.expr, name: str, body: list[ast.stmt], arguments: list[str], values: list[ast.expr]
    ) -> ast.expr:
        """A call of a new function with statements that are not rewritten yet; it has the place of ``node``."""
        walrus = {n for n in names_of(node).bound if not n.startswith("_disc_")}
        new = ast.fix_missing_locations(ast.copy_location(define(name, arguments, body), node))
        self.before.append(self._function(new, Scope.of_expression(new, self.scope, walrus)))
        return ast.copy_location(ast.Call(load(name), values, []), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """A list or a tuple may be repeated as often as is known at run time only."""
        self.generic_visit(node)
        sides = (node.left, node.right)
        if isinstance(node.op, ast.Mult) and any(isinstance(x, (ast.List, ast.Tuple)) for x in sides):
            return operator(node, "times", list(sides))
        return node

    # -- calls ------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """All calls but ``super()``."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not self._is_builtin(name):
            name = ""
        if name == "super":
            self.generic_visit(node)
            return node
        if len(node.args) < _FRAMES.get(name, 0):
            advice = "use the variables themselves"
            raise NotRewritable(
                f"{name}() depends on the function that calls it", self.context.file, node.lineno, advice
            )
        whole = _consumed(node) if name in _CONSUMERS else None
        if whole is not None and name in ("any", "all") and not node.keywords:
            return self._comprehension(whole, name)
        func = operator(node, "call", [self.visit(node.func), self.site(node)])
        args: list[ast.expr] = []
        for place, arg in enumerate(node.args):
            inner = arg.value if isinstance(arg, ast.Starred) else arg
            eager = isinstance(inner, ast.GeneratorExp) and (inner is whole or inner is not arg)
            value = self._comprehension(inner, "list") if eager else self.visit(inner)  # type: ignore[arg-type]
            if name == "getattr" and place == 1:
                value = self._name(value)
            args.append(ast.copy_location(ast.Starred(value, ast.Load()), arg) if inner is not arg else value)
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        node.func, node.args = func, args
        return node

    def _is_builtin(self, name: str) -> bool:
        return bool(name) and name not in self.context.shadowed and self.scope.is_builtin(name)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """What is read from may be a list of a length that depends on data; in such a list nothing is set."""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = operator(node.value, "sequence", [node.value, self.site(node)])
            node.slice = self._name(node.slice)
        else:
            node.value = operator(node.value, "plain", [node.value])
        return node

    def _name(self, node: ast.expr) -> ast.expr:
        """An f-string that is a key or the name of an attribute: there may be one for each number."""
        if not isinstance(node, ast.JoinedStr):
            return node
        values = [x for x in node.values if isinstance(x, ast.FormattedValue)]
        if not values or any(x.format_spec is not None or x.conversion != -1 for x in values):
            return node
        parts = [
            ast.Tuple([self.visit(x.value)], ast.Load()) if isinstance(x, ast.FormattedValue) else x
            for x in node.values
        ]
        return operator(node, "name", parts)

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        """In a list or a tuple, what is not known to Python one by one is one part."""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = operator(node.value, "starred", [node.value])
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """``x += y`` may extend a list."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Add) and not isinstance(node.value, ast.Constant):
            node.value = operator(node.value, "elements", [node.value])
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Several variables may get the elements of what has them at run time only."""
        self.generic_visit(node)
        target = node.targets[0]
        several = isinstance(target, (ast.Tuple, ast.List)) and not isinstance(node.value, (ast.Tuple, ast.List))
        if len(node.targets) == 1 and several:
            assert isinstance(target, (ast.Tuple, ast.List))
            stars = [n for n, x in enumerate(target.elts) if isinstance(x, ast.Starred)]
            before, after = (stars[0], len(target.elts) - stars[0] - 1) if stars else (len(target.elts), None)
            arguments = [node.value, ast.Constant(before), ast.Constant(after), self.site(node)]
            node.value = operator(node.value, "unpacked", arguments)
        return node

    # -- comprehensions and functions -----------------------------------------------------------------------------

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        """A function with a loop."""
        return self._comprehension(node, "list")

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        """A function with a loop."""
        return self._comprehension(node, "set")

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        """A function with a loop."""
        return self._comprehension(node, "dict")

    def _comprehension(self, node: Any, kind: str) -> ast.expr:
        """A function with loops that returns a list, set or dict, or its ``any`` or ``all``."""
        number = self.context.number()
        out, key = f"_disc_out_{number}", f"_disc_key_{number}"
        first: list[ast.stmt] = []
        last: ast.stmt = ast.Return(load(out))
        if kind in ("any", "all"):
            found: list[ast.stmt] = [ast.Return(ast.Constant(kind == "any"))]
            step: list[ast.stmt] = [ast.If(node.elt, *((found, []) if kind == "any" else ([ast.Pass()], found)))]
            last = ast.Return(ast.Constant(kind == "all"))
        else:
            empty = {"list": ast.List([], ast.Load()), "dict": ast.Dict([], [])}.get(kind)
            first = [store(out, empty or _own("set"))]
            if kind == "dict":
                target = ast.Subscript(load(out), load(key), ast.Store())
                step = [store(key, node.key), ast.Assign([target], node.value)]
            else:
                add = ast.Attribute(load(out), "append" if kind == "list" else "add", ast.Load())
                step = [ast.Expr(_Untouched(add, [node.elt], []))]
        for line in step:
            ast.copy_location(line, node.value if kind == "dict" else node.elt)
        iterable = f"_disc_iterable_{number}"
        for i, generator in reversed(list(enumerate(node.generators))):
            for test in reversed(generator.ifs):
                step = [ast.copy_location(ast.If(test, step, []), test)]
            over = generator.iter if i else load(iterable)
            step = [ast.copy_location(ast.For(generator.target, over, step, []), generator.target)]
        name = f"_disc_{kind}_{number}"
        outer = self.visit(copy.deepcopy(node.generators[0].iter))
        return self._call(node, name, [*first, *step, last], [iterable], [outer])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        """A generator: its ``for`` and ``if`` are Python's."""
        number = self.context.number()
        name, iterable = f"_disc_generator_{number}", f"_disc_iterable_{number}"
        outer = self.visit(node.generators[0].iter)
        walrus = {n for n in names_of(node).bound if not n.startswith("_disc_")}
        targets = [ast.Assign([g.target], ast.Constant(None)) for g in node.generators]
        shape = define(
            name, [iterable], [*targets, ast.Expr(node.elt), *(ast.Expr(t) for g in node.generators for t in g.ifs)]
        )
        scope = Scope.of_expression(shape, self.scope, walrus)

        def rewritten(x: ast.expr) -> tuple[list[ast.stmt], ast.expr]:
            inner = Expressions(self.context, scope, self._function)
            value = inner.visit(x)
            return inner.before, value

        before, value = rewritten(node.elt)
        step: list[ast.stmt] = [*before, ast.Expr(ast.Yield(value))]
        for i, generator in reversed(list(enumerate(node.generators))):
            for test in reversed(generator.ifs):
                before, value = rewritten(test)
                step = [*before, ast.If(value, step, [])]
            before, value = rewritten(generator.iter) if i else ([], load(iterable))
            step = [*before, ast.For(generator.target, value, step, [])]
        body = declared(step, scope, owner=True)
        self.before.append(ast.copy_location(define(name, [iterable], body), node))
        return ast.copy_location(ast.Call(load(name), [ast.Call(_own_name("iter"), [outer], [])], []), node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        """Its body; a function if that takes statements."""
        self.visit_arguments(node.args)
        scope = Scope.of(node, self.scope)
        inside = list(ast.walk(node.body))
        if any(isinstance(x, (ast.Yield, ast.YieldFrom, ast.Await)) for x in inside):
            return node
        if not any(isinstance(x, (ast.NamedExpr, *COMPREHENSIONS)) for x in inside):
            inner = Expressions(self.context, scope, self._function)
            node.body = inner.visit(node.body)
            assert not inner.before
            return node
        # A function that makes it, so that its defaults are evaluated where it stands.
        number = self.context.number()
        name, make = f"_disc_lambda_{number}", f"_disc_make_{number}"
        values: list[ast.expr] = []
        names: list[str] = []

        def moved(value: ast.expr | None) -> ast.expr | None:
            if value is None:
                return None
            values.append(value)
            names.append(f"_disc_default_{number}_{len(values)}")
            return load(names[-1])

        arguments = copy.copy(node.args)
        arguments.defaults = [x for x in map(moved, arguments.defaults) if x is not None]
        arguments.kw_defaults = [moved(x) for x in arguments.kw_defaults]
        new = define(name, [], [ast.Return(node.body)])
        new.args = arguments
        ast.fix_missing_locations(ast.copy_location(new, node))
        made = define(make, names, [self._function(new, scope), ast.Return(load(name))])
        self.before.append(ast.copy_location(made, node))
        return ast.copy_location(ast.Call(load(make), values, []), node)

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        """Defaults; annotations stay."""
        node.defaults = [self.visit(x) for x in node.defaults]
        node.kw_defaults = [x if x is None else self.visit(x) for x in node.kw_defaults]
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Left alone."""
        return node

    def visit__Untouched(self, node: _Untouched) -> ast.expr:
        """A plain call."""
        self.generic_visit(node)
        return ast.copy_location(ast.Call(node.func, node.args, []), node)


def _consumed(call: ast.Call) -> ast.GeneratorExp | None:
    """The generator expression that is all of a call's arguments."""
    plain = all(isinstance(k.value, (ast.Lambda, ast.Name, ast.Constant)) for k in call.keywords)
    only = call.args[0] if len(call.args) == 1 and plain else None
    return only if isinstance(only, ast.GeneratorExp) else None


class _Untouched(ast.Call):
    """A call that stays one."""


# -- making nodes -----------------------------------------------------------------------------------------------


def load(name: str) -> ast.Name:
    """A variable that is read."""
    return ast.Name(name, ast.Load())


def store(name: str, value: ast.expr) -> ast.Assign:
    """An assignment to a variable."""
    return ast.Assign([ast.Name(name, ast.Store())], value)


def arguments(names: list[str]) -> ast.arguments:
    """Plain parameters."""
    return ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])


def lambda_(body: ast.expr) -> ast.expr:
    """``lambda: body``."""
    return ast.Lambda(arguments([]), body)


def define(name: str, names: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """``def name(*names): body``."""
    made: Any = ast.FunctionDef
    return made(  # type: ignore[no-any-return]
        name=name, args=arguments(names), body=body or [ast.Pass()], decorator_list=[], returns=None, type_params=[]
    )


def _own_name(name: str) -> ast.expr:
    return ast.Attribute(load(OWN), name, ast.Load())


def _own(name: str, *args: ast.expr) -> ast.expr:
    return _Untouched(_own_name(name), list(args), [])


_TRUTH = "_disc_truth"


def as_test(node: ast.expr) -> ast.expr:
    """Notes of an expression that nobody asks for more than its truth."""
    if isinstance(node, ast.BoolOp):
        setattr(node, _TRUTH, True)
        for value in node.values:
            as_test(value)
    if isinstance(node, ast.IfExp):
        as_test(node.body)
        as_test(node.orelse)
    return node


def operator(place: ast.expr, name: str, args: list[ast.expr], keywords: dict[str, ast.expr] | None = None) -> ast.expr:
    """A call of an operator."""
    func = ast.Attribute(load(OPERATORS), name, ast.Load())
    return ast.copy_location(ast.Call(func, args, [ast.keyword(k, v) for k, v in (keywords or {}).items()]), place)


def declared(body: list[ast.stmt], scope: Scope, owner: bool = False) -> list[ast.stmt]:
    """``body`` as that of a function inside ``scope``, or of the ``owner`` of its variables, with declarations."""
    bound = names_of(body, functions=False).bound
    out = {
        ast.Global: [n for n in bound if n in scope.globals],
        ast.Nonlocal: [n for n in bound if n in scope.nonlocals or (n in scope.locals and not owner)],
    }
    return [*(kind(names) for kind, names in out.items() if names), *body]
