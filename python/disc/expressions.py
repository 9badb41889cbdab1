"""Extents as expressions over symbols, read from the text that the compiler prints.

The grammar is that of dialects/Shape/SymExprText.cpp::

    sum     ::= product (('+' | '-') product)*
    product ::= factor (('*' | 'floordiv' | 'ceildiv' | 'mod') factor)*
    factor  ::= integer | name | '-' factor | '(' sum ')' | ('min' | 'max') '(' sum (',' sum)+ ')'
    name    ::= identifier | '"' text '"' | '?' integer
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r'\s*(?:(\d+)|([A-Za-z_]\w*)|"((?:[^"\\]|\\.)*)"|(\?\d+)|([-+*(),]))', re.ASCII)
_DIVISIONS = ("floordiv", "ceildiv", "mod")
_WORDS = (*_DIVISIONS, "min", "max")


@dataclass(frozen=True)
class Expression:
    """A number, a symbol, or an operation on expressions."""

    kind: str
    """``"number"``, ``"symbol"``, or an operation: ``+``, ``-`` (of one or two), ``*``, ``floordiv``, ``ceildiv``,
    ``mod``, ``min``, ``max``."""
    value: int = 0
    name: str = ""
    """Of a symbol; ``"?0"`` and such are extents that are known only after a run."""
    operands: tuple[Expression, ...] = ()

    def symbols(self) -> list[str]:
        """The symbols in it, each once, in the order of their appearance."""
        if self.kind == "symbol":
            return [self.name]
        return list(dict.fromkeys(name for operand in self.operands for name in operand.symbols()))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value where symbols have these; KeyError for one without, ZeroDivisionError as in Python."""
        if self.kind == "number":
            return self.value
        if self.kind == "symbol":
            return values[self.name]
        return _OPERATIONS[self.kind](*(operand.evaluate(values) for operand in self.operands))


_OPERATIONS: Mapping[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b=None: -a if b is None else a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def parse(text: str) -> Expression:
    """Reads an expression; ValueError if the text is none."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if not match:
                raise ValueError(f"{text!r} is not an expression: {text[at:].strip()[0]!r} is unexpected")
            number, word, quoted, opaque, sign = match.groups()
            if number is not None:
                self._tokens.append(("number", number))
            elif sign is not None or word in _WORDS:
                self._tokens.append(("sign", sign or word))
            else:
                name = word or opaque or _unescape(quoted)
                self._tokens.append(("name", name))
            at = match.end()

    def whole(self) -> Expression:
        result = self._sum()
        if self._tokens:
            self._fail()
        return result

    def _sum(self) -> Expression:
        result = self._product()
        while (sign := self._take("+", "-")) is not None:
            result = _make(sign, result, self._product())
        return result

    def _product(self) -> Expression:
        result = self._factor()
        while (sign := self._take("*", *_DIVISIONS)) is not None:
            result = _make(sign, result, self._factor())
        return result

    def _factor(self) -> Expression:
        if self._take("-"):
            return _make("-", self._factor())
        if self._take("("):
            result = self._sum()
            self._expect(")")
            return result
        if (word := self._take("min", "max")) is not None:
            self._expect("(")
            args = [self._sum()]
            while self._take(","):
                args.append(self._sum())
            self._expect(")")
            return _make(word, *args)
        if not self._tokens or self._tokens[0][0] == "sign":
            self._fail()
        kind, text = self._tokens.pop(0)
        return Expression("number", value=int(text)) if kind == "number" else Expression("symbol", name=text)

    def _take(self, *signs: str) -> str | None:
        if self._tokens and self._tokens[0][0] == "sign" and self._tokens[0][1] in signs:
            return self._tokens.pop(0)[1]
        return None

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            self._fail()

    def _fail(self) -> None:
        what = f"{self._tokens[0][1]!r} is unexpected" if self._tokens else "it ends too early"
        raise ValueError(f"{self._text!r} is not an expression: {what}")


def _make(kind: str, *operands: Expression) -> Expression:
    """The operation, or its value if it has no symbol."""
    result = Expression(kind, operands=operands)
    if all(operand.kind == "number" for operand in operands):
        try:
            return Expression("number", value=result.evaluate({}))
        except ZeroDivisionError:
            raise ValueError(f"an extent is divided by 0: {kind}") from None
    return result


def _unescape(text: str) -> str:
    r"""The text of a quoted name: ``\XX`` is a byte in hexadecimal, ``\\`` a backslash."""
    raw = re.sub(
        rb"\\([0-9A-Fa-f]{2}|\\)",
        lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]),
        text.encode(),
    )
    return raw.decode(errors="replace")
