"""What variables are needed where."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from .names import Names, names_of
from .structure import Block, Follow, If, Item, Loop, Try, With


@dataclass
class Flow:
    """What a block does with variables: those that it reads before setting them, and those that it surely sets."""

    first_read: set[str]
    killed: set[str]
    names: Names

    def before(self, after: set[str]) -> set[str]:
        """What is needed before it, if ``after`` is needed behind it."""
        return self.first_read | (after - self.killed)


def flow_of(block: Block, known: dict[int, Flow]) -> Flow:
    """The flow of a block; those of all items and rests inside are noted in ``known``, by their ids."""
    whole = Flow(set(), set(), Names())
    for item in block:
        flow = known.get(id(item)) or _item_flow(item, known)
        known[id(item)] = flow
        whole.first_read |= flow.first_read - whole.killed
        whole.killed |= flow.killed
        whole.names |= flow.names
    return whole


def _item_flow(item: Item, known: dict[int, Flow]) -> Flow:
    if isinstance(item, Follow):
        return known[id(item.rest)]
    if isinstance(item, If):
        for rest in item.rests:
            known[id(rest)] = flow_of(rest.body, known)
        test, then, orelse = names_of(item.test), flow_of(item.then, known), flow_of(item.orelse, known)
        names = joined([test, then.names, orelse.names, *(known[id(r)].names for r in item.rests)])
        first = test.read | ((then.first_read | orelse.first_read) - test.killed)
        return Flow(first, test.killed | (then.killed & orelse.killed), names)
    if isinstance(item, Loop):
        body = flow_of(item.body, known)
        if isinstance(item.node, ast.While):
            test = names_of(item.node.test)
            if item.stop:
                test.read.add(item.stop)
            killed = set() if item.stop else test.killed
            return Flow(test.read | (body.first_read - test.killed), killed, joined([test, body.names]))
        over = names_of(item.node.iter)
        body.first_read.discard(item.item)
        body.names.read.discard(item.item)
        if item.stop:
            body.names.read.add(item.stop)
        return Flow(over.read | (body.first_read - over.killed), over.killed, joined([over, body.names]))
    if isinstance(item, With):
        head, body = names_of(item.node.items), flow_of(item.body, known)
        return Flow(head.read | (body.first_read - head.killed), set(), joined([head, body.names]))
    if isinstance(item, Try):
        parts = [flow_of(b, known) for b in (item.body, *item.handlers, item.orelse, item.final)]
        names = joined(p.names for p in parts)
        for handler in item.node.handlers:
            names |= names_of(ast.ExceptHandler(handler.type, handler.name, []))
        first_read = set[str]().union(*(p.first_read for p in parts))
        return Flow(first_read | names.read, parts[-1].killed, names)
    names = names_of(item.node)
    return Flow(set(names.read), set(names.killed), names)


def joined(parts: Iterable[Names]) -> Names:
    """What several pieces of code do."""
    whole = Names()
    for part in parts:
        whole |= part
    return whole
