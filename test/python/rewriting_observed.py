"""What functions do, and what they do when they are rewritten."""

from __future__ import annotations

import copy
import re

import plain_operators
from disc.frontend.rewriting.transform import rewrite, rewritten_source

LOG = []


class OutOfFuel(BaseException):
    pass


def t(x=None):
    LOG.append(x)
    if len(LOG) > 150:
        raise OutOfFuel
    return x


class Holder:
    def __init__(self):
        self.x, self.inner = 1, None

    def __repr__(self):
        return f"Holder({self.x}, {self.inner})"


class swallow:
    def __enter__(self):
        t("enter")
        return 5

    def __exit__(self, kind, value, trace):
        t("exit")
        return kind is not None and issubclass(kind, ValueError)


def observed(f, *args, **named):
    LOG.clear()
    try:
        result = "returns", f(*args, **named)
    except (Exception, OutOfFuel) as error:
        # What is unbound is a variable of the function around in a side.
        kind = NameError if isinstance(error, NameError) else type(error)
        # pytest adds to what a failing assertion of this file says.
        result = "raises", kind, () if kind in (NameError, AssertionError) else tuple(map(str, error.args))
    texts = (repr(x).replace("UnboundLocalError", "NameError") for x in (result, LOG, args))
    return [re.sub(r" at 0x\w+|(?<=NameError\()[^)]*", "", text) for text in texts]


def same(f, *cases):
    g = rewrite(f, plain_operators)
    for args in cases:
        expected = observed(f, *copy.deepcopy(args))
        assert observed(g, *copy.deepcopy(args)) == expected, rewritten_source(f)
    return g


NUMBERS = [(n,) for n in range(-2, 6)]
