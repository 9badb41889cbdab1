"""Draws a model: places of state, and statements that read, assign, exchange, change and extend them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

HEADER = """\
import collections
import dataclasses

import torch
from torch import nn

GLOBAL = torch.full((3,), 0.25)
COUNT = 0


class Plain:
    def __init__(self, t):
        self.t, self.n, self.items = t, 0, [t * 2, t * 3]


class Outer:
    def __init__(self, t):
        self.inner, self.table = Plain(t), {"k": [Plain(t + 1)]}


class Slots:
    __slots__ = ("n", "t")

    def __init__(self, t):
        self.t, self.n = t, 0


@dataclasses.dataclass
class Data:
    t: torch.Tensor
    n: int = 0


class Space:
    t = torch.full((3,), 0.75)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.full((3,), 0.5))
        self.t, self.n = torch.full((3,), 1.5), 0


def closed():
    held, count = torch.ones(3), 0

    def step(v):
        nonlocal held, count
        held = held * 0.5 + v
        return held

    def change(v):
        held.add_(v)
        return held * 2

    def number(v):
        nonlocal count
        count += 1
        return v * count

    return step, change, number


def remember(v, memory=[torch.zeros(3)]):
    memory[0] = memory[0] * 0.5 + v
    return memory[0]
"""

ATTRIBUTES = {
    "t0": "torch.ones(3)",
    "t1": "torch.zeros(3)",
    "c": "torch.tensor(0.5)",
    "grid": "torch.zeros(2, 3)",
    "items": "[torch.ones(3), torch.zeros(3)]",
    "table": '{"a": torch.ones(3), "b": torch.zeros(3)}',
    "pair": "(torch.ones(3), torch.zeros(3))",
    "default": "collections.defaultdict(lambda: torch.zeros(3), a=torch.ones(3))",
    "order": "collections.OrderedDict(a=torch.ones(3), b=torch.zeros(3))",
    "queue": "collections.deque([torch.ones(3), torch.zeros(3)], maxlen=2)",
    "held": "Plain(torch.ones(3))",
    "outer": "Outer(torch.ones(3))",
    "slots": "Slots(torch.ones(3))",
    "data": "Data(torch.ones(3))",
    "hidden": "[Inner()]",
    "numbers": '{"n": 0, "list": [1, 2]}',
    "n": "0",
    "seen": "None",
    "functions": "closed()",
}
"""Attributes that are neither buffers nor parameters; a model has those that its statements name."""
TENSORS = (
    "self.b0 self.b1 self.w self.sub.b self.sub.t self.t0 self.t1 self.items[0] self.items[1] self.table['a']"
    " self.table['b'] self.pair[0] self.default['a'] self.order['b'] self.queue[0] self.held.t self.held.items[1]"
    " self.outer.inner.t self.outer.table['k'][0].t self.slots.t self.data.t self.hidden[0].t self.hidden[0].b"
    " Model.shared Space.t GLOBAL self.grid[0] self.grid[1]"
).split()
NUMBERS = (
    "self.n self.sub.n self.held.n self.slots.n self.data.n self.numbers['n'] self.numbers['list'][0] Model.count COUNT"
).split()
VALUES = ("x.sum(0)", "x.mean(0)", "y.mean(0)", "x[0]", "torch.ones(3)", "{Q}", "{Q} * 0.5", "({P} + x.sum(0)) * 0.5")
CONDITIONS = ("x.sum() > 0", "{P}.sum() > 1", "x.shape[0] > 3", "y.mean() > {P}.mean()")
READS = ("y = y + {P}", "y = y * 0.5 + {P} * {Q}", "y = torch.where(y > {P}, y, {Q})", "y = y + {P}.mean() * self.c")
ASSIGNS = (
    "{P} = {V}",
    "{P} = {P} * 0.5 + {V}",
    "{P}, {Q} = {Q}, {P}",
    "{P} = {Q}",
    "{P} = {P}.clone()",
    "{P} = {P}.detach()",
    "{P} = {P}.to(x.dtype)",
    "{P} = {P}[:]",
    "old = {P}\n{P} = {P} + {V}\ny = y + old",
    "{P} = x.sum(0)\n{P}.add_(1)",
    "{P} = torch.zeros(3) if x.shape[0] > 3 else {P} + 1",
)
CHANGES = (
    "{P}.add_({V})",
    "{P}.mul_(0.5).add_({V})",
    "{P} += {V}",
    "{P} *= 0.5",
    "{P}[1:] = {V}[1:]",
    "{P}[0] = y.sum() * 0.1",
    "{P}.copy_({V})",
    "{P}[1:].mul_(0.5)",
    "torch.add({P}, {V}, out={P})",
    "torch._foreach_add_([{P}, {Q}], 0.5)",
    "part = {P}[:2]\npart.mul_(0.5)\ny = y + part.sum()",
    "{P}.data.mul_(0.5)",
    "{P}.zero_()",
    "{P}.index_fill_(0, torch.tensor([1]), 0.25)",
    "self.c += 0.25",
    "self.c.mul_(0.5).add_(y.mean() * 0.1)",
    "{P}.clamp_(-1, 1)",
    "y = y + {P}.add_({V})",
)
CONTAINERS = (
    "self.items = [t * 0.5 + {V} for t in self.items]",
    "self.items[0], self.items[1] = self.items[1], self.items[0]",
    "self.items.append(self.items.pop(0))",
    "self.items.append({V})",
    "self.items = [*self.items[1:], {V}]",
    "self.items[:] = [t + 1 for t in self.items]",
    "for t in self.items:\n    t.mul_(0.5)",
    "for i, t in enumerate(self.items):\n    self.items[i] = t * 0.5 + {V}",
    "self.table = {{k: t * 0.5 + {V} for k, t in self.table.items()}}",
    "self.table.update(a={V})",
    "self.table['new'] = {V}",
    "for t in self.table.values():\n    t.add_({V})",
    "self.pair = (self.pair[1], self.pair[0] * 0.5 + {V})",
    "self.default['z'] = self.default['z'] + {V}",
    "self.order.move_to_end('a')",
    "self.queue.append({V})",
    "self.queue.rotate(1)",
    "self.queue.popleft()\nself.queue.append({V})",
    "self.held = Plain({V})",
    "self.held.items.append({V})",
    "self.outer.inner = Plain(self.outer.inner.t * 0.5)",
    "self.outer.new = {V}",
    "self.data = dataclasses.replace(self.data, t=self.data.t * 0.5 + {V})",
    "self.hidden[0].t = self.hidden[0].t + {V}",
    "self.new = {V}",
    "self.seen = {V} if self.seen is None else self.seen + {V}\ny = y + self.seen",
    "self.seen = y.mean(0)",
    "y = y + self.functions[0]({V})",
    "y = y + self.functions[1]({V})",
    "y = y + remember({V})",
    "{P} = torch.cat([{P}, {V}])[-3:]",
    "{P} = torch.cat([{P}, {V}])\ny = y + {P}.sum()",
    "y = y + {P}.sum()\n{P} = {P}.double()",
    "setattr(self, 't0', self.t0 * 0.5 + {V})",
    "self.__dict__['t1'] = self.t1 + {V}",
    "del self.t1\nself.t1 = {V}",
)
COUNTS = (
    "{N} += 1",
    "{N} = x.shape[0]",
    "y = y * (1 + {N} * 0.1)",
    "{N} += 1\ny = y * {N}",
    "if {N} > 2:\n    y = y + 1",
    "{N} = {N} + x.shape[0]",
    "y = self.functions[2](y)",
    "{N} = 3\ny = y * {N}",
    "self.numbers['list'].append(3)\ny = y * len(self.numbers['list'])",
)
BLOCKS = (
    "if {C}:",
    "if {C}:",
    "for _ in range(2):",
    "for i in range(x.shape[0]):",
    "with torch.no_grad():",
)
RESULTS = ("y", "y", "y, {P}", "{P}, y", "{{'y': y, 'p': {P}[:2]}}", "y, [{P}, {Q}]", "y + {P}")
ALIASES = (
    "self.t1 = self.t0",
    "self.t0 = self.b0",
    "self.items[0] = self.t0",
    "self.t1 = self.grid[0]",
    "self.table['a'] = self.items[1]",
    "self.held.t = self.b1",
    "self.held.items = self.items",
    "self.sub.t = self.t0",
    "self.t0 = self.w",
    "self.t0 = torch.zeros(3, 2).t()[0]",
)


@dataclass(frozen=True)
class Model:
    """A model as the lines of its ``forward``, what it returns, and lines at the end of its constructor."""

    name: str
    statements: tuple[str, ...]
    result: str
    aliases: tuple[str, ...] = ()
    grad: bool = False

    @property
    def source(self) -> str:
        """The model as a module of Python."""
        text = "\n".join((*self.statements, *self.aliases, self.result))
        lines = [HEADER, "", "class Model(nn.Module):", "    shared = torch.full((3,), 1.25)", "    count = 0", ""]
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += ['        self.register_buffer("b0", torch.full((3,), 0.5))']
        lines += ['        self.register_buffer("b1", torch.full((3,), 2.0), persistent=False)']
        lines += ["        self.w = nn.Parameter(torch.full((3,), 0.1))", "        self.sub = Inner()"]
        used = [name for name in ATTRIBUTES if f"self.{name}" in text or f"'{name}'" in text]
        lines += [f"        self.{name} = {ATTRIBUTES[name]}" for name in used]
        lines += [f"        {alias}" for alias in self.aliases]
        lines += ["", "    @torch.no_grad()", "    def forward(self, x):"]
        names = [name for name in ("GLOBAL", "COUNT") if name in text]
        lines += [f"        global {', '.join(names)}"] if names else []
        lines += ["        y = x * 0.5"]
        lines += [f"        {line}" for statement in self.statements for line in statement.splitlines()]
        lines += [f"        return {self.result}", ""]
        return "\n".join(lines)

    def smaller(self) -> list[Model]:
        """Models with less in them."""
        found = []
        for n, statement in enumerate(self.statements):
            before, after = self.statements[:n], self.statements[n + 1 :]
            found.append(replace(self, statements=before + after))
            first, *inner = statement.splitlines()
            if first.endswith(":") and inner:
                found.append(replace(self, statements=(*before, *(line[4:] for line in inner), *after)))
                found += [
                    replace(self, statements=(*before, "\n".join([first, *inner[:k], *inner[k + 1 :]]), *after))
                    for k in range(len(inner))
                    if len(inner) > 1
                ]
            elif inner:
                found.append(replace(self, statements=(*before, first, *inner, *after)))
        found += [replace(self, aliases=self.aliases[:n] + self.aliases[n + 1 :]) for n in range(len(self.aliases))]
        if self.result != "y":
            found.append(replace(self, result="y"))
        return found


class _Draw:
    def __init__(self, key: str) -> None:
        self.rng = random.Random(key)
        # Few places, so that statements meet.
        self.tensors = self.rng.sample(TENSORS, self.rng.choice((1, 2, 3)))
        self.numbers = self.rng.sample(NUMBERS, 1) if self.rng.random() < 0.25 else []
        if self.rng.random() < 0.1:
            self.tensors = self.rng.sample(TENSORS, 6)

    def fill(self, template: str) -> str:
        """The template with places."""
        template = template.replace("{V}", self.rng.choice(VALUES)).replace("{C}", self.rng.choice(CONDITIONS))
        places = {"P": self.rng.choice(self.tensors), "Q": self.rng.choice(self.tensors)}
        return template.format(**places, N=self.rng.choice(self.numbers or ["self.n"]))

    def statement(self, depth: int = 0) -> str:
        """A statement, maybe with others inside."""
        kinds = [READS, ASSIGNS, CHANGES, CONTAINERS, COUNTS if self.numbers else READS, BLOCKS if depth < 2 else READS]
        (kind,) = self.rng.choices(kinds, (2, 4, 4, 2, 2 if self.numbers else 0, 2))
        text = self.fill(self.rng.choice(kind))
        if kind is BLOCKS:
            inner = [self.statement(depth + 1) for _ in range(self.rng.choice((1, 1, 2)))]
            if "in range(x.shape" in text:
                inner.append("y = y + x[i]")
            if text.startswith("if") and self.rng.random() < 0.4:
                other = self.statement(depth + 1)
                return "\n".join([text, *_indented(inner), "else:", *_indented([other])])
            return "\n".join([text, *_indented(inner)])
        return text


def _indented(statements: list[str]) -> list[str]:
    return [f"    {line}" for statement in statements for line in statement.splitlines()]


def generate(seed: int, number: int) -> Model:
    """The model of a number and a seed: always the same."""
    draw = _Draw(f"{seed} {number}")
    statements = tuple(draw.statement() for _ in range(draw.rng.choice((1, 2, 2, 3, 4))))
    aliases = tuple(draw.rng.sample(ALIASES, 1)) if draw.rng.random() < 0.15 else ()
    return Model(f"S{number}", statements, draw.fill(draw.rng.choice(RESULTS)), aliases)


def shrink(model: Model, fails: Callable[[Model], bool], most: int = 60) -> Model:
    """The smallest model found that fails, too."""
    changed = True
    while changed and most:
        changed = False
        for candidate in model.smaller():
            most -= 1
            if fails(candidate):
                model, changed = candidate, True
                break
            if not most:
                break
    return model
