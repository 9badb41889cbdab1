"""Which ways a program goes: its source is run with counters in every test, step and loop, in eager mode.

    edges = Edges(path)
    module = edges.module.make_model()        # the file's module, with counters
    edges.reset()
    module(...)
    edges.shares()                            # {"12: x > 0": (0.4, 0.6), ...}

A share is that of all evaluations of a test, operands of `and` and `or` on their own. What leaves a loop (an operand of
a `while`'s test, an `if` with `break` or `return`) is taken at most once each time the loop runs, so its share is that
of the loop's runs. A test whose result follows from the numbers of the steps of the loops around it is none of the
data's.
"""

from __future__ import annotations

import ast
import operator
import sys
import types
from collections import Counter, defaultdict
from pathlib import Path

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NOT_THE_MODEL = ("make_model", "inputs")
COMPARISONS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}


class Edges:
    """The counters, and the module whose source has them."""

    def __init__(self, path):
        self.sites: dict[int, Site] = {}
        tree = Instrument(self).visit(ast.parse(Path(path).read_text(encoding="utf-8")))
        self.module = types.ModuleType(f"{Path(path).stem}_with_counters")
        self.module.__file__ = str(path)
        self.module._edges_ = self
        sys.modules[self.module.__name__] = self.module
        self.reset()
        exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), self.module.__dict__)

    def reset(self):
        self.taken = defaultdict(Counter)  # by site: outcomes
        self.by_steps = defaultdict(lambda: defaultdict(set))  # by site and numbers of steps: outcomes
        self.runs = Counter()  # by loop
        self.now = {}  # by loop: the number of its step

    def enter(self, loop):
        self.runs[loop] += 1
        self.now[loop] = -1

    def step(self, loop):
        self.now[loop] += 1

    def take(self, site, value):
        value = bool(value)
        self.taken[site][value] += 1
        self.by_steps[site][tuple(self.now[loop] for loop in self.sites[site].loops)].add(value)
        return value

    def compare(self, left, which, right):
        if isinstance(left, float) and isinstance(right, float):
            Margins.note(abs(left - right) / max(1.0, abs(right)))
        return (operator.lt, operator.le, operator.gt, operator.ge)[which](left, right)

    def shares(self):
        """By test, the shares of false and true."""
        result = {}
        for number, site in self.sites.items():
            counts = self.taken[number]
            by_steps = self.by_steps[number].values()
            if site.leaves is not None:
                runs = max(1, self.runs[site.loops[-1]])
                left = counts[site.leaves] / runs
                shares = (left, 1 - left) if not site.leaves else (1 - left, left)
            else:
                evaluations = max(1, counts.total())
                shares = (counts[False] / evaluations, counts[True] / evaluations)
            decided = len(counts) == 2 and all(len(outcomes) == 1 for outcomes in by_steps)
            if not (decided and not site.condition):
                result[site.text] = shares
        return result


class Site:
    """A test of the source."""

    def __init__(self, text, loops, leaves, condition):
        self.text, self.loops = text, loops
        self.leaves = leaves  # the outcome that leaves the innermost loop, if one does
        self.condition = condition  # whether it is (part of) the test of a `while`


class Instrument(ast.NodeTransformer):
    """Puts the counters in."""

    def __init__(self, edges):
        self.edges = edges
        self.loops = []
        self.count = 0

    def call(self, name, *args):
        function = ast.Attribute(ast.Name("_edges_", ast.Load()), name, ast.Load())
        return ast.Call(function, [a if isinstance(a, ast.AST) else ast.Constant(a) for a in args], [])

    def test(self, node, leaves=None, condition=False):
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.BoolOp):
            # An operand that decides alone leaves as the whole does; the others go on to the next.
            decides = isinstance(node.op, ast.Or)
            last = len(node.values) - 1
            values = [
                self.test(v, leaves if leaves is not None and (leaves == decides or i == last) else None, condition)
                for i, v in enumerate(node.values)
            ]
            return ast.BoolOp(node.op, values)
        site = len(self.edges.sites)
        text = f"{node.lineno}: {ast.unparse(node)}"
        self.edges.sites[site] = Site(text, tuple(self.loops), leaves, condition)
        return ast.copy_location(self.call("take", site, self.visit(node)), node)

    def leaving(self, node):
        """The outcome of an `if`'s test with which the loop ends."""
        if not self.loops:
            return None
        for outcome, side in ((True, node.body), (False, node.orelse)):
            if side and isinstance(side[-1], (ast.Break, ast.Return)):
                return outcome
        return None

    def visit_FunctionDef(self, node):
        if node.name in NOT_THE_MODEL:
            return node
        loops, self.loops = self.loops, []
        self.generic_visit(node)
        self.loops = loops
        return node

    def visit_If(self, node):
        node.test = self.test(node.test, self.leaving(node))
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse)
        return node

    def visit_IfExp(self, node):
        return ast.copy_location(ast.IfExp(self.test(node.test), self.visit(node.body), self.visit(node.orelse)), node)

    def visit_While(self, node):
        return self.loop(node)

    def visit_For(self, node):
        node.iter = self.visit(node.iter)
        return self.loop(node)

    def loop(self, node):
        loop = self.count
        self.count += 1
        self.loops.append(loop)
        if isinstance(node, ast.While):
            # A test alone ends every run: what can vary is whether there is another step.
            ends = False if isinstance(node.test, ast.BoolOp) or self.breaks(node) else None
            node.test = self.test(node.test, ends, True)
        node.body = [ast.Expr(self.call("step", loop)), *self.block(node.body)]
        self.loops.pop()
        return [ast.Expr(self.call("enter", loop)), node]

    def breaks(self, loop):
        return any(isinstance(n, (ast.Break, ast.Return)) for s in loop.body for n in ast.walk(s))

    def block(self, statements):
        result = []
        for statement in statements:
            new = self.visit(statement)
            result += new if isinstance(new, list) else [new]
        return result

    def visit_Compare(self, node):
        self.generic_visit(node)
        if len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            which = list(COMPARISONS).index(type(node.ops[0]))
            return ast.copy_location(self.call("compare", node.left, which, node.comparators[0]), node)
        return node


class Margins(TorchDispatchMode):
    """The smallest margin of a decision on floating point values: comparisons, and the order of what is selected."""

    active: list[Margins] = []

    def __init__(self):
        super().__init__()
        self.least = float("inf")

    def __enter__(self):
        Margins.active.append(self)
        return super().__enter__()

    def __exit__(self, *exception):
        Margins.active.pop()
        return super().__exit__(*exception)

    @staticmethod
    def note(margin):
        for mode in Margins.active:
            mode.least = min(mode.least, float(margin))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if isinstance(args[0] if args else None, Tensor) and args[0].is_floating_point() and args[0].numel():
            x = args[0]
            if name in ("lt", "le", "gt", "ge"):
                self.note(((x - args[1]).abs() / x.abs().clamp(min=1.0)).min())
            elif name in ("argmax", "argmin", "max", "min", "topk", "sort"):
                self.order(x, args, name, function._overloadname)
        return function(*args, **(kwargs or {}))

    def order(self, x, args, name, overload):
        if name in ("max", "min") and overload != "dim":
            return
        along = args[2] if name == "topk" and len(args) > 2 else args[1] if name != "topk" and len(args) > 1 else -1
        x = x.flatten() if along is None else x.movedim(along, -1)
        first = x.shape[-1] if name == "sort" else (args[1] if name == "topk" else 1)
        ordered = x.sort(dim=-1, descending=name not in ("argmin", "min")).values[..., : first + 1]
        if ordered.shape[-1] > 1:
            self.note((ordered.diff(dim=-1).abs() / ordered[..., 1:].abs().clamp(min=1.0)).min())
