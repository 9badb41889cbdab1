"""Operators of rewritten code that do what Python does, and check what they are told about variables."""

from __future__ import annotations

import dis
import functools
import types


class Undefined:
    def __init__(self, name):
        self.name = name


def site(file, line, text):
    return file, line, text


def call(f, site):
    assert isinstance(site, tuple)
    return f


def if_(test, then, orelse, get, put, names, site, *, needed, read, seen):
    with _Checked([then, orelse], get, put, names, needed, read, seen):
        done = then() if test else orelse()
        assert done is None


def while_(test, body, get, put, names, site, *, needed, read, seen):
    checked = _Checked([test, body], get, put, names, needed, read, seen)
    with checked:
        while checked.step(test):
            # The test has been the beginning of the step.
            body()
            checked.forget()


def for_(iterable, body, go_on, get, put, names, site, *, needed, read, seen):
    checked = _Checked([body], get, put, names, needed, read, seen)
    with checked:
        for item in iterable:
            checked.step(lambda item=item: body(item))
            checked.forget()
            if go_on is not None and not go_on():
                break


def if_exp(test, then, orelse, site):
    return then() if test else orelse()


def and_(first, *thunks, site, truth=False):
    for thunk in thunks:
        if not first:
            return first
        first = thunk()
    return first


def or_(first, *thunks, site, truth=False):
    for thunk in thunks:
        if first:
            return first
        first = thunk()
    return first


def not_(value, site):
    return not value


def is_(a, b):
    return a is b


def is_not(a, b):
    return a is not b


def assert_(test, message, site):
    if not test:
        raise AssertionError(*([] if message is None else [message()]))


class _Checked:
    """Takes from code the variables that it is said not to need."""

    def __init__(self, sides, get, put, names, needed, read, seen):
        self.get, self.put, self.names, self.needed = get, put, names, needed
        # What is deleted cannot be told from what has been taken away.
        self.read = set(read).union(*(_named(side.__code__, "DELETE_DEREF") for side in sides))
        assert set(needed) | set(read) == set(names) and len(set(names)) == len(names)
        assert not set(seen()) & set(names)
        assert not any(isinstance(value, Undefined) for value in seen().values())
        assert all(callable(side) for side in sides)
        self.cells = {}
        for side in sides:
            stored = _named(side.__code__, "STORE_DEREF")
            for name, cell in zip(side.__code__.co_freevars, side.__closure__ or ()):
                if name in stored and name not in names:
                    self.cells[name] = cell

    def forget(self):
        for cell in self.cells.values():
            cell.cell_contents = None
            del cell.cell_contents

    def _without(self, keep):
        values = dict(zip(self.names, self.get()))
        return values, tuple(v if n in keep or "." in n else Undefined(n) for n, v in values.items())

    def step(self, run):
        before, first = self._without(self.read)
        self.put(first)
        try:
            return run()
        finally:
            after = zip(self.names, self.get())
            self.put(tuple(before[n] if isinstance(v, Undefined) and n not in self.read else v for n, v in after))

    def __enter__(self):
        self.put(self.get())

    def __exit__(self, kind, *_):
        if kind is None:
            self.forget()
            self.put(self._without(self.needed)[1])


@functools.lru_cache(maxsize=4096)
def _named(code: types.CodeType, what: str) -> frozenset[str]:
    """The variables of the functions around it that a function and those in it set or delete."""
    if code.co_varnames[:1] == ("_disc_state",):
        return frozenset()
    found = {i.argval for i in dis.get_instructions(code) if i.opname == what and i.argval in code.co_freevars}
    inner = [_named(c, what) & set(code.co_freevars) for c in code.co_consts if isinstance(c, types.CodeType)]
    return frozenset(found.union(*inner))


def eq_(a, b, site):
    return a == b


def ne_(a, b, site):
    return a != b


def in_(a, b, site):
    return a in b


def sequence(value, site):
    return value


def plain(value):
    return value


def elements(value):
    return value


def starred(value):
    return value


def unpacked(value, before, after, site):
    return value
